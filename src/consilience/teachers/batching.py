"""Length-sorted batches under a token budget, almost free of padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

# Measured on two AVX-512 cores with all-MiniLM-L6-v2 on captions: 512 to 4,096 tokens differ by under 6%; below 512 the
# per-batch overhead shows, above 4,096 the activations leave the cache.
DEFAULT_BATCH_TOKENS = 2048


def plan_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Split rows into batches of similar length.

    Rows are sorted by length (ties in the given order). A batch ends when another row would exceed the budget, or where
    the length changes once the batch is a quarter full: large batches of one length have no padding at all and need no
    attention mask, and small groups of rare lengths still share a batch.

    Args:
        lengths: tokens of each row.
        batch_tokens: most tokens, padding counted, of a batch; a longer single row is a batch of its own.

    Yields:
        Row numbers of one batch; the last is its longest row.

    Example:
        >>> [batch.tolist() for batch in plan_batches([3, 5, 3, 3], 9)]
        [[0, 2, 3], [1]]
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    start = 0
    for stop in range(1, len(order) + 1):
        if stop < len(order):
            longest, following = int(sizes[order[stop - 1]]), int(sizes[order[stop]])
            fits = (stop - start + 1) * following <= batch_tokens
            full_enough = following != longest and 4 * (stop - start) * longest >= batch_tokens
            if fits and not full_enough:
                continue
        yield order[start:stop]
        start = stop
