"""Delimited text, .csv and .tsv: the dialect is read off the file, said where it's an unusual one, never guessed.

The delimiter is the one that a first line ``sep=;`` names; a tab in .tsv; elsewhere the one of ``, ; tab |`` that
splits the header and gives each row of the file's start as many cells. Quotes enclose cells as csv has it, except
where tabs are the delimiter: such files are mostly written without quoting, and a quotation mark is then a character.
There the whole file is the evidence, see :func:`quotes_enclose`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from consilience.core.errors import CorpusError
from consilience.core.progress import say_once
from consilience.core.text_files import HEAD_BYTES, LINE_CHARACTERS, iter_lines, line_end, open_text, read_head

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SEP_LINE = re.compile(r"\ufeff?sep=(.)\r?(\n|$)", re.IGNORECASE)
_CLOSED = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=\t|$)')
_OPEN = re.compile(r'"[^"]*(?:""[^"]*)*')
_PLAIN = re.compile(r'[^"\t]*(?=\t|$)')
_CLOSING = re.compile(r'[^"]*(?:""[^"]*)*"(?=\t|$)')
_INSIDE = re.compile(r'[^"]*(?:""[^"]*)*')
_NEEDS_QUOTES = re.compile(r'["\t\r]')


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written.

    Attributes:
        delimiter: between cells.
        enclosing: whether quotes enclose cells; otherwise they are characters.
        skip: lines before the header.
    """

    delimiter: str
    enclosing: bool
    skip: int


def sniff_dialect(path: Path, label: str, *, tabs: bool, wanted: Sequence[str] = ()) -> Dialect:
    """Tell how a delimited file is written.

    Args:
        path: the file.
        label: its name in messages.
        tabs: whether its name says that tabs are the delimiter.
        wanted: names of columns, by which a header is recognised that several delimiters split.

    Raises:
        CorpusError: it can be read in two ways; the message says how to decide.
    """
    raw = read_head(path, label)
    head = raw.decode("utf-8-sig", "surrogateescape")
    named = _SEP_LINE.match(head)
    skip = int(named is not None)
    if named is not None:
        delimiter = named[1]
    elif tabs:
        delimiter = "\t"
    else:
        delimiter = _delimiter(head, len(raw) == HEAD_BYTES, label, wanted)
    if not tabs and delimiter != ",":
        say_once(f"{label}: cells are separated by {DELIMITERS.get(delimiter, repr(delimiter))}")
    enclosing = delimiter != "\t" or quotes_enclose(path, label, skip)
    if delimiter == "\t" and enclosing:
        say_once(f"{label}: quotes enclose cells")
    return Dialect(delimiter, enclosing, skip)


def _delimiter(head: str, is_cut: bool, label: str, wanted: Sequence[str]) -> str:
    rows = {delimiter: _rows(head, delimiter, is_cut) for delimiter in DELIMITERS}
    splitting = [d for d, found in rows.items() if found and len(found[0]) > 1]
    if len(splitting) < 2:
        return splitting[0] if splitting else ","
    fitting = [d for d in splitting if len({len(row) for row in rows[d]}) == 1]
    if len(fitting) > 1:
        fitting = [d for d in fitting if set(wanted) <= set(rows[d][0])] if wanted else fitting
    if len(fitting) != 1:
        raise CorpusError(
            f"{label}: the header can be split at {' and at '.join(DELIMITERS[d] for d in splitting)}. "
            f"Say which with a first line sep={splitting[0]} or sep={splitting[1]}"
        )
    return fitting[0]


def _rows(head: str, delimiter: str, is_cut: bool) -> list[list[str]]:
    rows: list[list[str]] = []
    end = line_end(head.encode("utf-8", "surrogateescape"))
    lines = (line + end for line in head.split(end))
    try:
        for row in csv.reader(lines, delimiter=delimiter, strict=True):
            if row:
                rows.append(row)
    except csv.Error:
        return rows if is_cut or not rows else [*rows, []]  # a row of no cells: the delimiter doesn't fit
    return rows[:-1] if is_cut else rows


def read_delimited(path: Path, label: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield the header as row 0, then the numbered records; blank lines are left out.

    Raises:
        CorpusError: a record has another number of cells than the header, or its quoting is broken.
    """
    header: list[str] = []
    for number, record in enumerate(_records(path, label, dialect), -dialect.skip):
        if number < 0 or not record:
            continue
        if not header:
            header = record
        elif len(record) != len(header):
            if record == [""]:
                continue
            repair = "Repair the file's quoting" if dialect.enclosing else "Repair its tabs"
            raise CorpusError(f"{label}: row {number}: expected {len(header)} cells, got {len(record)}. {repair}")
        yield number, record


def _records(path: Path, label: str, dialect: Dialect) -> Iterator[list[str]]:
    if not dialect.enclosing:
        for _, line in iter_lines(path, label):
            yield line.split(dialect.delimiter)
        return
    csv.field_size_limit(max(csv.field_size_limit(), LINE_CHARACTERS))  # long cells are row faults, not parser errors
    end = line_end(read_head(path, label))
    if end == "\r":
        say_once(f"{label}: has no LF, so its lines end at CR")
    with open_text(path, label, end) as stream:
        records = csv.reader(stream, delimiter=dialect.delimiter, strict=True)
        try:
            yield from records
        except csv.Error as error:
            raise CorpusError(
                f"{label}: line {records.line_num}: malformed csv ({error}). Repair its quoting"
            ) from error


def quotes_enclose(path: Path, label: str, skip: int = 0) -> bool:
    """Say whether a tab-separated file is written with csv's quoting, by all of its lines.

    That quotes are characters is shown by a quotation mark where csv allows none. That they enclose cells is shown by
    names in quotes in the header, and by an enclosed cell that has to be: one with a doubled quotation mark, a tab or
    a line end. Without either they are characters, unless the lines can be read both ways: each cell of a column is
    enclosed, or lines between an opening and a closing quote are whole rows, too.

    Raises:
        CorpusError: the lines can be read both ways, or show both.
    """
    evidence = _Evidence()
    for number, line in iter_lines(path, label):
        if number > skip and line:
            evidence.add(number, line)
    return evidence.verdict(label)


class _Evidence:
    """Which lines of a tab-separated file show how its quotes are meant; memory for one line."""

    def __init__(self) -> None:
        self.width = 0  # cells of the header
        self.characters, self.enclosing, self.either = 0, 0, 0  # the first line that shows it
        self.enclosed: set[int] | None = None  # columns whose cells, without the header's, are all enclosed
        self.opened = 0  # the line of a cell that isn't closed yet
        self.whole: list[bool] = []  # of the opening line and those after it: it has as many cells as the header

    def add(self, number: int, line: str) -> None:
        """Take one line into account."""
        cells = line.count("\t") + 1
        if not self.width:
            self.width = cells
            if all(cell is not None for cell in self._split(number, line, 0)):
                self.enclosing = number
        elif self.opened:
            self._go_on(number, line, cells)
        elif '"' in line:
            self._judge(number, line, cells)
        else:
            self.enclosed = set()

    def _go_on(self, number: int, line: str, cells: int) -> None:
        """Read a line behind an open cell."""
        if _INSIDE.fullmatch(line):
            self.whole = [self.whole[0], cells == self.width or any(self.whole[1:])]
            return
        opened, self.opened = self.opened, 0
        closed = _CLOSING.match(line)
        if closed is None:  # a quotation mark inside: that cell wasn't enclosed, so this line is one of its own
            self.characters = self.characters or opened
            self._judge(number, line, cells)
            return
        rows = any(self.whole[1:]) or (self.whole[0] and cells == self.width)
        if rows:
            self.either = self.either or opened
        else:
            self.enclosing = self.enclosing or opened
        if closed.end() < len(line):
            self._split(number, line, closed.end() + 1)

    def _judge(self, number: int, line: str, cells: int) -> None:
        """Read a line of its own."""
        found = self._split(number, line, 0)
        if len(found) != cells and cells == self.width and not self.opened:
            self.characters = self.characters or number
        elif line == '""' or any(text and _NEEDS_QUOTES.search(text) for text in found):
            self.enclosing = self.enclosing or number
        columns = {at for at, text in enumerate(found) if text is not None}
        self.enclosed = columns if self.enclosed is None else self.enclosed & columns

    def _split(self, number: int, line: str, at: int) -> list[str | None]:
        """Split a line from ``at`` on as csv does, until it can't: texts of enclosed cells, None for others."""
        found: list[str | None] = []
        while at <= len(line):
            cell = _CLOSED.match(line, at) or _PLAIN.match(line, at)
            if cell is None:
                if _OPEN.fullmatch(line, at):
                    self.opened, self.whole = number, [line.count("\t") + 1 == self.width]
                else:
                    self.characters = self.characters or number
                return [*found, None]
            found.append(cell[1] if cell.re is _CLOSED else None)
            at = cell.end() + 1
        return found

    def verdict(self, label: str) -> bool:
        """Weigh what the lines have shown.

        Raises:
            CorpusError: it's ambiguous.
        """
        characters = self.characters or self.opened  # a cell that is never closed isn't enclosed
        fix = (
            "If quotes enclose cells, enclose the header's names, too; if they are characters, write the file as jsonl "
            "or parquet"
        )
        if characters and self.enclosing:
            raise CorpusError(
                f"{label}: quotes are characters in line {characters} and enclose a cell in line {self.enclosing}. "
                "Write the file as jsonl or parquet"
            )
        if characters or self.enclosing:
            return not characters
        if self.either:
            raise CorpusError(
                f"{label}: from line {self.either} to the next quotation mark it's one cell or several rows. {fix}"
            )
        if self.enclosed:
            raise CorpusError(f"{label}: each row's cell {min(self.enclosed) + 1} is in quotes. {fix}")
        return False
