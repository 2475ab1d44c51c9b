"""A frame that no teacher owns: the fit by generalised Procrustes, streamed, and its judgement on held-out rows.

Source: design, section 2 (GPA).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.banks.reader import Bank
from consilience.committee.fit_rows import gather_statistics, shown_fit_rows, unit_rows
from consilience.committee.map_scoring import score_map
from consilience.frames.align import AffineMap
from consilience.frames.fit_report import FitReport
from consilience.frames.gpa import GpaFit, fit_gpa
from consilience.frames.rows import normalise_rows
from consilience.frames.sampling import RowSplit
from consilience.gauges.agreement import paired_cosine


def fit_shared_frame(
    banks: Sequence[Bank], split: RowSplit, *, dimensions: int | None = None
) -> tuple[GpaFit, list[FitReport], dict[str, Any]]:
    """Fit a GPA frame to the fit rows and judge every tower's map on the held-out rows.

    A tower's target is the mean of the *other* aligned towers, so that a tower that follows nobody is noticed.

    Args:
        banks: row-aligned, at least two.
        split: fit rows and held-out rows.
        dimensions: width of the frame; the widest bank's when None.

    Returns:
        The fit, one report a bank, and JSON facts: iterations, residual and each tower's held-out mean cosine to the
        mean.

    Raises:
        AlignmentRefusedError: a tower is constant or shares nothing with the others.
    """
    stats = gather_statistics(banks, split.fit)
    fit = fit_gpa(stats, dimensions=dimensions)
    shown = shown_fit_rows(split)
    fit_rows = [unit_rows(bank, shown) for bank in banks]
    held_rows = [unit_rows(bank, split.held_out) for bank in banks]
    aligned_fit, aligned_held = _aligned(fit.maps, fit_rows), _aligned(fit.maps, held_rows)
    widest = int(np.argmax(stats.widths))
    reports = [
        score_map(
            fit.maps[tower],
            stats.pair(tower, widest),
            fit=(fit_rows[tower], _others(aligned_fit, tower)),
            held_out=(held_rows[tower], _others(aligned_held, tower)),
            method="gpa",
        )
        for tower in range(len(banks))
    ]
    mean = normalise_rows(np.sum(aligned_held, axis=0), where="gpa: mean of the aligned towers")
    cosines = [float(paired_cosine(tower, mean).mean()) for tower in aligned_held]
    facts = {
        "iterations": fit.iterations,
        "converged": fit.converged,
        "residual": fit.residual,
        "correlations": list(fit.alignments),
        "alignments": cosines,
        "alignment": float(np.mean(cosines)),
    }
    return fit, reports, facts


def _aligned(maps: Sequence[AffineMap], rows: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float32]]:
    return [affine.apply(x) for affine, x in zip(maps, rows, strict=True)]


def _others(aligned: Sequence[NDArray[np.float32]], tower: int) -> NDArray[np.float32]:
    rest = [rows for i, rows in enumerate(aligned) if i != tower]
    return normalise_rows(np.sum(rest, axis=0), where="gpa: mean of the other towers")
