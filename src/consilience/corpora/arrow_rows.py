"""Columns of parquet and Arrow files, read in batches; plus which of Arrow's types hold text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consilience.core.errors import CorpusError

_BATCH_ROWS = 8192


def is_text(kind: Any) -> bool:  # noqa: ANN401 - pyarrow.DataType
    """Say whether an Arrow type holds text, whatever it is encoded as; a column of nothing but nulls may."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(check(kind) for check in checks)


def arrow_schema(path: Path, label: str, kind: str) -> Any:  # noqa: ANN401 - pyarrow.Schema
    """Return the schema of a parquet or Arrow file.

    Raises:
        CorpusError: it can't be read.
    """
    with _opened(path, label, kind) as file:
        return file.schema_arrow if kind == "parquet" else file.schema


def read_arrow_rows(path: Path, label: str, kind: str, columns: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the numbered rows' cells of some columns.

    Raises:
        CorpusError: the file is damaged.
    """
    number = 0
    with _opened(path, label, kind) as file:
        for batch in _batches(file, kind, list(dict.fromkeys(columns))):
            cells = [_cells(batch.column(name)) for name in columns]
            yield from enumerate(zip(*cells, strict=True), number + 1)
            number += batch.num_rows


def _batches(file: Any, kind: str, columns: list[str]) -> Iterator[Any]:  # noqa: ANN401 - pyarrow is untyped
    if kind == "parquet":
        return iter(file.iter_batches(batch_size=_BATCH_ROWS, columns=columns))
    if hasattr(file, "num_record_batches"):
        return (file.get_batch(at) for at in range(file.num_record_batches))
    return iter(file)


@contextmanager
def _opened(path: Path, label: str, kind: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if kind == "parquet":
            # Otherwise pyarrow reads a row group's whole column at once.
            with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
                yield file
            return
        with pa.memory_map(str(path)) as source:  # the file format has a magic number, the stream format has none
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source) as file:
                yield file
    except (pa.ArrowException, OSError) as error:
        what = "parquet" if kind == "parquet" else "an Arrow file"
        raise CorpusError(f"{label}: can't be read as {what} ({error}). Fetch or write the file again") from error


def _cells(array: Any) -> list[Any]:  # noqa: ANN401 - pyarrow is untyped
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    try:
        cells: list[Any] = array.to_pylist()
        return cells
    except UnicodeDecodeError:  # parquet doesn't check that its strings are UTF-8
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if cell is None else cell.decode("utf-8", "surrogateescape") for cell in raw]
