"""Text corpora: ordered rows from files, folders, data sets, standard input or memory, streamed.

A corpus is read in order and as often as needed; nothing loads it whole. Rows that no teacher should be given (empty,
with NUL, not UTF-8, too long) are refused with their place, or left out when asked for.
"""

from __future__ import annotations

import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

from consilience.core.encoder import in_order
from consilience.core.errors import CorpusError, InputError
from consilience.core.text_files import is_decodable
from consilience.corpora.hub import read_hub
from consilience.corpora.parts import Part, find_files, open_parts, open_standard_input
from consilience.corpora.tables import cell_text

OnFault = Literal["refuse", "drop"]
Fault = Literal["empty", "NUL", "undecodable", "too long"]
MEMORY = "memory:"
_SPOOL_CHUNK = 1 << 20


@dataclass(frozen=True)
class CorpusSpec:
    """What the person asked for; JSON-able through ``dataclasses.asdict``.

    Args:
        path: file, folder, ``datasets`` folder, ``hub:NAME[:SPLIT]``, or "-" for standard input.
        column: the text's column; by default "text", or the only one.
        where: keep rows whose column equals the value (compared as text).
        limit: read only so many of the rows that pass the filter; faulty ones count, so a report reads the same rows.
        on_fault: "refuse" raises at the first row that no teacher should be given, "drop" leaves such rows out.
        max_characters: longer rows are faulty.
    """

    path: str
    column: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    on_fault: OnFault = "refuse"
    max_characters: int = 50_000

    def __post_init__(self) -> None:
        if not self.path:  # pathlib takes it for the working folder
            raise CorpusError("corpus: expected a path, got an empty one. Name a file or folder")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"limit: expected at least 1, got {self.limit}. Leave --limit out to read all rows")
        if self.max_characters < 1:
            raise InputError(f"max_characters: expected at least 1, got {self.max_characters}. Raise --max-characters")
        if self.on_fault not in get_args(OnFault):
            raise InputError(f"on_fault: expected refuse or drop, got {self.on_fault!r}. Change --on-fault")
        object.__setattr__(self, "where", dict(self.where))


class SupportsClose(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Release it."""
        ...


class Row(NamedTuple):
    """One row as it was read.

    Args:
        source: the file or data set it came from.
        number: 1-based place in it.
        text: its text; bytes that aren't UTF-8 are lone surrogates.
        fault: why no teacher should be given it, or None.
    """

    source: str
    number: int
    text: str
    fault: Fault | None


def fault_of(text: str, max_characters: int) -> Fault | None:
    r"""Return what is wrong with a row, or None.

    Example:
        >>> fault_of("a cat", 50), fault_of("  ", 50), fault_of("a\0b", 50), fault_of("abc", 2)
        (None, 'empty', 'NUL', 'too long')
    """
    if not text or text.isspace():
        return "empty"
    if "\0" in text:
        return "NUL"
    if len(text) > max_characters:
        return "too long"
    return None if is_decodable(text) else "undecodable"


def describe_fault(fault: Fault, text: str, max_characters: int) -> str:
    """Say in words what is wrong with a row: "is empty", "holds a NUL byte", ..."""
    return {
        "empty": "is empty",
        "NUL": "holds a NUL byte",
        "undecodable": "isn't valid UTF-8",
        "too long": f"has {len(text):,} characters, the most allowed is {max_characters:,}",
    }[fault]


class Corpus:
    """Ordered, re-iterable rows of text; made by :func:`open_corpus`.

    Args:
        spec: what was asked for.
        parts: the sources in order, each a label and a function that starts reading it.
        spool: the open temporary file behind standard input, kept until the corpus goes.
    """

    def __init__(self, spec: CorpusSpec, parts: Sequence[Part], spool: SupportsClose | None = None) -> None:
        self.spec = spec
        self._parts = parts
        if spool is not None:
            weakref.finalize(self, spool.close)

    def located_rows(self) -> Iterator[Row]:
        """Yield every row that passes the filter, within the limit, with its place and its fault; drops nothing.

        Raises:
            CorpusError: a source can't be parsed.
        """
        rows = (
            Row(label, number, text, fault_of(text, self.spec.max_characters))
            for label, start in self._parts
            for number, text in start()
            if text is not None
        )
        return islice(rows, self.spec.limit)

    def __iter__(self) -> Iterator[str]:
        """Yield the rows' texts.

        Raises:
            CorpusError: a row is faulty and ``on_fault`` is "refuse"; no row is left; or a source can't be parsed.
        """
        dropped, kept = 0, 0
        for row in self.located_rows():
            if row.fault is None:
                kept += 1
                yield row.text
            elif self.spec.on_fault == "refuse":
                raise CorpusError(self._fault_message(row))
            else:
                dropped += 1
        if not kept:
            why = "has no rows"
            if dropped:
                why = f"all {dropped} rows are faulty and were dropped"
            elif self.spec.where:
                wanted = " and ".join(f"{name}={value}" for name, value in self.spec.where.items())
                why = f"no row has {wanted}"
            raise CorpusError(f"{self.name}: empty corpus: {why}. Give a corpus with at least one row of text")

    def batches(self, rows: int, *, start: int = 0) -> Iterator[list[str]]:
        """Yield rows ``start``.. in lists of ``rows``; the last may be shorter.

        Args:
            rows: rows a list.
            start: rows to skip (they are read and checked, not returned).

        Raises:
            InputError: ``rows`` is below 1 or ``start`` below 0.
            CorpusError: as iterating.
        """
        if rows < 1 or start < 0:
            raise InputError(f"batches: expected rows >= 1 and start >= 0, got {rows} and {start}. Change them")
        iterator = islice(iter(self), start, None)
        while batch := list(islice(iterator, rows)):
            yield batch

    def take(self, rows: Iterable[int]) -> dict[int, str]:
        """Return the texts of these row numbers, by number; reads the corpus once and keeps only them.

        Args:
            rows: distinct row numbers, from 0.

        Raises:
            InputError: the corpus has no such row.
            CorpusError: as iterating.
        """
        wanted = {int(row) for row in rows}
        found = {row: text for row, text in enumerate(self) if row in wanted}
        if len(found) < len(wanted):
            raise InputError(f"{self.name}: has no row {min(wanted - set(found))}. Ask for rows that it has")
        return found

    @property
    def name(self) -> str:
        """What a person calls the corpus."""
        return "standard input" if self.spec.path == "-" else self.spec.path

    def _fault_message(self, row: Row) -> str:
        what = describe_fault(cast("Fault", row.fault), row.text, self.spec.max_characters)
        fix = "Leave such rows out with --on-fault drop"
        if row.fault == "too long":
            fix = f"{fix} or allow them with --max-characters {len(row.text)}"
        return f"{row.source}: row {row.number} {what}. {fix}"


def open_corpus(spec: CorpusSpec | str | Path | Sequence[str], **options: Any) -> Corpus:  # noqa: ANN401 - spec fields
    """Open a corpus: check that it exists and has the column; read no more than each file's start.

    Args:
        spec: a spec, its path, or the rows themselves.
        options: fields of :class:`CorpusSpec` that replace the spec's; one at its default counts as not given.

    Raises:
        CorpusError: nothing is there, the column is missing or isn't text, or a file is of no known kind.
        InputError: an option is out of range.

    Example:
        >>> corpus = open_corpus(["a cat", "a dog", "a cow"])
        >>> list(corpus.batches(2))
        [['a cat', 'a dog'], ['a cow']]
    """
    if not isinstance(spec, (CorpusSpec, str, Path)):
        return _open_memory(spec, options)
    if not isinstance(spec, CorpusSpec):
        spec = CorpusSpec(path=str(spec))
    defaults = asdict(CorpusSpec(path="."))
    spec = replace(spec, **{name: value for name, value in options.items() if value != defaults.get(name)})
    if spec.path == "-":
        return _open_standard_input(spec)
    if spec.path.startswith("hub:"):
        name, _, split = spec.path.removeprefix("hub:").rpartition(":")
        if not name:
            name, split = split, "train"
        if not name:
            raise CorpusError(f"{spec.path}: expected hub:NAME or hub:NAME:SPLIT. Name the data set")
        parts: list[Part] = [(spec.path, partial(read_hub, name, split, spec.column, spec.where))]
        return Corpus(spec, parts)
    return Corpus(spec, open_parts(find_files(Path(spec.path)), spec.column, spec.where))


def _open_memory(rows: Sequence[str], options: Mapping[str, Any]) -> Corpus:
    rows = in_order(rows, where="corpus")
    texts = tuple(cell_text(text, "rows in memory", number, "text") for number, text in enumerate(rows, 1))
    spec = CorpusSpec(path=MEMORY, **options)
    if spec.column is not None or spec.where:
        raise InputError("open_corpus: rows in memory have no columns. Leave column and where out")
    return Corpus(spec, [("rows in memory", lambda: iter(enumerate(texts, 1)))])


def _open_standard_input(spec: CorpusSpec) -> Corpus:
    """Spool standard input to a temporary file, so that it can be read more than once."""
    # The corpus owns the file: it is deleted with it, so no context manager closes it here.
    spool = tempfile.NamedTemporaryFile(prefix="consilience-stdin-")  # noqa: SIM115
    while chunk := sys.stdin.buffer.read(_SPOOL_CHUNK):
        spool.write(chunk)
    spool.flush()
    file = open_standard_input(Path(spool.name), columns=spec.column is not None or bool(spec.where))
    return Corpus(spec, open_parts([file], spec.column, spec.where, label="standard input"), spool)
