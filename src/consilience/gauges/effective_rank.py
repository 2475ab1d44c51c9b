"""How many directions embeddings use, and how evenly their simplices spread; always both (design, section 9)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError

SIMPLEX_POINTS = 5  # cited: design, section 9
PROJECTION_DIMENSIONS = 16  # cited: design, section 9
PROJECTION_SEED = 20_240_117  # assumed: any fixed number; fixed so that two runs' CVs compare
SIMPLICES = 2000  # assumed: the CV's standard error is about 2 % of it


@dataclass(frozen=True)
class RankGauge:
    """Effective rank by two definitions, and the spread CV that must be read beside it.

    Attributes:
        participation: (sum l)^2 / sum l^2 over the centred covariance's eigenvalues l.
        entropy: exp of the entropy of l / sum l.
        spread_cv: coefficient of variation of 5-point simplex volumes on a fixed random 16-d projection.
    """

    participation: float
    entropy: float
    spread_cv: float

    def to_json(self) -> dict[str, float]:
        """Return the three numbers by name."""
        return asdict(self)


def spectrum(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the centred covariance's eigenvalues, descending, as shares of their sum.

    Args:
        x: rows (n, d), used as they are (normalise first to measure directions).

    Returns:
        min(n, d) shares that sum to 1, or zeros when all rows are equal.

    Raises:
        ShapeError: fewer than two rows.

    Example:
        >>> spectrum(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        array([0.5, 0.5])
    """
    if x.ndim != 2 or len(x) < 2:
        raise ShapeError(f"spectrum: expected at least two rows (n, d), got shape {x.shape}. Pass more rows")
    centred = np.asarray(x, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    gram = centred.T @ centred if len(centred) >= centred.shape[1] else centred @ centred.T
    return normalised_eigenvalues(gram)


def normalised_eigenvalues(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a covariance's eigenvalues, descending, as shares of their sum (zeros when it is zero)."""
    values = np.maximum(np.linalg.eigvalsh(covariance)[::-1], 0.0)
    total = values.sum()
    return np.asarray(values / total if total > 0 else values)


def participation_ratio(shares: NDArray[np.float64]) -> float:
    """Return (sum l)^2 / sum l^2; 0 when all rows are equal.

    Example:
        >>> participation_ratio(np.array([0.5, 0.5, 0.0]))
        2.0
    """
    squared = float(shares @ shares)
    return float(shares.sum()) ** 2 / squared if squared > 0 else 0.0


def entropy_rank(shares: NDArray[np.float64]) -> float:
    """Return exp(-sum p log p); 0 when all rows are equal.

    Source: Roy and Vetterli 2007, "The effective rank".
    """
    positive = shares[shares > 0]
    return float(np.exp(-np.sum(positive * np.log(positive)))) if len(positive) else 0.0


def simplex_volumes(points: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the volumes of simplices from their pairwise distances (Cayley-Menger determinant).

    Args:
        points: (m, k + 1, d): m simplices of k + 1 points.

    Returns:
        Volumes (m,), in units of distance to the power k.

    Source: V^2 = (-1)^(k+1) / (2^k (k!)^2) det(CM), CM the squared distances bordered by ones.

    Example:
        >>> simplex_volumes(np.array([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]])).round(6)
        array([6.])
    """
    p = np.asarray(points, dtype=np.float64)
    m, count, _ = p.shape
    k = count - 1
    difference = p[:, :, None, :] - p[:, None, :, :]
    bordered = np.ones((m, count + 1, count + 1))
    bordered[:, 0, 0] = 0.0
    bordered[:, 1:, 1:] = np.einsum("mijd,mijd->mij", difference, difference)
    squared = (-1) ** (k + 1) / (2**k * math.factorial(k) ** 2) * np.linalg.det(bordered)
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


def fixed_projection(dimensions: int) -> NDArray[np.float64]:
    """Return the fixed random orthonormal projection (d, min(d, 16))."""
    width = min(dimensions, PROJECTION_DIMENSIONS)
    gaussian = np.random.default_rng(PROJECTION_SEED).standard_normal((dimensions, width))
    return np.asarray(np.linalg.qr(gaussian)[0])


def spread_cv(x: NDArray[np.floating], *, simplices: int = SIMPLICES) -> float:
    """Return the coefficient of variation of random 5-point simplex volumes on the fixed projection.

    Args:
        x: rows (n, d), at least five.
        simplices: how many are drawn (with a fixed seed, so the gauge is a function of x).

    Returns:
        Standard deviation over mean; 0 when every volume is 0.

    Raises:
        ShapeError: fewer than five rows.
    """
    if x.ndim != 2 or len(x) < SIMPLEX_POINTS:
        raise ShapeError(f"spread_cv: expected at least {SIMPLEX_POINTS} rows (n, d), got shape {x.shape}")
    rng = np.random.default_rng(PROJECTION_SEED)
    chosen = np.stack([rng.choice(len(x), SIMPLEX_POINTS, replace=False) for _ in range(simplices)])
    projected = np.asarray(x, dtype=np.float64) @ fixed_projection(x.shape[1])
    volumes = simplex_volumes(projected[chosen])
    mean = float(volumes.mean())
    return float(volumes.std()) / mean if mean > 0 else 0.0


def effective_rank(x: NDArray[np.floating], *, shares: NDArray[np.float64] | None = None) -> RankGauge:
    """Measure effective rank and spread of embeddings.

    Args:
        x: rows (n, d), at least five, used as they are: pass unit rows for embeddings that are compared by cosine.
        shares: their :func:`spectrum`, when the caller already has it.

    Returns:
        Participation ratio, entropy rank and spread CV, never one without the others.

    Raises:
        InputError: a value isn't finite.
        ShapeError: too few rows.

    Source: design, section 9.
    """
    if not np.isfinite(x).all():
        raise InputError("effective_rank: expected finite embeddings, got NaN or infinity. Check the model")
    shares = spectrum(x) if shares is None else shares
    return RankGauge(participation_ratio(shares), entropy_rank(shares), spread_cv(x))
