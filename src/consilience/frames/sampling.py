"""Which rows a map is fitted to and which it is judged on: stratified, random, disjoint.

Source: design, section 2 (fit discipline) and section 11 ("no map scored on its fit rows").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import AlignmentRefusedError, InputError

Rows = NDArray[np.int64]

STRATA = 256  # assumed: fine enough to keep the shares of sources, coarse against near-duplicates
# With fewer rows than asked for, this much is still held out (assumed): enough that R@1 has two decimals.
MINIMUM_HELD_OUT_ROWS = 2000
MINIMUM_HELD_OUT_FRACTION = 0.2
SMALLEST_HELD_OUT = 20  # assumed: a gallery in which a tenfold multiple of chance is still below certainty


@dataclass(frozen=True)
class RowSplit:
    """Sorted, disjoint row numbers.

    Attributes:
        fit: rows the map may see.
        held_out: rows it is judged on.
    """

    fit: Rows
    held_out: Rows

    def __post_init__(self) -> None:
        shared = np.intersect1d(self.fit, self.held_out)
        if len(shared):
            raise InputError(
                f"RowSplit: expected disjoint rows, got {len(shared)} in both samples (first: {shared[0]}). "
                "A map is never scored on rows it was fit to"
            )


def stratified_rows(rows: int, count: int, rng: np.random.Generator) -> Rows:
    """Draw rows at random, each of 256 contiguous strata in proportion.

    Corpora are concatenations of sources, and contiguous strata keep each source's share. They are coarse on purpose:
    one row out of every few neighbours would keep near-duplicates that stand together (captions of one image) out of
    the gallery, and flatter R@1.

    Args:
        rows: rows of the corpus.
        count: rows to draw, at most ``rows``.
        rng: generator, advanced.

    Returns:
        Sorted, distinct row numbers.

    Raises:
        InputError: more rows asked for than exist.

    Example:
        >>> stratified_rows(4, 4, np.random.default_rng(0))
        array([0, 1, 2, 3])
    """
    if not 0 <= count <= rows:
        raise InputError(f"stratified_rows: expected a count between 0 and {rows}, got {count}. Ask for fewer rows")
    if count == 0:
        return np.empty(0, dtype=np.int64)
    bounds = np.arange(STRATA + 1, dtype=np.int64) * rows // STRATA
    # Cumulative shares, rounded down at each bound: the counts sum to `count`, and none exceeds its stratum.
    counts = np.diff(bounds * count // rows)
    drawn = [
        low + np.sort(rng.choice(high - low, size, replace=False))
        for low, high, size in zip(bounds[:-1], bounds[1:], counts, strict=True)
        if size
    ]
    return np.asarray(np.concatenate(drawn), dtype=np.int64)


def plan_sizes(rows: int, fit_rows: int, held_out_rows: int) -> tuple[int, int]:
    """Return how many rows to fit and to hold out when the corpus may be smaller than asked for.

    Raises:
        AlignmentRefusedError: the corpus is too small to hold anything out.
        InputError: a count isn't positive.

    Example:
        >>> plan_sizes(1_000_000, 24_000, 5_000), plan_sizes(10_000, 24_000, 5_000), plan_sizes(1_000, 24_000, 5_000)
        ((24000, 5000), (8000, 2000), (800, 200))
    """
    if fit_rows < 1 or held_out_rows < 1:
        raise InputError(f"fit rows and held-out rows: expected at least 1 of each, got {fit_rows} and {held_out_rows}")
    if rows >= fit_rows + held_out_rows:
        return fit_rows, held_out_rows
    held = min(held_out_rows, max(MINIMUM_HELD_OUT_ROWS, int(rows * MINIMUM_HELD_OUT_FRACTION)))
    if held > rows // 2:
        held = int(rows * MINIMUM_HELD_OUT_FRACTION)
    if held < min(SMALLEST_HELD_OUT, held_out_rows):
        raise AlignmentRefusedError(
            f"sampling: need at least {int(SMALLEST_HELD_OUT / MINIMUM_HELD_OUT_FRACTION)} rows to fit a map and hold "
            f"some out, got {rows}. Use a larger corpus"
        )
    return min(fit_rows, rows - held), held


def split_rows(rows: int, fit_rows: int, held_out_rows: int, *, seed: int) -> RowSplit:
    """Draw the fit and the held-out sample.

    Args:
        rows: rows of the corpus.
        fit_rows: rows wanted for the fit.
        held_out_rows: rows wanted for judging.
        seed: of the draw.

    Returns:
        Disjoint samples, each stratified over the corpus; the same for the same arguments.
    """
    fit, held = plan_sizes(rows, fit_rows, held_out_rows)
    rng = np.random.default_rng(seed)
    drawn = stratified_rows(rows, fit + held, rng)
    is_held = np.zeros(len(drawn), dtype=bool)
    is_held[stratified_rows(len(drawn), held, rng)] = True
    return RowSplit(fit=drawn[~is_held], held_out=drawn[is_held])
