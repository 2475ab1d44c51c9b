"""Sufficient statistics of paired rows: one streaming pass, then every map is solved from O(d^2) numbers.

Statistics of disjoint shards add exactly, so they merge across shards, processes and machines.

Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance" (pairwise update), design, section 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ShapeError

Matrix = NDArray[np.float64]


class CrossStatistics:
    """Count, means and centred second moments of paired rows (x_i, y_i), in fp64.

    Args:
        d_x: width of x.
        d_y: width of y.

    Example:
        >>> stats = CrossStatistics(1, 1)
        >>> stats.update(np.array([[1.0], [3.0]]), np.array([[2.0], [6.0]]))
        >>> stats.n, float(stats.c_xx[0, 0]), float(stats.c_xy[0, 0])
        (2, 1.0, 2.0)
    """

    def __init__(self, d_x: int, d_y: int) -> None:
        self.d_x = d_x
        self.d_y = d_y
        self.n = 0
        self.mean_x = np.zeros(d_x)
        self.mean_y = np.zeros(d_y)
        self._s_xx = np.zeros((d_x, d_x))
        self._s_yy = np.zeros((d_y, d_y))
        self._s_xy = np.zeros((d_x, d_y))
        # Raw third and fourth moments of the norm: all that Ledoit-Wolf needs beyond the covariance, and additive.
        self._cubic_x = np.zeros(d_x)
        self._cubic_y = np.zeros(d_y)
        self._quartic_x = 0.0
        self._quartic_y = 0.0

    @classmethod
    def from_moments(
        cls,
        *,
        n: int,
        mean_x: Matrix,
        mean_y: Matrix,
        c_xx: Matrix,
        c_yy: Matrix,
        c_xy: Matrix,
        cubic_x: Matrix,
        cubic_y: Matrix,
        quartic_x: float,
        quartic_y: float,
    ) -> CrossStatistics:
        """Return statistics with these moments.

        Args:
            n: rows.
            mean_x: (d_x,).
            mean_y: (d_y,).
            c_xx: covariance of x, divided by n.
            c_yy: the same of y.
            c_xy: cross-covariance, divided by n.
            cubic_x: sum of ||x||^2 x over the rows.
            cubic_y: the same of y.
            quartic_x: sum of ||x||^4 over the rows.
            quartic_y: the same of y.
        """
        stats = cls(len(mean_x), len(mean_y))
        stats.n, stats.mean_x, stats.mean_y = n, mean_x.copy(), mean_y.copy()
        stats._s_xx, stats._s_yy, stats._s_xy = c_xx * n, c_yy * n, c_xy * n
        stats._cubic_x, stats._cubic_y = cubic_x.copy(), cubic_y.copy()
        stats._quartic_x, stats._quartic_y = quartic_x, quartic_y
        return stats

    @property
    def c_xx(self) -> Matrix:
        """Covariance of x (divided by n), (d_x, d_x)."""
        return self._s_xx / max(self.n, 1)

    def c_xx_block(self, rows: slice, columns: slice) -> Matrix:
        """Return a part of the covariance of x (divided by n)."""
        return self._s_xx[rows, columns] / max(self.n, 1)

    @property
    def c_yy(self) -> Matrix:
        """Covariance of y (divided by n), (d_y, d_y)."""
        return self._s_yy / max(self.n, 1)

    @property
    def c_xy(self) -> Matrix:
        """Cross-covariance (divided by n), (d_x, d_y)."""
        return self._s_xy / max(self.n, 1)

    def update(self, x: NDArray[np.floating], y: NDArray[np.floating]) -> None:
        """Add a block of paired rows.

        Args:
            x: rows (n, d_x), normalised by the caller.
            y: rows (n, d_y), row i paired with row i of x.

        Raises:
            ShapeError: widths or row counts don't fit.
        """
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != self.d_x or y.shape[1] != self.d_y or len(x) != len(y):
            raise ShapeError(
                f"CrossStatistics.update: expected (n, {self.d_x}) and (n, {self.d_y}), got {x.shape} and {y.shape}. "
                "Pass blocks of the same rows"
            )
        if len(x) == 0:
            return
        block = CrossStatistics(self.d_x, self.d_y)
        x64 = np.asarray(x, dtype=np.float64)
        y64 = np.asarray(y, dtype=np.float64)
        block.n = len(x64)
        block.mean_x = x64.mean(axis=0)
        block.mean_y = y64.mean(axis=0)
        for name, rows in (("x", x64), ("y", y64)):
            squared = np.einsum("nd,nd->n", rows, rows)
            setattr(block, f"_cubic_{name}", squared @ rows)
            setattr(block, f"_quartic_{name}", float(squared @ squared))
        x64 = x64 - block.mean_x
        y64 = y64 - block.mean_y
        block._s_xx = x64.T @ x64
        block._s_yy = y64.T @ y64
        block._s_xy = x64.T @ y64
        self.merge(block)

    def merge(self, other: CrossStatistics) -> None:
        """Add the statistics of other, disjoint rows: exactly those of the union, up to rounding.

        Raises:
            ShapeError: the widths differ.
        """
        if (other.d_x, other.d_y) != (self.d_x, self.d_y):
            raise ShapeError(
                f"CrossStatistics.merge: expected widths {self.d_x} and {self.d_y}, got {other.d_x} and {other.d_y}. "
                "Merge statistics of the same pair of frames"
            )
        if other.n == 0:
            return
        total = self.n + other.n
        delta_x = other.mean_x - self.mean_x
        delta_y = other.mean_y - self.mean_y
        factor = self.n * other.n / total
        self._s_xx += other._s_xx + factor * np.outer(delta_x, delta_x)
        self._s_yy += other._s_yy + factor * np.outer(delta_y, delta_y)
        self._s_xy += other._s_xy + factor * np.outer(delta_x, delta_y)
        self.mean_x = self.mean_x + delta_x * (other.n / total)
        self.mean_y = self.mean_y + delta_y * (other.n / total)
        self._cubic_x += other._cubic_x
        self._cubic_y += other._cubic_y
        self._quartic_x += other._quartic_x
        self._quartic_y += other._quartic_y
        self.n = total

    def transposed(self) -> CrossStatistics:
        """Return the statistics with x and y exchanged (C_ji from C_ij)."""
        other = CrossStatistics(self.d_y, self.d_x)
        other.n = self.n
        other.mean_x, other.mean_y = self.mean_y.copy(), self.mean_x.copy()
        other._s_xx, other._s_yy, other._s_xy = self._s_yy.copy(), self._s_xx.copy(), self._s_xy.T.copy()
        other._cubic_x, other._cubic_y = self._cubic_y.copy(), self._cubic_x.copy()
        other._quartic_x, other._quartic_y = self._quartic_y, self._quartic_x
        return other

    def fourth_moment_x(self) -> float:
        """Return mean ||x - mean_x||^4, from the additive moments alone."""
        return _fourth_moment(self.n, self.mean_x, self.c_xx, self._cubic_x, self._quartic_x)

    def fourth_moment_y(self) -> float:
        """Return mean ||y - mean_y||^4, from the additive moments alone."""
        return _fourth_moment(self.n, self.mean_y, self.c_yy, self._cubic_y, self._quartic_y)


def _fourth_moment(n: int, mean: Matrix, covariance: Matrix, cubic: Matrix, quartic: float) -> float:
    # ||x-m||^4 = (|x|^2 - 2 m.x + |m|^2)^2, expanded and averaged.
    if n == 0:
        return 0.0
    m2 = float(mean @ mean)
    mean_squared = float(np.trace(covariance)) + m2
    m_xx_m = float(mean @ covariance @ mean) + m2 * m2
    return quartic / n + 4 * m_xx_m + m2 * m2 - 4 * float(cubic @ mean) / n + 2 * mean_squared * m2 - 4 * m2 * m2
