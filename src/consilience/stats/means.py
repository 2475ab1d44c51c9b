"""Bootstrap interval of a mean over units that were measured independently: queries, texts, pairs.

Source: Efron and Tibshirani 1993, "An introduction to the bootstrap", chapter 13 (percentile interval).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ShapeError
from consilience.stats.bootstrap import RESAMPLES, Interval

_CHUNK_ELEMENTS = 1 << 20  # draws held at a time: 8 MB


def mean_interval(
    values: NDArray[np.floating], *, rng: np.random.Generator, resamples: int = RESAMPLES, level: float = 0.95
) -> Interval:
    """Return a mean and its percentile interval.

    Args:
        values: (n,), one number a unit.
        rng: generator, advanced.
        resamples: how many.
        level: coverage.

    Raises:
        ShapeError: no values, or not one a unit.

    Example:
        >>> interval = mean_interval(np.array([0.0, 1.0, 1.0]), rng=np.random.default_rng(0))
        >>> round(interval.score, 3), interval.low >= 0, interval.high <= 1
        (0.667, True, True)
    """
    if values.ndim != 1 or len(values) == 0:
        raise ShapeError(f"mean_interval: expected values (n,) with n >= 1, got {values.shape}")
    n = len(values)
    x = np.asarray(values, dtype=np.float64)
    means = np.empty(resamples)
    chunk = max(1, _CHUNK_ELEMENTS // n)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        means[start : start + size] = x[rng.integers(0, n, size=(size, n))].mean(axis=1)
    tail = (1.0 - level) / 2
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(x.mean()), float(low), float(high), level)
