"""A parquet file, or a folder of them, with an id column, a vector column and whatever else a person keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError
from consilience.core.files import storage_errors
from consilience.indexes.columns import arrow_columns, ids_of, new_schema, vectors_of, with_vectors
from consilience.indexes.index import (
    Block,
    Metric,
    RowChecks,
    Transform,
    VectorIndex,
    Vectors,
    checked_blocks,
    fingerprint_blocks,
    lookup_by_scan,
    require_rows,
    transformed,
)
from consilience.indexes.publish import published, require_new
from consilience.indexes.spec import IndexSpec

_BUFFER_BYTES = 1 << 20  # assumed


class ParquetIndex:
    """Vectors in lists of floats, of fixed or variable size.

    Args:
        path: a file, or a folder whose ``*.parquet`` files are read in the order of their names.
        id_column: integers or text.
        vector_column: lists of floats, all of one length.
        metric: what the vectors are compared by; parquet doesn't say.

    Raises:
        InputError: no such file or column, more than one that can be meant, files that differ, or no rows.
    """

    kind = "parquet"

    def __init__(
        self,
        path: Path,
        *,
        id_column: str | None = None,
        vector_column: str | None = None,
        metric: Metric | None = None,
    ) -> None:
        self.label = f"parquet:{path}"
        self.spec = IndexSpec("parquet", str(path), None)
        self.metric: Metric = metric or "cosine"
        self._path = path
        self._files = self._find_files()
        self.rows = 0
        first: Any = None
        for file in self._files:
            with _opened(file) as parquet:
                schema = parquet.schema_arrow
                self.rows += parquet.metadata.num_rows
            if first is None:
                first = schema
                self._columns = arrow_columns(self.label, schema, id_column, vector_column)
            for name in self._columns:
                if name not in schema.names or schema.field(name).type != first.field(name).type:
                    raise InputError(
                        f"{file}: its column {name!r} is missing or of another type than in {self._files[0]}"
                    )
        require_rows(self.label, self.rows)
        self.dimensions = self._width(first)

    def iter_blocks(self, rows: int = 8192) -> Iterator[Block]:
        """See :meth:`VectorIndex.iter_blocks`."""
        return checked_blocks(self, lambda: self._blocks(rows))

    def lookup(self, ids: Sequence[str]) -> Vectors:
        """See :meth:`VectorIndex.lookup`."""
        return lookup_by_scan(self, self._blocks(8192), ids)

    def fingerprint(self) -> str:
        """See :meth:`VectorIndex.fingerprint`."""
        return fingerprint_blocks(self.iter_blocks())

    def require_target(self, out: str, fragment: str | None) -> None:
        """See :meth:`RewritableIndex.require_target`."""
        if fragment is not None:
            raise InputError(f"{out}#{fragment}: the columns keep their names. Leave out the #")
        require_new(Path(out), self._path)

    def rewrite(self, out: str, fragment: str | None, transform: Transform, dimensions: int, block_rows: int) -> None:
        """Write the same file, or a folder of the same files, with other vectors; all other columns are copied."""
        self.require_target(out, fragment)
        target = Path(out)
        checks = RowChecks(self.label, self.dimensions)
        with published(target) as partial:
            for file in self._files:
                inner = partial / file.relative_to(self._path) if self._path.is_dir() else partial
                with storage_errors(inner):
                    inner.parent.mkdir(parents=True, exist_ok=True)
                self._rewrite_file(file, inner, transform, dimensions, block_rows, checks)
            checks.finish(self._all_ids)

    def _rewrite_file(
        self, file: Path, out: Path, transform: Transform, dimensions: int, block_rows: int, checks: RowChecks
    ) -> None:
        import pyarrow.parquet as pq

        id_column, vector_column = self._columns
        with _opened(file) as parquet:
            schema = new_schema(parquet.schema_arrow, vector_column, dimensions)
            with pq.ParquetWriter(out, schema, compression=_compression(parquet)) as writer:
                for batch in _batches(file, parquet, block_rows):
                    ids = ids_of(self.label, batch.column(id_column))
                    vectors = vectors_of(self.label, batch.column(vector_column), ids, self.dimensions)
                    checks.check(ids, vectors)
                    new = transformed(self.label, transform, ids, vectors, dimensions)
                    writer.write_batch(with_vectors(batch, schema, vector_column, new))

    def _find_files(self) -> list[Path]:
        if self._path.is_dir():
            found = (path for path in self._path.rglob("*.parquet") if path.is_file())
            # Spark, Dask and editors keep their own files under such names.
            files = sorted(p for p in found if not any(s[0] in "._" for s in p.relative_to(self._path).parts))
            if not files:
                raise InputError(f"{self._path}: no *.parquet file is in this folder. Check the path")
            return files
        if not self._path.exists():
            raise InputError(f"{self._path}: no such file or folder. Check the path")
        return [self._path]

    def _width(self, schema: Any) -> int:  # noqa: ANN401 - pyarrow.Schema
        import pyarrow as pa

        kind = schema.field(self._columns[1]).type
        if pa.types.is_fixed_size_list(kind):
            width = kind.list_size
        else:
            first = next(column for column in self._vector_columns(1) if len(column))
            width = len(first[0].as_py() or ())
        if width < 1:
            raise InputError(
                f"{self.label}: its first vector is empty or missing. Embed or delete the rows without one"
            )
        return int(width)

    def _vector_columns(self, rows: int) -> Iterator[Any]:
        for file in self._files:
            with _opened(file) as parquet:
                for batch in _batches(file, parquet, rows, [self._columns[1]]):
                    yield batch.column(0)

    def _blocks(self, rows: int) -> Iterator[Block]:
        id_column, vector_column = self._columns
        for file in self._files:
            with _opened(file) as parquet:
                for batch in _batches(file, parquet, rows, [id_column, vector_column]):
                    ids = ids_of(self.label, batch.column(id_column))
                    yield ids, vectors_of(self.label, batch.column(vector_column), ids, self.dimensions)

    def _all_ids(self) -> Iterator[list[str]]:
        for file in self._files:
            with _opened(file) as parquet:
                for batch in _batches(file, parquet, 65_536, [self._columns[0]]):
                    yield ids_of(self.label, batch.column(0))


def write_parquet(source: VectorIndex, out: Path, transform: Transform, dimensions: int, block_rows: int) -> None:
    """Write the transformed vectors of any index as one parquet file with the columns ``id`` and ``vector``.

    Raises:
        InputError: ``out`` exists.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if out.exists():
        raise InputError(f"{out}: already exists. Choose another --rewrite or move it away")
    schema = pa.schema([pa.field("id", pa.string()), pa.field("vector", pa.list_(pa.float32(), dimensions))])
    with published(out) as partial, pq.ParquetWriter(partial, schema) as writer:
        for ids, vectors in source.iter_blocks(block_rows):
            new = transformed(source.label, transform, ids, vectors, dimensions)
            rows = pa.RecordBatch.from_arrays([pa.array(ids, pa.string()), pa.nulls(len(ids))], names=["id", "vector"])
            writer.write_batch(with_vectors(rows, schema, "vector", new))


def _opened(path: Path) -> Any:  # noqa: ANN401 - pyarrow.parquet.ParquetFile
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # By default the whole column of a row group is read at once, and some writers make one group of everything.
        return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: can't be read as parquet ({error}). Check the file") from error


def _batches(path: Path, parquet: Any, rows: int, columns: list[str] | None = None) -> Iterator[Any]:  # noqa: ANN401
    """Read a file's record batches; damage in its pages shows only here."""
    import pyarrow as pa

    batches = parquet.iter_batches(batch_size=rows, columns=columns)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: is damaged ({error}). Restore the file from a copy") from error
        if batch is None:
            return
        yield batch


def _compression(parquet: Any) -> str:  # noqa: ANN401 - pyarrow.parquet.ParquetFile
    """Return the codec of the first column of a file, for the new one."""
    metadata = parquet.metadata
    if metadata.num_row_groups == 0 or metadata.num_columns == 0:
        return "snappy"
    codec = str(metadata.row_group(0).column(0).compression).lower()
    return "none" if codec == "uncompressed" else codec
