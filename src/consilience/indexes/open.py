"""Open any index by its spec, and write a new one beside it; the source is only ever read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast, get_args

from consilience.core.errors import InputError
from consilience.core.progress import progress_bar
from consilience.indexes.index import Metric, RewritableIndex, Transform, VectorIndex, Vectors
from consilience.indexes.publish import require_new
from consilience.indexes.spec import IndexSpec, parse_index_spec

_ANY_SOURCE = ("npy", "parquet")  # kinds that the rows of any index can be written as


def open_index(
    spec: str, *, id_column: str | None = None, vector_column: str | None = None, metric: Metric | None = None
) -> VectorIndex:
    """Open a vector index for reading.

    Args:
        spec: see :mod:`consilience.indexes.spec`.
        id_column: column of the ids; by default the only one that can be meant (a primary key, or one named "id").
        vector_column: column of the vectors, or a named vector of Qdrant; by default the only one.
        metric: how the index is searched; by default what the store says, else "cosine".

    Raises:
        InputError: missing file, table or column, more than one column that can be meant, an empty index, or a database
            that can't be reached; the message says which and what to do.
        MissingExtraError: the store's library isn't installed.
    """
    if metric is not None and metric not in get_args(Metric):
        raise InputError(f"metric: expected one of {', '.join(get_args(Metric))}, got {metric!r}. Change it")
    return _open(parse_index_spec(spec), id_column, vector_column, metric)


def _open(
    parsed: IndexSpec, id_column: str | None, vector_column: str | None, metric: Metric | None
) -> RewritableIndex:
    columns = [name for name, value in (("id", id_column), ("vector", vector_column)) if value is not None]
    if parsed.kind == "npy":
        from consilience.indexes.npy_index import NpyIndex

        _refuse_columns(parsed, columns)
        return NpyIndex(Path(parsed.location), ids=parsed.fragment, metric=metric)
    if parsed.kind == "faiss":
        from consilience.indexes.faiss_index import FaissIndex

        _refuse_columns(parsed, columns)
        return FaissIndex(Path(parsed.location), metric=metric)
    if parsed.kind == "parquet":
        from consilience.indexes.parquet_index import ParquetIndex

        vector = vector_column if vector_column is not None else parsed.fragment
        return ParquetIndex(Path(parsed.location), id_column=id_column, vector_column=vector, metric=metric)
    name = cast("str", parsed.fragment)
    if parsed.kind == "lancedb":
        from consilience.indexes.lance_index import LanceIndex

        return LanceIndex(Path(parsed.location), name, id_column=id_column, vector_column=vector_column, metric=metric)
    if parsed.kind == "qdrant":
        from consilience.indexes.qdrant_index import QdrantIndex

        _refuse_columns(parsed, [column for column in columns if column == "id"])
        return QdrantIndex(Path(parsed.location), name, vector=vector_column, metric=metric)
    from consilience.indexes.pgvector_index import PgvectorIndex

    return PgvectorIndex(parsed.location, name, id_column=id_column, vector_column=vector_column, metric=metric)


def plan_target(source: VectorIndex, out: str) -> IndexSpec:
    """Return where a new index would be written, before any work; refuse what can be refused already.

    Args:
        source: from :func:`open_index`.
        out: spec of the new index, see :func:`write_index`.

    Raises:
        InputError: a kind that this source can't be written as; or what is the source, lies in it, exists, or can't be
            built.
    """
    origin = cast("IndexSpec | None", getattr(source, "spec", None))
    target = parse_index_spec(out, default=origin or IndexSpec(source.kind, "", None))
    if target.kind != source.kind and target.kind not in _ANY_SOURCE:
        raise InputError(
            f"{source.label}: a {source.kind} index can't be written as {target.kind}. "
            f"Give a new {source.kind} index, npy:FILE or parquet:FILE as --rewrite"
        )
    if target.kind == source.kind:
        cast("RewritableIndex", source).require_target(target.location, target.fragment)
    else:
        # A folder of parquet files may be the source; a database's address isn't a path.
        origin_path = Path(origin.location if origin is not None and source.kind != "pgvector" else os.devnull)
        require_new(Path(target.location), origin_path)
        if target.kind == "npy":
            from consilience.indexes.npy_index import require_new_ids

            require_new_ids(Path(target.location))
    return target


def open_written(
    source: VectorIndex, out: str, *, id_column: str | None = None, vector_column: str | None = None
) -> VectorIndex | None:
    """Open what :func:`write_index` wrote, or return None when nothing that can be opened is there.

    Args:
        source: what it was written from.
        out: its spec, as it was given.
        id_column: the source's, where one was chosen.
        vector_column: likewise.
    """
    origin = cast("IndexSpec | None", getattr(source, "spec", None))
    target = parse_index_spec(out, default=origin or IndexSpec(source.kind, "", None))
    columns = (id_column, vector_column) if target.kind == source.kind else (None, None)
    try:
        return _open(target, *columns, source.metric)
    except InputError:
        return None


def write_index(
    source: VectorIndex, out: str, transform: Transform, *, dimensions: int, block_rows: int = 8192
) -> None:
    """Write a new index with transformed vectors; ids and all other columns or payloads are kept.

    The new index is of the source's kind and, for FAISS, of its structure. Any source can also be written as
    ``npy:FILE`` (ids in ``FILE.ids.txt``) or ``parquet:FILE`` (columns ``id`` and ``vector``). It's written under a
    temporary name and renamed when complete; the source is only read. An interrupted run starts over: there's no
    resumption within one index.

    Args:
        source: from :func:`open_index`.
        out: spec of the new index. Without a kind it's of the source's; ``#NAME`` is a new table or collection beside
            the source, in the same folder or database.
        transform: maps rows (n, d) as stored to new rows (n, dimensions); lengths are its business.
        dimensions: width of the new rows.
        block_rows: how many rows are in memory at once.

    Raises:
        InputError: ``out`` exists, is the source, or is of a kind that this source can't be written as; or a row of the
            source is faulty.
        ShapeError: the transform returned rows of another shape.
        ResumeError: another process is writing ``out``.
        StorageError: the disk is full, read-only or not permitted.
    """
    if dimensions < 1 or block_rows < 1:
        raise InputError(f"{source.label}: dimensions and block rows must be at least 1. Change them")
    target = plan_target(source, out)
    with progress_bar(f"writing {target.kind} index", source.rows) as bar:

        def counted(vectors: Vectors) -> Vectors:
            new = transform(vectors)
            bar.advance(len(vectors))
            return new

        if target.kind == source.kind:
            rewritable = cast("RewritableIndex", source)
            rewritable.rewrite(target.location, target.fragment, counted, dimensions, block_rows)
        elif target.kind == "npy":
            from consilience.indexes.npy_index import write_npy

            write_npy(source, Path(target.location), counted, dimensions, block_rows)
        else:
            from consilience.indexes.parquet_index import write_parquet

            write_parquet(source, Path(target.location), counted, dimensions, block_rows)


def _refuse_columns(spec: IndexSpec, columns: list[str]) -> None:
    if columns:
        raise InputError(
            f"{spec.kind}:{spec.location}: a {spec.kind} index has no {' or '.join(columns)} column to choose. "
            "Leave it out"
        )
