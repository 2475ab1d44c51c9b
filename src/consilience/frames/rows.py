"""Unit rows: every map, statistic and score of this package starts from L2-normalised rows (design, section 2)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError

_Float = TypeVar("_Float", np.float32, np.float64)


def normalise_rows(x: NDArray[_Float], *, where: str = "normalise_rows") -> NDArray[_Float]:
    """Divide every row by its L2 norm.

    Args:
        x: array (n, d), float32 or float64; not modified.
        where: what the rows are, for the error.

    Returns:
        Array (n, d) of unit rows in the same dtype.

    Raises:
        InputError: a row is zero, NaN or infinite.
        ShapeError: the array isn't two-dimensional.

    Example:
        >>> normalise_rows(np.array([[3.0, 4.0]]))
        array([[0.6, 0.8]])
    """
    if x.ndim != 2:
        raise ShapeError(f"{where}: expected rows (n, d), got an array of shape {x.shape}. Pass one row per text")
    norms = np.sqrt(np.einsum("nd,nd->n", x, x))
    bad = ~(np.isfinite(norms) & (norms > 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"{where}: expected finite, non-zero rows, got norm {norms[row]} in row {row} "
            f"({int(bad.sum())} such rows). Embed the corpus again or drop these rows"
        )
    return np.asarray(x / norms[:, None], dtype=x.dtype)
