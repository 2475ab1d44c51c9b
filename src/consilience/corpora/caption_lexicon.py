"""The caption grammar's lexicon: the word tables, parsed into typed entries with their inflections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from consilience.corpora import caption_nouns as nouns
from consilience.corpora import caption_words as words

_SHORT_VERB = re.compile("[^aeiou]*[aeiou][^aeiouwxy]")  # consonants, one vowel, one consonant


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """One attribute value: its slot ("colour"), the family of close values, and its synonyms."""

    slot: str
    family: int
    rank: int
    words: tuple[str, ...]
    tokens: frozenset[str]


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """One concept: its domain, its category (``domain/hypernym``), its synonyms and the slots it may carry."""

    domain: str
    category: str
    generic: bool
    singulars: tuple[str, ...]
    plurals: tuple[str, ...]
    slots: tuple[str, ...]
    tokens: frozenset[str]


@dataclass(frozen=True, eq=False, slots=True)
class VerbForms:
    """One verb's forms, its particle or preposition ("up ", "at " or ""), and whether the passive sounds natural."""

    base: str
    third: str
    ing: str
    participle: str
    tail: str
    passive: bool


@dataclass(frozen=True, eq=False, slots=True)
class Action:
    """One activity: its field, its synonymous verbs, who does it (categories) and to what (categories, or none)."""

    field: str
    verbs: tuple[VerbForms, ...]
    agents: frozenset[str]
    objects: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Phrase:
    """A fixed phrase with synonyms: a place, a time, a manner or a relation (with its landmark's categories)."""

    group: str
    words: tuple[str, ...]
    landmarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lexicon:
    """Everything the grammar draws from, indexed for drawing."""

    by_category: dict[str, tuple[Noun, ...]]
    values: dict[str, tuple[Value, ...]]
    intransitive: dict[str, tuple[Action, ...]]
    transitive: dict[str, tuple[Action, ...]]
    places: dict[str, tuple[Phrase, ...]]
    relations: tuple[Phrase, ...]
    times: tuple[Phrase, ...]
    manners: tuple[Phrase, ...]
    kin: frozenset[tuple[str, str]]


def pluralise(noun: str) -> str:
    """Return the plural of a noun phrase by its last word.

    Example:
        >>> [pluralise(n) for n in ("box", "pony", "policeman", "hot dog", "cup of tea", "toy")]
        ['boxes', 'ponies', 'policemen', 'hot dogs', 'cups of tea', 'toys']
    """
    if noun in nouns.IRREGULAR_PLURALS:
        return nouns.IRREGULAR_PLURALS[noun]
    head, _, last = noun.rpartition(" ")
    prefix = f"{head} " if head else ""
    if last in nouns.IRREGULAR_PLURALS:
        return prefix + nouns.IRREGULAR_PLURALS[last]
    if last.endswith(nouns.MAN_ENDINGS) and not last.endswith("human"):
        return f"{prefix}{last[:-2]}en"
    if last.endswith(("s", "x", "z", "ch", "sh")):
        return f"{prefix}{last}es"
    if last.endswith("y") and last[-2] not in "aeiou":
        return f"{prefix}{last[:-1]}ies"
    return f"{prefix}{last}s"


def conjugate(base: str) -> tuple[str, str, str]:
    """Return a verb's third person, present participle and past participle.

    Example:
        >>> conjugate("carry"), conjugate("chop"), conjugate("write")
        (('carries', 'carrying', 'carried'), ('chops', 'chopping', 'chopped'), ('writes', 'writing', 'written'))
    """
    if base in words.IRREGULAR_VERBS:
        return words.IRREGULAR_VERBS[base]
    if base.endswith("y") and base[-2] not in "aeiou":
        return f"{base[:-1]}ies", f"{base}ing", f"{base[:-1]}ied"
    third = f"{base}es" if base.endswith(("s", "x", "z", "ch", "sh")) else f"{base}s"
    if base.endswith("e"):
        stem = base if base.endswith(("ee", "oe", "ye")) else base[:-1]
        return third, f"{stem}ing", f"{base}d"
    stem = base + base[-1] if base in words.DOUBLING or _SHORT_VERB.fullmatch(base) else base
    return third, f"{stem}ing", f"{stem}ed"


def _forms(entry: str) -> VerbForms:
    base, _, particle = entry.partition("+")
    base, _, preposition = base.partition("_")
    tail = (particle or preposition).replace("_", " ")
    return VerbForms(base, *conjugate(base), f" {tail}" if tail else "", passive=not preposition)


def _lines(table: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        yield [part.strip() for part in line.split(":")]


def _split(listed: str, mark: str = ",") -> list[str]:
    return [part.strip() for part in listed.split(mark)]


def _tokens(synonyms: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word for phrase in synonyms for word in phrase.split())


def _slots_of(domain: str, category: str, concept: str) -> tuple[str, ...]:
    slots = words.SLOTS.get(category, words.SLOTS[domain])
    if concept in words.FEMININE:
        slots = tuple(slot for slot in slots if slot != "male look")
    return slots


def _read_nouns() -> dict[str, tuple[Noun, ...]]:
    found: dict[str, tuple[Noun, ...]] = {}
    for table in (nouns.PEOPLE, nouns.ANIMALS, nouns.THINGS):
        for category, listed in _lines(table):
            domain, _, hypernym = category.partition("/")
            entries = []
            for concept in _split(listed):
                singulars = tuple(concept.split("/"))
                slots = _slots_of(domain, category, singulars[0])
                plurals = tuple(map(pluralise, singulars))
                entries.append(
                    Noun(domain, category, singulars[0] == hypernym, singulars, plurals, slots, _tokens(singulars))
                )
            found[category] = tuple(entries)
    return found


def _read_values() -> dict[str, tuple[Value, ...]]:
    return {
        slot: tuple(
            Value(slot, family, words.SLOT_RANK[slot], synonyms, _tokens(synonyms))
            for family, listed in enumerate(_split(families, ";"))
            for value in _split(listed)
            for synonyms in [tuple(value.split("/"))]
        )
        for slot, families in _lines(words.ATTRIBUTES)
    }


def _expand(names: str, categories: Iterable[str]) -> tuple[str, ...]:
    """Turn names of domains, categories or their last parts into categories."""
    expanded: list[str] = []
    for name in _split(names):
        wanted = set(words.LAND) if name == "land" else {name}
        for category in categories:
            domain, _, tail = category.partition("/")
            short = tail.removesuffix(" animal")
            if {category, domain, tail, short} & wanted:
                expanded.append(category)
    return tuple(dict.fromkeys(expanded))


def _read_actions(table: str, categories: list[str]) -> dict[str, tuple[Action, ...]]:
    by_agent: dict[str, list[Action]] = {category: [] for category in categories}
    for field, who, listed, *objects in _lines(table):
        agents = _expand(who, categories)
        if field in words.CHILD_EXCLUDED:
            agents = tuple(category for category in agents if category != "person/child")
        targets = _expand(objects[0], categories) if objects else ()
        for entry in _split(listed):
            action = Action(field, tuple(map(_forms, entry.split("/"))), frozenset(agents), targets)
            for agent in agents:
                by_agent[agent].append(action)
    return {agent: tuple(actions) for agent, actions in by_agent.items() if actions}


def _phrases(table: str) -> tuple[Phrase, ...]:
    return tuple(
        Phrase(group, tuple(phrase.split("/"))) for group, listed in _lines(table) for phrase in _split(listed)
    )


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """Parse the word tables, once a process."""
    by_category = _read_nouns()
    categories = list(by_category)
    places: dict[str, tuple[Phrase, ...]] = {}
    for phrase in _phrases(nouns.PLACES):
        places[phrase.group] = (*places.get(phrase.group, ()), phrase)
    relations = tuple(
        Phrase(group, tuple(phrase.split("/")), _expand(landmarks, categories))
        for group, listed, landmarks in _lines(words.RELATIONS)
        for phrase in _split(listed)
    )
    groups = [[name.replace("+", " ") for name in line.split()] for line in words.FIELD_KIN]
    return Lexicon(
        by_category=by_category,
        values=_read_values(),
        intransitive=_read_actions(words.INTRANSITIVE, categories),
        transitive=_read_actions(words.TRANSITIVE, categories),
        places=places,
        relations=relations,
        times=_phrases(words.TIMES),
        manners=_phrases(words.MANNERS),
        kin=frozenset((a, b) for group in groups for a in group for b in group),
    )
