"""How embeddings fill the sphere: self-cosine, uniformity, alignment.

Source: Wang and Isola 2020, arXiv:2005.10242; design, section 9.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError

UNIFORMITY_ROWS = 2000  # assumed: 2 million pairs, a standard error far below the third decimal


def unit_rows(x: NDArray[np.floating], *, where: str) -> NDArray[np.float64]:
    """Return L2-normalised rows in float64.

    Raises:
        ShapeError: not two-dimensional or no rows.
        InputError: a zero or non-finite row.
    """
    if x.ndim != 2 or len(x) == 0:
        raise ShapeError(f"{where}: expected rows (n, d), got shape {x.shape}. Pass one row per text")
    wide = np.asarray(x, dtype=np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    if not (np.isfinite(norms).all() and (norms > 0).all()):
        row = int(np.flatnonzero(~(np.isfinite(norms[:, 0]) & (norms[:, 0] > 0)))[0])
        raise InputError(f"{where}: expected finite, non-zero rows, got norm {norms[row, 0]} in row {row}")
    return np.asarray(wide / norms)


def self_cosine(x: NDArray[np.floating], rng: np.random.Generator | None = None, *, rows: int = 10_000) -> float:
    """Return the mean cosine between distinct rows: 0 fills the sphere, 1 is a collapsed model.

    All pairs count, exactly: the mean is (||sum u||^2 - n) / (n (n - 1)).

    Args:
        x: rows (n, d), n >= 2; normalised here.
        rng: draws ``rows`` of the rows when there are more; without it all are used.
        rows: size of that draw.

    Example:
        >>> self_cosine(np.array([[1.0, 0.0], [0.0, 2.0]]))
        0.0
    """
    if len(x) < 2:
        raise ShapeError(f"self_cosine: expected at least two rows, got {len(x)}")
    if rng is not None and len(x) > rows:
        x = x[np.sort(rng.choice(len(x), rows, replace=False))]
    unit = unit_rows(x, where="self_cosine")
    total = unit.sum(axis=0)
    n = len(unit)
    return float((total @ total - n) / (n * (n - 1)))


def uniformity(x: NDArray[np.floating], rng: np.random.Generator | None = None) -> float:
    """Return log E exp(-2 ||u - v||^2) over pairs of distinct unit rows; lower is more uniform.

    Args:
        x: rows (n, d), n >= 2; normalised here.
        rng: draws the 2,000 rows used when there are more; without it they are evenly spaced.

    Source: Wang and Isola 2020, arXiv:2005.10242, equation 6 with t = 2.
    """
    if len(x) < 2:
        raise ShapeError(f"uniformity: expected at least two rows, got {len(x)}")
    if len(x) > UNIFORMITY_ROWS:
        if rng is None:
            x = x[np.arange(UNIFORMITY_ROWS) * len(x) // UNIFORMITY_ROWS]
        else:
            x = x[np.sort(rng.choice(len(x), UNIFORMITY_ROWS, replace=False))]
    unit = unit_rows(x, where="uniformity")
    squared = np.maximum(2.0 - 2.0 * (unit @ unit.T), 0.0)
    kernel = np.exp(-2.0 * squared[np.triu_indices(len(unit), 1)])
    return float(np.log(kernel.mean()))


def alignment(x: NDArray[np.floating], y: NDArray[np.floating]) -> float:
    """Return the mean squared distance of paired unit rows: 2 - 2 cosine; 0 is perfect.

    Args:
        x: rows (n, d); normalised here.
        y: rows (n, d), paired with x.

    Source: Wang and Isola 2020, arXiv:2005.10242, equation 5 with alpha = 2.
    """
    if x.shape != y.shape:
        raise ShapeError(f"alignment: expected two arrays of one shape, got {x.shape} and {y.shape}")
    difference = unit_rows(x, where="alignment") - unit_rows(y, where="alignment")
    return float(np.einsum("nd,nd->n", difference, difference).mean())
