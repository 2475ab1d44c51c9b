"""Sufficient statistics of k towers' rows together: every mean and every covariance block C_ij, in one pass.

Generalised Procrustes needs all blocks; a map of one tower into another needs one pair of them.

Source: design, section 2; Chan, Golub, LeVeque 1983 for the merge.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError
from consilience.frames.statistics import CrossStatistics

Matrix = NDArray[np.float64]


class JointStatistics:
    """Count, means and all centred second moments of k towers' paired rows, in fp64.

    Memory is O((d_1 + ... + d_k)^2), whatever the number of rows.

    Args:
        widths: d_1 .. d_k.

    Example:
        >>> stats = JointStatistics([1, 2])
        >>> stats.update([np.array([[1.0], [3.0]]), np.array([[0.0, 2.0], [0.0, 6.0]])])
        >>> stats.n, stats.covariance(0, 1).tolist()
        (2, [[0.0, 2.0]])
    """

    def __init__(self, widths: Sequence[int]) -> None:
        if not widths or min(widths) < 1:
            raise InputError(f"JointStatistics: expected widths of at least 1, got {list(widths)}")
        self.widths = tuple(int(width) for width in widths)
        bounds = [0, *itertools.accumulate(self.widths)]
        self._parts = [slice(low, high) for low, high in itertools.pairwise(bounds)]
        # x and y of one CrossStatistics over the towers side by side: y is empty, so only C_xx is computed.
        self._all = CrossStatistics(bounds[-1], 0)
        self._cubic = np.zeros((len(self.widths), bounds[-1]))
        self._quartic = np.zeros(len(self.widths))

    def __len__(self) -> int:
        """Return k."""
        return len(self.widths)

    @property
    def n(self) -> int:
        """Rows seen."""
        return self._all.n

    def update(self, rows: Sequence[NDArray[np.floating]]) -> None:
        """Add a block of rows of every tower.

        Args:
            rows: one (n, d_i) array a tower, row r of all of the same text; normalised by the caller.

        Raises:
            ShapeError: a width or a row count doesn't fit.
        """
        shapes = [block.shape for block in rows]
        if len({shape[0] for shape in shapes}) > 1 or [shape[1:] for shape in shapes] != [(d,) for d in self.widths]:
            raise ShapeError(
                f"JointStatistics.update: expected blocks of widths {list(self.widths)} and one row count, got "
                f"{shapes}. Pass the same rows of every tower"
            )
        blocks = [np.asarray(block, dtype=np.float64) for block in rows]
        self._all.update(np.concatenate(blocks, axis=1), np.empty((len(blocks[0]), 0)))
        for tower, (block, part) in enumerate(zip(blocks, self._parts, strict=True)):
            squared = np.einsum("nd,nd->n", block, block)
            self._cubic[tower, part] += squared @ block
            self._quartic[tower] += float(squared @ squared)

    def merge(self, other: JointStatistics) -> None:
        """Add the statistics of other, disjoint rows: exactly those of the union, up to rounding.

        Raises:
            ShapeError: the widths differ.
        """
        if other.widths != self.widths:
            raise ShapeError(
                f"JointStatistics.merge: expected widths {list(self.widths)}, got {list(other.widths)}. "
                "Merge statistics of the same towers"
            )
        self._all.merge(other._all)
        self._cubic += other._cubic
        self._quartic += other._quartic

    def mean(self, tower: int) -> Matrix:
        """Return a tower's mean, (d_i,)."""
        return self._all.mean_x[self._parts[tower]]

    def covariance(self, first: int, second: int) -> Matrix:
        """Return C_ij (divided by n), (d_i, d_j)."""
        block = self._all.c_xx_block(self._parts[first], self._parts[second])
        return np.ascontiguousarray(block)

    def pair(self, first: int, second: int) -> CrossStatistics:
        """Return the statistics of two towers alone, as if only they had been read."""
        return CrossStatistics.from_moments(
            n=self.n,
            mean_x=self.mean(first),
            mean_y=self.mean(second),
            c_xx=self.covariance(first, first),
            c_yy=self.covariance(second, second),
            c_xy=self.covariance(first, second),
            cubic_x=self._cubic[first, self._parts[first]],
            cubic_y=self._cubic[second, self._parts[second]],
            quartic_x=float(self._quartic[first]),
            quartic_y=float(self._quartic[second]),
        )
