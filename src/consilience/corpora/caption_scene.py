"""The caption grammar's semantics: scenes, how they are drawn, and how similar two of them are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from consilience.corpora import caption_words as words
from consilience.corpora.caption_lexicon import Action, Lexicon, Noun, Phrase, Value, lexicon

T = TypeVar("T")

# Assumed rates, set so that captions average about 11 words and look like the image captions people write.
_PERSON_RATE, _ANIMAL_RATE = 0.64, 0.24  # the rest are still lives
_COUNT_ONE_RATE = 0.84
_COUNTS = (2, 2, 2, 3, 3, 4, 5, 6, 6, 6)
_WORN_RATE = 0.16
_SECOND_RATE = 0.12
_LARGE = ("vehicle", "structure", "plant", "furniture")
MANY = 6  # a count that captions don't number


@dataclass(frozen=True, slots=True)
class Entity:
    """A participant: what it is, its attributes in the order of speech, how many, and what a person wears."""

    noun: Noun
    attributes: tuple[Value, ...] = ()
    count: int = 1
    worn: Entity | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """Who does what to whom, how, and beside what; without an action it is a still life."""

    agent: Entity
    action: Action | None = None
    object: Entity | None = None
    manner: Phrase | None = None
    relation: Phrase | None = None
    landmark: Entity | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a caption says, apart from its wording."""

    main: Clause
    second: Clause | None = None
    place: Phrase | None = None
    time: Phrase | None = None


def pick(options: tuple[T, ...], rng: Random) -> T:
    """Draw one option uniformly (``Random.choice`` without its overhead, and stable over Python versions)."""
    return options[int(rng.random() * len(options))]


def _index(lex: Lexicon, domain: str) -> tuple[str, ...]:
    return tuple(category for category in lex.by_category if category.startswith(domain))


class SceneSampler:
    """Draws scenes; holds only tables derived from the lexicon.

    Args:
        lex: the lexicon.
    """

    def __init__(self, lex: Lexicon) -> None:
        self.lex = lex
        self.people = _index(lex, "person/")
        self.animals = _index(lex, "animal/")
        still = ("vehicle/", "food/", "furniture/", "structure/", "plant/", "instrument/", "thing/", "tool/")
        self.still = tuple(category for domain in still for category in _index(lex, domain))
        self.worn = _index(lex, "clothing/")
        self._relations = {
            kind: tuple(relation for relation in lex.relations if relation.group in groups)
            for kind, groups in words.SUITABLE_RELATIONS.items()
        }
        self._animal_places = {
            category: tuple(words.ANIMAL_PLACES[category.partition("/")[2]].split()) for category in self.animals
        }
        self._field_places = {field: tuple(groups.split()) for field, groups in words.FIELD_PLACES.items()}
        self._shared_places = tuple(words.SHARED_PLACES.split())
        self._transitive = {category: _by_field(actions) for category, actions in lex.transitive.items()}
        self._intransitive = {category: _by_field(actions) for category, actions in lex.intransitive.items()}

    def scene(self, rng: Random) -> Scene:
        """Draw a scene."""
        draw = rng.random()
        if draw >= _PERSON_RATE + _ANIMAL_RATE:
            return self._still_life(rng)
        main = self.clause("person" if draw < _PERSON_RATE else "animal", rng)
        place = self.place(main, rng) if rng.random() < 0.6 else None
        if main.landmark is None and place is None and rng.random() < 0.5:
            relation, landmark = self.relation(main, rng)
            main = replace(main, relation=relation, landmark=landmark)
        second = None
        if rng.random() < _SECOND_RATE:
            second = self.clause("person" if rng.random() < 0.7 else "animal", rng)
            if place is not None and place.group not in self._place_groups(second):
                second = None
        time = pick(self.lex.times, rng) if rng.random() < 0.3 else None
        return Scene(main, second, place, time)

    def clause(self, domain: str, rng: Random) -> Clause:
        """Draw an agent of a domain and something it does."""
        category = pick(self.people if domain == "person" else self.animals, rng)
        agent = self.entity(pick(self.lex.by_category[category], rng), rng)
        return self.act(agent, rng)

    def act(self, agent: Entity, rng: Random) -> Clause:
        """Draw something that an agent does."""
        category = agent.noun.category
        wanted = self._transitive.get(category)
        if wanted is not None and rng.random() < 0.62:
            action = pick(pick(wanted, rng), rng)
            thing: Entity | None = self.object(action, rng)
        else:
            action, thing = pick(pick(self._intransitive[category], rng), rng), None
        manner = None
        if rng.random() < 0.14:
            manner = self.manner(agent, rng)
        return Clause(agent, action, thing, manner)

    def object(self, action: Action, rng: Random) -> Entity:
        """Draw something that an action can be done to."""
        return self.entity(pick(self.lex.by_category[pick(action.objects, rng)], rng), rng, attribute_rate=0.55)

    def entity(self, noun: Noun, rng: Random, *, attribute_rate: float = 0.5) -> Entity:
        """Draw a noun's attributes, count and, for people, clothing."""
        attributes: tuple[Value, ...] = ()
        if rng.random() < attribute_rate:
            attributes = (self.attribute(noun, rng),)
            if rng.random() < 0.2:
                attributes = in_order((*attributes, self.attribute(noun, rng)))
        attributes = tuple(value for value in attributes if _fits(noun, value))
        count = 1
        if rng.random() > _COUNT_ONE_RATE:
            count = pick(_COUNTS, rng)
        worn = None
        if noun.domain == "person" and rng.random() < _WORN_RATE:
            worn = self.clothing(rng)
        return Entity(noun, attributes, count, worn)

    def attribute(self, noun: Noun, rng: Random) -> Value:
        """Draw a value of one of the slots that a noun may carry."""
        return pick(self.lex.values[pick(noun.slots, rng)], rng)

    def clothing(self, rng: Random) -> Entity:
        """Draw something to wear."""
        noun = pick(self.lex.by_category[pick(self.worn, rng)], rng)
        attributes = (self.attribute(noun, rng),) if rng.random() < 0.75 else ()
        return Entity(noun, tuple(value for value in attributes if _fits(noun, value)))

    def relation(self, clause: Clause, rng: Random) -> tuple[Phrase, Entity]:
        """Draw a spatial relation that suits the clause, and its landmark."""
        kind = "acting"
        if clause.action is None:
            domain = clause.agent.noun.domain
            kind = "large" if domain in _LARGE else "small" if domain in ("food", "tool") else "placed"
        relation = pick(self._relations[kind], rng)
        noun = pick(self.lex.by_category[pick(relation.landmarks, rng)], rng)
        landmark = self.entity(noun, rng, attribute_rate=0.35)
        return relation, replace(landmark, count=MANY if relation.group == "between" else 1)

    def manner(self, agent: Entity, rng: Random) -> Phrase | None:
        """Draw a manner that suits the agent and its number."""
        drawn = pick(self.lex.manners, rng)
        if drawn.group == "together":
            return drawn if agent.count > 1 else None
        if drawn.group == "alone":
            return drawn if agent.count == 1 else None
        if agent.noun.domain == "animal" and drawn.group not in ("calm", "slow", "fast"):
            return None
        return drawn

    def place(self, clause: Clause, rng: Random) -> Phrase:
        """Draw a place where the clause may happen."""
        return pick(self.lex.places[pick(self._place_groups(clause), rng)], rng)

    def _place_groups(self, clause: Clause) -> tuple[str, ...]:
        if clause.agent.noun.domain == "animal":
            return self._animal_places[clause.agent.noun.category]
        return self._field_places.get(clause.action.field if clause.action else "", self._shared_places)

    def _still_life(self, rng: Random) -> Scene:
        noun = pick(self.lex.by_category[pick(self.still, rng)], rng)
        agent = self.entity(noun, rng, attribute_rate=0.85)
        large = noun.domain in _LARGE
        if large and rng.random() < 0.7:
            indoors = noun.domain == "furniture"
            group = pick(("home", "eating", "work") if indoors else ("street", "farm", "nature", "park"), rng)
            time = pick(self.lex.times, rng) if rng.random() < 0.4 else None
            return Scene(Clause(agent), None, pick(self.lex.places[group], rng), time)
        while True:
            relation, landmark = self.relation(Clause(agent), rng)
            if landmark.noun.category != noun.category:
                return Scene(Clause(agent, relation=relation, landmark=landmark))


def _by_field(actions: tuple[Action, ...]) -> tuple[tuple[Action, ...], ...]:
    """Group actions, so that every field is as likely as another and not as long as its list."""
    fields: dict[str, list[Action]] = {}
    for action in actions:
        fields.setdefault(action.field, []).append(action)
    return tuple(map(tuple, fields.values()))


def _fits(noun: Noun, value: Value) -> bool:
    """Tell whether an attribute doesn't repeat a word of its noun ("brown bear", "old oak")."""
    return noun.tokens.isdisjoint(value.tokens)


def in_order(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Sort attributes into the order of speech and keep one of each rank."""
    return tuple({value.rank: value for value in sorted(values, key=lambda value: value.rank)}.values())


# Similarity. Weights are assumed, then checked against a real teacher's ranking of generated pairs.
_AGENT, _ACTION, _OBJECT = 0.38, 0.27, 0.35
_RELATION, _PLACE, _TIME, _MANNER, _SECOND = 0.22, 0.22, 0.10, 0.06, 0.45
_ONE_SIDED = 0.35  # a detail that only one caption gives


def noun_similarity(a: Noun, b: Noun) -> float:
    """Return 1 for one concept, .75 for a hypernym, .5 for siblings, .2 in one domain, else 0."""
    if a is b:
        return 1.0
    if a.category == b.category:
        return 0.75 if a.generic or b.generic else 0.5
    return 0.2 if a.domain == b.domain else 0.0


def _attribute_similarity(a: Entity, b: Entity) -> float:
    scores: list[float] = []
    theirs = {value.slot: value for value in b.attributes}
    for value in a.attributes:
        other = theirs.pop(value.slot, None)
        if other is None:
            scores.append(0.4)
        elif other is value:
            scores.append(1.0)
        else:
            scores.append(0.6 if other.family == value.family else 0.0)
    scores.extend(0.4 for _ in theirs)
    if a.worn is not None or b.worn is not None:
        scores.append(0.4 if a.worn is None or b.worn is None else entity_similarity(a.worn, b.worn))
    return sum(scores) / len(scores) if scores else 1.0


def entity_similarity(a: Entity, b: Entity) -> float:
    """Return the nouns' similarity, lowered by up to .3 for attributes and .12 for the count."""
    counts = 1.0 if a.count == b.count else 0.6 if a.count > 1 and b.count > 1 else 0.0
    detail = 1.0 - 0.3 * (1.0 - _attribute_similarity(a, b)) - 0.12 * (1.0 - counts)
    return noun_similarity(a.noun, b.noun) * detail


def _optional(weight: float, a: object | None, b: object | None, similarity: float) -> tuple[float, float] | None:
    if a is None and b is None:
        return None
    return weight, _ONE_SIDED if a is None or b is None else similarity


def _phrase_similarity(a: Phrase | None, b: Phrase | None) -> float:
    if a is None or b is None:
        return 0.0
    return 1.0 if a is b else 0.5 if a.group == b.group else 0.0


def _action_similarity(a: Action | None, b: Action | None) -> float:
    if a is b:
        return 1.0
    if a is None or b is None:
        return 0.0
    if a.field == b.field:
        return 0.55
    return 0.25 if (a.field, b.field) in lexicon().kin else 0.0


def _clause_terms(a: Clause, b: Clause) -> list[tuple[float, float]]:
    terms = [(_AGENT, entity_similarity(a.agent, b.agent)), (_ACTION, _action_similarity(a.action, b.action))]
    if a.object is not None or b.object is not None:
        both = a.object is not None and b.object is not None
        terms.append((_OBJECT, entity_similarity(a.object, b.object) if both else 0.0))  # type: ignore[arg-type]
    if a.landmark is not None or b.landmark is not None:
        similarity = _ONE_SIDED
        if a.landmark is not None and b.landmark is not None:
            same = _phrase_similarity(a.relation, b.relation)
            similarity = (0.3 + 0.7 * same) * entity_similarity(a.landmark, b.landmark)
        terms.append((_RELATION, similarity))
    if (manner := _optional(_MANNER, a.manner, b.manner, _phrase_similarity(a.manner, b.manner))) is not None:
        terms.append(manner)
    return terms


def _mean(terms: list[tuple[float, float]]) -> float:
    return sum(weight * score for weight, score in terms) / sum(weight for weight, _ in terms)


def scene_similarity(a: Scene, b: Scene) -> float:
    """Grade how much two scenes share, from 0 (nothing) to 5 (the same scene).

    A weighted mean over what either scene has: agent, action, object, landmark, manner, place, time and a second
    clause. Equal parts count 1; siblings, hypernyms, actions of one field and places of one kind count partly; a detail
    that only one scene gives counts .35. A missing object or a different action in a transitive scene counts 0.

    Example:
        >>> scene = SceneSampler(lexicon()).scene(Random(1))
        >>> scene_similarity(scene, scene)
        5.0
    """
    terms = _clause_terms(a.main, b.main)
    context = (
        _optional(_PLACE, a.place, b.place, _phrase_similarity(a.place, b.place)),
        _optional(_TIME, a.time, b.time, _phrase_similarity(a.time, b.time)),
    )
    terms.extend(term for term in context if term is not None)
    if a.second is not None or b.second is not None:
        both = a.second is not None and b.second is not None
        terms.append((_SECOND, _mean(_clause_terms(a.second, b.second)) if both else 0.2))  # type: ignore[arg-type]
    return round(5.0 * _mean(terms), 6)
