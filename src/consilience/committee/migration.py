"""Moving a vector index into another model's frame: maps both ways, and what of a re-embedding's neighbours they keep.

Two ways to serve the new model from the old index: *rewrite* maps every stored vector into the new frame, *adapter*
leaves the index alone and maps each query of the new model into the old frame. Both are judged against full
re-embedding: the share of its k nearest neighbours that are still found.

Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.committee.map_scoring import score_map
from consilience.core.errors import AlignmentRefusedError, InputError
from consilience.core.seeds import rng_from_name
from consilience.frames.align import AffineMap, fit_map
from consilience.frames.fit_report import FitReport
from consilience.frames.rows import normalise_rows
from consilience.frames.statistics import CrossStatistics
from consilience.gauges.neighbours import Metric, nearest, retained
from consilience.stats.bootstrap import Interval
from consilience.stats.means import mean_interval

Way = Literal["rewrite", "adapter"]
WAYS: tuple[Way, ...] = ("rewrite", "adapter")
METHODS = ("orthogonal", "whitened", "ridge", "low-rank")
NEIGHBOURS = (1, 10, 100)
RIDGE_SHRINKAGE = "gcv"
MOST_QUERIES = 5_000  # assumed: an interval of about +-.01; the gallery may be larger


@dataclass(frozen=True)
class MapScore:
    """One method's map in one way.

    Attributes:
        way: "rewrite" or "adapter".
        method: name of the map.
        affine: the map: old frame into new (rewrite), or new into old (adapter).
        fit: its report on held-out rows.
        selection: recall@10 retention on the half of the held-out queries that choose the method.
        retention: by k, the share of re-embedding's k nearest that are found, on the other half.
    """

    way: Way
    method: str
    affine: AffineMap
    fit: FitReport
    selection: float
    retention: dict[int, Interval]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers."""
        m = self.fit.measurements
        return {
            "way": self.way,
            "method": self.method,
            "retention": {str(k): interval.to_json() for k, interval in self.retention.items()},
            "selection": self.selection,
            "cosine": m.out_of_sample_cosine,
            "recall_at_1": m.out_of_sample_recall,
            "null_cosine": m.null_cosine,
            "verdict": self.fit.verdict,
            "reasons": list(self.fit.reasons),
        }


@dataclass(frozen=True)
class MigrationScores:
    """All maps, the chosen one of either way, and what doing nothing gives.

    Attributes:
        scores: one entry a way and method.
        unmapped: retention by k when queries of the new model search the old vectors as they are; None where the widths
            differ.
        gallery: held-out rows among which neighbours are sought.
        queries: queries that the retention is read on.
    """

    scores: tuple[MapScore, ...]
    unmapped: dict[int, float] | None
    gallery: int
    queries: int

    def best(self, way: Way) -> MapScore:
        """Return the map with the highest retention on the selection half, among those that weren't refused.

        Raises:
            AlignmentRefusedError: every map of this way is no better than chance.
        """
        usable = [score for score in self.scores if score.way == way and score.fit.verdict != "refused"]
        if not usable:
            worst = next(score for score in self.scores if score.way == way)
            raise AlignmentRefusedError(
                f"migrate: every map ({way}) is refused, e.g. {worst.method}: {', '.join(worst.fit.reasons)}. "
                "Check that ids "
                "and texts belong together and that the texts are embedded as the index was (prompt), or give more "
                "of them"
            )
        return max(usable, key=lambda score: score.selection)


def score_maps(
    old: NDArray[np.floating],
    new: NDArray[np.floating],
    queries: NDArray[np.floating] | None,
    *,
    fit_rows: NDArray[np.int64],
    held_out: NDArray[np.int64],
    metric: Metric,
    methods: Sequence[str] = METHODS,
    low_rank: int | None = None,
    force: bool = False,
    seed: int = 0,
) -> MigrationScores:
    """Fit every method both ways and measure what of re-embedding it keeps.

    Args:
        old: vectors as the index stores them, (n, d_old).
        new: the same texts by the new model, as documents, (n, d_new).
        queries: the same texts by the new model as queries (another prompt), or None when that is the same. Held-out
            ones, 5,000 at most, are asked among the other held-out rows.
        fit_rows: rows of the fit.
        held_out: other rows, the gallery.
        metric: how the index is searched.
        methods: names of maps.
        low_rank: rank of the low-rank map; None keeps 99% of the fitted variance.
        force: fit even with too few rows.
        seed: which half of the queries chooses the method, and the intervals.

    Returns:
        One score a way and method.

    Raises:
        AlignmentRefusedError: too few rows, or constant vectors.
        InputError: too few held-out rows for ten neighbours.
    """
    asked = new if queries is None else queries
    unit_old = normalise_rows(np.asarray(old, dtype=np.float64), where="migrate: the index's vectors")
    unit_new = normalise_rows(np.asarray(new, dtype=np.float64), where="migrate: the new model's vectors")
    unit_asked = (
        unit_new if queries is None else normalise_rows(np.asarray(asked, dtype=np.float64), where="migrate: queries")
    )
    ks = tuple(k for k in NEIGHBOURS if k < len(held_out))
    if 10 not in ks:
        raise InputError(f"migrate: expected more than 10 held-out rows, got {len(held_out)}. Give more texts")
    own = rng_from_name("migrate/queries", seed).permutation(len(held_out))[:MOST_QUERIES]
    choosing, reporting = slice(0, len(own) // 2), slice(len(own) // 2, len(own))
    held_old, held_new, held_asked = old[held_out], unit_new[held_out], unit_asked[held_out[own]]
    truth = nearest(held_asked, held_new, k=max(ks), metric="cosine", own=own)
    scores: list[MapScore] = []
    for way in WAYS:
        source, target = (unit_old, unit_new) if way == "rewrite" else (unit_asked, unit_old)
        stats = CrossStatistics(source.shape[1], target.shape[1])
        stats.update(source[fit_rows], target[fit_rows])
        for method in methods:
            affine = fit_map(
                stats,
                method,
                shrinkage=_shrinkage(method),
                rank=low_rank if method == "low-rank" else None,
                force=force,
            )
            shown = fit_rows[np.linspace(0, len(fit_rows) - 1, min(len(fit_rows), len(held_out))).astype(np.int64)]
            report = score_map(
                affine,
                stats,
                fit=(source[shown], target[shown]),
                held_out=(source[held_out[own]], target[held_out[own]]),
                method=method,
            )
            if way == "rewrite":
                found = nearest(held_asked, affine.apply(held_old), k=max(ks), metric="cosine", own=own)
            else:
                found = nearest(affine.apply(held_asked), held_old, k=max(ks), metric=metric, own=own)
            kept = {k: retained(found, truth, k) for k in ks}
            rng = rng_from_name(f"migrate/{way}/{method}", seed)
            scores.append(
                MapScore(
                    way=way,
                    method=method,
                    affine=affine,
                    fit=report,
                    selection=float(kept[10][choosing].mean()),
                    retention={k: mean_interval(values[reporting], rng=rng) for k, values in kept.items()},
                )
            )
    unmapped = None
    if old.shape[1] == new.shape[1]:
        found = nearest(held_asked, held_old, k=max(ks), metric=metric, own=own)
        unmapped = {k: float(retained(found, truth, k)[reporting].mean()) for k in ks}
    return MigrationScores(tuple(scores), unmapped, len(held_out), len(own) - len(own) // 2)


def _shrinkage(method: str) -> Any:  # noqa: ANN401 - a Shrinkage
    return RIDGE_SHRINKAGE if method in ("ridge", "low-rank") else 1e-3
