"""Score a map on rows it wasn't fitted to, beside its fit rows and a shuffled null (design, section 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ShapeError
from consilience.frames.align import AffineMap
from consilience.frames.fit_report import FitMeasurements, FitReport, judge_fit, source_spectrum
from consilience.frames.statistics import CrossStatistics
from consilience.gauges.agreement import paired_cosine
from consilience.gauges.neighbours import gallery_curve, retrieval_at_1

NULL_SHUFFLES = 3  # assumed: R@1 of the null is about 1 / G, its spread doesn't matter
_FIXED_SEED = 0  # the null and the galleries are part of the report's content, which has to be reproducible


def score_map(
    affine: AffineMap,
    stats: CrossStatistics,
    *,
    fit: tuple[NDArray[np.floating], NDArray[np.floating]],
    held_out: tuple[NDArray[np.floating], NDArray[np.floating]],
    method: str,
) -> FitReport:
    """Measure and judge a map.

    Args:
        affine: the map.
        stats: what it was fitted to.
        fit: source and target rows of a part of the fit sample, as many as held out (fewer when there aren't).
        held_out: source and target rows that the fit didn't see.
        method: name of the method.

    Raises:
        ShapeError: fewer than ten held-out rows.
    """
    source, target = held_out
    if len(source) < 10:
        raise ShapeError(f"score_map: expected at least 10 held-out rows, got {len(source)}. Hold more out")
    rng = np.random.default_rng(_FIXED_SEED)
    mapped = affine.apply(source)
    mapped_fit = affine.apply(fit[0])
    wanted = np.asarray(target, dtype=np.float32)
    null_cosines, null_recalls = [], []
    for _ in range(NULL_SHUFFLES):
        # A random cyclic order has no fixed point: no row keeps its own partner.
        order = rng.permutation(len(wanted))
        shuffled = np.empty_like(wanted)
        shuffled[order] = wanted[np.roll(order, 1)]
        null_cosines.append(float(paired_cosine(mapped, shuffled).mean()))
        null_recalls.append(retrieval_at_1(mapped, shuffled))
    curve = gallery_curve(mapped, wanted, rng=rng)
    rank, usable = source_spectrum(stats.c_xx)
    measurements = FitMeasurements(
        rows=stats.n,
        dimensions=max(stats.d_x, stats.d_y),
        in_sample_cosine=float(paired_cosine(mapped_fit, np.asarray(fit[1], dtype=np.float32)).mean()),
        out_of_sample_cosine=float(paired_cosine(mapped, wanted).mean()),
        in_sample_recall=retrieval_at_1(mapped_fit, np.asarray(fit[1], dtype=np.float32)),
        out_of_sample_recall=curve.scores[-1],
        gallery=len(wanted),
        null_cosine=float(np.mean(null_cosines)),
        null_recall=float(np.mean(null_recalls)),
        source_rank=rank,
        usable_fraction=usable,
        gallery_curve=curve.pairs(),
    )
    return judge_fit(measurements, whitened=method == "whitened", rotation=method == "rotation")
