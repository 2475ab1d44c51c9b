"""Which plots a run's report has, drawn from its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.reports.markdown import task_order
from consilience.reports.plots import plot_agreement, plot_scores, plot_spectra, plot_training
from consilience.reports.training_log import training_panels


def draw_run_plots(results: Mapping[str, Any]) -> dict[str, str]:
    """Draw the plots of a run.

    Args:
        results: what ``results.json`` holds.

    Returns:
        SVG text by name: "scores", "spectra", "agreement", "training".
    """
    models = results["evaluation"]["models"]
    scores = {
        model["model"]: {
            task: (entry["score"], entry["low"], entry["high"])
            for task in task_order(models[0])
            for entry in [model["tasks"][task]]
        }
        for model in models
    }
    # JSON sorts names; the teachers come in the recipe's order, so that each has one colour in all plots.
    order = [*(teacher["name"] for teacher in results["teachers"]), "consensus", "student"]
    eigenvalues = results["spectra"]["eigenvalues"]
    matrix = results["consensus"]["agreement_matrix"]
    plots = {
        "scores": plot_scores(scores),
        "spectra": plot_spectra({name: eigenvalues[name] for name in order}),
        "agreement": plot_agreement(matrix["labels"], matrix["values"]),
    }
    steps, panels = training_panels(results["training"]["log"])
    if panels:
        plots["training"] = plot_training(steps, panels)
    return plots
