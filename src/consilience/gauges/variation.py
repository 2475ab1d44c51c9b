"""A query set is shown to vary before a retrieval number is quoted on it (design, sections 9 and 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError
from consilience.gauges.effective_rank import effective_rank
from consilience.gauges.isotropy import self_cosine

LENGTH_EDGES = (0, 20, 40, 80, 160, 320, 640, 1280)  # characters; the last bin is open
# Assumed: below these a query set is one sentence with variations, and R@1 says nothing about the model.
MINIMUM_POOLED_RANK = 3.0
MAXIMUM_SELF_COSINE = 0.98
MINIMUM_DISTINCT_SHARE = 0.5


@dataclass(frozen=True)
class VariationReport:
    """What a query set consists of.

    Attributes:
        queries: how many.
        distinct: how many distinct texts.
        lengths: histogram of characters: (from, count), the last bin open.
        pooled_rank: participation ratio of the embeddings.
        pooled_entropy_rank: entropy rank of the embeddings.
        spread_cv: read beside the rank.
        pairwise_cosine: mean cosine between distinct queries.
        faults: why retrieval on it would say nothing; empty when it varies.
    """

    queries: int
    distinct: int
    lengths: tuple[tuple[int, int], ...]
    pooled_rank: float
    pooled_entropy_rank: float
    spread_cv: float
    pairwise_cosine: float
    faults: tuple[str, ...]

    @property
    def varies(self) -> bool:
        """Whether a retrieval number on these queries may be quoted."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {**asdict(self), "lengths": [list(b) for b in self.lengths], "faults": list(self.faults)}


def report_variation(texts: Sequence[str], embeddings: NDArray[np.floating]) -> VariationReport:
    """Describe how much a query set varies.

    Args:
        texts: the queries.
        embeddings: rows (n, d) of the same queries, n >= 5.

    Raises:
        ShapeError: not one row per text, or fewer than five.
    """
    if len(texts) != len(embeddings) or len(texts) < 5:
        raise ShapeError(
            f"report_variation: expected one row per text and at least five, got {len(texts)} texts and "
            f"{len(embeddings)} rows"
        )
    counts = np.histogram([len(t) for t in texts], bins=[*LENGTH_EDGES, np.inf])[0]
    distinct = len(set(texts))
    rank = effective_rank(embeddings)
    cosine = self_cosine(embeddings)
    faults = []
    if distinct < MINIMUM_DISTINCT_SHARE * len(texts):
        faults.append(f"{distinct} of {len(texts)} queries are distinct")
    if rank.participation < MINIMUM_POOLED_RANK:
        faults.append(f"pooled effective rank {rank.participation:.2f} is below {MINIMUM_POOLED_RANK}")
    if cosine > MAXIMUM_SELF_COSINE:
        faults.append(f"mean pairwise cosine {cosine:.3f} is above {MAXIMUM_SELF_COSINE}")
    return VariationReport(
        queries=len(texts),
        distinct=distinct,
        lengths=tuple(zip(LENGTH_EDGES, (int(c) for c in counts), strict=True)),
        pooled_rank=rank.participation,
        pooled_entropy_rank=rank.entropy,
        spread_cv=rank.spread_cv,
        pairwise_cosine=cosine,
        faults=tuple(faults),
    )


def require_variation(report: VariationReport) -> None:
    """Refuse to quote a retrieval number on queries that don't vary.

    Raises:
        InputError: with every fault.
    """
    if report.faults:
        raise InputError(
            f"query set: expected {report.queries} queries that vary, got: {'; '.join(report.faults)}. "
            "Use another query set before quoting retrieval"
        )
