"""Procrustes maps, solved from sufficient statistics alone.

Source: Schoenemann 1966 (orthogonal Procrustes), design, section 2 (whitened form); Ranzinger et al. 2024,
arXiv:2410.01680 (PHI-S: one scalar a teacher).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import AlignmentRefusedError
from consilience.frames.statistics import CrossStatistics
from consilience.frames.whitening import DEFAULT_SHRINKAGE, Shrinkage, fit_whitening

Matrix = NDArray[np.float64]


def nearest_orthogonal(matrix: Matrix) -> Matrix:
    """Return Q = U V' of the singular value decomposition: the (semi-)orthogonal matrix nearest to ``matrix``.

    Args:
        matrix: (d_x, d_y), any sizes.

    Raises:
        AlignmentRefusedError: the matrix is zero: the two sides share nothing.

    Example:
        >>> nearest_orthogonal(np.diag([3.0, 0.5]))
        array([[1., 0.],
               [0., 1.]])
    """
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    if singular[0] <= np.finfo(np.float64).tiny:
        raise AlignmentRefusedError(
            "procrustes: expected correlated rows, got a cross-covariance of zero. Check that both banks are of the "
            "same rows and that neither teacher is constant"
        )
    return np.asarray(left @ right)


def fit_whitened(stats: CrossStatistics, *, shrinkage: Shrinkage = DEFAULT_SHRINKAGE) -> tuple[Matrix, Matrix]:
    """Fit the whitened Procrustes map x -> (x - mu_x) W_x Q W_y^(-1) + mu_y, Q = UV' of svd(W_x C_xy W_y).

    Args:
        stats: statistics of unit rows.
        shrinkage: see :func:`consilience.frames.whitening.shrink`.

    Returns:
        Matrix (d_x, d_y) and bias (d_y,).

    Source: design, section 2.
    """
    source = fit_whitening(stats.c_xx, shrinkage, fourth_moment=stats.fourth_moment_x(), n=stats.n)
    target = fit_whitening(stats.c_yy, shrinkage, fourth_moment=stats.fourth_moment_y(), n=stats.n)
    rotation = nearest_orthogonal(source.forward @ stats.c_xy @ target.forward)
    matrix = source.forward @ rotation @ target.inverse
    return matrix, stats.mean_y - stats.mean_x @ matrix


def fit_orthogonal(stats: CrossStatistics, *, scale: bool = False) -> tuple[Matrix, Matrix]:
    """Fit the centred orthogonal map x -> s (x - mu_x) Q + mu_y that minimises the squared residual.

    Args:
        stats: statistics of unit rows.
        scale: fit the scalar s as well; otherwise s = 1.

    Returns:
        Matrix (d_x, d_y), s Q, and bias (d_y,).

    Source: Schoenemann 1966; Schoenemann and Carroll 1970 for the scale.
    """
    rotation = nearest_orthogonal(stats.c_xy)
    factor = 1.0
    if scale:
        factor = float(np.sum(rotation * stats.c_xy) / np.sum((stats.c_xx @ rotation) * rotation))
    matrix = factor * rotation
    return matrix, stats.mean_y - stats.mean_x @ matrix


def fit_isotropic(stats: CrossStatistics) -> tuple[Matrix, Matrix]:
    """Fit x -> s (x - mu_x) Q + mu_y with the scalar s that gives the mapped rows the target's total variance.

    The least-squares scale of :func:`fit_orthogonal` shrinks a teacher by how badly it correlates; this one keeps its
    say in a mean.

    Args:
        stats: statistics of unit rows.

    Returns:
        Matrix (d_x, d_y), s Q, and bias (d_y,).

    Raises:
        AlignmentRefusedError: the two sides share nothing.

    Source: Ranzinger et al. 2024, arXiv:2410.01680, the isotropic standardisation; design, section 2.
    """
    rotation = nearest_orthogonal(stats.c_xy)
    variance = float(np.sum((stats.c_xx @ rotation) * rotation))
    matrix = float(np.sqrt(np.trace(stats.c_yy) / variance)) * rotation
    return matrix, stats.mean_y - stats.mean_x @ matrix


def fit_rotation(stats: CrossStatistics) -> Matrix:
    """Fit the rotation Q that minimises sum ||x_i Q - y_i||^2 of the rows as they are, without centring.

    A rotation without bias can be a plain linear layer, and it keeps all cosines between mapped rows.

    Args:
        stats: statistics of unit rows.

    Returns:
        (d_x, d_y), orthogonal (semi-orthogonal when the widths differ).

    Raises:
        AlignmentRefusedError: the two sides share nothing.

    Source: Schoenemann 1966; design, section 6.

    Example:
        >>> stats = CrossStatistics(2, 2)
        >>> stats.update(np.eye(2), np.eye(2)[::-1])
        >>> fit_rotation(stats).round(12).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    return nearest_orthogonal(stats.c_xy + np.outer(stats.mean_x, stats.mean_y))
