"""Bars: numbers written into the recipe before the run, printed beside what the run measured.

A bar judges a claim, not the artefact: a missed one is reported and the run's outputs stay (design, sections 1 and 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience.recipes.recipe_file import BarPart

_NAMES = ("name", "model", "teacher", "label", "stage")  # what an item of a list in results.json is called by


def find_metric(results: Any, path: str) -> float | None:  # noqa: ANN401 - any JSON value
    """Return the number at a dotted path of ``results.json``, or None when nothing is measured there.

    Items of lists go by what they are called, e.g. ``evaluation.models.student.tasks.sts14.score``.

    Example:
        >>> find_metric({"models": [{"model": "student", "mean": 0.7}]}, "models.student.mean")
        0.7
        >>> find_metric({"models": []}, "models.student.mean") is None
        True
    """
    value = results
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = next((item for item in value if _is_called(item, step)), None)
        else:
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_called(item: Any, name: str) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(item, Mapping) and any(item.get(key) == name for key in _NAMES)


def judge_bars(bars: Sequence[BarPart], results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Put what was measured beside each bar.

    Args:
        bars: of the recipe.
        results: the content of ``results.json``.

    Returns:
        One entry a bar: ``what``, ``metric``, ``seen``, ``ours`` and ``verdict``: "met", "missed", "" without a
        threshold, or "not measured".
    """
    judged = []
    for bar in bars:
        ours = find_metric(results, bar.metric)
        if ours is None:
            verdict = "not measured"
        elif bar.at_least is not None:
            verdict = "met" if ours >= bar.at_least else "missed"
        elif bar.within is not None:
            verdict = "met" if bar.seen is not None and abs(ours - bar.seen) <= bar.within else "missed"
        else:
            verdict = ""
        judged.append({**bar.model_dump(), "ours": ours, "verdict": verdict})
    return judged
