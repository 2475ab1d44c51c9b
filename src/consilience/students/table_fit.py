"""A static table fitted to targets in closed form: ridge regression of rows on token counts, around a first table.

The normal equations have a row a token, far too many to factor, and are sparse: conjugate gradients solve them for all
dimensions at once, with the texts' counts in memory and the targets read once, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_TOLERANCE = 1e-3  # assumed: of the residual's norm; below it the held-out cosine stands still


@dataclass(frozen=True)
class TableFit:
    """A fitted table.

    Attributes:
        table: (V, d).
        iterations: conjugate-gradient steps taken.
        residual: norm of what is left of the normal equations, relative to their right side.
    """

    table: NDArray[np.float32]
    iterations: int
    residual: float


def count_matrix(ids: Iterable[NDArray[np.integer]], vocabulary: int) -> csr_matrix:
    """Return the texts' token counts, (n, V) sparse.

    Example:
        >>> count_matrix([np.array([1, 1, 0])], 3).toarray().tolist()
        [[1.0, 2.0, 0.0]]
    """
    from scipy.sparse import csr_matrix

    rows = [np.asarray(row, dtype=np.int32) for row in ids]
    bounds = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    columns = np.concatenate(rows) if rows else np.empty(0, dtype=np.int32)
    counts = csr_matrix((np.ones(len(columns), dtype=np.float32), columns, bounds), shape=(len(rows), vocabulary))
    counts.sum_duplicates()
    return counts


def fit_into_frame(
    embeddings: NDArray[np.float32], targets: NDArray[np.floating], *, shrinkage: float = 1e-3
) -> NDArray[np.float64]:
    """Return the linear map (no bias) that brings a table's embeddings closest to targets.

    Minimises sum_i ||e_i M - y_i||² + r ||M||², r a multiple of the mean eigenvalue of the embeddings' moment.

    Args:
        embeddings: (n, d) unit rows of the table's student.
        targets: (n, d_y) unit rows of the same texts.
        shrinkage: that multiple.
    """
    x, y = np.asarray(embeddings, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if len(x) != len(y) or len(x) < x.shape[1]:
        raise ShapeError(f"fit_into_frame: expected at least {x.shape[1]} pairs, got {len(x)} and {len(y)} rows")
    moment = x.T @ x
    moment[np.diag_indices_from(moment)] += shrinkage * np.trace(moment) / len(moment)
    return np.asarray(np.linalg.solve(moment, x.T @ y), dtype=np.float64)


def refine_table(
    table: NDArray[np.float32],
    counts: csr_matrix,
    read_targets: Callable[[int, int], NDArray[np.floating]],
    *,
    ridge: float,
    iterations: int = 30,
    block_rows: int = 8192,
) -> TableFit:
    """Fit a table's rows to targets, no further from where they were than the texts ask for.

    Minimises sum_i ||a_i T - y_i||² + ridge ||T - T_0||² over T, where a_i are text i's counts over the length of
    their sum in T_0: at T_0 the predictions are the student's own embeddings, so the residual is the student's.

    Args:
        table: T_0, (V, d), in the targets' frame.
        counts: (n, V).
        read_targets: (start, stop) to rows (stop - start, d), unit.
        ridge: relative to the mean over tokens seen of sum_i a_it²; large keeps T_0.
        iterations: at most.
        block_rows: rows read at a time.

    Returns:
        The table; tokens that no text has keep their rows.

    Raises:
        InputError: a ridge not above 0, or so large that the penalty isn't a number of 32 bits.
        ShapeError: counts and table don't fit.

    Source: Hestenes and Stiefel 1952 (conjugate gradients); ridge towards a prior: Hoerl and Kennard 1970.
    """
    from scipy.sparse import diags

    if not 0 < ridge < np.inf:
        raise InputError(f"static: expected a finite ridge above 0, got {ridge}. Change --ridge; 1 is usual")
    if counts.shape[1] != len(table):
        raise ShapeError(f"refine_table: counts of {counts.shape[1]} tokens, a table of {len(table)} rows")
    lengths = np.linalg.norm(counts @ table, axis=1)
    design: Any = (diags((1.0 / np.maximum(lengths, 1e-6)).astype(np.float32)) @ counts).tocsr()
    right = np.zeros(table.shape, dtype=np.float32)
    for start in range(0, design.shape[0], block_rows):
        block = design[start : start + block_rows]
        targets = np.asarray(read_targets(start, start + block.shape[0]), dtype=np.float32)
        if targets.shape != (block.shape[0], table.shape[1]):
            raise ShapeError(f"refine_table: targets of shape {targets.shape}, a table of shape {table.shape}")
        right += block.T @ (targets - block @ table)
    squares = np.asarray(design.multiply(design).sum(axis=0)).ravel()
    seen = squares > 0
    if not seen.any():
        return TableFit(table.copy(), 0, 0.0)
    exact = ridge * float(squares[seen].mean())
    if not exact <= float(np.finfo(np.float32).max):
        raise InputError(f"static: a ridge of {ridge} is too large to compute with. Lower --ridge; 1 is usual")
    penalty = np.float32(exact)
    transposed = design.T.tocsr()
    # Jacobi: frequent tokens have diagonals a thousand times those of rare ones.
    inverse = (1.0 / (squares + penalty)).astype(np.float32)[:, None]
    step, left = _solve(lambda p: transposed @ (design @ p) + penalty * p, right, inverse, iterations=iterations)
    step[~seen] = 0.0
    return TableFit((table + step).astype(np.float32), *left)


def _solve(
    apply: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    right: NDArray[np.float32],
    inverse: NDArray[np.float32],
    *,
    iterations: int,
) -> tuple[NDArray[np.float32], tuple[int, float]]:
    """Solve for every column at once by preconditioned conjugate gradients."""
    solution = np.zeros_like(right)
    residual = right.copy()
    preconditioned = residual * inverse
    direction = preconditioned.copy()
    products = np.einsum("vd,vd->d", residual, preconditioned, dtype=np.float64)
    norm = float(np.linalg.norm(right)) or 1.0
    taken = 0
    while taken < iterations and float(np.linalg.norm(residual)) > _TOLERANCE * norm:
        image = apply(direction)
        curvature = np.einsum("vd,vd->d", direction, image, dtype=np.float64)
        rate = (products / np.maximum(curvature, np.finfo(np.float64).tiny)).astype(np.float32)
        solution += rate * direction
        residual -= rate * image
        preconditioned = residual * inverse
        fresh = np.einsum("vd,vd->d", residual, preconditioned, dtype=np.float64)
        direction = (
            preconditioned + (fresh / np.maximum(products, np.finfo(np.float64).tiny)).astype(np.float32) * direction
        )
        products = fresh
        taken += 1
    return solution, (taken, float(np.linalg.norm(residual)) / norm)
