"""Conditions over their seeds, and paired tests between them.

Numbers in, numbers out: nothing here embeds or trains. A *condition* is what all seeds of one setting share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.recipes.study_cells import Cell

Json = dict[str, Any]


@dataclass(frozen=True)
class MeasuredCell:
    """One cell's numbers.

    Attributes:
        cell: which.
        training: facts of its manifest and log; see ``study_report``.
        measures: of ``study_measure``; empty of a failed training.
        arrays: bootstrap replicates by metric, and the rotated rows.
        error: why there are no numbers, or None.
    """

    cell: Cell
    training: Mapping[str, Any]
    measures: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Condition:
    """The measured cells of one setting, by seed."""

    name: str
    cells: tuple[MeasuredCell, ...]

    @property
    def cell(self) -> Cell:
        """The first seed's cell, for what all seeds share."""
        return self.cells[0].cell

    def scores(self, metric: str) -> list[float]:
        """Return each seed's score; see :func:`score_of`."""
        return [score for cell in self.cells if (score := score_of(cell.measures, metric)) is not None]

    def mean(self, metric: str) -> float | None:
        """Return the mean over the seeds, or None where it wasn't measured."""
        found = self.scores(metric)
        return float(np.mean(found)) if found else None


def score_of(measures: Mapping[str, Any], metric: str) -> float | None:
    """Return a metric of a cell's measures: "mean", a task, "stsb-dev", "recall_at_1", or "law.after.cosine".

    Example:
        >>> score_of({"mean": 0.5, "law": {"after": {"cosine": 0.7}}}, "law.after.cosine")
        0.7
    """
    for table in ("tasks", "selection", "retrieval"):
        entry = measures.get(table, {}).get(metric)
        if isinstance(entry, Mapping):
            return float(entry["score"])
    found: Any = measures
    for step in metric.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def conditions_of(cells: Sequence[MeasuredCell]) -> list[Condition]:
    """Group the cells that have numbers by condition, in the grid's order."""
    groups: dict[str, list[MeasuredCell]] = {}
    for cell in cells:
        if cell.error is None:
            groups.setdefault(cell.cell.condition, []).append(cell)
    return [Condition(name, tuple(members)) for name, members in groups.items()]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: they bound the chance of any false claim in the family.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return [float(value) for value in adjusted]


def compare(first: Condition, second: Condition, metric: str) -> Json | None:
    """Compare two conditions on the same pairs: each side is the mean of its seeds' scores, draw by draw.

    Args:
        first: a condition.
        second: another one.
        metric: "mean", a task, "recall_at_1" or "recall_at_10".

    Returns:
        Difference (first minus second), its 95% interval over the pairs, p, the differences seed by seed; None where
        one side lacks the metric. The interval covers the pairs, not the seeds.
    """
    from consilience.evaluation.resampling import paired_difference

    sides = [[cell for cell in side.cells if metric in cell.arrays] for side in (first, second)]
    if not all(sides):
        return None
    values = [float(np.mean([score_of(cell.measures, metric) for cell in side])) for side in sides]
    drawn = [np.mean([cell.arrays[metric] for cell in side], axis=0) for side in sides]
    pair = paired_difference(values[0], values[1], drawn[0], drawn[1])
    by_seed = [{cell.cell.seed: score_of(cell.measures, metric) for cell in side} for side in sides]
    common = [seed for seed in by_seed[0] if seed in by_seed[1]]
    differences = [(by_seed[0][seed] or 0.0) - (by_seed[1][seed] or 0.0) for seed in common]
    return {
        "first": first.name,
        "second": second.name,
        "metric": metric,
        "difference": pair.difference,
        "low": pair.low,
        "high": pair.high,
        "p_value": pair.p_value,
        "by_seed": {str(seed): value for seed, value in zip(common, differences, strict=True)},
        "seeds_agree": len(common) > 0 and len({value > 0 for value in differences}) == 1,
        "equal_cost": equal_cost(first, second),
    }


def equal_cost(first: Condition, second: Condition) -> bool:
    """Whether both took the same number of steps and, to 2%, of texts and parameters."""
    facts = [side.cells[0].training for side in (first, second)]
    if facts[0].get("steps") != facts[1].get("steps"):
        return False
    pairs = [(facts[0].get(key), facts[1].get(key)) for key in ("rows", "parameters")]
    return all(a is not None and b is not None and abs(a - b) <= 0.02 * max(a, b) for a, b in pairs)


def compare_all(conditions: Sequence[Condition], metric: str = "mean") -> list[Json]:
    """Compare every pair of conditions, with Holm's adjustment over all of them.

    Args:
        conditions: in the order of the table.
        metric: as in :func:`compare`.
    """
    found = [pair for a, b in combinations(conditions, 2) if (pair := compare(a, b, metric)) is not None]
    for pair, adjusted in zip(found, holm([pair["p_value"] for pair in found]), strict=True):
        pair["p_holm"] = adjusted
        pair["family"] = len(found)
    return found


def leader(conditions: Sequence[Condition]) -> Condition | None:
    """Return the condition with the best mean on STS-B dev, the one task that selection may read.

    Without STS-B dev nothing is selected.
    """
    scored = [(score, i) for i, condition in enumerate(conditions) if (score := condition.mean("stsb-dev")) is not None]
    return conditions[max(scored, key=lambda pair: (pair[0], -pair[1]))[1]] if scored else None


def single_against_consensus(conditions: Sequence[Condition], consensus: frozenset[str]) -> list[Json]:
    """Compare single-teacher targets with consensus targets: same objective and student, and the best of each kind.

    Args:
        conditions: all.
        consensus: names of the targets that are a consensus.

    Returns:
        Comparisons, consensus minus single teacher, each with its ``kind``; Holm's adjustment over all of them. The
        best of a kind is chosen on STS-B dev.
    """
    found: list[Json] = []
    for a in conditions:
        for b in conditions:
            same = (a.cell.objective, a.cell.student) == (b.cell.objective, b.cell.student)
            if same and a.cell.target in consensus and b.cell.target not in consensus:
                pair = compare(a, b, "mean")
                found += [{**pair, "kind": "same objective"}] if pair else []
    for student in dict.fromkeys(condition.cell.student for condition in conditions):
        own = [condition for condition in conditions if condition.cell.student == student]
        several = leader([condition for condition in own if condition.cell.target in consensus])
        single = leader([condition for condition in own if condition.cell.target not in consensus])
        for metric in ("mean", "recall_at_1"):
            pair = compare(several, single, metric) if several and single else None
            found += [{**pair, "kind": "best of each, by STS-B dev"}] if pair else []
    for pair, adjusted in zip(found, holm([pair["p_value"] for pair in found]), strict=True):
        pair["p_holm"], pair["family"] = adjusted, len(found)
    return found
