"""Ridge regression between frames, solved from sufficient statistics alone.

Source: Hoerl and Kennard 1970; design, section 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import AlignmentRefusedError
from consilience.frames.statistics import CrossStatistics
from consilience.frames.whitening import DEFAULT_SHRINKAGE, Shrinkage, shrink


def fit_ridge(
    stats: CrossStatistics, *, shrinkage: Shrinkage = DEFAULT_SHRINKAGE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit x -> (x - mu_x) B + mu_y, B = (C_xx + lambda I)^(-1) C_xy.

    Args:
        stats: statistics of unit rows.
        shrinkage: lambda as a multiple of the mean eigenvalue of C_xx, or "ledoit-wolf".

    Returns:
        Matrix (d_x, d_y) and bias (d_y,).

    Raises:
        AlignmentRefusedError: C_xx is singular and nothing is added to it.
    """
    shrunk, _ = shrink(stats.c_xx, shrinkage, fourth_moment=stats.fourth_moment_x(), n=stats.n)
    try:
        factor = np.linalg.cholesky(shrunk)
    except np.linalg.LinAlgError as error:
        raise AlignmentRefusedError(
            f"ridge: expected a covariance of full rank {stats.d_x}, got a singular one. "
            "Raise --shrinkage or use --method orthogonal"
        ) from error
    matrix = np.linalg.solve(factor.T, np.linalg.solve(factor, stats.c_xy))
    return matrix, stats.mean_y - stats.mean_x @ matrix
