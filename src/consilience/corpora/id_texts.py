"""Texts with their ids: the sample that ties an index's vectors to what they are vectors of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    table = _read(Path(path), [id_column, column])
    for name in (column, *([id_column] if need_ids else [])):
        if name not in table.column_names:
            raise CorpusError(
                f"{path}: no column {name!r}, found {', '.join(table.column_names)}. Name the columns of ids and texts"
            )
    texts = [_as_text(value) for value in table.column(column).to_pylist()]
    ids = (
        [_as_text(value) for value in table.column(id_column).to_pylist()] if id_column in table.column_names else None
    )
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


def _read(path: Path, columns: list[str]) -> Any:  # noqa: ANN401 - a pyarrow table
    import pyarrow
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: expected a file with ids and texts in columns ({', '.join(sorted(_FORMATS))})")
    if not path.is_file():
        raise CorpusError(f"{path}: no such file. Check the path")
    try:
        if kind == "parquet":
            return pyarrow.parquet.read_table(path)
        if kind == "json":
            return pyarrow.json.read_json(path)
        delimiter = "," if kind == "csv" else "\t"
        options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=kind == "csv")
        # Left to itself it would make numbers of ids such as 007, and dates or booleans of texts.
        as_text = pyarrow.csv.ConvertOptions(column_types={name: pyarrow.string() for name in columns})
        return pyarrow.csv.read_csv(path, parse_options=options, convert_options=as_text)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: can't be read as {kind} ({reason}). Write it again") from error


def _as_text(value: object) -> str:
    return "" if value is None else str(value)
