"""What a corpus looks like, before any compute is spent on it (design, section 11: inspect the input first).

One streaming pass. Memory: 8 bytes a row for the duplicate count, and one counter a distinct length.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import CorpusError
from consilience.corpora.text import Corpus, Fault

if TYPE_CHECKING:
    from rich.table import Table

CountTokens = Callable[[list[str]], list[int]]
P99_RATIO = 1.25  # assumed: a p99 that moved by more than this factor is a shift
MAX_RATIO = 2.0  # assumed: the maximum is one row's, so it has more room
_TOKEN_ROWS = 1024


@dataclass(frozen=True)
class LengthSummary:
    """Summary of one length over the rows; quantiles are nearest-rank, so each is some row's length.

    Args:
        mean: average.
        p50: median.
        p99: 99th percentile.
        max: longest.
    """

    mean: float
    p50: int
    p99: int
    max: int


def summarise_lengths(counts: Counter[int]) -> LengthSummary:
    """Summarise a histogram of lengths (length: rows).

    Example:
        >>> summarise_lengths(Counter([1, 2, 3, 10]))
        LengthSummary(mean=4.0, p50=2, p99=10, max=10)
    """
    total = counts.total()
    if not total:
        return LengthSummary(0.0, 0, 0, 0)
    ordered = sorted(counts)
    cumulative = np.cumsum([counts[length] for length in ordered])
    p50, p99 = (ordered[int(np.searchsorted(cumulative, -(-total * q // 100)))] for q in (50, 99))
    return LengthSummary(sum(length * n for length, n in counts.items()) / total, p50, p99, ordered[-1])


@dataclass(frozen=True)
class CorpusReport:
    """Counts and lengths of a corpus' rows, faulty ones included.

    Args:
        path: the corpus' name.
        rows: rows read (after filter and limit).
        empties: rows with nothing but white space.
        duplicates: rows equal to an earlier one, empty ones not counted.
        undecodable: rows that aren't valid UTF-8.
        nul: rows with a NUL byte.
        too_long: rows above ``max_characters``.
        max_characters: the bound that ``too_long`` used.
        non_ascii_share: share of rows with a character outside ASCII.
        characters: lengths in characters, of all rows.
        words: lengths in white-space separated words, of all rows.
        tokens: lengths in tokens, of the rows without fault; None without a tokenizer.
        first_fault: "source: row N: fault" of the first faulty row, or None.
    """

    path: str
    rows: int
    empties: int
    duplicates: int
    undecodable: int
    nul: int
    too_long: int
    max_characters: int
    non_ascii_share: float
    characters: LengthSummary
    words: LengthSummary
    tokens: LengthSummary | None
    first_fault: str | None

    @property
    def faults(self) -> int:
        """Rows that no teacher should be given."""
        return self.empties + self.undecodable + self.nul + self.too_long

    def to_json(self) -> dict[str, Any]:
        """Return the fields, and ``faults``, as a JSON object."""
        return {**asdict(self), "faults": self.faults}

    def to_table(self) -> Table:
        """Return the report as a rich table."""
        from rich.table import Table

        table = Table()
        for name in ("", "mean", "p50", "p99", "max"):
            table.add_column(name, justify="right" if name else "left")
        for name, lengths in self.lengths().items():
            table.add_row(name, f"{lengths.mean:.1f}", *(f"{n:,}" for n in (lengths.p50, lengths.p99, lengths.max)))
        return table

    def to_lines(self) -> list[str]:
        """Return what the table doesn't hold: rows, faults, duplicates, the first fault and how to leave it out."""
        counts = {
            "duplicates": self.duplicates,
            "empty": self.empties,
            "undecodable": self.undecodable,
            "NUL": self.nul,
            f"over {self.max_characters:,} characters": self.too_long,
        }
        lines = [
            f"{self.path}: {self.rows:,} rows",
            ", ".join(f"{name}: {count:,}" for name, count in counts.items()),
            f"rows with characters outside ASCII: {self.non_ascii_share:.1%}",
        ]
        if self.first_fault:
            lines.append(f"first fault: {self.first_fault}. Leave such rows out with --on-fault drop")
        return lines

    def lengths(self) -> dict[str, LengthSummary]:
        """Return the length summaries by name; tokens only where they were counted."""
        named = {"characters": self.characters, "words": self.words}
        return named if self.tokens is None else {**named, "tokens": self.tokens}


def report_corpus(corpus: Corpus, tokenizer: CountTokens | None = None) -> CorpusReport:
    """Measure a corpus in one streaming pass; faulty rows are counted, never raised, whatever ``on_fault`` says.

    Args:
        corpus: what to read.
        tokenizer: maps texts to their numbers of tokens.

    Raises:
        CorpusError: the corpus has no rows at all, or a file can't be parsed.

    Example:
        >>> from consilience.corpora.text import open_corpus
        >>> report = report_corpus(open_corpus(["a cat", "", "a cat", "a black dog"]))
        >>> report.rows, report.empties, report.duplicates, report.words.max
        (4, 1, 1, 3)
    """
    characters: Counter[int] = Counter()
    words: Counter[int] = Counter()
    tokens: Counter[int] = Counter()
    faults: Counter[Fault] = Counter()
    hashes = array("Q")
    waiting: list[str] = []
    rows, non_ascii, first_fault = 0, 0, None
    for row in corpus.located_rows():
        rows += 1
        text = row.text
        characters[len(text)] += 1
        words[len(text.split())] += 1
        non_ascii += not text.isascii()
        if row.fault is not None:
            faults[row.fault] += 1
            first_fault = first_fault or f"{row.source}: row {row.number}: {row.fault}"
        if row.fault != "empty":
            hashes.append(int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()))
        if tokenizer is not None and row.fault is None:
            waiting.append(text)
            if len(waiting) == _TOKEN_ROWS:
                tokens.update(tokenizer(waiting))
                waiting = []
    if not rows:
        raise CorpusError(f"{corpus.name}: empty corpus: no rows to report on. Check the file and the --where filter")
    if tokenizer is not None and waiting:
        tokens.update(tokenizer(waiting))
    return CorpusReport(
        path=corpus.name,
        rows=rows,
        empties=faults["empty"],
        duplicates=len(hashes) - len(np.unique(np.frombuffer(hashes, dtype=np.uint64))) if hashes else 0,
        undecodable=faults["undecodable"],
        nul=faults["NUL"],
        too_long=faults["too long"],
        max_characters=corpus.spec.max_characters,
        non_ascii_share=non_ascii / rows,
        characters=summarise_lengths(characters),
        words=summarise_lengths(words),
        tokens=None if tokenizer is None else summarise_lengths(tokens),
        first_fault=first_fault,
    )


@dataclass(frozen=True)
class LengthShift:
    """How one length's tail moved from one corpus to another.

    Args:
        measure: "characters", "words" or "tokens".
        p99_ratio: second corpus' p99 over the first's.
        max_ratio: second corpus' maximum over the first's.
        mean_ratio: shown beside them and never judged.
        shifted: whether the tail moved beyond the bounds, either way.
    """

    measure: str
    p99_ratio: float
    max_ratio: float
    mean_ratio: float
    shifted: bool


@dataclass(frozen=True)
class CorpusComparison:
    """Verdict on two corpora's lengths.

    Args:
        first: name of the corpus that the ratios divide by.
        second: name of the other.
        measures: one entry a length that both reports have.
    """

    first: str
    second: str
    measures: Sequence[LengthShift]

    @property
    def shifted(self) -> bool:
        """Whether any length's tail moved."""
        return any(shift.shifted for shift in self.measures)

    @property
    def verdict(self) -> str:
        """Return one sentence."""
        moved = [f"{s.measure} (p99 x {s.p99_ratio:.2f}, max x {s.max_ratio:.2f})" for s in self.measures if s.shifted]
        return f"shifted: {'; '.join(moved)}" if moved else "no shift in p99 and max"

    def to_json(self) -> dict[str, Any]:
        """Return the fields, the verdict and the bounds as a JSON object."""
        bounds = {"p99_ratio": P99_RATIO, "max_ratio": MAX_RATIO}
        return {**asdict(self), "shifted": self.shifted, "verdict": self.verdict, "bounds": bounds}


def compare_reports(first: CorpusReport, second: CorpusReport) -> CorpusComparison:
    """Judge whether two corpora's lengths differ, on p99 and max and never on the mean.

    Source: design, section 11 (a shift is judged on p99 and max).

    Example:
        >>> from consilience.corpora.text import open_corpus
        >>> short = report_corpus(open_corpus(["a cat"] * 99 + ["a dog"]))
        >>> tail = report_corpus(open_corpus(["a cat"] * 99 + ["a dog " * 50]))
        >>> compare_reports(short, short).shifted, compare_reports(short, tail).shifted
        (False, True)
    """
    theirs = second.lengths()
    shifts = []
    for measure, a in first.lengths().items():
        if (b := theirs.get(measure)) is None:
            continue
        p99, top = b.p99 / max(a.p99, 1), b.max / max(a.max, 1)
        shifted = not (1 / P99_RATIO <= p99 <= P99_RATIO and 1 / MAX_RATIO <= top <= MAX_RATIO)
        shifts.append(LengthShift(measure, p99, top, b.mean / max(a.mean, 1e-12), shifted))
    return CorpusComparison(first.path, second.path, tuple(shifts))
