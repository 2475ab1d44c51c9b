"""Whether retrieval on held-out pairs may be quoted: the queries vary, and R@1 falls as the gallery grows.

A refusal gates the number, not the training: what was trained is stored, with the reason beside it.

Source: design, sections 9 and 11 ("query set must vary", gallery-size invariance).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.core.errors import InputError
from consilience.corpora.pairs import PairCorpus
from consilience.gauges.neighbours import GalleryCurve, require_falling
from consilience.gauges.variation import VariationReport, report_variation, require_variation
from consilience.training.pair_model import PairModel
from consilience.training.pair_tokens import PairTokens

SMALLEST_QUERY_SET = 5  # what the variation report needs
_KEY = "retrieval_at_1_of_"


def report_queries(model: PairModel, pairs: PairCorpus, domain: PairTokens) -> VariationReport | None:
    """Describe how much a domain's held-out queries vary; None where they are too few to tell.

    Args:
        model: the bare trunk: nothing on it that was trained.
        pairs: the corpus that the domain was tokenised from.
        domain: whose held-out first texts are the queries.
    """
    if len(domain.held_out) < SMALLEST_QUERY_SET:
        return None
    texts = [pairs.left[row] for row in domain.held_out]
    return report_variation(texts, model.encode_ids([domain.left[row] for row in domain.held_out]))


def judge_retrieval(
    name: str, variation: VariationReport | None, readings: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Say whether a domain's R@1 may be quoted, and why not.

    Args:
        name: of the domain.
        variation: of its queries, from :func:`report_queries`.
        readings: gauges by moment ("before", "after"), as :func:`consilience.training.pair_loop.read_pairs` names them.

    Returns:
        ``variation`` (JSON, or None) and ``refused``: the reasons, none where R@1 may be quoted.

    Example:
        >>> flat = {"x/retrieval_at_1_of_4": 1.0, "x/retrieval_at_1_of_16": 1.0}
        >>> judge_retrieval("x", None, {"after": flat})["refused"]
        ['fewer than 5 queries', 'after: retrieval: expected R@1 to fall as the gallery grows, got 1.000 at 4, ...]
    """
    refused: list[str] = []
    if variation is None:
        refused.append(f"fewer than {SMALLEST_QUERY_SET} queries")
    else:
        try:
            require_variation(variation)
        except InputError as error:
            refused.append(str(error))
    for moment, gauges in readings.items():
        prefix = f"{name}/{_KEY}"
        found = sorted(
            (int(key.removeprefix(prefix)), score) for key, score in gauges.items() if key.startswith(prefix)
        )
        try:
            require_falling(GalleryCurve(tuple(size for size, _ in found), tuple(score for _, score in found)))
        except InputError as error:
            refused.append(f"{moment}: {error}")
    return {"variation": None if variation is None else variation.to_json(), "refused": refused}


def is_refused(gauge: str, verdicts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether a gauge is an R@1 that may not be quoted.

    Args:
        gauge: its name, "equiv/retrieval_at_1_of_512".
        verdicts: by domain, of :func:`judge_retrieval`.
    """
    domain, _, rest = gauge.partition("/")
    return rest.startswith(_KEY) and bool(verdicts.get(domain, {}).get("refused"))
