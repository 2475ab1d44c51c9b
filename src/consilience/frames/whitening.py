"""Symmetric whitening W = (C + lambda I)^(-1/2) with a shrunk spectrum.

Source: design, section 2; Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance
matrices", J. Multivariate Analysis 88 (the "ledoit-wolf" shrinkage).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import AlignmentRefusedError, InputError

Matrix = NDArray[np.float64]
Shrinkage = float | Literal["ledoit-wolf", "gcv"]
DEFAULT_SHRINKAGE = 1e-3  # cited: design, section 2


@dataclass(frozen=True)
class Whitening:
    """A symmetric whitening and its inverse.

    Attributes:
        forward: W = shrunk(C)^(-1/2), (d, d).
        inverse: shrunk(C)^(1/2), (d, d).
        ridge: what was added to the eigenvalues, lambda.
        eigenvalues: of C before shrinkage, descending.
    """

    forward: Matrix
    inverse: Matrix
    ridge: float
    eigenvalues: Matrix


def check_shrinkage(shrinkage: Shrinkage) -> None:
    """Refuse a shrinkage that isn't a number of at least 0, "ledoit-wolf" or (for the ridge maps) "gcv".

    Raises:
        InputError: it is something else.
    """
    if isinstance(shrinkage, str):
        known = str(shrinkage) in ("ledoit-wolf", "gcv")
    else:
        known = bool(np.isfinite(shrinkage)) and shrinkage >= 0
    if not known:
        raise InputError(
            f"shrinkage: expected a number >= 0 or 'ledoit-wolf', got {shrinkage!r}. Use e.g. 1e-3, or gcv for ridge"
        )


def ledoit_wolf_intensity(covariance: Matrix, fourth_moment: float, n: int) -> float:
    """Return the optimal weight of the scaled identity, in [0, 1].

    Args:
        covariance: (d, d), divided by n.
        fourth_moment: mean ||x - mean||^4 over the same rows.
        n: number of rows.
    """
    d = len(covariance)
    mean_eigenvalue = float(np.trace(covariance)) / d
    norm = float(np.sum(covariance * covariance))
    spread = norm / d - mean_eigenvalue**2
    noise = (fourth_moment - norm) / (n * d)
    if spread <= 0:
        return 1.0
    return float(min(max(noise / spread, 0.0), 1.0))


def shrink(covariance: Matrix, shrinkage: Shrinkage, *, fourth_moment: float = 0.0, n: int = 0) -> tuple[Matrix, float]:
    """Return the shrunk covariance and the lambda that was added to its diagonal.

    Args:
        covariance: (d, d), divided by n.
        shrinkage: lambda as a multiple of the mean eigenvalue, or "ledoit-wolf".
        fourth_moment: mean ||x - mean||^4, only for "ledoit-wolf".
        n: rows, only for "ledoit-wolf".

    Raises:
        AlignmentRefusedError: the covariance is zero: all rows are the same.
    """
    check_shrinkage(shrinkage)
    d = len(covariance)
    mean_eigenvalue = float(np.trace(covariance)) / d
    # 1e-20: unit rows that differ at all, even by one fp16 rounding, have a larger variance.
    if mean_eigenvalue * d <= 1e-20:
        raise AlignmentRefusedError(
            f"whitening: expected rows that vary, got variance {mean_eigenvalue * d:.1e}: all rows are equal. "
            "Check the teacher: it returns one vector for every text"
        )
    if shrinkage == "gcv":
        raise InputError(
            "shrinkage: gcv chooses the lambda of ridge and low-rank maps only. Use a number or ledoit-wolf"
        )
    if shrinkage == "ledoit-wolf":
        weight = ledoit_wolf_intensity(covariance, fourth_moment, n)
        ridge = weight * mean_eigenvalue
        return (1 - weight) * covariance + ridge * np.eye(d), ridge
    ridge = float(shrinkage) * mean_eigenvalue
    return covariance + ridge * np.eye(d), ridge


def fit_whitening(
    covariance: Matrix, shrinkage: Shrinkage = DEFAULT_SHRINKAGE, *, fourth_moment: float = 0.0, n: int = 0
) -> Whitening:
    """Fit the symmetric (zero-phase) whitening of a covariance.

    Args:
        covariance: (d, d), divided by n.
        shrinkage: lambda as a multiple of the mean eigenvalue, or "ledoit-wolf".
        fourth_moment: mean ||x - mean||^4, only for "ledoit-wolf".
        n: rows, only for "ledoit-wolf".

    Raises:
        AlignmentRefusedError: all rows are equal, or the covariance is singular and nothing is added to it.

    Example:
        >>> fit_whitening(np.diag([4.0, 1.0]), 0.0).forward
        array([[0.5, 0. ],
               [0. , 1. ]])
    """
    shrunk, ridge = shrink(covariance, shrinkage, fourth_moment=fourth_moment, n=n)
    values, vectors = np.linalg.eigh(shrunk)
    if values[0] <= values[-1] * np.finfo(np.float64).eps * len(values):
        raise AlignmentRefusedError(
            f"whitening: expected a covariance of full rank {len(values)}, got a smallest eigenvalue of "
            f"{values[0]:.1e} (largest {values[-1]:.1e}). Raise --shrinkage or use --method orthogonal"
        )
    roots = np.sqrt(values)
    return Whitening(
        forward=(vectors / roots) @ vectors.T,
        inverse=(vectors * roots) @ vectors.T,
        ridge=ridge,
        eigenvalues=np.maximum(np.linalg.eigvalsh(covariance)[::-1], 0.0),
    )
