"""Readers, one a format: each streams ``(row number, text)`` of one file and never holds a file whole.

Text is decoded as UTF-8 with ``surrogateescape``: bytes that aren't UTF-8 become lone surrogates, which no valid text
holds. So damage stays a property of its row (see :func:`consilience.corpora.text.fault_of`) and doesn't stop a report.
A row that the filter leaves out is yielded as None, so that the first item comes soon whatever the filter. Row numbers
are 1-based: lines in text and JSON lines, records after the header in csv and tsv, rows elsewhere.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from consilience.core.errors import CorpusError
from consilience.core.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["text", "csv", "tsv", "jsonl", "parquet", "datasets"]
SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
NumberedRow = tuple[int, str | None]
_LINE_BYTES = 64 << 20  # assumed: a longer "line" is not a line of text, and reading it could exhaust the memory
_SNIFF_BYTES = 1 << 16
_CONTROL_SHARE = 0.1  # assumed: text with more control bytes than this is a binary file
_CONTROL = bytes(c for c in range(32) if c not in b"\t\n\r\f\x1b")
_BATCH_ROWS = 8192
_MAGIC = {
    b"PAR1": "a parquet file (name it .parquet)",
    b"PK\x03\x04": "a zip archive",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x7fELF": "a program",
    b"%PDF": "a PDF",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"BZh": "bzip2-compressed",
    b"\xfd7zXZ": "xz-compressed",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def format_of(path: Path) -> Format | None:
    """Return the format that a file's name says (``.gz`` may follow text-like suffixes), or None."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def where_text(value: Any) -> str:  # noqa: ANN401 - any cell
    """Return the text by which ``where`` compares a cell: null is "", booleans are "true" and "false"."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def pick_column(label: str, names: Sequence[str], column: str | None, where: Mapping[str, str]) -> str:
    """Choose the text column and check that it and the filter's columns exist.

    Raises:
        CorpusError: a column is missing, or none was named and there is neither a "text" nor only one.
    """
    listed = ", ".join(names) or "none"
    for name in ([column] if column is not None else []) + list(where):
        if name not in names:
            raise CorpusError(f"{label}: no column {name!r}; its columns: {listed}. Choose one of them")
    if column is not None:
        return column
    if "text" in names:
        return "text"
    if len(names) == 1:
        return names[0]
    raise CorpusError(f"{label}: expected a column named 'text'; its columns: {listed}. Choose one with --column")


@contextmanager
def open_bytes(path: Path, label: str) -> Iterator[IO[bytes]]:
    """Open a file for reading, through gzip when its first bytes say so; refuse what isn't text.

    Raises:
        CorpusError: the file can't be opened, is binary, or its compressed data is damaged.
    """
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: Any = io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 18) if is_gzip else raw
            _refuse_binary(stream.read(_SNIFF_BYTES), label)
            stream.seek(0)
            yield stream
    except _DAMAGED as error:
        raise CorpusError(f"{label}: damaged gzip data ({error}). Fetch the file again") from error
    except OSError as error:
        raise CorpusError(
            f"{label}: can't read: {error.strerror or error}. Check the file and its permissions"
        ) from error


def _refuse_binary(head: bytes, label: str) -> None:
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            raise CorpusError(f"{label}: expected UTF-8 text, found {name}. Convert it to UTF-8 text or parquet")
    if head and (len(head) - len(head.translate(None, _CONTROL))) > _CONTROL_SHARE * len(head):
        raise CorpusError(f"{label}: expected UTF-8 text, found a binary file. Convert it to UTF-8 text or parquet")


def iter_lines(path: Path, label: str) -> Iterator[tuple[int, str]]:
    r"""Yield numbered lines, split on ``\n`` only, without one trailing ``\r`` and without a byte order mark."""
    with open_bytes(path, label) as stream:
        number = 0
        while line := stream.readline(_LINE_BYTES):
            number += 1
            if line.endswith(b"\n"):
                line = line[:-1]
            elif len(line) == _LINE_BYTES:
                raise CorpusError(f"{label}: line {number} is longer than {_LINE_BYTES} bytes. This isn't a text file")
            if line.endswith(b"\r"):
                line = line[:-1]
            if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                line = line[3:]
            yield number, line.decode("utf-8", "surrogateescape")


def text_columns(label: str, column: str | None, where: Mapping[str, str]) -> None:
    """Refuse a column or filter for plain text lines.

    Raises:
        CorpusError: one was given.
    """
    if column is not None or where:
        option = "--column" if column is not None else "--where"
        raise CorpusError(
            f"{label}: text lines have no columns. Leave {option} out or give a csv, jsonl or parquet file"
        )


@contextmanager
def _csv_reader(path: Path, label: str, delimiter: str) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """Open a csv (quoted) or tsv (unquoted) file: its header and its records."""
    csv.field_size_limit(max(csv.field_size_limit(), _LINE_BYTES))  # long fields are row faults, not parser errors
    with open_bytes(path, label) as stream:
        if delimiter == "\t":  # tsv cells hold neither tabs nor line ends, and may hold bare quotation marks
            lines = (line.split("\t") for _, line in iter_lines(path, label))
            header = next(lines, [])
            yield header, lines
            return
        decoded = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        records = csv.reader(decoded, delimiter=delimiter, strict=True)
        try:
            yield next(records, []), records
        except csv.Error as error:
            raise CorpusError(f"{label}: line {records.line_num}: malformed csv ({error}). Repair the file") from error
        finally:
            decoded.detach()


def read_csv(
    path: Path, label: str, column: str | None, where: Mapping[str, str], delimiter: str
) -> Iterator[NumberedRow]:
    """Yield numbered cells of one column of a csv or tsv file."""
    with _csv_reader(path, label, delimiter) as (header, records):
        if not header:
            return
        chosen = header.index(pick_column(label, header, column, where))
        filters = [(header.index(name), value) for name, value in where.items()]
        for number, record in enumerate(records, 1):
            if not record:  # a blank line
                continue
            if len(record) != len(header):
                raise CorpusError(
                    f"{label}: row {number}: expected {len(header)} cells, got {len(record)}. Repair the file's quoting"
                )
            kept = all(record[i] == value for i, value in filters)
            yield number, record[chosen] if kept else None


def read_jsonl(path: Path, label: str, column: str | None, where: Mapping[str, str]) -> Iterator[NumberedRow]:
    """Yield numbered values of one key of a JSON-lines file; a missing key or null is an empty row."""
    chosen: str | None = None
    for number, line in iter_lines(path, label):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:  # also a number of more digits than Python converts
            raise CorpusError(f"{label}: line {number}: isn't JSON ({error}). Give one JSON object a line") from error
        if not isinstance(value, dict):
            found = type(value).__name__
            raise CorpusError(f"{label}: line {number}: expected a JSON object, got {found}. Give one object a line")
        if chosen is None:
            chosen = pick_column(label, list(value), column, where)
        if where and any(where_text(value.get(name)) != wanted for name, wanted in where.items()):
            yield number, None
            continue
        text = value.get(chosen)
        if text is not None and not isinstance(text, str):
            raise CorpusError(
                f"{label}: line {number}: column {chosen!r}: expected text, got {type(text).__name__}. Choose --column"
            )
        yield number, text or ""


def check_text_field(label: str, schema: pa.Schema, column: str) -> None:
    """Refuse an Arrow column that doesn't hold text.

    Raises:
        CorpusError: it holds numbers, lists, bytes, ...
    """
    import pyarrow as pa

    kind = schema.field(column).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(check(kind) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)):
        texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        raise CorpusError(
            f"{label}: column {column!r}: expected text, got {kind}. Its text columns: {', '.join(texts) or 'none'}"
        )


def _arrow_texts(array: Any) -> list[str]:  # noqa: ANN401 - pyarrow is untyped
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        return [text or "" for text in array.to_pylist()]
    except UnicodeDecodeError:  # parquet doesn't check that its strings are UTF-8
        return [(raw or b"").decode("utf-8", "surrogateescape") for raw in array.cast(pa.large_binary()).to_pylist()]


def _arrow_rows(
    batches: Iterator[Any], label: str, schema: pa.Schema, column: str | None, where: Mapping[str, str]
) -> Iterator[NumberedRow]:
    chosen = pick_column(label, schema.names, column, where)
    check_text_field(label, schema, chosen)
    number = 0
    for batch in batches:
        texts = _arrow_texts(batch.column(chosen))
        if where:
            cells = [(batch.column(name).to_pylist(), wanted) for name, wanted in where.items()]
            for i, text in enumerate(texts):
                kept = all(where_text(values[i]) == wanted for values, wanted in cells)
                yield number + i + 1, text if kept else None
        else:
            yield from enumerate(texts, number + 1)
        number += len(texts)


@contextmanager
def _arrow_errors(label: str, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{label}: can't be read as {kind} ({error}). Fetch or write the file again") from error


def read_parquet(path: Path, label: str, column: str | None, where: Mapping[str, str]) -> Iterator[NumberedRow]:
    """Yield numbered values of one column of a parquet file; null is an empty row."""
    import pyarrow.parquet as pq

    # Otherwise pyarrow reads a row group's whole column at once.
    source = {"buffer_size": 1 << 20, "pre_buffer": False}
    with _arrow_errors(label, "parquet"), pq.ParquetFile(path, **source) as file:
        schema = file.schema_arrow
        chosen = pick_column(label, schema.names, column, where)
        check_text_field(label, schema, chosen)
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=list(dict.fromkeys([chosen, *where])))
        yield from _arrow_rows(batches, label, schema, chosen, where)


def datasets_files(folder: Path) -> list[Path]:
    """List the Arrow files of a folder that ``datasets`` saved, in row order.

    Raises:
        CorpusError: it holds several splits, or its listing is damaged.
    """
    if (folder / "dataset_dict.json").is_file():
        splits = _json_of(folder / "dataset_dict.json").get("splits", [])
        if len(splits) != 1:
            raise CorpusError(f"{folder}: holds the splits {', '.join(splits)}. Give one of them: {folder}/SPLIT")
        folder = folder / str(splits[0])
    entries = _json_of(folder / "state.json").get("_data_files", [])
    return [folder / str(entry["filename"]) for entry in entries]


def _json_of(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: can't be read ({error}). Save the data set again") from error
    return value if isinstance(value, dict) else {}


def read_arrow(path: Path, label: str, column: str | None, where: Mapping[str, str]) -> Iterator[NumberedRow]:
    """Yield numbered values of one column of an Arrow stream, the format of ``datasets`` folders; memory-mapped."""
    import pyarrow as pa

    with (
        _arrow_errors(label, "an Arrow stream"),
        pa.memory_map(str(path)) as source,
        pa.ipc.open_stream(source) as file,
    ):
        yield from _arrow_rows(iter(file), label, file.schema, column, where)


def read_hub(name: str, split: str, column: str | None, where: Mapping[str, str]) -> Iterator[NumberedRow]:
    """Yield numbered values of one column of a hub data set, streamed through the ``datasets`` library.

    Raises:
        MissingExtraError: ``datasets`` isn't installed.
        CorpusError: the hub isn't reachable, or it has no such data set or split.
    """
    label = f"hub:{name}:{split}"
    datasets = require("datasets", extra="hub", purpose="to read hub data sets")
    try:
        rows = iter(datasets.load_dataset(name, split=split, streaming=True))
        first = next(rows, None)
    except Exception as error:  # the library raises its own, the hub client's and fsspec's errors
        raise CorpusError(
            f"{label}: can't be opened ({error}). Check the name, the split and the connection"
        ) from error
    if first is None:
        return
    chosen = pick_column(label, list(first), column, where)
    number, row = 1, first
    while row is not None:
        if all(where_text(row.get(key)) == wanted for key, wanted in where.items()):
            text = row.get(chosen)
            if text is not None and not isinstance(text, str):
                raise CorpusError(
                    f"{label}: column {chosen!r}: expected text, got {type(text).__name__}. Choose --column"
                )
            yield number, text or ""
        else:
            yield number, None
        try:
            number, row = number + 1, next(rows, None)
        except Exception as error:  # as above: the connection broke off
            raise CorpusError(
                f"{label}: reading stopped after row {number} ({error}). Run the same command again"
            ) from error


def read_file(
    path: Path, kind: Format, label: str, column: str | None, where: Mapping[str, str]
) -> Iterator[NumberedRow]:
    """Yield the numbered texts of one file of a known format; None where the filter leaves a row out.

    Raises:
        CorpusError: the file can't be parsed, or a column is missing or doesn't hold text.
    """
    if kind == "text":
        text_columns(label, column, where)
        return iter_lines(path, label)
    if kind in ("csv", "tsv"):
        return read_csv(path, label, column, where, "," if kind == "csv" else "\t")
    if kind == "jsonl":
        return read_jsonl(path, label, column, where)
    return (read_parquet if kind == "parquet" else read_arrow)(path, label, column, where)
