"""What is read from a student while it trains, on rows that it never trains on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.core.seeds import rng_from_name
from consilience.gauges.effective_rank import effective_rank
from consilience.gauges.isotropy import self_cosine
from consilience.gauges.neighbours import gallery_curve, nearest, retained
from consilience.training.settings import HELD_OUT_ROWS

SMALLEST_CORPUS = 64
NEIGHBOURS = 10

Rows = NDArray[np.int64]


def split_held_out(rows: int, *, seed: int, most: int = HELD_OUT_ROWS) -> tuple[Rows, Rows]:
    """Split row numbers into those that are trained on and those that are only measured.

    Args:
        rows: of the corpus, at least 64.
        seed: of the draw.
        most: held-out rows at most.

    Returns:
        Training rows and held-out rows (a tenth, at most ``most``), each ascending and disjoint.
    """
    count = min(most, rows // 10)
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


def neighbours_kept(student: NDArray[np.floating], target: NDArray[np.floating]) -> float:
    """Return the share of every row's ten nearest target rows that are among the student's ten nearest.

    Args:
        student: (n, d) rows that the student wasn't trained on.
        target: (n, d_y) their targets.

    Returns:
        1 for the target itself, about 10 / n for chance.
    """
    own = np.arange(len(target))
    k = min(NEIGHBOURS, len(target) - 2)
    found, truth = (nearest(x, x, k=k, metric="cosine", own=own) for x in (student, target))
    return float(retained(found, truth, k).mean())


def read_gauges(student: NDArray[np.floating], target: NDArray[np.floating], *, seed: int) -> dict[str, float]:
    """Measure a student on held-out rows.

    Args:
        student: rows (n, d), L2-normalised.
        target: rows (n, d), L2-normalised.
        seed: draws the galleries.

    Returns:
        Target cosine, effective rank (with spread CV), self-cosine, R@1 from student to target in two galleries
        (it must fall as the gallery grows), frame gap, share of neighbours kept; rounded to six decimals.

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
        "neighbours_kept": neighbours_kept(student, target),
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
