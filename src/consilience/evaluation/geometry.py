"""Geometry gauges of a model on a fixed sample: how many directions it uses and how close random texts are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.evaluation.sts import StsTask
from consilience.gauges.effective_rank import effective_rank
from consilience.gauges.isotropy import self_cosine, uniformity

GEOMETRY_ROWS = 1_000


@dataclass(frozen=True)
class GeometrySample:
    """The texts that geometry is measured on, and what to call them in a report."""

    texts: tuple[str, ...]
    source: str


def geometry_sample(selection: StsTask | None, grammar: StsTask) -> GeometrySample:
    """Choose the sample: the first 1,000 ``sentence1`` of STS-B dev, or of the grammar task where there is no data.

    Args:
        selection: STS-B dev, or None.
        grammar: the caption-grammar task.
    """
    task = grammar if selection is None else selection
    texts = task.sentence1[:GEOMETRY_ROWS]
    return GeometrySample(texts, f"{task.name}: first {len(texts)} sentence1")


def measure_geometry(vectors: NDArray[np.floating], sample: GeometrySample) -> dict[str, Any]:
    """Measure effective rank (participation ratio, and the entropy rank beside it), self-cosine and spread.

    Args:
        vectors: (n, d) unit rows of the sample's texts; zero rows are left out and counted.
        sample: what the rows are of.

    Returns:
        ``effective_rank``, ``entropy_rank``, ``spread_cv``, ``self_cosine``, ``uniformity``, ``rows``, ``zero_rows``
        and ``sample``.

    Raises:
        InputError: fewer than ten rows are left.

    Source:
        Design, section 9; the sample: design, section 10 (86.7 for all-MiniLM-L6-v2).
    """
    alive = vectors[np.linalg.norm(vectors, axis=1) > 0]
    if len(alive) < 10:
        raise InputError(f"geometry: at least 10 non-zero vectors expected, got {len(alive)} of {len(vectors)}")
    rank = effective_rank(alive)
    return {
        "effective_rank": rank.participation,
        "entropy_rank": rank.entropy,
        "spread_cv": rank.spread_cv,
        "self_cosine": self_cosine(alive),
        "uniformity": uniformity(alive),
        "rows": len(alive),
        "zero_rows": int(len(vectors) - len(alive)),
        "sample": sample.source,
    }
