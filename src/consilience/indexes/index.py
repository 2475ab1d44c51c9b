"""What every kind of vector index offers: rows of (id, vector) in a stable order, streamed and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError
from consilience.core.hashing import RowHasher, content_id

Metric = Literal["cosine", "dot", "l2"]
Vectors = NDArray[np.float32]
Block = tuple[list[str], Vectors]
Transform = Callable[[Vectors], Vectors]

_NAMED_IDS = 3  # how many ids an error names


class VectorIndex(Protocol):
    """An index of vectors with ids; reading never changes it.

    Attributes:
        kind: "npy", "parquet", "faiss", "lancedb", "qdrant" or "pgvector".
        label: what a person calls it; never a password.
        rows: number of vectors.
        dimensions: their width.
        metric: how the store compares them, or what the person said; "cosine" where neither is known.
    """

    kind: str
    label: str
    rows: int
    dimensions: int
    metric: Metric

    def iter_blocks(self, rows: int = 8192) -> Iterator[Block]:
        """Stream ids (as text) and vectors (as stored, not normalised) in a stable order, at most ``rows`` at once.

        Raises:
            InputError: a vector is NaN, infinite, zero, missing or of another width, or an id occurs twice.
        """
        ...

    def lookup(self, ids: Sequence[str]) -> Vectors:
        """Return the vectors of these ids, in this order.

        Raises:
            InputError: some ids aren't there; the message names the first and says how many.
        """
        ...

    def fingerprint(self) -> str:
        """Return a content hash over ids and vectors, whatever the block size; one streaming pass."""
        ...


class RewritableIndex(VectorIndex, Protocol):
    """An index that can be written again with other vectors, as a new index of the same kind."""

    def require_target(self, out: str, fragment: str | None) -> None:
        """Refuse, before any work, a new index that :meth:`rewrite` couldn't write.

        Raises:
            InputError: the place or the name isn't free or isn't possible, or an index like this can't be built anew.
        """
        ...

    def rewrite(self, out: str, fragment: str | None, transform: Transform, dimensions: int, block_rows: int) -> None:
        """Write the new index to the location ``out`` (table or collection: ``fragment``), complete or not at all."""
        ...


class RowChecks:
    """Checks of the rows of one pass over an index.

    It keeps eight bytes a row, to find an id that occurs twice.

    Args:
        label: the index, for messages.
        dimensions: width that every vector must have.
        unique: the store itself guarantees that ids differ, so nothing is kept.
    """

    def __init__(self, label: str, dimensions: int, *, unique: bool = False) -> None:
        self._label = label
        self._dimensions = dimensions
        self._unique = unique
        self._hashes: list[NDArray[np.int64]] = []

    def check(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Check one block.

        Raises:
            InputError: a vector is of another width, NaN, infinite or zero.
        """
        if vectors.shape != (len(ids), self._dimensions):
            raise InputError(
                f"{self._label}: expected vectors of width {self._dimensions} near id {ids[0] if ids else '?'!r}, "
                f"got an array of shape {vectors.shape}. Give an index whose vectors all have one width"
            )
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            raise self._faulty(ids, ~finite, "NaN or infinite")
        zero = ~vectors.any(axis=1)
        if zero.any():
            raise self._faulty(ids, zero, "all zero")
        if not self._unique:
            self._hashes.append(np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)))

    def finish(self, all_ids: Callable[[], Iterable[Sequence[str]]]) -> None:
        """Check the pass as a whole, at its end.

        Args:
            all_ids: streams the ids again; called only when two of them may be equal.

        Raises:
            InputError: an id occurs twice.
        """
        if not self._hashes:
            return
        hashes = np.sort(np.concatenate(self._hashes))
        suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        if not suspects:
            return
        seen: set[str] = set()
        for ids in all_ids():
            for name in ids:
                if hash(name) not in suspects:
                    continue
                if name in seen:
                    raise InputError(
                        f"{self._label}: id {name!r} occurs more than once. "
                        "Give another id column or drop the duplicates"
                    )
                seen.add(name)

    def _faulty(self, ids: Sequence[str], faulty: Any, what: str) -> InputError:  # noqa: ANN401 - an array of bool
        names = [ids[i] for i in np.flatnonzero(faulty).tolist()]
        return InputError(
            f"{self._label}: {_count(len(names), 'vector')} of one block {'is' if len(names) == 1 else 'are'} {what}: "
            f"id {_listed(names)}. Delete or embed again these rows"
        )


def checked_blocks(
    index: VectorIndex, blocks: Callable[[], Iterator[Block]], *, unique: bool = False
) -> Iterator[Block]:
    """Stream blocks through :class:`RowChecks`.

    Args:
        index: whose label and width count.
        blocks: starts a pass over the rows.
        unique: the store guarantees that ids differ.
    """
    checks = RowChecks(index.label, index.dimensions, unique=unique)
    for ids, vectors in blocks():
        checks.check(ids, vectors)
        yield ids, vectors
    checks.finish(lambda: (ids for ids, _ in blocks()))


def fingerprint_blocks(blocks: Iterable[Block]) -> str:
    """Return a content hash over ids and vectors that doesn't depend on where blocks end."""
    ids_hash, vectors_hash = RowHasher(), hashlib.sha256()
    width = 0
    for ids, vectors in blocks:
        width = vectors.shape[1]
        for name in ids:
            ids_hash.update(name)
        vectors_hash.update(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
    content = {"ids": ids_hash.hexdigest(), "vectors": vectors_hash.hexdigest(), "dimensions": width}
    return content_id(content, prefix="index-")


def lookup_by_scan(index: VectorIndex, blocks: Iterable[Block], ids: Sequence[str]) -> Vectors:
    """Find vectors by reading the whole index once; for stores without a way to ask for ids.

    Raises:
        InputError: some ids aren't there.
    """
    wanted = set(ids)
    found: dict[str, Vectors] = {}
    for names, vectors in blocks:
        for row, name in enumerate(names):
            if name in wanted:
                found[name] = vectors[row].copy()
        if len(found) == len(wanted):
            break
    return in_order(index, found, ids)


def in_order(index: VectorIndex, found: dict[str, Vectors], ids: Sequence[str]) -> Vectors:
    """Stack the vectors found, by id, in the order asked for.

    Raises:
        InputError: some ids weren't found.
    """
    require_ids(index.label, [name for name in ids if name not in found], len(ids))
    if not ids:
        return np.empty((0, index.dimensions), dtype=np.float32)
    return np.stack([found[name] for name in ids]).astype(np.float32, copy=False)


def is_row_number(name: str, rows: int) -> bool:
    """Return whether an id, as text, is the number of one of so many rows.

    Example:
        >>> is_row_number("7", 10), is_row_number("007", 10), is_row_number("9" * 5000, 10)
        (True, False, False)
    """
    # Compared as text first: Python refuses to read numbers of thousands of digits. 007 is a name, no row's number.
    plain = name.isascii() and name.isdigit() and (name == "0" or not name.startswith("0"))
    return plain and len(name) <= len(str(rows)) and int(name) < rows


def require_ids(label: str, unknown: Sequence[str], asked: int) -> None:
    """Refuse ids that an index lacks.

    Raises:
        InputError: ``unknown`` isn't empty.
    """
    if unknown:
        raise InputError(
            f"{label}: {len(unknown)} of {_count(asked, 'id')} asked for aren't in the index, the first: "
            f"{_listed(unknown)}. Give ids of this index, written as it writes them"
        )


def transformed(label: str, transform: Transform, ids: Sequence[str], vectors: Vectors, dimensions: int) -> Vectors:
    """Apply a transform to one block and check what it returns.

    Raises:
        ShapeError: it isn't one row of the announced width for each vector.
        InputError: a new vector is NaN, infinite or zero; no store should be given it.
    """
    new = np.ascontiguousarray(transform(vectors), dtype=np.float32)
    if new.shape != (len(ids), dimensions):
        raise ShapeError(
            f"{label}: the transform should return rows of shape {(len(ids), dimensions)}, it returned {new.shape}. "
            "Announce the width that it returns"
        )
    RowChecks(f"{label}, transformed", dimensions, unique=True).check(ids, new)
    return new


def require_rows(label: str, rows: int) -> None:
    """Refuse an empty index.

    Raises:
        InputError: it has no rows.
    """
    if rows == 0:
        raise InputError(f"{label}: has no vectors. Give an index with rows")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED_IDS])
    return shown + (", ..." if len(names) > _NAMED_IDS else "")
