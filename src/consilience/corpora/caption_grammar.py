"""Captions and graded caption pairs from a probabilistic scene grammar, so that any machine has a corpus and a task.

A scene says who does what, to what, how, where and when; ``realise`` words it, differently every time: synonyms, order,
voice, finite or not. Captions are distinct. Pairs are graded by what their scenes share, not by their words.

Training captions and evaluation pairs never share a sentence, whatever the seeds: an eighth of all sentences, chosen by
their hash, is reserved for pairs. Scenes aren't partitioned: a pair's content may occur in the corpus,
in other words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from random import Random

from consilience.core.errors import InputError
from consilience.core.seeds import seed_from_name
from consilience.corpora.caption_lexicon import VerbForms, lexicon
from consilience.corpora.caption_scene import MANY, Clause, Entity, Scene, SceneSampler, pick, scene_similarity
from consilience.corpora.caption_variation import vary

_RESERVED_SHARE = 8  # one sentence in so many belongs to the pairs
_CANDIDATES = 14  # scenes from which a pair's second one is chosen, by the nearest grade
_WORDINGS = 60  # tries to find a reserved wording of a scene; scenes with fewer wordings are redrawn
_NUMBERS = {2: ("two",), 3: ("three",), 4: ("four",), 5: ("five",)}
_MANY_WORDS = ("several", "some", "a group of", "many", "a few")
_AN_EXCEPTIONS = ("uni", "use", "uku", "one", "eu")
_SILENT_H = ("hour", "honest", "heir")


@dataclass(frozen=True)
class GradedPair:
    """Two captions and how similar their scenes are.

    Args:
        sentence1: a caption.
        sentence2: another one.
        score: 0 (unrelated) to 5 (the same scene).
    """

    sentence1: str
    sentence2: str
    score: float


def generate_captions(count: int, *, seed: int = 0, exclude: Collection[str] = ()) -> Iterator[str]:
    """Yield distinct captions; the same for equal seeds on every machine and Python version.

    Memory: the 8-byte hash of each caption so far (about 70 bytes with Python's set around it).

    Args:
        count: how many.
        seed: number of the stream.
        exclude: sentences to leave out, besides those reserved for pairs.

    Raises:
        InputError: ``count`` is below 1.

    Example:
        >>> len(set(generate_captions(100)))
        100
    """
    if count < 1:
        raise InputError(f"captions: expected a count of at least 1, got {count}. Ask for more")
    return _captions(count, seed, exclude)


def _captions(count: int, seed: int, exclude: Collection[str]) -> Iterator[str]:
    rng = Random(seed_from_name("caption-grammar/captions", seed))
    sampler = SceneSampler(lexicon())
    seen = {_hash(sentence) for sentence in exclude}
    made = 0
    while made < count:
        caption = realise(sampler.scene(rng), rng)
        key = _hash(caption)
        if key not in seen and key % _RESERVED_SHARE:
            seen.add(key)
            made += 1
            yield caption


def generate_pairs(count: int, *, seed: int = 0) -> Iterator[GradedPair]:
    """Yield graded pairs, their scores roughly uniform over 0 to 5; deterministic by seed.

    The second scene comes from the first by edits (attributes, siblings and hypernyms, actions, agents, places, details
    left out) or is a new one; the candidate nearest to a drawn target is taken, and its grade is
    :func:`consilience.corpora.caption_scene.scene_similarity`. No pair's sentence occurs in
    :func:`generate_captions`, and the two sentences of a pair differ.

    Raises:
        InputError: ``count`` is below 1.

    Example:
        >>> pair = next(generate_pairs(1))
        >>> 0 <= pair.score <= 5 and pair.sentence1 != pair.sentence2
        True
    """
    if count < 1:
        raise InputError(f"pairs: expected a count of at least 1, got {count}. Ask for more")
    return _pairs(count, seed)


def _pairs(count: int, seed: int) -> Iterator[GradedPair]:
    rng = Random(seed_from_name("caption-grammar/pairs", seed))
    sampler = SceneSampler(lexicon())
    made = 0
    while made < count:
        scene = sampler.scene(rng)
        other = _scene_near(scene, 5.3 * rng.random() - 0.05, sampler, rng)
        first = _reserved_wording(scene, "", rng)
        second = None if first is None else _reserved_wording(other, first, rng)
        if first is not None and second is not None:
            made += 1
            yield GradedPair(first, second, round(scene_similarity(scene, other), 3))


def _scene_near(scene: Scene, target: float, sampler: SceneSampler, rng: Random) -> Scene:
    """Return the variant of a scene whose grade is nearest to the target."""
    if target >= 5.0:
        return scene
    best, distance = scene, 9.0
    for i in range(_CANDIDATES):
        candidate = scene
        if target < 2.0 and i % 2:
            candidate = sampler.scene(rng)
        elif target < 2.5 and i % 4 == 0 and scene.main.action is not None:  # the same agent in another scene
            candidate = Scene(sampler.act(scene.main.agent, rng), place=scene.place)
        for _ in range(1 + int(rng.random() * (6.5 - target))):
            candidate = vary(candidate, sampler, rng)
        off = abs(scene_similarity(scene, candidate) - target)
        if off < distance:
            best, distance = candidate, off
    return best


def _reserved_wording(scene: Scene, other_than: str, rng: Random) -> str | None:
    for _ in range(_WORDINGS):
        sentence = realise(scene, rng)
        if sentence != other_than and _hash(sentence) % _RESERVED_SHARE == 0:
            return sentence
    return None


def _hash(sentence: str) -> int:
    return int.from_bytes(blake2b(sentence.encode(), digest_size=8).digest(), "little")


@lru_cache(maxsize=16384)
def article(word: str) -> str:
    """Return the indefinite article before a word.

    Example:
        >>> [article(w) for w in ("apple", "unicycle", "hour", "umbrella", "horse", "one-eyed")]
        ['an', 'a', 'an', 'an', 'a', 'a']
    """
    if word.startswith(_SILENT_H):
        return "an"
    return "an" if word[0] in "aeiou" and not word.startswith(_AN_EXCEPTIONS) else "a"


def realise(scene: Scene, rng: Random) -> str:
    """Word a scene as one caption, drawing synonyms, order and voice.

    Args:
        scene: what to say.
        rng: source of the choices.
    """
    draw = rng.random()
    tail = _context(scene, rng)
    if scene.second is not None:
        joint = pick((" while ", " while ", " as ", " and "), rng)
        if draw < 0.25:
            body = _sentence(scene.second, rng) + joint + _sentence(scene.main, rng) + tail
        elif draw < 0.5 and tail:
            body = f"{tail[1:]}, {_sentence(scene.main, rng)}{joint}{_sentence(scene.second, rng)}"
        else:
            body = _sentence(scene.main, rng) + tail + joint + _sentence(scene.second, rng)
    elif draw < 0.12 and tail:
        body = f"{tail[1:]}, {_sentence(scene.main, rng) if scene.main.action else _existential(scene.main, rng)}"
    elif draw < 0.30:
        body = _noun_phrase_caption(scene.main, rng) + tail
    elif draw < 0.42:
        body = _existential(scene.main, rng) + tail
    else:
        body = _sentence(scene.main, rng) + tail
    return f"{body[0].upper()}{body[1:]}."


def _context(scene: Scene, rng: Random) -> str:
    place = f" {pick(scene.place.words, rng)}" if scene.place is not None else ""
    time = f" {pick(scene.time.words, rng)}" if scene.time is not None else ""
    return time + place if scene.main.action is not None and rng.random() < 0.12 else place + time


def _existential(clause: Clause, rng: Random) -> str:
    be = "is" if clause.agent.count == 1 else "are"
    return f"there {be} {_noun_phrase_caption(clause, rng, definite=False)}"


def _noun_phrase(entity: Entity, rng: Random, *, definite: bool = False) -> str:
    noun = pick(entity.noun.singulars if entity.count == 1 else entity.noun.plurals, rng)
    for value in reversed(entity.attributes):
        noun = f"{pick(value.words, rng)} {noun}"
    if entity.count == 1:
        phrase = f"the {noun}" if definite else f"{article(noun)} {noun}"
    else:
        number = pick(_MANY_WORDS if entity.count == MANY else _NUMBERS[entity.count], rng)
        phrase = f"{number} {noun}"
    if entity.worn is not None:
        worn = entity.worn if entity.count == 1 else replace(entity.worn, count=MANY)
        phrase += pick((" in ", " wearing "), rng) + _worn_phrase(worn, rng)
    return phrase


def _worn_phrase(worn: Entity, rng: Random) -> str:
    if worn.count == 1:
        return _noun_phrase(worn, rng)
    return " ".join([*(pick(value.words, rng) for value in worn.attributes), pick(worn.noun.plurals, rng)])


def _object_and_rest(clause: Clause, verb: VerbForms | None, rng: Random) -> tuple[str, str]:
    """Word the object with the verb's particle, and what follows it: manner and landmark."""
    thing = ""
    if verb is not None:
        thing = verb.tail
        if clause.object is not None:
            thing += f" {_noun_phrase(clause.object, rng)}"
    rest = f" {pick(clause.manner.words, rng)}" if clause.manner is not None else ""
    if clause.relation is not None and clause.landmark is not None:
        rest += f" {pick(clause.relation.words, rng)} {_noun_phrase(clause.landmark, rng)}"
    return thing, rest


def _noun_phrase_caption(clause: Clause, rng: Random, *, definite: bool = True) -> str:
    """Word a clause without a finite verb: "a dog chasing a ball"."""
    agent = _noun_phrase(clause.agent, rng, definite=definite and rng.random() < 0.05)
    verb = pick(clause.action.verbs, rng) if clause.action is not None else None
    thing, rest = _object_and_rest(clause, verb, rng)
    return f"{agent}{f' {verb.ing}' if verb is not None else ''}{thing}{rest}"


def _sentence(clause: Clause, rng: Random) -> str:
    """Word a clause with a finite verb, active or passive."""
    plural = clause.agent.count > 1
    be = "are" if plural else "is"
    agent = _noun_phrase(clause.agent, rng, definite=rng.random() < 0.08)
    if clause.action is None:
        return f"{agent} {be}{_object_and_rest(clause, None, rng)[1]}"
    verb = pick(clause.action.verbs, rng)
    thing, rest = _object_and_rest(clause, verb, rng)
    draw = rng.random()
    if clause.object is not None and verb.passive and draw < 0.16 and clause.manner is None:
        patient = _noun_phrase(clause.object, rng, definite=rng.random() < 0.08)
        is_or_are = "are" if clause.object.count > 1 else "is"
        return f"{patient} {is_or_are} being {verb.participle}{verb.tail} by {agent}{rest}"
    if draw < 0.42:
        return f"{agent} {verb.base if plural else verb.third}{thing}{rest}"
    return f"{agent} {be} {verb.ing}{thing}{rest}"
