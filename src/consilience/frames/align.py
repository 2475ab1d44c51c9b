"""One interface over all maps between frames: statistics in, one affine map out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import AlignmentRefusedError, InputError, ShapeError
from consilience.frames.procrustes import fit_isotropic, fit_orthogonal, fit_whitened
from consilience.frames.ridge import fit_low_rank, fit_ridge
from consilience.frames.rows import normalise_rows
from consilience.frames.statistics import CrossStatistics
from consilience.frames.whitening import DEFAULT_SHRINKAGE, Shrinkage, check_shrinkage

# Below this, the solve interpolates its fit rows. Assumed: the style page's example; the fit report is stricter.
MINIMUM_ROWS_PER_DIMENSION = 4


@dataclass(frozen=True)
class AffineMap:
    """A map of one frame into another: x -> normalise(normalise(x) @ matrix + bias).

    Attributes:
        matrix: (d_x, d_y).
        bias: (d_y,).
    """

    matrix: NDArray[np.floating]
    bias: NDArray[np.floating]

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or self.bias.shape != (self.matrix.shape[1],):
            raise ShapeError(
                f"AffineMap: expected a matrix (d_x, d_y) and a bias (d_y,), got {self.matrix.shape} and "
                f"{self.bias.shape}. Rebuild the frames"
            )

    @property
    def d_x(self) -> int:
        """Width of the source frame."""
        return int(self.matrix.shape[0])

    @property
    def d_y(self) -> int:
        """Width of the target frame."""
        return int(self.matrix.shape[1])

    @cached_property
    def _single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.ascontiguousarray(self.matrix, dtype=np.float32), np.asarray(self.bias, dtype=np.float32)

    @cached_property
    def _is_identity(self) -> bool:
        square = self.d_x == self.d_y
        return square and not self.bias.any() and bool(np.array_equal(self.matrix, np.eye(self.d_x)))

    def apply(self, x: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map rows: L2-normalise, affine (one float32 GEMM), L2-normalise.

        Args:
            x: rows (n, d_x) of the source frame; normalised or not.

        Returns:
            Unit rows (n, d_y) in the target frame.

        Raises:
            ShapeError: the width isn't d_x.
            InputError: a row is zero or not finite.
        """
        if x.ndim != 2 or x.shape[1] != self.d_x:
            raise ShapeError(
                f"AffineMap.apply: expected rows (n, {self.d_x}), got {x.shape}. Use the map of this bank's teacher"
            )
        unit = normalise_rows(np.asarray(x, dtype=np.float32), where="AffineMap.apply")
        if self._is_identity:  # the reference's: spares the committee one GEMM
            return unit
        matrix, bias = self._single
        mapped = unit @ matrix
        mapped += bias
        return normalise_rows(mapped, where="AffineMap.apply (mapped)")


def identity_map(dimensions: int) -> AffineMap:
    """Return the map of a frame onto itself (it still normalises)."""
    return AffineMap(np.eye(dimensions), np.zeros(dimensions))


_Solver = Callable[[CrossStatistics, Shrinkage, int | None], tuple[NDArray[np.float64], NDArray[np.float64]]]
_SOLVERS: dict[str, _Solver] = {
    "whitened": lambda stats, shrinkage, _: fit_whitened(stats, shrinkage=shrinkage),
    "orthogonal": lambda stats, *_: fit_orthogonal(stats),
    "orthogonal-scaled": lambda stats, *_: fit_orthogonal(stats, scale=True),
    "isotropic": lambda stats, *_: fit_isotropic(stats),
    "ridge": lambda stats, shrinkage, _: fit_ridge(stats, shrinkage=shrinkage),
    "low-rank": lambda stats, shrinkage, rank: fit_low_rank(stats, shrinkage=shrinkage, rank=rank),
}
METHODS = tuple(_SOLVERS)


def check_method(method: str) -> None:
    """Refuse an unknown method by name.

    Raises:
        InputError: no such method.
    """
    if method not in _SOLVERS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")


def require_rows(rows: int, dimensions: int, *, where: str = "fit_map") -> None:
    """Refuse a fit with too few rows for its width.

    Raises:
        AlignmentRefusedError: fewer than four rows per dimension.
    """
    needed = MINIMUM_ROWS_PER_DIMENSION * dimensions
    if rows < needed:
        raise AlignmentRefusedError(
            f"{where}: need at least {MINIMUM_ROWS_PER_DIMENSION} rows per dimension ({needed} for {dimensions}), "
            f"got {rows}. Sample more rows, use a larger corpus, or distil from one teacher's bank, which needs no map"
        )


def fit_map(
    stats: CrossStatistics,
    method: str = "whitened",
    *,
    shrinkage: Shrinkage = DEFAULT_SHRINKAGE,
    rank: int | None = None,
    force: bool = False,
) -> AffineMap:
    """Fit the affine map of x's frame into y's.

    Args:
        stats: statistics of paired unit rows.
        method: "whitened", "orthogonal", "orthogonal-scaled", "isotropic", "ridge" or "low-rank".
        shrinkage: lambda as a multiple of the mean eigenvalue, "ledoit-wolf" (whitened, ridge, low-rank) or "gcv"
            (ridge, low-rank): chosen by generalised leave-one-out.
        rank: of the low-rank map; None keeps 99% of the fitted variance.
        force: fit even with too few rows per dimension.

    Returns:
        The map, in fp64.

    Raises:
        AlignmentRefusedError: too few rows, constant or unrelated rows.
        InputError: unknown method or shrinkage.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = normalise_rows(rng.standard_normal((100, 3)))
        >>> stats = CrossStatistics(3, 3)
        >>> stats.update(x, x[:, ::-1])
        >>> bool(np.allclose(fit_map(stats, "orthogonal").matrix, np.eye(3)[::-1]))
        True

    Source: design, section 2.
    """
    check_method(method)
    check_shrinkage(shrinkage)
    if not force:
        require_rows(stats.n, max(stats.d_x, stats.d_y))
    matrix, bias = _SOLVERS[method](stats, shrinkage, rank)
    return AffineMap(matrix, bias)
