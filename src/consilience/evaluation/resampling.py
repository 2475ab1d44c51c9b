"""Bootstrap replicates of Spearman's correlation, many per second, with the same draws for every model.

A resample of n pairs is a vector of counts. The mid-ranks of the resample follow from the counts by one cumulative
sum over the values in sorted order, so that a replicate costs O(n) instead of two sorts. Because the draws of a
task depend on its name and the seed alone, replicates of two models are paired draw by draw, and differences and
task means can be taken replicate by replicate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.seeds import rng_from_name


@dataclass(frozen=True)
class Interval:
    """A 95% percentile interval."""

    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """A difference of two models on the same pairs.

    Attributes:
        difference: first minus second.
        interval: 95% percentile interval of the difference.
        p_value: two-sided bootstrap p-value of "no difference", at least 1 / (resamples + 1).
    """

    difference: float
    interval: Interval
    p_value: float


def spearman_replicates(
    x: NDArray[np.floating], y: NDArray[np.floating], *, name: str, seed: int, resamples: int
) -> NDArray[np.float64]:
    """Return Spearman's correlation of ``resamples`` bootstrap samples of the pairs (x_i, y_i).

    Args:
        x: (n,) values.
        y: (n,) values.
        name: with ``seed`` it determines the draws: equal names draw equal pairs.
        seed: number of the repetition.
        resamples: how many.

    Returns:
        Array (resamples,). A resample in which one side is constant has correlation 0.

    Source:
        Efron and Tibshirani 1993, section 10.3 (paired resampling of cases).
    """
    if resamples < 100:
        raise InputError(f"resamples: at least 100 expected for a 95% interval, got {resamples}. Raise --resamples")
    rng = rng_from_name(f"bootstrap/{name}", seed)
    n = len(x)
    group_x, group_y = _groups(x), _groups(y)
    replicates = np.empty(resamples)
    for i in range(resamples):
        counts = np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)
        replicates[i] = _weighted_pearson(_mid_ranks(group_x, counts), _mid_ranks(group_y, counts), counts)
    return replicates


def _groups(values: NDArray[np.floating]) -> NDArray[np.intp]:
    """Return, for each value, the index of its tie group in sorted order."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _mid_ranks(groups: NDArray[np.intp], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    sizes = np.bincount(groups, weights=counts)
    middles = np.cumsum(sizes) - sizes / 2  # the constant +1/2 of mid-ranks cancels in a correlation
    ranks: NDArray[np.float64] = middles[groups]
    return ranks


def _weighted_pearson(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    total = weights.sum()
    x_centred = x - (weights @ x) / total
    y_centred = y - (weights @ y) / total
    weighted = weights * x_centred
    denominator = np.sqrt((weighted @ x_centred) * ((weights * y_centred) @ y_centred))
    return float(weighted @ y_centred / denominator) if denominator > 0 else 0.0


def percentile_interval(replicates: NDArray[np.float64]) -> Interval:
    """Return the central 95% of bootstrap replicates.

    Example:
        >>> percentile_interval(np.arange(1001.0))
        Interval(low=25.0, high=975.0)
    """
    low, high = np.quantile(replicates, [0.025, 0.975])
    return Interval(float(low), float(high))


def paired_difference(
    first: float, second: float, first_replicates: NDArray[np.float64], second_replicates: NDArray[np.float64]
) -> PairedDifference:
    """Compare two models on the same pairs from replicates that share their draws.

    Args:
        first: the first model's score on all pairs.
        second: the second model's.
        first_replicates: the first model's scores on the resamples.
        second_replicates: the second model's scores on the same resamples.

    Source:
        Efron and Tibshirani 1993, section 16.4: the p-value counts how often the difference crosses zero.
    """
    differences = first_replicates - second_replicates
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    p_value = min(1.0, 2 * (tail + 1) / (len(differences) + 1))
    return PairedDifference(first - second, percentile_interval(differences), p_value)
