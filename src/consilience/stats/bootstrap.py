"""Bootstrap of Spearman's correlation over pairs: intervals, and paired comparison of two models.

Resampling n pairs with replacement gives pair i a count c_i. The ranks of the resample, ties included, are the
weighted mid-ranks of the original values under these counts: with the values sorted once, a cumulative sum replaces
every resample's sort, and the result is exactly the correlation of the drawn sample (tested against drawing it).

Source: Efron and Tibshirani 1993, "An introduction to the bootstrap", chapters 13 (percentile interval) and 15-16.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError
from consilience.stats.correlation import check_pairs, spearman

RESAMPLES = 1000  # cited: common practice for percentile intervals
_CHUNK_ELEMENTS = 1 << 18  # counts held at a time: 2 MB, within a core's cache


@dataclass(frozen=True)
class Interval:
    """A score with its bootstrap interval.

    Attributes:
        score: on the pairs as given.
        low: lower end.
        high: upper end.
        level: coverage.
    """

    score: float
    low: float
    high: float
    level: float

    def to_json(self) -> dict[str, float]:
        """Return the numbers by name."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """Difference of two models' scores on the same pairs.

    Attributes:
        difference: first minus second.
        low: lower end of its interval.
        high: upper end.
        p_value: two-sided.
        level: coverage.
    """

    difference: float
    low: float
    high: float
    p_value: float
    level: float

    def to_json(self) -> dict[str, float]:
        """Return the numbers by name."""
        return asdict(self)


class _WeightedRanks:
    """Mid-ranks of fixed values under resampling counts."""

    def __init__(self, values: NDArray[np.floating]) -> None:
        _, inverse, sizes = np.unique(values, return_inverse=True, return_counts=True)
        self.group = inverse.ravel()
        self.order = np.argsort(self.group, kind="stable")
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.distinct = len(sizes) == len(values)

    def centred(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return mid-ranks minus their mean, (b, n), for counts (b, n) that sum to n."""
        weights = counts[:, self.order]
        if not self.distinct:
            weights = np.add.reduceat(weights, self.starts, axis=1)
        middle = np.cumsum(weights, axis=1)
        middle -= (weights - 1.0) * 0.5
        middle -= (counts.shape[1] + 1) / 2
        return np.asarray(np.take(middle, self.group, axis=1))


def resampled_spearman(
    xs: list[NDArray[np.floating]], gold: NDArray[np.floating], *, resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return Spearman's correlation of each model's scores with gold on the same resamples of the pairs.

    Args:
        xs: each model's scores (n,).
        gold: (n,).
        resamples: how many.
        rng: generator, advanced.

    Returns:
        (resamples, len(xs)); NaN where a resample is constant.
    """
    n = len(gold)
    gold_ranks = _WeightedRanks(gold)
    x_ranks = [_WeightedRanks(x) for x in xs]
    results = np.empty((resamples, len(xs)))
    chunk = max(1, _CHUNK_ELEMENTS // n)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        drawn = rng.integers(0, n, size=(size, n), dtype=np.int64)
        drawn += (np.arange(size) * n)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)
        g = gold_ranks.centred(counts)
        weighted_g = counts * g
        g_variance = np.einsum("bn,bn->b", weighted_g, g)
        for column, ranks in enumerate(x_ranks):
            r = ranks.centred(counts)
            covariance = np.einsum("bn,bn->b", weighted_g, r)
            variance = np.einsum("bn,bn,bn->b", counts, r, r)
            scale = np.sqrt(g_variance * variance)
            defined = scale > 0
            rho = np.full(size, np.nan)
            rho[defined] = covariance[defined] / scale[defined]
            results[start : start + size, column] = rho
    return results


def bootstrap_interval(
    x: NDArray[np.floating],
    gold: NDArray[np.floating],
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """Return Spearman's correlation with its percentile bootstrap interval over pairs.

    Args:
        x: a model's scores (n,).
        gold: reference scores (n,).
        rng: generator, advanced.
        resamples: how many.
        level: coverage, in (0, 1).

    Raises:
        ShapeError: lengths differ or n < 3.
        InputError: NaN, a constant side, or a level or count out of range.
    """
    _check(resamples, level)
    check_pairs(x, gold, where="bootstrap_interval")
    rho = resampled_spearman([x], gold, resamples=resamples, rng=rng)[:, 0]
    low, high = _percentiles(rho, level)
    return Interval(spearman(x, gold), low, high, level)


def paired_bootstrap(
    x1: NDArray[np.floating],
    x2: NDArray[np.floating],
    gold: NDArray[np.floating],
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Comparison:
    """Compare two models on the same pairs: the same resamples for both.

    Args:
        x1: first model's scores (n,).
        x2: second model's scores (n,).
        gold: reference scores (n,).
        rng: generator, advanced.
        resamples: how many.
        level: coverage of the interval, in (0, 1).

    Returns:
        The difference of the correlations, its percentile interval and the two-sided p-value: twice the share of
        resamples on the other side of zero, with one added to both counts so that it is never 0.

    Raises:
        ShapeError: lengths differ or n < 3.
        InputError: NaN, a constant side, or a level or count out of range.
    """
    _check(resamples, level)
    if len(x1) != len(x2):
        raise ShapeError(f"paired_bootstrap: expected two models on the same pairs, got {len(x1)} and {len(x2)}")
    check_pairs(x1, gold, where="paired_bootstrap (first model)")
    check_pairs(x2, gold, where="paired_bootstrap (second model)")
    rho = resampled_spearman([x1, x2], gold, resamples=resamples, rng=rng)
    delta = rho[:, 0] - rho[:, 1]
    low, high = _percentiles(delta, level)
    known = delta[~np.isnan(delta)]
    tails = min(np.sum(known <= 0), np.sum(known >= 0))
    p_value = min(1.0, 2.0 * (1.0 + float(tails)) / (1.0 + len(known)))
    return Comparison(spearman(x1, gold) - spearman(x2, gold), low, high, p_value, level)


def _check(resamples: int, level: float) -> None:
    if resamples < 1 or not 0 < level < 1:
        raise InputError(f"bootstrap: expected resamples >= 1 and 0 < level < 1, got {resamples} and {level}")


def _percentiles(values: NDArray[np.float64], level: float) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if len(known) == 0:
        raise InputError("bootstrap: expected pairs that vary, got only constant resamples. Use more pairs")
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(known, [tail, 100.0 - tail])
    return float(low), float(high)
