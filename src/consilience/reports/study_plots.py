"""A study's plots as SVG: scores by seed, the anchor dial, set-points, descent by term, committees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from consilience.reports.plots import COLOURS, add_legend, new_figure, styled, to_svg

Json = Mapping[str, Any]
_MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")


def draw_study_plots(results: Json) -> dict[str, str]:
    """Draw the plots of a study.

    Args:
        results: what ``results.json`` holds.

    Returns:
        SVG text by name: "scores", "dial", "set-points", "terms", "committees" and a "descent-N" a condition; those
        that there is data for.
    """
    cells = [cell for cell in results["cells"] if cell["error"] is None]
    if not cells:
        return {}
    groups = _grouped(cells)
    plots = {"scores": _plot_scores(groups)}
    if results["dial"]:
        plots["dial"] = _plot_dial(results["dial"])
    # A relational student's cosine to its target says nothing: its frame is nobody's.
    refused = {point["condition"] for point in results["set_points"] if isinstance(point["own"], str)}
    settled = _grouped([cell for cell in cells if _condition(cell) not in refused])
    if settled:
        plots["set-points"] = _plot_set_points(settled)
    if any(cell["training"]["terms"] for cell in cells):
        plots["terms"] = _plot_terms(groups)
        for i, members in enumerate(groups.values()):
            plots[f"descent-{i}"] = _plot_descent(members)
    if len({row["target"] for row in results["committees"]["rows"]}) > 2:
        plots["committees"] = _plot_committees(results["committees"]["rows"])
    return plots


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the conditions' names without the parts that all of them share.

    Example:
        >>> short_names(["mimicry · all · micro", "infonce · all · micro"])
        {'mimicry · all · micro': 'mimicry', 'infonce · all · micro': 'infonce'}
    """
    parts = {name: name.split(" · ") for name in names}
    vary = [i for i in range(3) if len({split[i] for split in parts.values()}) > 1]
    return {name: " · ".join(split[i] for i in vary or [0]) for name, split in parts.items()}


def _condition(cell: Json) -> str:
    return f"{cell['objective']} · {cell['target']} · {cell['student']}"


def _grouped(cells: Sequence[Json]) -> dict[str, list[Json]]:
    groups: dict[str, list[Json]] = {}
    for cell in cells:
        groups.setdefault(_condition(cell), []).append(cell)
    names = short_names(list(groups))
    return {names[name]: members for name, members in groups.items()}


def _plot_scores(groups: Mapping[str, Sequence[Json]]) -> str:
    """One line a condition: every seed's mean score with its interval over the pairs."""
    with styled():
        figure, (axis,) = new_figure(7.6, 1.1 + 0.36 * len(groups))
        for line, members in enumerate(groups.values()):
            for i, cell in enumerate(members):
                found = cell["measures"]
                y = line + (i - (len(members) - 1) / 2) * 0.22
                axis.plot([found["mean_low"], found["mean_high"]], [y, y], color=COLOURS[i % 8], lw=1.2)
                axis.plot(found["mean"], y, color=COLOURS[i % 8], marker=_MARKS[i % 8], ms=5)
        axis.set_yticks(range(len(groups)), list(groups))
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("mean Spearman, a mark a seed, with 95% intervals over the pairs")
        return to_svg(figure)


def _plot_dial(dial: Sequence[Json]) -> str:
    """Agreement against retrieval; the line follows the anchor's strength within each target."""
    panels = [
        (key, title)
        for key, title in (
            ("recall_at_1_served", "R@1 against the serving model"),
            ("recall_at_1", "R@1 of the student alone"),
        )
        if any(entry[key] is not None for entry in dial)
    ]
    names = short_names([entry["condition"] for entry in dial])
    targets = list(dict.fromkeys((entry["target"], entry["student"]) for entry in dial))
    with styled():
        figure, axes = new_figure(5.4 * len(panels), 4.3, len(panels))
        for axis, (key, title) in zip(axes, panels, strict=True):
            for target, colour in zip(targets, COLOURS * len(targets), strict=False):
                own = [entry for entry in dial if (entry["target"], entry["student"]) == target]
                turned = [entry for entry in own if not entry["relational"] and entry[key] is not None]
                axis.plot(
                    [entry["agreement"] for entry in turned],
                    [entry[key] for entry in turned],
                    color=colour,
                    lw=1,
                    alpha=0.5,
                    zorder=1,
                )
                for entry in own:
                    if entry[key] is None:
                        continue
                    face = "white" if entry["relational"] else colour
                    axis.plot(entry["agreement"], entry[key], "o", ms=6, mec=colour, mfc=face, zorder=2)
                    axis.annotate(
                        names[entry["condition"]],
                        (entry["agreement"], entry[key]),
                        xytext=(5, 4),
                        textcoords="offset points",
                        fontsize=8,
                    )
            axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
            axis.set_xlabel("agreement with the serving model, after the rotation")
            axis.margins(x=0.18, y=0.12)
        return to_svg(figure)


def _plot_set_points(groups: Mapping[str, Sequence[Json]]) -> str:
    """Agreement with the own target over the steps: where each objective's curve settles."""
    with styled():
        figure, (axis,) = new_figure(7.6, 3.8)
        for i, (name, members) in enumerate(groups.items()):
            for j, cell in enumerate(members):
                training = cell["training"]
                axis.plot(
                    training["gauge_steps"],
                    training["target_cosine"],
                    color=COLOURS[i % 8],
                    lw=1.5,
                    ls=("-", "--", ":", "-.")[j % 4],
                    marker=_MARKS[i // 8 % 8] if i >= 8 else None,
                    ms=3,
                    label=name if j == 0 else None,
                )
        axis.set_xlabel("step")
        axis.set_ylabel("cosine to the own target, held out")
        add_legend(figure, axis, size=8)
        return to_svg(figure)


def _plot_terms(groups: Mapping[str, Sequence[Json]]) -> str:
    """One panel a term: how every condition's first seed lowers it, whether it is in its loss or not."""
    names = list(dict.fromkeys(name for members in groups.values() for name in members[0]["training"]["terms"]))
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    with styled():
        figure, _ = new_figure(3.5 * columns, 2.7 * rows, 0)
        for at, name in enumerate(names):
            axis = figure.add_subplot(rows, columns, at + 1)
            for i, (label, members) in enumerate(groups.items()):
                training = members[0]["training"]
                values = training["terms"].get(name)
                if values is not None:
                    inside = name in training["objective_weights"]
                    axis.plot(
                        training["term_steps"],
                        _smooth(values),
                        color=COLOURS[i % 8],
                        lw=1.8 if inside else 0.9,
                        ls="-" if i < 8 else "--",
                        alpha=1 if inside else 0.65,
                        label=label,
                    )
            axis.set_title(name, loc="left", fontsize=10, fontweight="bold")
        add_legend(figure, figure.axes[0], place="outside lower center", size=8)
        return to_svg(figure)


def _plot_descent(members: Sequence[Json]) -> str:
    """One panel a seed: every term relative to its value on the first batch; those of the loss drawn thick."""
    with styled():
        figure, axes = new_figure(4.9 * len(members), 3.2, len(members))
        for axis, cell in zip(axes, members, strict=True):
            training = cell["training"]
            for i, (name, values) in enumerate(training["terms"].items()):
                if not values or not values[0]:
                    continue
                inside = name in training["objective_weights"]
                axis.plot(
                    training["term_steps"],
                    [value / values[0] for value in _smooth(values)],
                    color=COLOURS[i % 8],
                    ls="-" if i < 8 else "--",
                    lw=2.0 if inside else 0.9,
                    alpha=1 if inside else 0.7,
                    label=name,
                )
            axis.set_title(f"seed {cell['seed']}", loc="left", fontsize=10)
            axis.set_xlabel("step")
            axis.set_ylim(bottom=0, top=min(axis.get_ylim()[1], 3))
        add_legend(figure, axes[-1], size=7.5)
        return to_svg(figure)


def _smooth(values: Sequence[float], width: int = 3) -> list[float]:
    """Return running means over a few logged batches, so that single batches don't hide the trend."""
    return [sum(values[max(0, i - width + 1) : i + 1]) / min(i + 1, width) for i in range(len(values))]


def _plot_committees(rows: Sequence[Json]) -> str:
    """Effective rank of the target against what its students became."""
    groups = list(dict.fromkeys((row["objective"], row["student"]) for row in rows))
    with styled():
        figure, (axis,) = new_figure(6.4, 4.2)
        for i, group in enumerate(groups):
            own = [row for row in rows if (row["objective"], row["student"]) == group and row["mean"] is not None]
            x, y = [row["effective_rank"] for row in own], [row["mean"] for row in own]
            axis.plot(x, y, _MARKS[i % 8], color=COLOURS[i % 8], ms=6, label=" · ".join(group))
            for row in own:
                axis.annotate(
                    row["target"],
                    (row["effective_rank"], row["mean"]),
                    xytext=(5, 4),
                    textcoords="offset points",
                    fontsize=8,
                )
        axis.set_xlabel("effective rank of the target, before training")
        axis.set_ylabel("students' mean Spearman")
        axis.margins(x=0.15, y=0.1)
        if len(groups) > 1:
            axis.legend(fontsize=8)
        return to_svg(figure)
