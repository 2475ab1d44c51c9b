"""Bootstrap over the pairs of each task, with the same draws for every model.

The draws of a task depend on its name and the seed alone. Replicates of all models are therefore paired draw by
draw, and differences between models and means over tasks are taken replicate by replicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.seeds import rng_from_name
from consilience.stats.bootstrap import resampled_spearman


@dataclass(frozen=True)
class PairedDifference:
    """A difference of two models on the same pairs.

    Attributes:
        difference: first minus second.
        low: lower end of its 95% percentile interval.
        high: upper end.
        p_value: two-sided bootstrap p-value of "no difference"; at least 2 / (resamples + 1).
    """

    difference: float
    low: float
    high: float
    p_value: float


def task_replicates(
    cosines: Sequence[NDArray[np.float64]], gold: NDArray[np.float64], *, task: str, seed: int, resamples: int
) -> NDArray[np.float64]:
    """Return each model's Spearman correlation on the same bootstrap samples of a task's pairs.

    Args:
        cosines: one array (n,) a model.
        gold: (n,).
        task: with ``seed`` it determines the draws, whatever other tasks and models are evaluated.
        seed: number of the repetition.
        resamples: how many, at least 100.

    Returns:
        (models, resamples). A resample on which one side is constant says nothing about order and counts as 0.
    """
    if resamples < 100:
        raise InputError(f"resamples: at least 100 expected for a 95% interval, got {resamples}. Raise --resamples")
    rng = rng_from_name(f"bootstrap/{task}", seed)
    replicates = resampled_spearman(list(cosines), gold, resamples=resamples, rng=rng)
    return np.nan_to_num(replicates.T, nan=0.0)


def percentile_interval(replicates: NDArray[np.float64]) -> tuple[float, float]:
    """Return the central 95% of bootstrap replicates.

    Example:
        >>> percentile_interval(np.arange(1001.0))
        (25.0, 975.0)
    """
    low, high = np.percentile(replicates, [2.5, 97.5])
    return float(low), float(high)


def paired_difference(
    first: float, second: float, first_replicates: NDArray[np.float64], second_replicates: NDArray[np.float64]
) -> PairedDifference:
    """Compare two models from replicates that share their draws.

    Args:
        first: the first model's score on all pairs.
        second: the second model's.
        first_replicates: the first model's scores on the resamples.
        second_replicates: the second model's scores on the same resamples.

    Source:
        Efron and Tibshirani 1993, chapters 13 and 16: the p-value counts how often the difference crosses zero.
    """
    differences = first_replicates - second_replicates
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    low, high = percentile_interval(differences)
    return PairedDifference(first - second, low, high, min(1.0, 2 * (tail + 1) / (len(differences) + 1)))
