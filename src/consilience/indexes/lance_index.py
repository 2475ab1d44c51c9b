"""A LanceDB table in a local folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError
from consilience.core.extras import require
from consilience.core.progress import log
from consilience.indexes.columns import arrow_columns, ids_of, is_uuid, new_schema, vectors_of, with_vectors
from consilience.indexes.index import (
    Block,
    Metric,
    RowChecks,
    Transform,
    Vectors,
    checked_blocks,
    fingerprint_blocks,
    in_order,
    lookup_by_scan,
    require_rows,
    transformed,
)
from consilience.indexes.publish import published, require_new
from consilience.indexes.spec import IndexSpec

_METRICS: dict[str, Metric] = {"cosine": "cosine", "dot": "dot", "l2": "l2"}
_LOOKUP_IDS = 1000  # assumed: a filter of that many ids is still quick to parse
_VECTOR_INDEXES = {
    "ivfflat": "IvfFlat",
    "ivfpq": "IvfPq",
    "ivfsq": "IvfSq",
    "ivfrq": "IvfRq",
    "ivfhnswpq": "HnswPq",
    "ivfhnswsq": "HnswSq",
    "ivfhnswflat": "HnswFlat",
}
_SCALAR_INDEXES = {"btree": "BTree", "bitmap": "Bitmap", "labellist": "LabelList"}
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_EMBEDDING_FUNCTIONS = b"embedding_functions"


class LanceIndex:
    """A table with an id column and a vector column.

    Args:
        folder: the database's folder.
        table: the table's name.
        id_column: integers or text.
        vector_column: lists of floats.
        metric: what the vectors are compared by; by default that of the table's vector index, else "cosine".

    Raises:
        InputError: no such folder, table or column, several that can be meant, or no rows.
        MissingExtraError: lancedb isn't installed.
    """

    kind = "lancedb"

    def __init__(
        self,
        folder: Path,
        table: str,
        *,
        id_column: str | None = None,
        vector_column: str | None = None,
        metric: Metric | None = None,
    ) -> None:
        self.label = f"lancedb:{folder}#{table}"
        self.spec = IndexSpec("lancedb", str(folder), table)
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder. Check the path")
        self._lancedb: Any = require("lancedb", extra="lancedb", purpose="to read LanceDB tables")
        self._path = table_path(folder, table)
        if not self._path.is_dir():
            found = ", ".join(sorted(path.stem for path in folder.glob("*.lance"))) or "none"
            raise InputError(f"{folder}: has no table {table!r}; it has {found}. Choose one behind the #")
        with self._readable():
            self._table: Any = self._lancedb.connect(str(folder)).open_table(table)
            # Pinned: what another process adds meanwhile is left out of every pass alike.
            self._table.checkout(self._table.version)
            self.rows = int(self._table.count_rows())
        require_rows(self.label, self.rows)
        self._schema: Any = self._table.schema
        self._columns = arrow_columns(self.label, self._schema, id_column, vector_column)
        self.dimensions = self._width()
        self.metric: Metric = metric or self._metric()

    def iter_blocks(self, rows: int = 8192) -> Iterator[Block]:
        """See :meth:`VectorIndex.iter_blocks`; in the table's order of storage."""
        return checked_blocks(self, lambda: self._blocks(rows))

    def lookup(self, ids: Sequence[str]) -> Vectors:
        """See :meth:`VectorIndex.lookup`."""
        import pyarrow as pa

        id_column, vector_column = self._columns
        kind = self._schema.field(id_column).type
        numeric = pa.types.is_integer(kind)
        if is_uuid(kind) or pa.types.is_dictionary(kind):  # which can't be filtered by text
            return lookup_by_scan(self, self._blocks(8192), ids)
        found: dict[str, Vectors] = {}
        wanted = sorted({name for name in ids if not numeric or _is_integer(name)})
        for start in range(0, len(wanted), _LOOKUP_IDS):
            some = wanted[start : start + _LOOKUP_IDS]
            values = some if numeric else ["'" + name.replace("'", "''") + "'" for name in some]
            with self._readable():
                query = self._table.search().where(f"`{id_column}` IN ({', '.join(values)})")
                batch = query.select([id_column, vector_column]).limit(self.rows).to_arrow().combine_chunks()
            if batch.num_rows:
                names = ids_of(self.label, batch.column(id_column).chunk(0))
                vectors = vectors_of(self.label, batch.column(vector_column).chunk(0), names, self.dimensions)
                found.update(zip(names, vectors, strict=True))
        return in_order(self, found, ids)

    def fingerprint(self) -> str:
        """See :meth:`VectorIndex.fingerprint`."""
        return fingerprint_blocks(self.iter_blocks())

    def require_target(self, out: str, fragment: str | None) -> None:
        """See :meth:`RewritableIndex.require_target`."""
        name = fragment or self._path.stem
        if _NAME.fullmatch(name) is None or not name.strip("."):
            raise InputError(
                f"{name!r}: can't be the name of a LanceDB table. Take letters, digits, '_', '-' and '.' behind the "
                "# of --rewrite"
            )
        require_new(table_path(Path(out), name), self._path)
        blobs = [field.name for field in self._schema if _is_blob(field)]
        if blobs:
            raise InputError(
                f"{self.label}: its column {blobs[0]!r} holds blobs, which LanceDB gives only one by one, so the table "
                "can't be copied. Give --rewrite parquet:FILE or npy:FILE, with the ids and the new vectors"
            )

    def rewrite(self, out: str, fragment: str | None, transform: Transform, dimensions: int, block_rows: int) -> None:
        """Write a new table, in a new folder or under a new name: all other columns copied, its indexes built anew."""
        import pyarrow as pa

        self.require_target(out, fragment)
        name = fragment or self._path.stem
        target = table_path(Path(out), name)
        schema = self._new_schema(dimensions)
        failures: list[BaseException] = []

        def batches() -> Iterator[Any]:
            # LanceDB wraps what a generator raises, an interrupt too, in its own error, so the first is kept aside.
            try:
                yield from self._rewritten(schema, transform, dimensions, block_rows)
            except BaseException as error:
                failures.append(error)
                raise

        with published(target) as partial:
            inner = self._lancedb.connect(str(partial.parent))
            try:
                reader = pa.RecordBatchReader.from_batches(schema, batches())
                table = inner.create_table(name, data=reader, schema=schema)
                self._index_anew(table)
            except (ValueError, RuntimeError, OSError, pa.ArrowException) as error:
                raise (failures[0] if failures else _refusal(error, str(target))) from error

    def _rewritten(self, schema: Any, transform: Transform, dimensions: int, block_rows: int) -> Iterator[Any]:  # noqa: ANN401
        id_column, vector_column = self._columns
        checks = RowChecks(self.label, self.dimensions)
        for batch in self._batches(None, block_rows):
            ids = ids_of(self.label, batch.column(id_column))
            vectors = vectors_of(self.label, batch.column(vector_column), ids, self.dimensions)
            checks.check(ids, vectors)
            new = transformed(self.label, transform, ids, vectors, dimensions)
            yield with_vectors(batch, schema, vector_column, new)
        checks.finish(lambda: (ids for ids, _ in self._blocks(block_rows)))

    def _new_schema(self, dimensions: int) -> Any:  # noqa: ANN401 - pyarrow.Schema
        schema = new_schema(self._schema, self._columns[1], dimensions)
        metadata = dict(schema.metadata or {})
        if metadata.pop(_EMBEDDING_FUNCTIONS, None) is not None:
            log(
                f"{self.label}: the table embeds texts with its old model by itself; the new table doesn't, since "
                "its vectors are another model's"
            )
        return schema.with_metadata(metadata or None)

    def _index_anew(self, table: Any) -> None:  # noqa: ANN401 - lancedb.table.Table
        """Create the indexes of the source with its kinds and metric, and LanceDB's own choice of other parameters."""
        kinds = self._lancedb.index
        for config in self._table.list_indices():
            columns, kind = list(config.columns), _kind(config)
            if kind in _VECTOR_INDEXES and columns == [self._columns[1]]:
                options = {"distance_type": self._table.index_stats(config.name).distance_type}
                table.create_index(
                    columns[0], config=getattr(kinds, _VECTOR_INDEXES[kind])(**options), name=config.name
                )
            elif kind in _SCALAR_INDEXES and len(columns) == 1:
                table.create_index(columns[0], config=getattr(kinds, _SCALAR_INDEXES[kind])(), name=config.name)
            else:
                log(
                    f"{self.label}: its {config.index_type} index on {', '.join(columns)} isn't copied. "
                    "Create it on the new table"
                )

    def _width(self) -> int:
        import pyarrow as pa

        kind = self._schema.field(self._columns[1]).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        with self._readable():
            first = self._table.search().select([self._columns[1]]).limit(1).to_arrow()
        width = len(first.column(0)[0].as_py() or ())
        if width < 1:
            raise InputError(
                f"{self.label}: its first vector is empty or missing. Embed or delete the rows without one"
            )
        return width

    def _metric(self) -> Metric:
        for config in self._table.list_indices():
            if list(config.columns) == [self._columns[1]]:
                stats = self._table.index_stats(config.name)
                found = _METRICS.get(str(getattr(stats, "distance_type", "")).lower())
                if found is not None:
                    return found
        return "cosine"

    def _batches(self, columns: list[str] | None, rows: int) -> Iterator[Any]:
        # Page by page: in one long scan LanceDB reads up to two gigabytes ahead.
        for start in range(0, self.rows, rows):
            with self._readable():
                query = self._table.search().offset(start).limit(rows)
                if columns is not None:
                    query = query.select(columns)
                batches = [batch for batch in query.to_batches(rows) if batch.num_rows]
            yield from batches

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn what LanceDB says of a table that it can't read into an InputError."""
        try:
            yield
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"{self.label}: LanceDB can't read it ({_reason(error)}). Check the table, or restore it from a copy"
            ) from error

    def _blocks(self, rows: int) -> Iterator[Block]:
        id_column, vector_column = self._columns
        for batch in self._batches([id_column, vector_column], rows):
            ids = ids_of(self.label, batch.column(id_column))
            yield ids, vectors_of(self.label, batch.column(vector_column), ids, self.dimensions)


def table_path(folder: Path, table: str) -> Path:
    """Return the folder in which LanceDB keeps a table."""
    return folder / f"{table}.lance"


def _kind(config: Any) -> str:  # noqa: ANN401 - lancedb's IndexConfig
    """Return an index's kind in one spelling: versions write ``IvfPq`` or ``IVF_PQ``."""
    return str(config.index_type).lower().replace("_", "")


def _is_blob(field: Any) -> bool:  # noqa: ANN401 - pyarrow.Field
    metadata = field.metadata or {}
    name = getattr(field.type, "extension_name", "") or metadata.get(b"ARROW:extension:name", b"").decode()
    return name.startswith("lance.blob") or b"lance-encoding:blob" in metadata


def _reason(error: BaseException) -> str:
    """Return LanceDB's message without the place in its source."""
    return re.sub(r",? ?\S+\.rs:\d+(:\d+)?$", "", " ".join(str(error).split())).rstrip(" .")


def _refusal(error: BaseException, target: str) -> Exception:
    """Return what a failure of LanceDB's writing means: the file system's refusal, or LanceDB's own."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is not None:
        return OSError(int(number[1]), os.strerror(int(number[1])), target)
    return InputError(f"{target}: LanceDB can't write it ({_reason(error)}). Give --rewrite parquet:FILE or npy:FILE")


def _is_integer(name: str) -> bool:
    digits = name.removeprefix("-")
    return digits.isascii() and digits.isdigit()
