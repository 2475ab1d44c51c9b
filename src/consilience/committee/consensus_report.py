"""What is known of a consensus before any training is spent on it (design, section 3).

Measured on a fixed sample of rows, held out of the fit where possible, so that the report doesn't depend on how often
the job was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.banks.reader import Bank, open_bank
from consilience.committee.frame_set import FrameSet
from consilience.committee.targets import centroid
from consilience.frames.rows import normalise_rows
from consilience.frames.sampling import stratified_rows
from consilience.gauges.agreement import agreement, agreement_matrix
from consilience.gauges.effective_rank import effective_rank, spectrum
from consilience.gauges.isotropy import self_cosine

SAMPLE_ROWS = 5000  # cited: design, section 2's held-out sample
SPECTRUM_VALUES = 64  # enough for a plot; the whole spectrum is a function of the bank
_SAMPLE_SEED = 0
_PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


def gather_rows(bank: Bank, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return some rows of a bank in float32, without leaving its pages mapped.

    Args:
        bank: any bank.
        rows: row numbers.
    """
    # A reader of its own: its maps, and the pages they keep resident, go with it.
    return open_bank(bank.path)[rows].astype(np.float32)


def sample_rows(frames: FrameSet, bank: Bank) -> tuple[NDArray[np.int64], bool]:
    """Return the rows that a consensus is reported on, and whether no map saw them."""
    held_out = frames.held_out_rows(bank.corpus_fingerprint)
    if held_out is not None:
        return held_out, True
    rng = np.random.default_rng(_SAMPLE_SEED)
    return stratified_rows(bank.rows, min(SAMPLE_ROWS, bank.rows), rng), False


def report_consensus(
    frames: FrameSet, banks: Sequence[Bank], weights: Sequence[float], labels: Sequence[str]
) -> dict[str, Any]:
    """Measure a consensus on the sample rows.

    Args:
        frames: maps of the banks' teachers.
        banks: the committee.
        weights: one a bank, summing to one.
        labels: one a bank.

    Returns:
        JSON, numbers rounded to six digits: ``sample``, ``target`` and ``teachers`` (rank gauges, spectrum,
        self-cosine, agreement), ``agreement_matrix``, ``centroid_norm``.
    """
    rows, held_out = sample_rows(frames, banks[0])
    maps = [frames.maps[bank.teacher_id] for bank in banks]
    raw = [gather_rows(bank, rows) for bank in banks]
    mean = centroid(raw, maps, weights)
    aligned = [affine.apply(x) for affine, x in zip(maps, raw, strict=True)]
    target = normalise_rows(mean, where="consensus report")
    norms = np.linalg.norm(mean.astype(np.float64), axis=1)
    teachers = []
    for i, label in enumerate(labels):
        entry: dict[str, Any] = {
            "label": label,
            "weight": weights[i],
            "agreement": agreement(aligned[i], target, frame="own").to_json(),
            **_geometry(aligned[i]),
        }
        others = [w if j != i else 0.0 for j, w in enumerate(weights)]
        if sum(others) > 0:
            # Beside the agreement with a mean that contains the teacher itself: with the mean of the others.
            rest = centroid(raw, maps, [w / sum(others) for w in others])
            entry["agreement_with_others"] = agreement(aligned[i], rest, frame="own").to_json()
        teachers.append(entry)
    report = {
        "sample": {"rows": len(rows), "held_out": held_out},
        "target": _geometry(target),
        "teachers": teachers,
        "agreement_matrix": {"labels": list(labels), "values": agreement_matrix(aligned).tolist()},
        "centroid_norm": {
            "mean": float(norms.mean()),
            "std": float(norms.std()),
            "min": float(norms.min()),
            "max": float(norms.max()),
            **{f"p{p:02d}": float(np.percentile(norms, p)) for p in _PERCENTILES},
        },
    }
    rounded: dict[str, Any] = rounded_json(report)
    return rounded


def rounded_json(value: Any, digits: int = 6) -> Any:  # noqa: ANN401 - any JSON value
    """Round every float of a JSON value to so many significant digits.

    Example:
        >>> rounded_json({"a": [0.123456789, 3]})
        {'a': [0.123457, 3]}
    """
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded_json(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded_json(entry, digits) for entry in value]
    return value


def _geometry(x: NDArray[np.float32]) -> dict[str, Any]:
    shares = spectrum(x)
    return {
        "effective_rank": effective_rank(x, shares=shares).to_json(),
        "self_cosine": self_cosine(x),
        "spectrum": shares[:SPECTRUM_VALUES].tolist(),
    }
