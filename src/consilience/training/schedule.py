"""The learning rate: a short linear warm-up, then a cosine to zero."""

from __future__ import annotations

import math


def learning_rate(step: int, *, total: int | None, peak: float, warmup: int) -> float:
    """Return the learning rate of a step.

    Args:
        step: from 0.
        total: steps of the whole training; None while it isn't known yet, which only the warm-up permits.
        peak: rate at the end of the warm-up.
        warmup: steps of the warm-up, 0 for none.

    Raises:
        ValueError: the rate after the warm-up depends on a total that isn't known.

    Source: Loshchilov and Hutter 2017, arXiv:1608.03983, one period; design, section 5.

    Example:
        >>> [round(learning_rate(s, total=6, peak=1.0, warmup=2), 3) for s in range(6)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if total is None:
        raise ValueError(f"step {step} lies after the warm-up of {warmup} and the total isn't known")
    progress = (step - warmup) / max(total - warmup, 1)
    return peak * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
