"""Texts with their ids: the sample that ties an index's vectors to what they are vectors of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from consilience.core.errors import CorpusError, MissingColumnError
from consilience.corpora.tables import cell_text, open_table
from consilience.corpora.text import CorpusSpec, describe_fault, fault_of

MOST_CHARACTERS = CorpusSpec.max_characters
_FIX = "Name the columns of ids and texts with --id-column and --column"


@dataclass(frozen=True)
class IdTexts:
    """Distinct texts, each with the id that an index knows it by.

    Attributes:
        ids: as text; None when the file has no such column.
        texts: distinct.
        duplicates: rows left out because an earlier one has the same text.
    """

    ids: tuple[str, ...] | None
    texts: tuple[str, ...]
    duplicates: int


def read_id_texts(
    path: str | Path, *, id_column: str = "id", column: str = "text", limit: int | None = None, need_ids: bool = True
) -> IdTexts:
    """Read ids and texts from a table; of rows with one text, the first counts.

    A sample has thousands of rows, not millions: it's read into memory.

    Args:
        path: a file with columns, of any format that corpora have.
        id_column: its column of ids.
        column: its column of texts.
        limit: distinct texts at most, the first ones.
        need_ids: refuse a table without the id column.

    Raises:
        CorpusError: missing, unreadable or empty file, missing column, an empty text, or an id that is missing, neither
            text nor a whole number, or occurs twice.
    """
    table = open_table(Path(path), wanted=(column, *([id_column] if need_ids else [])))
    table.require((column,), _FIX)
    table.require_text(column)
    names = [column, id_column]
    try:
        table.require((id_column,), _FIX)
    except MissingColumnError:
        if need_ids:
            raise
        names.pop()
    texts: dict[str, str | None] = {}  # each with its id, in order
    seen: set[str] = set()
    rows = 0
    for number, (cell, *ids) in table.rows(names):
        rows += 1
        text = cell_text(cell, table.label, number, column)
        fault = fault_of(text, MOST_CHARACTERS)
        if fault is not None:
            what = describe_fault(fault, text, MOST_CHARACTERS)
            raise CorpusError(f"{path}: the text of row {number} {what}. Drop or mend it")
        name = _id_of(ids[0], table.label, number, id_column) if ids else None
        if name in seen:
            raise CorpusError(f"{path}: id {name!r} occurs more than once (row {number}). Drop one")
        if name is not None:
            seen.add(name)
        texts.setdefault(text, name)
    if not texts:
        raise CorpusError(f"{path}: expected rows with ids and texts, got none. Give another file")
    kept = list(texts.items())[:limit]
    return IdTexts(
        ids=tuple(name for _, name in kept if name is not None) if len(names) == 2 else None,
        texts=tuple(text for text, _ in kept),
        duplicates=rows - len(texts),
    )


def _id_of(value: Any, table: str, number: int, column: str) -> str:  # noqa: ANN401 - any cell
    """Return an id as text; a float isn't one, as its text isn't the one that the index knows."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole or isinstance(value, UUID) or (isinstance(value, str) and value):
        return str(value)
    found = "nothing" if value is None or value == "" else f"{type(value).__name__} {str(value)[:40]!r}"
    raise CorpusError(
        f"{table}: row {number}: column {column!r}: expected an id, text or a whole number, got {found}. "
        "Write it as one"
    )
