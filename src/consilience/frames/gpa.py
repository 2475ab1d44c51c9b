"""Generalised Procrustes: k towers of any widths into one frame that none of them owns.

Solved from the k x k covariance blocks alone, so that neither time nor memory of the iteration depends on the rows.

Source: Gower 1975, "Generalized Procrustes analysis", Psychometrika 40; ten Berge 1977 for the order of the updates;
design, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import AlignmentRefusedError, ConsilienceError, InputError
from consilience.frames.align import AffineMap
from consilience.frames.joint_statistics import JointStatistics
from consilience.frames.procrustes import nearest_orthogonal

Matrix = NDArray[np.float64]

TOLERANCE = 1e-7  # of the objective's relative change between two passes; measured: 1e-9 moves no alignment by 1e-5
MAX_ITERATIONS = 500
# An update that lowers the objective by more than rounding contradicts the algebra: something is broken.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class GpaFit:
    """A frame that k towers share.

    Attributes:
        maps: one a tower, into the frame: x -> (x - mu_i) Q_i s_i, with (semi-)orthogonal Q_i (d_i, d).
        dimensions: d.
        iterations: passes over all towers.
        converged: the last pass raised the objective by less than the tolerance.
        residual: mean squared distance of the aligned towers to their mean, as a share of their mean squared norm.
        alignments: by tower, the correlation of the aligned tower with the mean: tr cov / sqrt(tr var * tr var).
        residuals: after every pass, the first entry before any.
    """

    maps: tuple[AffineMap, ...]
    dimensions: int
    iterations: int
    converged: bool
    residual: float
    alignments: tuple[float, ...]
    residuals: tuple[float, ...] = field(default=())


def fit_gpa(
    stats: JointStatistics,
    *,
    dimensions: int | None = None,
    scale: bool = True,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> GpaFit:
    """Align k towers to their own mean: Q_i <- orthogonal part of (1/k) sum_j C_ij Q_j, until nothing changes.

    Args:
        stats: all towers' joint statistics.
        dimensions: width of the frame; the widest tower's when None.
        scale: give every tower the same total variance first (one scalar a tower, PHI-S style), so that an anisotropic
            tower, whose centred rows are short, isn't outvoted.
        tolerance: stop when a pass raises the objective, the variance of the towers' mean, by a smaller share.
        max_iterations: passes at most.

    Returns:
        Maps and how well they agree.

    Raises:
        AlignmentRefusedError: a tower is constant or shares nothing with the others.
        InputError: fewer than two towers or a width below 1.
    """
    k = len(stats)
    width = max(stats.widths) if dimensions is None else dimensions
    if k < 2 or width < 1:
        raise InputError(f"gpa: expected at least two towers and a width of at least 1, got {k} and {width}")
    if stats.n == 0:
        raise InputError("gpa: expected rows, got none. Update the statistics first")
    scales = [_scale(stats, tower) if scale else 1.0 for tower in range(k)]
    blocks = [[stats.covariance(i, j) * (scales[i] * scales[j]) for j in range(k)] for i in range(k)]
    rotations = _start(blocks, stats.widths, width)
    objective = _objective(blocks, rotations)
    residuals = [_residual(blocks, rotations, objective)]
    converged = False
    for _ in range(max_iterations):
        for i in range(k):
            # tr(Q' C Q) is convex in all rotations together, so maximising its linear part never lowers it.
            rotations[i] = nearest_orthogonal(np.sum([blocks[i][j] @ rotations[j] for j in range(k)], axis=0) / k)
        found = _objective(blocks, rotations)
        if found < objective - _ROUNDING * abs(objective):
            raise ConsilienceError(
                f"gpa: the objective fell from {objective:.12g} to {found:.12g} in pass {len(residuals)}, which exact "
                "arithmetic excludes. The statistics are damaged: compute them again"
            )
        converged = found - objective <= tolerance * objective
        objective = found
        residuals.append(_residual(blocks, rotations, objective))
        if converged:
            break
    return GpaFit(
        maps=tuple(
            _map(rotation * factor, stats.mean(tower))
            for tower, (rotation, factor) in enumerate(zip(rotations, scales, strict=True))
        ),
        dimensions=width,
        iterations=len(residuals) - 1,
        converged=converged,
        residual=residuals[-1],
        alignments=_alignments(blocks, rotations),
        residuals=tuple(residuals),
    )


def _map(matrix: Matrix, mean: Matrix) -> AffineMap:
    return AffineMap(matrix, -mean @ matrix)


def _scale(stats: JointStatistics, tower: int) -> float:
    """Return what makes a tower's total variance 1."""
    variance = float(np.trace(stats.covariance(tower, tower)))
    if variance <= 1e-20:  # unit rows that differ at all, even by one fp16 rounding, have a larger variance
        raise AlignmentRefusedError(
            f"gpa: expected rows that vary, got variance {variance:.1e} in tower {tower}: all its rows are equal. "
            "Check the teacher: it returns one vector for every text"
        )
    return float(variance**-0.5)


def _start(blocks: list[list[Matrix]], widths: tuple[int, ...], dimensions: int) -> list[Matrix]:
    """Return starting rotations: the widest tower's principal axes, the others fitted to it."""
    widest = int(np.argmax(widths))
    axes = np.linalg.eigh(blocks[widest][widest])[1][:, ::-1]  # principal axes first, when the frame is narrower
    first = np.zeros((widths[widest], dimensions))
    count = min(widths[widest], dimensions)
    first[:, :count] = axes[:, :count]
    return [
        first if tower == widest else nearest_orthogonal(blocks[tower][widest] @ first) for tower in range(len(widths))
    ]


def _objective(blocks: list[list[Matrix]], rotations: list[Matrix]) -> float:
    """Return the variance of the mean of the aligned towers: (1/k^2) sum_ij tr(Q_i' C_ij Q_j)."""
    k = len(rotations)
    total = sum(float(np.sum(rotations[i] * (blocks[i][j] @ rotations[j]))) for i in range(k) for j in range(k))
    return total / k**2


def _residual(blocks: list[list[Matrix]], rotations: list[Matrix], objective: float) -> float:
    own = _variances(blocks, rotations)
    return float(1.0 - objective / (sum(own) / len(own)))


def _variances(blocks: list[list[Matrix]], rotations: list[Matrix]) -> list[float]:
    return [float(np.sum(q * (blocks[i][i] @ q))) for i, q in enumerate(rotations)]


def _alignments(blocks: list[list[Matrix]], rotations: list[Matrix]) -> tuple[float, ...]:
    k = len(rotations)
    own = _variances(blocks, rotations)
    mean = _objective(blocks, rotations)
    shared = [sum(float(np.sum(rotations[i] * (blocks[i][j] @ rotations[j]))) for j in range(k)) / k for i in range(k)]
    return tuple(float(share / np.sqrt(variance * mean)) for share, variance in zip(shared, own, strict=True))
