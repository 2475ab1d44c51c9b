"""Texts with their ids: the sample that ties an index's vectors to what they are vectors of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from consilience.core.errors import CorpusError, InputError
from consilience.corpora.text import CorpusSpec, describe_fault, fault_of

MOST_CHARACTERS = CorpusSpec.max_characters
_FORMATS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "tsv"}


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
        path: a parquet, jsonl, csv or tsv file.
        id_column: its column of ids.
        column: its column of texts.
        limit: distinct texts at most, the first ones.
        need_ids: refuse a table without the id column.

    Raises:
        CorpusError: missing, unreadable or empty file, missing column, an empty text, or an id that occurs twice.
        InputError: an unknown file type.
    """
    names, cells = _read(Path(path), [id_column, column])
    for name in (column, *([id_column] if need_ids else [])):
        if name not in names:
            raise CorpusError(
                f"{path}: no column {name!r}, found {', '.join(names)}. Name the columns of ids and texts"
            )
    texts, ids = cells[column], cells.get(id_column)
    seen_texts: set[str] = set()
    seen_ids: set[str] = set()
    kept: list[int] = []
    for row, text in enumerate(texts):
        fault = fault_of(text, MOST_CHARACTERS)
        if fault is not None:
            what = describe_fault(fault, text, MOST_CHARACTERS)
            raise CorpusError(f"{path}: the text of row {row + 1} {what}. Drop or mend it")
        if ids is not None:
            if ids[row] in seen_ids:
                raise CorpusError(f"{path}: id {ids[row]!r} occurs more than once (row {row + 1}). Drop one")
            seen_ids.add(ids[row])
        if text in seen_texts:
            continue
        seen_texts.add(text)
        kept.append(row)
    if not kept:
        raise CorpusError(f"{path}: expected rows with ids and texts, got none. Give another file")
    chosen = kept if limit is None else kept[:limit]
    return IdTexts(
        ids=None if ids is None else tuple(ids[row] for row in chosen),
        texts=tuple(texts[row] for row in chosen),
        duplicates=len(texts) - len(kept),
    )


def _read(path: Path, columns: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of all columns, and the cells of those asked for that are there, as text."""
    import pyarrow

    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: expected a file with ids and texts in columns ({', '.join(sorted(_FORMATS))})")
    if not path.is_file():
        raise CorpusError(f"{path}: no such file. Check the path")
    try:
        if kind == "parquet":
            return _read_parquet(path, columns)
        return _read_jsonl(path, columns) if kind == "json" else _read_csv(path, columns, kind)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: can't be read as {kind} ({reason}). Write it again") from error


def _read_parquet(path: Path, columns: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    import pyarrow.parquet

    names = pyarrow.parquet.read_schema(path).names
    table = pyarrow.parquet.read_table(path, columns=[name for name in columns if name in names])
    return names, {name: [_as_text(cell) for cell in table.column(name).to_pylist()] for name in table.column_names}


def _read_csv(path: Path, columns: list[str], kind: str) -> tuple[list[str], dict[str, list[str]]]:
    import pyarrow.csv

    options = pyarrow.csv.ParseOptions(delimiter="," if kind == "csv" else "\t", newlines_in_values=kind == "csv")
    # Left to itself it would make numbers of ids such as 007, and dates or booleans of texts.
    as_text = pyarrow.csv.ConvertOptions(column_types={name: pyarrow.string() for name in columns})
    table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=as_text)
    names = table.column_names
    return names, {name: [_as_text(c) for c in table.column(name).to_pylist()] for name in columns if name in names}


def _read_jsonl(path: Path, columns: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    # Not by pyarrow, which makes dates of texts that look like them.
    with path.open(encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("expected one JSON object a line")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, {name: [_as_text(row.get(name)) for row in rows] for name in columns if name in names}


def _as_text(value: object) -> str:
    return "" if value is None else str(value)
