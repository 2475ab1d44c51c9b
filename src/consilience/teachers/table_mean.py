"""Means of table rows over many texts at once: a sparse count matrix times the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

# Assumed: bounds the memory of a call (ids of that many texts); the speed is flat from 512 on.
BLOCK_ROWS = 4096


def mean_rows(
    table: NDArray[np.float32], ids: Sequence[Sequence[int]], weights: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Return for each text the mean of the table rows of its ids; zero for a text without ids.

    Args:
        table: (vocabulary, d).
        ids: row numbers of each text, repeats allowed.
        weights: factor of each table row, or None for 1; the divisor stays the number of ids.

    Example:
        >>> mean_rows(np.eye(3, dtype=np.float32), [[0, 0, 1, 1], [2], []]).tolist()
        [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    from scipy.sparse import csr_matrix

    counts = np.fromiter((len(row) for row in ids), dtype=np.int64, count=len(ids))
    columns = np.fromiter((token for row in ids for token in row), dtype=np.int64, count=int(counts.sum()))
    factors = np.ones(len(columns), dtype=np.float32) if weights is None else weights[columns]
    bounds = np.concatenate([[0], np.cumsum(counts)])
    sums = csr_matrix((factors, columns, bounds), shape=(len(ids), len(table))) @ table
    return np.asarray(sums / np.maximum(counts, 1)[:, None].astype(np.float32), dtype=np.float32)


def text_blocks(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield (start, texts) of blocks of bounded size."""
    for start in range(0, len(texts), BLOCK_ROWS):
        yield start, list(texts[start : start + BLOCK_ROWS])
