"""What a training log's lines become in a report: curves by panel, and how gauges are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Curves = dict[str, list[float | None]]
_COSINES = ("target_cosine", "self_cosine", "frame_gap")
_RANKS = ("effective_rank",)


def flatten_entry(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a log line; nested names keep only their last part.

    Example:
        >>> flatten_entry({"step": 3, "loss": 0.5, "gauges": {"target_cosine": 0.9}})
        {'step': 3.0, 'loss': 0.5, 'target_cosine': 0.9}
    """
    flat: dict[str, float] = {}
    for name, value in entry.items():
        if isinstance(value, Mapping):
            flat.update(flatten_entry(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[name] = float(value)
    return flat


def training_panels(log: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[tuple[str, Curves]]]:
    """Arrange a training log in panels: loss and its terms, gauges on held-out rows, effective rank.

    Args:
        log: the lines of ``log.jsonl``.

    Returns:
        The steps, and (title, {label: value a step, None where it wasn't measured}) a panel; panels without
        a curve are left out.
    """
    entries = [flatten_entry(entry) for entry in log]
    names = {name for entry in entries for name in entry}
    terms = sorted({name for entry in log for name in entry.get("terms", {})})
    recalls = sorted((name for name in names if name.startswith("retrieval_at_1_of_")), key=lambda name: int(name[18:]))
    groups = [
        ("loss and its terms", ["loss", *terms]),
        ("held-out gauges", [*_COSINES, *recalls]),
        ("effective rank, held out", list(_RANKS)),
    ]
    panels = []
    for title, wanted in groups:
        curves = {gauge_label(name): [entry.get(name) for entry in entries] for name in wanted if name in names}
        if curves:
            panels.append((title, curves))
    return [int(entry["step"]) for entry in entries], panels


def gauge_label(name: str) -> str:
    """Return how a report calls a gauge.

    Example:
        >>> gauge_label("retrieval_at_1_of_256"), gauge_label("target_cosine")
        ('R@1 of 256', 'target cosine')
    """
    return name.replace("retrieval_at_1_of_", "R@1 of ").replace("_", " ")
