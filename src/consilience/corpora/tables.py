"""Tables: files of rows with named columns. The one reader of corpora, pairs, samples, test sets and their like.

A file is inspected once, when it's opened: format, dialect, columns. Reading it streams ``(number, cells)`` and holds
no file whole. Numbers are 1-based: lines of JSON lines, records after the header of csv and tsv, rows elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from consilience.core.errors import CorpusError, MissingColumnError
from consilience.core.text_files import COMPRESSIONS, read_head
from consilience.corpora.arrow_rows import arrow_schema, is_text, read_arrow_rows
from consilience.corpora.delimited import Dialect, read_delimited, sniff_dialect
from consilience.corpora.json_rows import read_json_rows

Format = Literal["text", "csv", "tsv", "json", "parquet", "arrow"]
SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_BINARY = ("parquet", "arrow")  # they compress their columns themselves
_JSON_SNIFF_ROWS = 100
_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 20, 60
OnColumns = Callable[[int, Sequence[str]], None]


def format_of(path: Path) -> Format | None:
    """Return the format that a file's name says, or None; a compression's suffix may follow those of text."""
    suffixes = [s.lower() for s in path.suffixes]
    is_packed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    found = SUFFIXES.get(suffixes[-1 - is_packed]) if len(suffixes) > is_packed else None
    return None if is_packed and found in _BINARY else found


def stem_of(path: Path) -> str:
    """Return a file's name without the suffixes of its compression and format."""
    name = path.name
    for suffixes in (COMPRESSIONS, SUFFIXES):
        if Path(name).suffix.lower() in suffixes:
            name = Path(name).stem
    return name


def format_by_content(path: Path, label: str) -> Format:
    """Tell the format of a file whose name doesn't: parquet, Arrow, JSON, otherwise text."""
    with path.open("rb") as stream:
        magic = stream.read(6)
    if magic.startswith(b"PAR1"):
        return "parquet"
    if magic == b"ARROW1":
        return "arrow"
    head = read_head(path, label).removeprefix(b"\xef\xbb\xbf").lstrip()
    return "json" if head.startswith((b'{"', b"{\n", b"[{", b"[\n")) else "text"


@dataclass(frozen=True)
class Table:
    """A file with columns; made by :func:`open_table`.

    Attributes:
        path: where it is.
        label: what a person calls it.
        format: its format.
        columns: names of its columns, in order; of JSON those of its first rows, as others may follow.
        dialect: of delimited text.
        schema: of parquet and Arrow.
    """

    path: Path
    label: str
    format: Format
    columns: tuple[str, ...]
    dialect: Dialect | None = field(default=None, repr=False)
    schema: Any = field(default=None, repr=False)

    def rows(
        self, columns: Sequence[str], on_columns: OnColumns | None = None
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield each row's number and the cells of some columns; a key that a JSON row lacks is None.

        Args:
            columns: names that :meth:`require` has let pass.
            on_columns: told of the columns that a JSON row has and none before it had.

        Raises:
            CorpusError: the file is damaged or malformed.
        """
        if self.dialect is not None:
            return self._delimited_rows(columns, self.dialect)
        if self.schema is not None:
            return read_arrow_rows(self.path, self.label, self.format, columns)
        return self._json_rows(columns, on_columns)

    def _delimited_rows(self, columns: Sequence[str], dialect: Dialect) -> Iterator[tuple[int, tuple[str, ...]]]:
        places = [self.columns.index(name) for name in columns]
        for number, record in islice(read_delimited(self.path, self.label, dialect), 1, None):
            yield number, tuple(record[place] for place in places)

    def _json_rows(self, columns: Sequence[str], on_columns: OnColumns | None) -> Iterator[tuple[int, tuple[Any, ...]]]:
        seen: set[str] = set()
        for number, row in read_json_rows(self.path, self.label):
            if on_columns is not None and not row.keys() <= seen:
                on_columns(number, [name for name in row if name not in seen])
                seen.update(row)
            yield number, tuple(row.get(name) for name in columns)

    def require(self, names: Iterable[str], fix: str) -> None:
        """Refuse the table if it lacks one of these columns, or has one twice; JSON is read until each was seen.

        Args:
            names: of columns.
            fix: what to do, as a sentence without its end.

        Raises:
            CorpusError: see above.
        """
        for name in names:
            if self.columns.count(name) > 1:
                raise CorpusError(
                    f"{self.label}: {self.columns.count(name)} columns are called {name!r}. Give each its own name"
                )
        missing = [name for name in names if name not in self.columns]
        if self.format == "json" and missing:
            left = set(missing)
            for _, row in read_json_rows(self.path, self.label):
                left -= row.keys()
                if not left:
                    return
            missing = [name for name in missing if name in left]
        if missing and self.format == "json" and not self.columns:
            raise CorpusError(f"{self.label}: the file has no rows. Give one with rows")
        if missing:
            hint = "" if self.dialect is None else ". If that is a row, write the columns' names above it"
            raise MissingColumnError(
                f"{self.label}: no column {' and no column '.join(map(repr, missing))}; its columns: "
                f"{self.listed()}. {fix}{hint}"
            )

    def require_text(self, name: str) -> None:
        """Refuse a column whose type isn't text: numbers, lists, bytes, ...; of untyped formats each cell is checked.

        Raises:
            CorpusError: it isn't text.
        """
        if self.schema is not None and not is_text(self.schema.field(name).type):
            texts = [column.name for column in self.schema if is_text(column.type)]
            raise CorpusError(
                f"{self.label}: column {name!r}: expected text, got {self.schema.field(name).type}. Its text columns: "
                f"{', '.join(texts) or 'none'}"
            )

    def listed(self) -> str:
        """Return the columns' names for a message."""
        cut = [name[:_SHOWN_CHARACTERS] for name in self.columns[:_SHOWN_COLUMNS]]
        shown = [name if name == name.strip() else repr(name) for name in cut]  # blanks at the ends don't show
        more = len(self.columns) - len(shown)
        return (", ".join(shown) or "none") + (f" and {more} more" if more else "")


def open_table(
    path: Path, kind: Format | None = None, *, label: str | None = None, wanted: Sequence[str] = ()
) -> Table:
    """Inspect a file of rows.

    Args:
        path: the file.
        kind: its format; by default what its name says.
        label: its name in messages; by default the path.
        wanted: names of columns that it should have: of a header that can be split in two ways, they decide.

    Raises:
        CorpusError: there is no such file, it's of no known kind, or it can't be read.
    """
    label = label or str(path)
    if not path.is_file():
        what = "is a folder. Give a file" if path.is_dir() else "no such file. Check the path"
        raise CorpusError(f"{label}: {what}")
    kind = kind or format_of(path) or format_by_content(path, label)
    if kind == "text":
        suffixes = ", ".join(suffix for suffix, known in SUFFIXES.items() if known != "text")
        raise CorpusError(
            f"{label}: expected a file with columns ({suffixes}), got {path.suffix or 'no suffix'}. "
            "Convert or rename it"
        )
    if kind in _BINARY:
        schema = arrow_schema(path, label, kind)
        return Table(path, label, kind, tuple(schema.names), schema=schema)
    if kind == "json":
        rows = islice(read_json_rows(path, label), _JSON_SNIFF_ROWS)
        return Table(path, label, kind, tuple(dict.fromkeys(name for _, row in rows for name in row)))
    dialect = sniff_dialect(path, label, tabs=kind == "tsv", wanted=wanted)
    header = next(read_delimited(path, label, dialect), (0, []))[1]
    return Table(path, label, kind, tuple(header), dialect=dialect)


def cell_text(value: Any, table: str, number: int, column: str) -> str:  # noqa: ANN401 - any cell
    """Return a cell that should be text: null and NaN, which stand for missing text, are "".

    Raises:
        CorpusError: it's a number, a list, ...
    """
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and value != value):
        return ""
    raise CorpusError(
        f"{table}: row {number}: column {column!r}: expected text, got {type(value).__name__}. Give a column of text"
    )


def passes(cells: Iterable[Any], where: Mapping[str, str]) -> bool:
    """Say whether cells equal the filter's values: null is "", booleans are "true" and "false"."""
    return all(_where_text(cell) == wanted for cell, wanted in zip(cells, where.values(), strict=True))


def _where_text(value: Any) -> str:  # noqa: ANN401 - any cell
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
