"""Edits of a scene that lower its similarity to the original step by step."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from consilience.corpora.caption_lexicon import Noun
from consilience.corpora.caption_scene import Clause, Entity, Scene, SceneSampler, in_order, pick


def vary(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    """Return the scene with one random edit; the result is a scene that the grammar could have drawn.

    Args:
        scene: where to start.
        sampler: draws what is new.
        rng: source of the choices.
    """
    edit = pick(_EDITS, rng)
    return edit(scene, sampler, rng)


def _with_noun(entity: Entity, noun: Noun) -> Entity:
    """Put another noun under an entity's attributes, as far as they suit it."""
    kept = tuple(value for value in entity.attributes if value.slot in noun.slots)
    return replace(entity, noun=noun, attributes=kept, worn=entity.worn if noun.domain == "person" else None)


def _edit_entity(entity: Entity, sampler: SceneSampler, rng: Random) -> Entity:
    draw = rng.random()
    if draw < 0.45:  # another value of the same slot
        if not entity.attributes:
            return replace(entity, attributes=(sampler.attribute(entity.noun, rng),))
        old = pick(entity.attributes, rng)
        new = pick(sampler.lex.values[old.slot], rng)
        return replace(
            entity, attributes=in_order(tuple(new if value is old else value for value in entity.attributes))
        )
    if draw < 0.7 and entity.attributes:
        return replace(entity, attributes=entity.attributes[1:])
    if draw < 0.85:
        return replace(entity, count=1 if entity.count > 1 else 2)
    if entity.noun.domain == "person":
        return replace(entity, worn=None if entity.worn is not None else sampler.clothing(rng))
    return replace(entity, attributes=())


def _edit_agent(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    return replace(scene, main=replace(scene.main, agent=_edit_entity(scene.main.agent, sampler, rng)))


def _edit_object(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    main = scene.main
    if main.object is not None:
        return replace(scene, main=replace(main, object=_edit_entity(main.object, sampler, rng)))
    if main.landmark is not None:
        landmark = replace(_edit_entity(main.landmark, sampler, rng), count=main.landmark.count)
        return replace(scene, main=replace(main, landmark=landmark))
    return _edit_agent(scene, sampler, rng)


def _swap_agent(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    """Put a sibling, or another kind of agent that can do the same, in the agent's place."""
    main = scene.main
    category = main.agent.noun.category
    if main.action is not None and rng.random() < 0.6:
        category = pick(tuple(sorted(main.action.agents)), rng)
    agent = _with_noun(main.agent, pick(sampler.lex.by_category[category], rng))
    return replace(scene, main=replace(main, agent=agent))


def _swap_object(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    main = scene.main
    if main.object is None or main.action is None:
        return _swap_agent(scene, sampler, rng)
    category = main.object.noun.category
    if rng.random() < 0.5:
        category = pick(main.action.objects, rng)
    thing = _with_noun(main.object, pick(sampler.lex.by_category[category], rng))
    return replace(scene, main=replace(main, object=thing))


def _swap_action(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    """Let the agent do something else, to the same object where the field has another verb for it."""
    main = scene.main
    if main.action is None:
        return _swap_relation(scene, sampler, rng)
    table = sampler.lex.intransitive if main.object is None else sampler.lex.transitive
    field = (
        tuple(a for a in table[main.agent.noun.category] if a.field == main.action.field)
        if (main.agent.noun.category in table)
        else ()
    )
    if field and rng.random() < 0.65:
        return replace(scene, main=replace(main, action=pick(field, rng)))
    return replace(scene, main=_keep_place(sampler.act(main.agent, rng), main))


def _keep_place(clause: Clause, old: Clause) -> Clause:
    return replace(clause, relation=old.relation, landmark=old.landmark)


def _swap_relation(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    if scene.main.landmark is None:
        return _swap_place(scene, sampler, rng)
    relation, landmark = sampler.relation(scene.main, rng)
    if rng.random() < 0.5 and scene.main.landmark.noun.category in relation.landmarks:
        landmark = replace(scene.main.landmark, count=landmark.count)
    return replace(scene, main=replace(scene.main, relation=relation, landmark=landmark))


def _swap_place(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    if scene.place is None or scene.main.action is None or rng.random() < 0.7:
        return replace(scene, place=sampler.place(scene.main, rng))
    return replace(scene, place=None)


def _swap_time(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    if scene.time is None:
        return _swap_place(scene, sampler, rng)
    return replace(scene, time=pick(sampler.lex.times, rng) if rng.random() < 0.5 else None)


def _change_details(scene: Scene, sampler: SceneSampler, rng: Random) -> Scene:
    """Leave out the second clause or the manner, or change the second clause."""
    if scene.second is not None:
        return replace(scene, second=None if rng.random() < 0.5 else sampler.act(scene.second.agent, rng))
    if scene.main.manner is not None:
        return replace(scene, main=replace(scene.main, manner=None))
    return _swap_agent(scene, sampler, rng)


_EDITS = (
    _edit_agent,
    _edit_agent,
    _edit_object,
    _edit_object,
    _swap_agent,
    _swap_agent,
    _swap_object,
    _swap_object,
    _swap_action,
    _swap_action,
    _swap_relation,
    _swap_place,
    _swap_time,
    _change_details,
)
