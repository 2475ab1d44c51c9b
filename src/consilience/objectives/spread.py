"""Spread: how evenly the simplices of a batch fill the space, drawn towards what isotropic rows have."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch

from consilience.core.errors import ShapeError
from consilience.core.seeds import rng_from_name
from consilience.objectives.precision import to_solver

SIMPLEX_POINTS = 5  # cited: design, section 9
PROJECTION_DIMENSIONS = 16  # cited: design, section 9
SIMPLICES = 512  # assumed: the CV's standard error is about 4 % of it
# Assumed: relative to the mean squared distance; a regular simplex of unit edges has 5.4e-4, and the root's gradient
# grows without bound towards 0.
FLATTEST_SQUARED_VOLUME = 1e-12


def spread(
    student: torch.Tensor,
    target: torch.Tensor | None = None,
    *,
    target_cv: float | None = None,
    projection: torch.Tensor | None = None,
    simplices: torch.Tensor | None = None,
) -> torch.Tensor:
    """Squared distance of the students' spread CV to a target CV.

    Args:
        student: (b, d), b at least 5, d at least 4, L2-normalised.
        target: not read; all terms have one signature.
        target_cv: None: :func:`isotropic_cv` of the projection's width, .386 at 16. The documents state no number; a CV
            target is a claim about effective dimension, and this one claims that all 16 are used alike.
        projection: (d, w); None: :func:`spread_projection` of seed 0.
        simplices: row numbers (m, 5); None: :func:`simplex_rows` of seed 0.

    Returns:
        A scalar.

    Raises:
        ShapeError: too few rows or dimensions for a simplex with a volume.

    Source: design, sections 5 and 9; FT4 document, part IV.
    """
    rows, width = student.shape
    if width < SIMPLEX_POINTS - 1:
        raise ShapeError(
            f"spread: expected at least {SIMPLEX_POINTS - 1} dimensions, got {width}: simplices of {SIMPLEX_POINTS} "
            "points are flat in fewer. Leave the term out"
        )
    fixed = spread_projection(width) if projection is None else projection
    chosen = simplex_rows(rows) if simplices is None else simplices
    # fp64: a determinant of small distances cancels; 512 simplices cost next to nothing.
    points = to_solver(student)
    points = points @ fixed.to(points)
    wanted = isotropic_cv(points.shape[1]) if target_cv is None else target_cv
    return (simplex_cv(points[chosen.to(points.device)]) - wanted).square().to(student)


def simplex_cv(points: torch.Tensor) -> torch.Tensor:
    """Return the coefficient of variation of simplex volumes: standard deviation (of the population) over mean.

    Differentiable; flat simplices have volume 0 and no gradient. It is a function of the points' shape alone, not of
    their scale.

    Args:
        points: (m, k + 1, w) in fp64: m simplices of k + 1 points.

    Returns:
        A scalar, 0 when all are flat.

    Source: V^2 = (-1)^(k+1) / (2^k (k!)^2) det(CM), CM the squared distances bordered by ones (Cayley-Menger).

    Example:
        >>> corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        >>> round(simplex_cv(torch.stack([corners, 2 * corners])).item(), 6)  # areas .5 and 2
        0.6
    """
    m, count, _ = points.shape
    k = count - 1
    squared = (points[:, :, None, :] - points[:, None, :, :]).square().sum(dim=-1)
    scale = squared.detach().mean().clamp(min=1e-300)
    bordered = points.new_ones((m, count + 1, count + 1))
    bordered[:, 0, 0] = 0.0
    bordered[:, 1:, 1:] = squared / scale
    volumes_squared = (-1) ** (k + 1) / (2**k * math.factorial(k) ** 2) * torch.linalg.det(bordered)
    solid = volumes_squared > FLATTEST_SQUARED_VOLUME
    volumes = torch.where(solid, volumes_squared, torch.ones_like(volumes_squared)).sqrt() * solid
    mean = volumes.mean()
    variance = (volumes - mean).square().mean()
    # Equal volumes: the root's gradient is infinite at 0, where the CV has its minimum.
    even = not bool(variance > FLATTEST_SQUARED_VOLUME * mean.square())
    cv: torch.Tensor = variance * 0.0 if even else variance.sqrt() / mean
    return cv


def isotropic_cv(width: int, points: int = SIMPLEX_POINTS) -> float:
    """Return the CV of the volumes of simplices of normally distributed points without a preferred direction.

    The volume is in distribution a constant times the product of independent chi variables of width, width - 1, ...
    degrees of freedom, one an edge.

    Args:
        width: dimensions, at least ``points`` - 1.
        points: of a simplex.

    Source: Miles 1971, "Isotropic random simplices".

    Example:
        >>> round(isotropic_cv(16), 3)
        0.386
    """
    log_ratio = 0.0
    for freedom in range(width - points + 2, width + 1):
        log_mean = 0.5 * math.log(2) + math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
        log_ratio += math.log(freedom) - 2 * log_mean
    return math.sqrt(math.expm1(log_ratio))


def has_simplices(rows: int, width: int) -> bool:
    """Return whether (rows, width) holds a simplex with a volume."""
    return rows >= SIMPLEX_POINTS and width >= SIMPLEX_POINTS - 1


@lru_cache(maxsize=32)
def spread_projection(dimensions: int, seed: int = 0) -> torch.Tensor:
    """Return the fixed projection: random orthonormal columns (d, min(d, 16)) in fp64; shared, not to be written to."""
    width = min(dimensions, PROJECTION_DIMENSIONS)
    gaussian = rng_from_name(f"spread/projection/{dimensions}", seed).standard_normal((dimensions, width))
    with torch.inference_mode(False):  # what is cached may be differentiated through later
        return torch.from_numpy(np.linalg.qr(gaussian)[0])


@lru_cache(maxsize=256)
def simplex_rows(rows: int, seed: int = 0, count: int = SIMPLICES) -> torch.Tensor:
    """Return the simplices' row numbers (count, 5), distinct within each: a function of its arguments alone.

    A batch of so many rows always uses the same places; the rows in them are shuffled anew each epoch.

    Raises:
        ShapeError: fewer than five rows.
    """
    if rows < SIMPLEX_POINTS:
        raise ShapeError(
            f"spread: expected at least {SIMPLEX_POINTS} rows in a batch, got {rows}: a simplex has so many points. "
            "Raise --batch-rows, or leave the term out"
        )
    rng = rng_from_name(f"spread/simplices/{rows}", seed)
    # Rejection keeps the draw uniform; at five rows of five, one draw in 26 is kept, still microseconds.
    chosen = rng.integers(rows, size=(count, SIMPLEX_POINTS))
    while True:
        ordered = chosen.copy()
        ordered.sort(axis=1)
        repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if not repeated.any():
            break
        chosen[repeated] = rng.integers(rows, size=(int(repeated.sum()), SIMPLEX_POINTS))
    with torch.inference_mode(False):
        return torch.from_numpy(chosen)
