"""Pair corpora: two texts a row that mean the same in some way, and what disqualifies them as training data.

A pair file is read whole (a million short pairs are a few hundred megabytes) and judged before anything is trained on
it: empty or missing texts, one-class data, pairs whose sides are one text, sentences of the test sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from consilience.core.errors import CorpusError, InputError
from consilience.core.hashing import RowHasher
from consilience.corpora.contamination import HeldOutSentences, exact_key
from consilience.corpora.tables import open_table
from consilience.corpora.text import Fault, describe_fault, fault_of

OnFault = Literal["refuse", "drop"]
LEFT, RIGHT = "sentence1", "sentence2"
SMALLEST = 16  # pairs: a batch and something to hold out
# Assumed: parts of the names that columns of labels usually have (SNLI, MNLI, QQP, MRPC, PAWS, SICK, STS).
LABELS = ("label", "class", "score", "similar", "duplicate", "relatedness", "entail", "judg", "quality", "rating")


@dataclass(frozen=True)
class PairReport:
    """What a pair file holds.

    Attributes:
        rows: pairs read.
        kept: pairs left.
        faulty: pairs with an empty, missing, undecodable or too long side.
        identical: pairs whose two sides are one text under the exact key.
        contaminated: pairs with a sentence of a held-out file.
        repeated: pairs that came before.
        distinct_left: different first texts among the kept.
        distinct_right: different second texts.
        largest_group: pairs of the most frequent first or second text.
        held_out: sentences that contamination was checked against, 0 when it wasn't.
        characters: mean, 99th percentile and maximum length of a text.
    """

    rows: int
    kept: int
    faulty: int
    identical: int
    contaminated: int
    repeated: int
    distinct_left: int
    distinct_right: int
    largest_group: int
    held_out: int
    characters: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return asdict(self)


@dataclass(frozen=True)
class PairCorpus:
    """Pairs that may be trained on.

    Attributes:
        name: what a person calls it: the path.
        left: first texts.
        right: second texts, as many.
        fingerprint: SHA-256 over the pairs in order.
        report: what was read and left out.
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    fingerprint: str
    report: PairReport = field(repr=False)

    def __len__(self) -> int:
        return len(self.left)

    def to_json(self) -> dict[str, Any]:
        """Return what identifies the pairs: fingerprint and count, not the path."""
        return {"fingerprint": self.fingerprint, "pairs": len(self)}


def open_pairs(
    source: str | Path | Sequence[tuple[str, str]],
    *,
    left: str = LEFT,
    right: str = RIGHT,
    limit: int | None = None,
    on_fault: OnFault = "refuse",
    held_out: HeldOutSentences | None = None,
    max_characters: int = 50_000,
) -> PairCorpus:
    """Read pairs and refuse what can't be trained on.

    Args:
        source: a file with columns, of any format that corpora have, or the pairs themselves.
        left: column of the first texts.
        right: column of the second texts.
        limit: read only so many rows.
        on_fault: "refuse" raises at the first unusable row; "drop" leaves out faulty, identical and contaminated ones.
            Repeated pairs are always left out and counted.
        held_out: sentences of test sets, which no pair may hold.
        max_characters: longer texts are faulty.

    Raises:
        CorpusError: the file can't be read, is empty, has a column of labels, or holds a missing text, a pair of one
            text, one class only, or a held-out sentence.
        InputError: an option is out of range.

    Example:
        >>> pairs = open_pairs([(f"a cat number {i}", f"cat {i} is here") for i in range(20)])
        >>> len(pairs), pairs.report.distinct_left
        (20, 20)
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit: expected at least 1, got {limit}. Leave --limit out to read all pairs")
    if on_fault not in ("refuse", "drop"):
        raise InputError(f"on_fault: expected refuse or drop, got {on_fault!r}. Change --on-fault")
    if isinstance(source, str | Path):
        name = str(source)
        rows: Iterator[Any] = _read(Path(source), left, right)
    else:
        name, rows = "pairs in memory", iter(source)
    sieve = _Sieve(name, left, right, on_fault, held_out, max_characters)
    for number, row in enumerate(rows, 1):
        if limit is not None and number > limit:
            break
        if not isinstance(row, tuple | list) or len(row) != 2:
            raise CorpusError(f"{name}: pair {number}: expected two texts, got {str(row)[:60]!r}. Give pairs")
        sieve.add(number, *row)
    return sieve.result()


class _Sieve:
    """Keeps usable pairs and counts the others."""

    def __init__(
        self,
        name: str,
        left: str,
        right: str,
        on_fault: OnFault,
        held_out: HeldOutSentences | None,
        max_characters: int,
    ) -> None:
        self.name, self.columns, self.on_fault = name, (left, right), on_fault
        self.held_out, self.max_characters = held_out, max_characters
        self.pairs: list[tuple[str, str]] = []
        self.groups: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self.seen: set[tuple[str, str]] = set()
        self.counts = dict.fromkeys(("rows", "faulty", "identical", "contaminated", "repeated"), 0)

    def add(self, number: int, one: Any, other: Any) -> None:  # noqa: ANN401 - whatever a file holds
        """Judge one pair."""
        self.counts["rows"] += 1
        for column, text in zip(self.columns, (one, other), strict=True):
            fault = _fault(text, self.max_characters)
            if fault is not None:
                self._reject("faulty", number, f"column {column} {fault}")
                return
        keys = exact_key(one), exact_key(other)
        if keys[0] == keys[1]:
            self._reject(
                "identical",
                number,
                f"both sides are {one[:40]!r} but for case and punctuation: two views of one text teach nothing",
            )
            return
        if self.held_out is not None:
            where = self.held_out.find(one) or self.held_out.find(other)
            if where is not None:
                self._reject("contaminated", number, f"holds a sentence of {where}, which models are tested on")
                return
        if keys in self.seen or (keys[1], keys[0]) in self.seen:
            self.counts["repeated"] += 1
            return
        self.seen.add(keys)
        for group, key in zip(self.groups, keys, strict=True):
            group[key] = group.get(key, 0) + 1
        self.pairs.append((one, other))

    def _reject(self, kind: str, number: int, why: str) -> None:
        if self.on_fault == "refuse":
            raise CorpusError(f"{self.name}: pair {number}: {why}. Leave such pairs out with --on-fault drop")
        self.counts[kind] += 1

    def result(self) -> PairCorpus:
        """Judge the whole.

        Raises:
            CorpusError: nothing is left, or it is of one class.
        """
        if not self.pairs:
            why = f"all {self.counts['rows']} pairs were left out" if self.counts["rows"] else "the file has no rows"
            raise CorpusError(f"{self.name}: no pairs: {why}. Give pairs of two texts")
        for column, group in zip(self.columns, self.groups, strict=True):
            if len(group) == 1:
                raise CorpusError(
                    f"{self.name}: expected different texts in column {column}, all {len(self.pairs)} pairs have one: "
                    "one class, so a batch has no negatives. Give pairs of different texts"
                )
        if len(self.pairs) < SMALLEST:
            raise CorpusError(
                f"{self.name}: expected at least {SMALLEST} pairs, got {len(self.pairs)}: a tenth is held out to be "
                "measured. Give more pairs"
            )
        hasher = RowHasher()
        for one, other in self.pairs:
            hasher.update(one)
            hasher.update(other)
        lengths = sorted(len(text) for pair in self.pairs for text in pair)
        report = PairReport(
            kept=len(self.pairs),
            distinct_left=len(self.groups[0]),
            distinct_right=len(self.groups[1]),
            largest_group=max(max(group.values()) for group in self.groups),
            held_out=len(self.held_out) if self.held_out is not None else 0,
            characters={
                "mean": round(sum(lengths) / len(lengths), 2),
                "p99": float(lengths[int(0.99 * (len(lengths) - 1))]),
                "max": float(lengths[-1]),
            },
            **self.counts,
        )
        left, right = zip(*self.pairs, strict=True)
        return PairCorpus(self.name, left, right, hasher.hexdigest(), report)


def _fault(text: Any, max_characters: int) -> str | None:  # noqa: ANN401 - whatever a file holds
    """Say what is wrong with a cell, or None."""
    if text is None or (isinstance(text, float) and text != text):
        return "is null (NaN)"
    if not isinstance(text, str):
        return f"expected text, got {type(text).__name__} {text!r}"
    fault: Fault | None = fault_of(text, max_characters)
    if fault is None and not exact_key(text):
        return f"has no letter or digit: {text[:20]!r}"
    return None if fault is None else describe_fault(fault, text, max_characters)


def _read(path: Path, left: str, right: str) -> Iterator[tuple[Any, Any]]:
    """Yield the two columns' cells."""
    table = open_table(path, wanted=(left, right))
    table.require((left, right), "Name the two texts' columns with --left and --right")
    for name in (left, right):
        table.require_text(name)

    def refuse_labels(number: int, names: Iterable[str]) -> None:
        others = (name for name in names if name not in (left, right))
        labels = [name for name in others if any(part in name.casefold() for part in LABELS)]
        if labels:
            raise CorpusError(
                f"{path}: expected pairs that all mean the same, got the column {labels[0]}: labels aren't read, so "
                "pairs of every class would be trained on as equals. Keep the rows of the class that means the same, "
                "without the column"
            )

    refuse_labels(0, table.columns)
    return ((one, other) for _, (one, other) in table.rows((left, right), refuse_labels))
