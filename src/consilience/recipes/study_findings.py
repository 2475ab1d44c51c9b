"""What a study's conditions have in common: set-points, the anchor dial, spread of seeds, descent, committees.

Numbers in, numbers out: nothing here embeds or trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from consilience.recipes.study_analysis import Condition

Json = dict[str, Any]
# Terms that pull row i of the student onto row i of the target, with nothing to oppose; their share of the loss is
# what the FT4 document (part X) calls anchor strength.
ANCHORS = ("mimicry", "element-mse", "cosine")
EARLY = 0.25  # assumed: the share of the steps whose descent is compared with the whole


def spread(values: Sequence[float]) -> float | None:
    """Return largest minus smallest; None of fewer than two.

    Example:
        >>> spread([0.5, 0.75]), spread([0.5])
        (0.25, None)
    """
    return max(values) - min(values) if len(values) > 1 else None


def set_point(condition: Condition) -> Json:
    """Return what a condition converged to: agreement with its own target and with the model that serves.

    Args:
        condition: its seeds.

    Returns:
        Agreement by seed and its spread, both ways; ``still_rising``: by how much the own agreement grew over the last
        quarter of the readings (the mean of the seeds). A relational student's own agreement is refused.
    """
    relational = is_relational(condition.cell.objective)
    readings = [cell.training.get("target_cosine", []) for cell in condition.cells]
    own = [series[-1] for series in readings if series]
    rises = [series[-1] - series[max(0, len(series) - 1 - len(series) // 4)] for series in readings if len(series) > 3]
    served = condition.scores("law.after.cosine")
    return {
        "condition": condition.name,
        "seeds": [cell.cell.seed for cell in condition.cells],
        "own": "refused" if relational else own,
        "own_spread": None if relational else spread(own),
        "still_rising": None if relational or not rises else float(np.mean(rises)),
        "served": served,
        "served_spread": spread(served),
    }


def is_relational(objective: str) -> bool:
    """Whether students of an objective have a free orientation."""
    from consilience.objectives.names import require_objective

    return require_objective(objective).relational


def anchor_strength(objective: str, first_terms: Mapping[str, float]) -> float:
    """Return which share of an objective's loss is an absolute anchor, on the first batch of an untrained student.

    Measured, because a weight says little: per-element MSE is 1/d of per-sample MSE, an anchor in name only.

    Args:
        objective: name of the composition.
        first_terms: every term's unweighted value on that batch.

    Source: the FT4 document, parts IV and X.
    """
    from consilience.objectives.names import require_objective

    weights = require_objective(objective).weights
    parts = {name: weight * abs(first_terms.get(name, 0.0)) for name, weight in weights.items()}
    total = sum(parts.values())
    return sum(value for name, value in parts.items() if name in ANCHORS) / total if total > 0 else 0.0


def anchor_dial(conditions: Sequence[Condition]) -> list[Json]:
    """Return agreement against retrieval, ordered by anchor strength; agreement is read after the rotation.

    Relational conditions come first: nothing ties them to the target's frame. Conditions that differ in the target only
    share a place on the dial.
    """
    dial = []
    for condition in conditions:
        agreement = condition.mean("law.after.cosine")
        if agreement is None:
            continue
        strengths = [cell.training.get("anchor_strength", 0.0) for cell in condition.cells]
        dial.append(
            {
                "condition": condition.name,
                "objective": condition.cell.objective,
                "target": condition.cell.target,
                "student": condition.cell.student,
                "relational": is_relational(condition.cell.objective),
                "anchor_strength": float(np.mean(strengths)),
                "agreement": agreement,
                "recall_at_1_served": condition.mean("law.after.recall_at_1"),
                "recall_at_1": condition.mean("recall_at_1"),
                "mean": condition.mean("mean"),
            }
        )
    return sorted(dial, key=lambda entry: (not entry["relational"], entry["anchor_strength"]))


def dial_correlations(dial: Sequence[Json]) -> Json:
    """Return whether more anchor bought agreement and sold retrieval: rank correlations over the conditions.

    Args:
        dial: of :func:`anchor_dial`; relational conditions don't count, since they have no anchor to turn.
    """
    turned = [entry for entry in dial if not entry["relational"]]
    strengths = [entry["anchor_strength"] for entry in turned]
    return {
        "conditions": len(turned),
        **{
            key: rank_correlation(strengths, [entry[key] for entry in turned])
            for key in ("agreement", "recall_at_1_served", "recall_at_1", "mean")
        },
    }


def rank_correlation(x: Sequence[float | None], y: Sequence[float | None]) -> float | None:
    """Return Spearman's correlation, or None of fewer than three pairs or a constant side.

    Example:
        >>> rank_correlation([1, 2, 3], [1, 4, 9]), rank_correlation([1, 2], [1, 2])
        (1.0, None)
    """
    from consilience.stats.correlation import spearman

    pairs = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    if len(pairs) < 3 or any(len(set(side)) < 2 for side in zip(*pairs, strict=True)):
        return None
    left, right = (np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True))
    return spearman(left, right)


def across_seeds(conditions: Sequence[Condition]) -> list[Json]:
    """Return how much each condition's seeds differ, metric by metric, and how alike they are after rotation."""
    from consilience.gauges.agreement import paired_cosine

    found = []
    for condition in conditions:
        if len(condition.cells) < 2:
            continue
        rows = [cell.arrays["rotated"] for cell in condition.cells if "rotated" in cell.arrays]
        cosines = [float(paired_cosine(a, b).mean()) for a, b in combinations(rows, 2)]
        found.append(
            {
                "condition": condition.name,
                "seeds": [cell.cell.seed for cell in condition.cells],
                "mean": spread(condition.scores("mean")),
                "stsb-dev": spread(condition.scores("stsb-dev")),
                "recall_at_1": spread(condition.scores("recall_at_1")),
                "agreement": spread(condition.scores("law.after.cosine")),
                "effective_rank": spread(condition.scores("geometry.effective_rank")),
                "rotated_cosine": float(np.mean(cosines)) if cosines else None,
            }
        )
    return found


def descent(condition: Condition) -> Json:
    """Return how each term of the loss fell: first, early and last value, and the share of the fall that was early.

    Args:
        condition: its seeds are averaged line by line.

    Source: the FT4 document, part IV (descent decomposition).
    """
    logs = [cell.training["terms"] for cell in condition.cells if cell.training.get("terms")]
    steps = condition.cells[0].training.get("term_steps", [])
    terms: Json = {}
    for name in logs[0] if logs else ():
        series = np.mean([log[name] for log in logs if len(log[name]) == len(steps)], axis=0)
        tail = max(1, len(series) // 10)  # single batches are noisy: the ends are means of a few
        first, last = float(series[0]), float(series[-tail:].mean())
        at = next((i for i, step in enumerate(steps) if step >= EARLY * steps[-1]), len(steps) - 1)
        early = float(series[max(0, at - tail + 1) : at + 1].mean())
        fall = first - last
        terms[name] = {
            "first": first,
            "early": early,
            "last": last,
            # Of a term that hardly moved, a share would be noise over noise.
            "early_share": (first - early) / fall if abs(fall) > 0.1 * abs(first) else None,
        }
    return {"condition": condition.name, "early_step": EARLY, "terms": terms}


def committee_table(conditions: Sequence[Condition], facts: Mapping[str, Mapping[str, Any]]) -> Json:
    """Say what each target was before training and what its students became, and whether one predicted the other.

    Args:
        conditions: all.
        facts: by target, of ``describe_target``.

    Returns:
        ``rows``: a target a line for every objective and student; ``predictions``: for every objective and student with
        at least three targets, the rank correlation of each property of the target with the students' mean score.
    """
    rows = [
        {
            "condition": condition.name,
            "objective": condition.cell.objective,
            "student": condition.cell.student,
            "target": condition.cell.target,
            "dimensions": facts[condition.cell.target]["dimensions"],
            "effective_rank": facts[condition.cell.target]["effective_rank"]["participation"],
            "entropy_rank": facts[condition.cell.target]["effective_rank"]["entropy"],
            "self_cosine": facts[condition.cell.target]["self_cosine"],
            "agreement": facts[condition.cell.target]["agreement"],
            "mean": condition.mean("mean"),
            "stsb-dev": condition.mean("stsb-dev"),
            "recall_at_1": condition.mean("recall_at_1"),
            "own": set_point(condition)["own"],
        }
        for condition in conditions
    ]
    predictions = []
    for objective, student in dict.fromkeys((row["objective"], row["student"]) for row in rows):
        group = [row for row in rows if (row["objective"], row["student"]) == (objective, student)]
        if len(group) < 3:
            continue
        for key in ("effective_rank", "entropy_rank", "self_cosine", "agreement"):
            kept = [row for row in group if row[key] is not None and row["mean"] is not None]
            rho = rank_correlation([row[key] for row in kept], [row["mean"] for row in kept])
            predictions.append(
                {"objective": objective, "student": student, "of": key, "rho": rho, "targets": len(kept)}
            )
    return {"rows": rows, "predictions": predictions}
