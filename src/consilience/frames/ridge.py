"""Ridge regression between frames, full or of low rank, solved from sufficient statistics alone.

Source: Hoerl and Kennard 1970; Golub, Heath, Wahba 1979 (generalised cross-validation); Izenman 1975 (reduced rank);
design, section 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import AlignmentRefusedError, InputError
from consilience.frames.statistics import CrossStatistics
from consilience.frames.whitening import DEFAULT_SHRINKAGE, Shrinkage, shrink

Matrix = NDArray[np.float64]

# Multiples of the mean eigenvalue that generalised cross-validation chooses among: two a decade.
GCV_GRID = tuple(float(value) for value in 10.0 ** np.arange(-8, 2.5, 0.5))
KEPT_VARIANCE = 0.99  # assumed: a low-rank map keeps this share of the fitted variance unless a rank is given


def fit_ridge(
    stats: CrossStatistics, *, shrinkage: Shrinkage = DEFAULT_SHRINKAGE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit x -> (x - mu_x) B + mu_y, B = (C_xx + lambda I)^(-1) C_xy.

    Args:
        stats: statistics of unit rows.
        shrinkage: lambda as a multiple of the mean eigenvalue of C_xx, "ledoit-wolf", or "gcv": chosen by
            :func:`choose_shrinkage`.

    Returns:
        Matrix (d_x, d_y) and bias (d_y,).

    Raises:
        AlignmentRefusedError: C_xx is singular and nothing is added to it.
    """
    chosen = choose_shrinkage(stats) if shrinkage == "gcv" else shrinkage
    shrunk, _ = shrink(stats.c_xx, chosen, fourth_moment=stats.fourth_moment_x(), n=stats.n)
    try:
        factor = np.linalg.cholesky(shrunk)
    except np.linalg.LinAlgError as error:
        raise AlignmentRefusedError(
            f"ridge: expected a covariance of full rank {stats.d_x}, got a singular one. "
            "Raise --shrinkage or use --method orthogonal"
        ) from error
    matrix = np.linalg.solve(factor.T, np.linalg.solve(factor, stats.c_xy))
    return matrix, stats.mean_y - stats.mean_x @ matrix


def choose_shrinkage(stats: CrossStatistics) -> float:
    """Return the shrinkage of the least generalised leave-one-out error, over a grid of two values a decade.

    The exact leave-one-out error weighs every row by its leverage, which no O(d^2) statistic holds. Its
    rotation-invariant form, generalised cross-validation, puts the mean leverage in its place and needs the
    covariances alone: GCV(lambda) = RSS(lambda) / (1 - (1 + sum_i e_i / (e_i + lambda)) / n)^2, e_i the eigenvalues of
    C_xx.

    Args:
        stats: statistics of unit rows.

    Returns:
        lambda as a multiple of the mean eigenvalue of C_xx.

    Raises:
        AlignmentRefusedError: all rows are equal.

    Source: Golub, Heath, Wahba 1979, Technometrics 21.
    """
    shrink(stats.c_xx, 0.0)  # refuses constant rows
    values, vectors = np.linalg.eigh(stats.c_xx)
    values = np.maximum(values, 0.0)
    energy = np.sum((vectors.T @ stats.c_xy) ** 2, axis=1)  # squared norm of each eigenvector's share of C_xy
    mean_eigenvalue = float(values.mean())
    total = float(np.trace(stats.c_yy))
    best, best_error = GCV_GRID[-1], np.inf
    for shrinkage in GCV_GRID:
        added = values + shrinkage * mean_eigenvalue
        # RSS / n = tr C_yy - 2 tr(B' C_xy) + tr(B' C_xx B), in the eigenbasis.
        residual = total - float(np.sum(energy * (2.0 / added - values / added**2)))
        freedom = 1.0 - (1.0 + float(np.sum(values / added))) / stats.n
        if freedom <= 0:
            continue  # interpolates its rows
        error = residual / freedom**2
        if error < best_error:
            best, best_error = shrinkage, error
    return best


def fit_low_rank(
    stats: CrossStatistics, *, shrinkage: Shrinkage = DEFAULT_SHRINKAGE, rank: int | None = None
) -> tuple[Matrix, Matrix]:
    """Fit a ridge map of limited rank: B V V', V the leading directions of the fitted rows.

    Args:
        stats: statistics of unit rows.
        shrinkage: of the ridge map.
        rank: directions kept; None keeps the fewest that hold 99% of the fitted rows' variance.

    Returns:
        Matrix (d_x, d_y) and bias (d_y,).

    Raises:
        AlignmentRefusedError: C_xx is singular and nothing is added to it, or the two sides share nothing.
        InputError: a rank outside 1 .. min(d_x, d_y).

    Source: Izenman 1975, "Reduced-rank regression for the multivariate linear model".
    """
    most = min(stats.d_x, stats.d_y)
    if rank is not None and not 1 <= rank <= most:
        raise InputError(f"low-rank: expected a rank between 1 and {most}, got {rank}. Change --rank")
    full, _ = fit_ridge(stats, shrinkage=shrinkage)
    values, vectors = np.linalg.eigh(full.T @ stats.c_xx @ full)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    if values[0] <= np.finfo(np.float64).tiny:
        raise AlignmentRefusedError(
            "low-rank: expected correlated rows, got a fit of zero. Check that both banks are of the same rows"
        )
    if rank is None:
        rank = min(int(np.searchsorted(np.cumsum(values) / values.sum(), KEPT_VARIANCE)) + 1, most)
    leading = vectors[:, :rank]
    matrix = full @ leading @ leading.T
    return matrix, stats.mean_y - stats.mean_x @ matrix
