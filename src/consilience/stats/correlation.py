"""Rank correlation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError


def check_pairs(x: NDArray[np.floating], y: NDArray[np.floating], *, where: str) -> None:
    """Refuse arrays that have no rank correlation.

    Raises:
        ShapeError: not two vectors of one length, or fewer than three pairs.
        InputError: NaN, or one side is constant.
    """
    if x.ndim != 1 or x.shape != y.shape or len(x) < 3:
        raise ShapeError(f"{where}: expected two vectors of one length >= 3, got {x.shape} and {y.shape}")
    for name, values in (("first", x), ("second", y)):
        if not np.isfinite(values).all():
            raise InputError(f"{where}: expected finite scores, got NaN or infinity in the {name}. Check the model")
        if values.min() == values.max():
            raise InputError(f"{where}: expected scores that vary, got only {values[0]:g} in the {name}")


def spearman(x: NDArray[np.floating], y: NDArray[np.floating]) -> float:
    """Return Spearman's rank correlation; ties get their mean rank.

    Args:
        x: scores (n,).
        y: scores (n,).

    Raises:
        ShapeError: lengths differ or n < 3.
        InputError: NaN, or a constant side.

    Example:
        >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0]))
        1.0
    """
    from scipy.stats import spearmanr

    check_pairs(x, y, where="spearman")
    # Clipped: rounding may leave 1 + 1e-16.
    return float(np.clip(spearmanr(x, y).statistic, -1.0, 1.0))
