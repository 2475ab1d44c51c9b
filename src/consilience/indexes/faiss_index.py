"""A FAISS index file: vectors come back through reconstruction, ids from its map or its inverted lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.extras import require
from consilience.core.progress import log
from consilience.indexes.faiss_build import EXACT, empty_like, needs_ids, training_rows
from consilience.indexes.index import (
    Block,
    Metric,
    Transform,
    Vectors,
    checked_blocks,
    fingerprint_blocks,
    is_row_number,
    lookup_by_scan,
    require_ids,
    require_rows,
    transformed,
)
from consilience.indexes.publish import published, require_new
from consilience.indexes.spec import IndexSpec

Rows = Iterator[tuple[NDArray[np.int64], Vectors]]


class FaissIndex:
    """An index that FAISS wrote; like FAISS itself it's held in memory.

    Flat, HNSWFlat, IVFFlat and ID maps of them give their vectors exactly. Others (PQ, scalar quantisers) give
    approximations, which a line on standard error says.

    Args:
        path: the file.
        metric: what the vectors are compared by; by default the index's: "dot" or "l2".

    Raises:
        InputError: no such file, not a FAISS index, one without vectors, or another metric.
        MissingExtraError: faiss isn't installed.
    """

    kind = "faiss"

    def __init__(self, path: Path, *, metric: Metric | None = None) -> None:
        if not path.is_file():
            raise InputError(f"{path}: no such file. Check the path")
        self._faiss: Any = require("faiss", extra="faiss", purpose="to read FAISS indexes")
        self.label = f"faiss:{path}"
        self.spec = IndexSpec("faiss", str(path), None)
        self._path = path
        try:
            self._index: Any = self._faiss.read_index(str(path))
        except RuntimeError as error:
            raise InputError(
                f"{path}: FAISS can't read it as an index of float vectors ({_reason(error)}). Write it with "
                "faiss.write_index"
            ) from error
        self.rows = int(self._index.ntotal)
        self.dimensions = int(self._index.d)
        require_rows(self.label, self.rows)
        self.metric: Metric = metric or self._metric()
        self.exact = self._is_exact()
        if not self.exact:
            log(
                f"{self.label}: a {type(self._index).__name__} stores its vectors with loss; what is read are "
                "approximations. Exact vectors give a better map"
            )

    def iter_blocks(self, rows: int = 8192) -> Iterator[Block]:
        """See :meth:`VectorIndex.iter_blocks`; of inverted lists the order is list by list."""
        return checked_blocks(self, lambda: self._blocks(rows), unique=not self._has_own_ids())

    def lookup(self, ids: Sequence[str]) -> Vectors:
        """See :meth:`VectorIndex.lookup`."""
        if self._has_own_ids():
            return lookup_by_scan(self, self._blocks(8192), ids)
        known = [is_row_number(name, self.rows) for name in ids]
        require_ids(self.label, [name for name, there in zip(ids, known, strict=True) if not there], len(ids))
        found = [self._reconstructed(int(name), 1) for name in ids]
        return np.concatenate(found) if found else np.empty((0, self.dimensions), dtype=np.float32)

    def fingerprint(self) -> str:
        """See :meth:`VectorIndex.fingerprint`."""
        return fingerprint_blocks(self.iter_blocks())

    def require_target(self, out: str, fragment: str | None) -> None:
        """See :meth:`RewritableIndex.require_target`."""
        if fragment is not None:
            raise InputError(f"{out}#{fragment}: a FAISS file holds one index. Leave out the #")
        require_new(Path(out), self._path)
        fresh = empty_like(self._faiss, self._index, self.dimensions, label=self.label)
        lists = 0 if fresh.is_trained else int(self._faiss.extract_index_ivf(fresh).nlist)
        if self.rows < lists:
            raise InputError(
                f"{self.label}: has {lists} inverted lists and {self.rows} vectors, too few for FAISS to train as many "
                "lists anew. Give --rewrite parquet:FILE or npy:FILE and build the index from it"
            )

    def rewrite(self, out: str, fragment: str | None, transform: Transform, dimensions: int, block_rows: int) -> None:
        """Build an index of the same structure from the new vectors and write it; inverted lists are trained anew."""
        self.require_target(out, fragment)
        target = Path(out)
        fresh = empty_like(self._faiss, self._index, dimensions, label=self.label)
        with published(target) as partial:
            if not fresh.is_trained:
                fresh.train(self._training_rows(fresh, transform, dimensions, block_rows))
            for ids, vectors in self.iter_blocks(block_rows):
                new = transformed(self.label, transform, ids, vectors, dimensions)
                if needs_ids(self._faiss, fresh):
                    fresh.add_with_ids(new, np.array(ids, dtype=np.int64))
                else:
                    fresh.add(new)
            # Through a file of ours: FAISS's own writer says nothing when the last of it doesn't reach a full disk.
            with partial.open("wb") as stream:
                self._faiss.write_index(fresh, self._faiss.PyCallbackIOWriter(stream.write))

    def _training_rows(self, fresh: Any, transform: Transform, dimensions: int, block_rows: int) -> Vectors:  # noqa: ANN401
        chosen = training_rows(self._faiss, fresh, self.rows)
        parts, start = [], 0
        for ids, vectors in self._blocks(block_rows):
            within = chosen[(chosen >= start) & (chosen < start + len(ids))] - start
            if within.size:
                names = [ids[i] for i in within]
                parts.append(transformed(self.label, transform, names, vectors[within], dimensions))
            start += len(ids)
        return np.concatenate(parts)

    def _metric(self) -> Metric:
        kinds: dict[int, Metric] = {self._faiss.METRIC_INNER_PRODUCT: "dot", self._faiss.METRIC_L2: "l2"}
        found = kinds.get(int(self._index.metric_type))
        if found is None:
            raise InputError(
                f"{self.label}: its metric (number {int(self._index.metric_type)} of FAISS) is neither inner product "
                "nor L2. Say --metric if one of cosine, dot or l2 is close enough"
            )
        return found

    def _is_exact(self) -> bool:
        inner = self._index
        while isinstance(inner, self._faiss.IndexIDMap):
            inner = self._faiss.downcast_index(inner.index)
        return type(inner).__name__ in EXACT

    def _has_own_ids(self) -> bool:
        inner = self._index
        while isinstance(inner, self._faiss.IndexPreTransform):
            inner = self._faiss.downcast_index(inner.index)
        return isinstance(inner, (self._faiss.IndexIDMap, self._faiss.IndexIVF))

    def _blocks(self, rows: int) -> Iterator[Block]:
        done = 0
        for ids, vectors in self._walk(self._index, rows):
            done += len(ids)
            yield ids.astype(str).tolist(), vectors
        if done != self.rows:  # of equal vectors IVFFlatDedup's lists have only one
            raise InputError(
                f"{self.label}: a {type(self._index).__name__} that counts {self.rows} vectors gave {done}. "
                "Give the vectors that it was built from, as npy or parquet"
            )

    def _walk(self, index: Any, rows: int) -> Rows:  # noqa: ANN401 - faiss.Index
        """Stream the (numeric) ids and vectors of an index and of what it wraps."""
        faiss = self._faiss
        if isinstance(index, faiss.IndexIDMap):
            names = faiss.vector_to_array(index.id_map)
            for positions, vectors in self._walk(faiss.downcast_index(index.index), rows):
                yield names[positions], vectors
        elif isinstance(index, faiss.IndexPreTransform):
            # Not its own reconstruction, which takes the ids of inverted lists for positions.
            for ids, vectors in self._walk(faiss.downcast_index(index.index), rows):
                yield ids, self._untransformed(index, vectors)
        elif isinstance(index, faiss.IndexIVFFastScan):
            raise self._without_vectors(index, "it keeps codes for scanning only")  # FAISS would crash
        elif isinstance(index, faiss.IndexIVF):
            yield from _rebatched(self._walk_lists(index, rows), rows)
        else:
            for start in range(0, int(index.ntotal), rows):
                number = min(rows, int(index.ntotal) - start)
                yield np.arange(start, start + number), self._reconstructed(start, number, index)

    def _walk_lists(self, index: Any, rows: int) -> Rows:  # noqa: ANN401 - faiss.IndexIVF
        faiss = self._faiss
        lists = index.invlists
        for number in range(int(index.nlist)):
            size = int(lists.list_size(number))
            for start in range(0, size, rows):
                stop = min(start + rows, size)
                ids = faiss.rev_swig_ptr(lists.get_ids(number), size)[start:stop].copy()
                vectors = np.empty((stop - start, int(index.d)), dtype=np.float32)
                try:
                    for row in range(stop - start):
                        index.reconstruct_from_offset(number, start + row, faiss.swig_ptr(vectors[row]))
                except RuntimeError as error:
                    raise self._without_vectors(index, _reason(error)) from error
                yield ids, vectors

    def _untransformed(self, index: Any, vectors: Vectors) -> Vectors:  # noqa: ANN401 - faiss.IndexPreTransform
        """Take vectors back through the transforms before an index."""
        before = np.empty((len(vectors), int(index.d)), dtype=np.float32)
        try:
            index.reverse_chain(len(vectors), self._faiss.swig_ptr(vectors), self._faiss.swig_ptr(before))
        except RuntimeError as error:
            raise self._without_vectors(index, _reason(error)) from error
        return before

    def _reconstructed(self, start: int, number: int, index: Any = None) -> Vectors:  # noqa: ANN401 - faiss.Index
        index = self._index if index is None else index
        try:
            vectors: Vectors = index.reconstruct_n(start, number)
        except RuntimeError as error:
            raise self._without_vectors(index, _reason(error)) from error
        return vectors

    def _without_vectors(self, index: Any, reason: str) -> InputError:  # noqa: ANN401 - faiss.Index
        return InputError(
            f"{self.label}: a {type(index).__name__} can't give its vectors back ({reason}). "
            "Give the vectors that it was built from, as npy or parquet"
        )


def _rebatched(blocks: Rows, rows: int) -> Rows:
    """Join small blocks, as of short inverted lists, into ones of about ``rows`` rows."""
    ids: list[NDArray[np.int64]] = []
    vectors: list[Vectors] = []
    waiting = 0
    for some_ids, some_vectors in blocks:
        if waiting and waiting + len(some_ids) > rows:
            yield np.concatenate(ids), np.concatenate(vectors)
            ids, vectors, waiting = [], [], 0
        ids.append(some_ids)
        vectors.append(some_vectors)
        waiting += len(some_ids)
    if waiting:
        yield np.concatenate(ids), np.concatenate(vectors)


def _reason(error: RuntimeError) -> str:
    """Return the end of FAISS's message, which starts with the place in its source."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].rpartition("Error: ")[2] or lines[-1]
