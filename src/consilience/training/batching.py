"""Batches of rows of about one length, cut by a token budget; a pure function of seed and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.seeds import rng_from_name

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class BatchPlan:
    """How an epoch is cut into batches.

    Attributes:
        batch_rows: rows of a batch of average length; short rows make larger batches, long ones smaller.
        seed: of the shuffles.
        mega_batches: so many batches' rows are sorted by length together. More of them pad less and mix lengths less.
        multiple_of: rows of every batch divide by this (the number of processes); the few left over are skipped.
        least_rows: a smaller batch (a very long row fills a budget alone) is joined with its neighbour in length.
    """

    batch_rows: int
    seed: int
    mega_batches: int = 256
    multiple_of: int = 1
    least_rows: int = 2

    def __post_init__(self) -> None:
        if self.batch_rows < self._smallest:
            raise InputError(
                f"batches: expected at least {self._smallest} rows, got {self.batch_rows}: the objective compares the "
                "rows of a batch with one another. Raise --batch-rows"
            )

    @property
    def _smallest(self) -> int:
        return max(self.least_rows, 2) * self.multiple_of

    def epoch(self, lengths: NDArray[np.int32], rows: Rows, epoch: int) -> list[Rows]:
        """Return the batches of one epoch, in the order in which they are trained on.

        Rows are shuffled, cut into mega-batches, sorted by length within each, and cut where the token budget
        (batch_rows times the mean length) is full; the batches of the epoch are then shuffled.

        Args:
            lengths: tokens of every row of the corpus.
            rows: the row numbers to train on.
            epoch: its number; each epoch has another shuffle.

        Returns:
            Row numbers by batch; together every row once (but for ``multiple_of``).
        """
        rng = rng_from_name(f"batches/{epoch}", self.seed)
        shuffled = rows[rng.permutation(len(rows))]
        budget = self.batch_rows * float(lengths[rows].mean())
        pieces = max(round(len(rows) / (self.mega_batches * self.batch_rows)), 1)
        batches: list[Rows] = []
        for mega in np.array_split(shuffled, pieces):
            ordered = mega[np.argsort(lengths[mega], kind="stable")]
            filled = np.cumsum(lengths[ordered], dtype=np.int64)
            count = max(round(int(filled[-1]) / budget), 1)
            cuts = np.searchsorted(filled, np.arange(1, count) * (int(filled[-1]) / count), side="right")
            batches.extend(_join_small(np.split(ordered, cuts), self._smallest))
        whole = [batch[: len(batch) - len(batch) % self.multiple_of] for batch in batches]
        kept = [batch for batch in whole if len(batch) >= 2 * self.multiple_of]
        return [kept[i] for i in rng.permutation(len(kept))]


def _join_small(batches: Sequence[Rows], smallest: int) -> list[Rows]:
    """Join each batch that is too small with the one before it; rows stay in their order."""
    joined: list[Rows] = []
    for batch in batches:
        if joined and (len(batch) < smallest or len(joined[-1]) < smallest):
            joined[-1] = np.concatenate([joined[-1], batch])
        else:
            joined.append(batch)
    return joined


def padding_fraction(lengths: NDArray[np.int32], batches: Sequence[Rows]) -> float:
    """Return the share of a padded batch's places that hold no token.

    Example:
        >>> padding_fraction(np.array([2, 4]), [np.array([0, 1])])
        0.25
    """
    places = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    tokens = sum(int(lengths[batch].sum()) for batch in batches)
    return 1.0 - tokens / places if places else 0.0
