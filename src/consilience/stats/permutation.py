"""Permutation tests: sign flips of paired differences, shuffles of pairs.

Source: Phipson and Smyth 2010, "Permutation p-values should never be zero" (the added one).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError
from consilience.stats.correlation import spearman

_CHUNK_ELEMENTS = 1 << 20


def sign_flip_test(differences: NDArray[np.floating], *, rng: np.random.Generator, permutations: int = 10_000) -> float:
    """Return the two-sided p-value that paired differences have mean zero.

    Exact (all 2^n sign patterns) when there are no more of them than ``permutations``.

    Args:
        differences: one a pair (task, seed or text), (n,).
        rng: generator; not used by the exact test.
        permutations: random sign patterns otherwise.

    Raises:
        ShapeError: not a vector, or empty.
        InputError: NaN, or no permutations.

    Example:
        >>> sign_flip_test(np.array([1.0, 2.0, 3.0]), rng=np.random.default_rng(0))
        0.25
    """
    if differences.ndim != 1 or len(differences) == 0:
        raise ShapeError(f"sign_flip_test: expected a vector of differences, got shape {differences.shape}")
    if not np.isfinite(differences).all() or permutations < 1:
        raise InputError("sign_flip_test: expected finite differences and at least one permutation")
    d = np.asarray(differences, dtype=np.float64)
    n = len(d)
    # Flips that differ from the data only by rounding are as extreme as it.
    bound = abs(float(d.sum())) - 1e-12 * float(np.abs(d).sum())
    if n <= 20 and 2**n <= permutations:
        patterns = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1) * 2.0 - 1.0
        return float(np.mean(np.abs(patterns @ d) >= bound))
    extreme = 0
    chunk = max(1, _CHUNK_ELEMENTS // n)
    for start in range(0, permutations, chunk):
        size = min(chunk, permutations - start)
        patterns = rng.integers(0, 2, size=(size, n)) * 2.0 - 1.0
        extreme += int(np.sum(np.abs(patterns @ d) >= bound))
    return (1 + extreme) / (1 + permutations)


def shuffled_pairs_test(
    x: NDArray[np.floating], y: NDArray[np.floating], *, rng: np.random.Generator, permutations: int = 1000
) -> float:
    """Return the one-sided p-value that x and y are no more rank-correlated than shuffled pairs.

    Args:
        x: scores (n,).
        y: scores (n,).
        rng: generator, advanced.
        permutations: shuffles.

    Raises:
        ShapeError: lengths differ or n < 3.
        InputError: NaN or a constant side.
    """
    from scipy.stats import rankdata

    observed = spearman(x, y)
    left = rankdata(x)
    right = rankdata(y)
    left = (left - left.mean()) / (left.std() * len(left))
    right = (right - right.mean()) / right.std()
    null = np.array([left @ rng.permutation(right) for _ in range(permutations)])
    return (1 + int(np.sum(null >= observed - 1e-12))) / (1 + permutations)
