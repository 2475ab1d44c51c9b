"""The judgement of a fitted map: numbers in, a verdict with reasons out.

The numbers are measured by ``committee.map_scoring`` on held-out rows; here are the thresholds and what they mean.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["ok", "weak", "refused"]

# Cited (design, section 2): N/d 4.9 with 3.8 % retention was a map at the null; 31.3 with 95 % a real one.
REFUSED_ROWS_PER_DIMENSION = 5.0
WEAK_ROWS_PER_DIMENSION = 20.0  # assumed: between the two cited points, nearer to the real one
WEAK_ROTATION_ROWS = 4.0  # assumed: 2,500 pairs of 512 dimensions (design, section 6) are 4.9 and enough
REFUSED_RETENTION = 0.25  # assumed: between the cited 3.8 % and 95 %
WEAK_RETENTION = 0.8  # assumed: same
# At the null, hits in a gallery of G are about Poisson with mean 1: ten or more have probability 1e-7.
REFUSED_CHANCE_MULTIPLE = 10.0
WEAK_RECALL = 0.1  # assumed: nine of ten held-out rows are nearer to another row
# Below this participation ratio, whitening turns noise directions into signal.
REFUSED_SOURCE_RANK = 4.0  # assumed
WEAK_SOURCE_RANK = 10.0  # assumed
# Share of the source's dimensions with an eigenvalue above lambda (default: 0.1 % of the mean eigenvalue).
REFUSED_USABLE_FRACTION = 0.25  # assumed
WEAK_USABLE_FRACTION = 0.9  # assumed


@dataclass(frozen=True)
class FitMeasurements:
    """What was measured of one map.

    Attributes:
        rows: fit rows, N.
        dimensions: the larger of the two widths, d.
        in_sample_cosine: mean cosine to the target on fit rows.
        out_of_sample_cosine: the same on held-out rows.
        in_sample_recall: R@1 on as many fit rows as there are held-out rows.
        out_of_sample_recall: R@1 on held-out rows.
        gallery: G, rows in either gallery.
        null_cosine: mean held-out cosine to the target of another row (pairs shuffled, same map).
        null_recall: R@1 with shuffled pairs.
        source_rank: participation ratio of the source's covariance on the fit rows.
        usable_fraction: share of the source's eigenvalues above 0.1 % of their mean.
        gallery_curve: held-out R@1 by gallery size, as pairs.
    """

    rows: int
    dimensions: int
    in_sample_cosine: float
    out_of_sample_cosine: float
    in_sample_recall: float
    out_of_sample_recall: float
    gallery: int
    null_cosine: float
    null_recall: float
    source_rank: float
    usable_fraction: float
    gallery_curve: list[tuple[int, float]] = field(default_factory=list)

    @property
    def rows_per_dimension(self) -> float:
        """N / d."""
        return self.rows / self.dimensions

    @property
    def retention(self) -> float:
        """Out-of-sample R@1 over in-sample R@1; 0 when nothing is found even in sample."""
        return self.out_of_sample_recall / self.in_sample_recall if self.in_sample_recall > 0 else 0.0

    @property
    def chance_multiple(self) -> float:
        """R@1 as a multiple of chance, R@1 * G."""
        return self.out_of_sample_recall * self.gallery


@dataclass(frozen=True)
class FitReport:
    """A map's measurements, verdict and the reasons for it."""

    measurements: FitMeasurements
    verdict: Verdict
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it, derived numbers included, as JSON."""
        m = self.measurements
        return {
            **asdict(m),
            "gallery_curve": [[size, score] for size, score in m.gallery_curve],
            "rows_per_dimension": m.rows_per_dimension,
            "retention": m.retention,
            "chance_multiple": m.chance_multiple,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
        }


def judge_fit(measurements: FitMeasurements, *, whitened: bool = True, rotation: bool = False) -> FitReport:
    """Judge a map: "refused" (no better than chance, or can't be trusted), "weak" (usable, look at it) or "ok".

    Args:
        measurements: of the map, on held-out rows.
        whitened: the method whitens, so that directions without variance count against it.
        rotation: the map is orthogonal and uncentred. It has half the freedom of a full matrix and can't interpolate
            its rows, so that N/d says little; its retention does.

    Returns:
        The report; the verdict is the worst of all reasons.

    Source: design, section 2.
    """
    m = measurements
    # (name, value, refused below, weak below)
    few, fewer = (WEAK_ROTATION_ROWS, 1.0) if rotation else (WEAK_ROWS_PER_DIMENSION, REFUSED_ROWS_PER_DIMENSION)
    if m.retention >= WEAK_RETENTION:  # what few rows make one fear didn't happen; it's weak all the same
        fewer = 0.0
    checks: list[tuple[str, float, float, float]] = [
        ("fit rows per dimension", m.rows_per_dimension, fewer, few),
        ("retention (held-out R@1 / in-sample R@1)", m.retention, REFUSED_RETENTION, WEAK_RETENTION),
        ("held-out R@1 as a multiple of chance", m.chance_multiple, REFUSED_CHANCE_MULTIPLE, REFUSED_CHANCE_MULTIPLE),
        ("effective rank of the source", m.source_rank, REFUSED_SOURCE_RANK, WEAK_SOURCE_RANK),
        ("held-out R@1", m.out_of_sample_recall, 0.0, WEAK_RECALL),
    ]
    if whitened:
        checks.append(
            (
                "share of source dimensions with variance",
                m.usable_fraction,
                REFUSED_USABLE_FRACTION,
                WEAK_USABLE_FRACTION,
            )
        )
    refused = [f"{name} {_short(v)} is below {_short(low)}" for name, v, low, _ in checks if v < low]
    weak = [f"{name} {_short(v)} is below {_short(high)}" for name, v, low, high in checks if low <= v < high]
    # The cosine to the right row must beat the cosine to any other row, whatever the gallery says.
    if m.out_of_sample_cosine <= m.null_cosine:
        refused.append(f"held-out cosine {_short(m.out_of_sample_cosine)} isn't above its shuffled null")
    verdict: Verdict = "refused" if refused else "weak" if weak else "ok"
    return FitReport(measurements, verdict, tuple(refused + weak))


def source_spectrum(covariance: NDArray[np.float64]) -> tuple[float, float]:
    """Return the participation ratio and the share of eigenvalues above 0.1 % of their mean.

    Args:
        covariance: of the source's unit rows, (d, d).
    """
    values = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    total = float(values.sum())
    if total == 0:
        return 0.0, 0.0
    return total**2 / float(values @ values), float(np.mean(values > 1e-3 * values.mean()))


def _short(value: float) -> str:
    return f"{value:.3g}"
