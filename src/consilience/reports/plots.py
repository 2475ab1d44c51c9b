"""The report's plots as SVG: training curves, spectra, the teachers' agreement, scores with intervals.

Data in, SVG text out; the same data gives the same bytes. matplotlib is imported when a plot is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.extras import require

# Okabe and Ito 2008: distinguishable with any colour vision. The student is always the first colour.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#6A51A3", "#4D4D4D")
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.8,
    "axes.edgecolor": "#888888",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "consilience",
}


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Any, list[Any]]:
    """Return a figure without a display, and its axes in a row."""
    figures = require("matplotlib.figure", extra="report", purpose="to draw a report's plots")
    figure = figures.Figure(figsize=(width, height), layout="constrained")
    return figure, [figure.add_subplot(1, columns, i + 1) for i in range(columns)]


def add_legend(figure: Any, axis: Any, *, place: str = "outside upper left", size: float = 9) -> None:  # noqa: ANN401
    """Put an axis' legend beside all axes, in as many columns as fit; the figure grows by its height.

    Args:
        figure: what it belongs to.
        axis: whose curves or bars it names.
        place: where, as matplotlib calls it.
        size: of its letters, in points.
    """
    handles, labels = axis.get_legend_handles_labels()
    for columns in range(min(len(labels), 8), 0, -1):
        legend = figure.legend(handles, labels, loc=place, ncols=columns, fontsize=size)
        wide, high = (legend.get_window_extent().size + 2 * size) / figure.dpi
        if wide <= figure.get_figwidth():
            break
        if columns > 1:
            legend.remove()
    figure.set_size_inches(max(wide, figure.get_figwidth()), figure.get_figheight() + high)


def to_svg(figure: Any) -> str:  # noqa: ANN401 - matplotlib is untyped here
    """Return a figure as SVG without dates, so that equal plots are equal bytes."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def styled() -> Any:  # noqa: ANN401 - a context manager of an untyped library
    """Return the context in which all plots are drawn."""
    return require("matplotlib", extra="report", purpose="to draw a report's plots").rc_context(_STYLE)


def plot_training(steps: Sequence[int], panels: Sequence[tuple[str, Mapping[str, Sequence[float | None]]]]) -> str:
    """Draw curves over training steps, one panel a group of quantities.

    Args:
        steps: x of every curve.
        panels: (title, {label: one value a step; None where it wasn't measured}).
    """
    with styled():
        figure, axes = new_figure(4.0 * len(panels), 3.3, len(panels))
        for axis, (title, curves) in zip(axes, panels, strict=True):
            for colour, (label, values) in zip(COLOURS, curves.items(), strict=False):
                points = [(x, y) for x, y in zip(steps, values, strict=True) if y is not None]
                marker = "o" if len(points) < 20 else None
                axis.plot(*zip(*points, strict=True), color=colour, label=label, lw=1.6, marker=marker, ms=3)
            axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
            axis.set_xlabel("step")
            if len(curves) > 1:
                axis.legend(fontsize=9)
        return to_svg(figure)


def plot_spectra(spectra: Mapping[str, NDArray[np.floating] | Sequence[float]]) -> str:
    """Draw each model's share of variance by direction, largest first, on a logarithmic axis.

    Args:
        spectra: eigenvalues of the centred covariance, by model; the last two ones are drawn thicker.
    """
    with styled():
        figure, (axis,) = new_figure(7.2, 4.0)
        for i, (name, values) in enumerate(spectra.items()):
            shares = np.sort(np.maximum(np.asarray(values, dtype=np.float64), 0))[::-1]
            shares = shares / shares.sum()
            rank = 1 / np.square(shares).sum()
            shares = shares[shares > shares[0] * 1e-6]
            strong = name in ("student", "consensus")
            colour = {"student": COLOURS[0], "consensus": "#222222"}.get(name, COLOURS[1 + i % (len(COLOURS) - 1)])
            axis.plot(
                np.arange(1, len(shares) + 1),
                shares,
                color=colour,
                lw=2.4 if strong else 1.3,
                ls="--" if name == "consensus" else "-",
                label=f"{name}  (effective rank {rank:.1f})",
                zorder=3 if strong else 2,
            )
        axis.set_yscale("log")
        axis.set_xlabel("direction")
        axis.set_ylabel("share of variance")
        axis.legend(fontsize=9)
        return to_svg(figure)


def plot_agreement(names: Sequence[str], matrix: NDArray[np.floating] | Sequence[Sequence[float]]) -> str:
    """Draw the teacher-by-teacher mean cosine in the reference frame as a heat map with its numbers.

    Args:
        names: teachers, in the matrix's order.
        matrix: (k, k) mean cosines.
    """
    values = np.asarray(matrix, dtype=np.float64)
    with styled():
        figure, (axis,) = new_figure(1.9 + 0.95 * len(names), 1.3 + 0.75 * len(names))
        image = axis.imshow(values, vmin=min(0.0, float(values.min())), vmax=1, cmap="Blues", aspect="auto")
        axis.set_xticks(range(len(names)), names, rotation=25, ha="right")
        axis.set_yticks(range(len(names)), names)
        axis.grid(visible=False)
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                colour = "white" if value > 0.6 else "#222222"
                axis.text(j, i, f"{value:.3f}", ha="center", va="center", color=colour)
        figure.colorbar(image, ax=axis, label="mean cosine", fraction=0.05)
        return to_svg(figure)


def plot_scores(scores: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> str:
    """Draw grouped bars of task scores with their 95% intervals.

    Args:
        scores: {model: {task: (score, low, high)}}; every model has the same tasks.
    """
    tasks = list(next(iter(scores.values())))
    width = 0.82 / len(scores)
    with styled():
        figure, (axis,) = new_figure(max(6.5, 1.6 + 0.19 * len(tasks) * (len(scores) + 1)), 3.4)
        for i, (model, by_task) in enumerate(scores.items()):
            values = np.array([by_task[task] for task in tasks], dtype=np.float64)
            x = np.arange(len(tasks)) + (i - (len(scores) - 1) / 2) * width
            errors = np.maximum([values[:, 0] - values[:, 1], values[:, 2] - values[:, 0]], 0)
            axis.bar(x, values[:, 0], width * 0.92, color=COLOURS[i % len(COLOURS)], label=model)
            axis.errorbar(x, values[:, 0], yerr=errors, fmt="none", ecolor="#333333", elinewidth=0.9, capsize=2)
        axis.set_xticks(range(len(tasks)), tasks, rotation=20 if len(tasks) > 5 else 0)
        axis.margins(x=0.01)
        axis.set_ylabel("Spearman")
        axis.set_ylim(bottom=min(0.0, *(triple[1] for by_task in scores.values() for triple in by_task.values())))
        axis.grid(visible=False, axis="x")
        add_legend(figure, axis)
        return to_svg(figure)
