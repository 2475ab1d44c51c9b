"""The rows that maps are fitted to and judged on, read from banks in fp64 and L2-normalised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.banks.reader import Bank, open_bank
from consilience.core.progress import progress_bar
from consilience.frames.joint_statistics import JointStatistics
from consilience.frames.rows import normalise_rows
from consilience.frames.sampling import RowSplit

_BLOCK_ROWS = 4096


def unit_rows(bank: Bank, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return rows of a bank, L2-normalised in fp64, without leaving its pages mapped.

    Args:
        bank: any bank.
        rows: row numbers.

    Raises:
        InputError: a row is zero or not finite.
    """
    # A reader of our own: the pages that random access leaves resident go with it.
    return normalise_rows(open_bank(bank.path)[rows].astype(np.float64), where=str(bank.path))


def gather_statistics(banks: Sequence[Bank], rows: NDArray[np.int64], *, what: str = "align") -> JointStatistics:
    """Stream rows of several banks into their joint statistics.

    Args:
        banks: row-aligned.
        rows: sorted row numbers.
        what: name of the progress bar.
    """
    stats = JointStatistics([bank.dimensions for bank in banks])
    with progress_bar(what, len(rows)) as bar:
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = rows[start : start + _BLOCK_ROWS]
            stats.update([unit_rows(bank, block) for bank in banks])
            bar.advance(len(block))
    return stats


def shown_fit_rows(split: RowSplit) -> NDArray[np.int64]:
    """Return as many fit rows as there are held-out ones, spread over all of them, for the in-sample gauges."""
    count = min(len(split.held_out), len(split.fit))
    return split.fit[np.arange(count) * len(split.fit) // count]
