"""What is read from a student while it trains, on rows that it never trains on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.seeds import rng_from_name
from consilience.gauges.effective_rank import effective_rank
from consilience.gauges.isotropy import self_cosine
from consilience.gauges.neighbours import gallery_curve

HELD_OUT_ROWS = 1024  # assumed: a standard error of the target cosine below 0.005, at 1 % of the time
SMALLEST_CORPUS = 64

Rows = NDArray[np.int64]


def split_held_out(rows: int, *, seed: int) -> tuple[Rows, Rows]:
    """Split row numbers into those that are trained on and those that are only measured.

    Args:
        rows: of the corpus, at least 64.
        seed: of the draw.

    Returns:
        Training rows and held-out rows (a tenth, at most 1,024), each ascending and disjoint.
    """
    count = min(HELD_OUT_ROWS, rows // 10)
    held_out = np.sort(rng_from_name("held-out", seed).permutation(rows)[:count]).astype(np.int64)
    return np.setdiff1d(np.arange(rows, dtype=np.int64), held_out), held_out


def frame_gap(student: NDArray[np.floating], target: NDArray[np.floating]) -> float:
    """Return the mean cosine after the best rotation minus the raw one: how much of the distance is only the frame.

    The rotation is fitted on the even rows and read on the odd ones. Near 0 or below, the student is in the
    target's frame; with fewer than about three rows a dimension the fit is noisy and the gap a lower bound.

    Args:
        student: rows (n, d), L2-normalised.
        target: rows (n, d), L2-normalised.

    Source: design, section 5; Schoenemann 1966.
    """
    s, t = np.asarray(student, dtype=np.float64), np.asarray(target, dtype=np.float64)
    u, _, vt = np.linalg.svd(s[::2].T @ t[::2])
    rotated = s[1::2] @ (u @ vt)
    return float((rotated * t[1::2]).sum(axis=1).mean() - (s[1::2] * t[1::2]).sum(axis=1).mean())


def read_gauges(student: NDArray[np.floating], target: NDArray[np.floating], *, seed: int) -> dict[str, float]:
    """Measure a student on held-out rows.

    Args:
        student: rows (n, d), L2-normalised.
        target: rows (n, d), L2-normalised.
        seed: draws the galleries.

    Returns:
        Target cosine, effective rank (with spread CV), self-cosine, R@1 from student to target in two galleries
        (it must fall as the gallery grows), frame gap; rounded to six decimals.

    Source: design, section 5.
    """
    rank = effective_rank(student)
    n = len(student)
    curve = gallery_curve(student, target, sizes=(max(n // 4, 2), n), rng=rng_from_name("galleries", seed))
    gauges = {
        "target_cosine": float((np.asarray(student, dtype=np.float64) * target).sum(axis=1).mean()),
        "effective_rank": rank.participation,
        "spread_cv": rank.spread_cv,
        "self_cosine": self_cosine(student),
        "frame_gap": frame_gap(student, target),
    }
    gauges.update({f"retrieval_at_1_of_{size}": score for size, score in curve.pairs()})
    return {name: round(float(value), 6) for name, value in gauges.items()}


def prefix_cosines(
    student: NDArray[np.floating], target: NDArray[np.floating], widths: tuple[int, ...]
) -> dict[str, float]:
    """Return the target cosine of nested prefixes, each renormalised.

    Args:
        student: rows (n, d), L2-normalised.
        target: rows (n, d), L2-normalised.
        widths: of the prefixes.

    Source: Kusupati et al. 2022, arXiv:2205.13147.
    """
    gauges = {}
    for width in widths:
        s, t = (np.asarray(rows[:, :width], dtype=np.float64) for rows in (student, target))
        lengths = np.linalg.norm(s, axis=1) * np.linalg.norm(t, axis=1)
        gauges[f"target_cosine@{width}"] = round(float(((s * t).sum(axis=1) / lengths).mean()), 6)
    return gauges
