"""Which plots a run's report has, drawn from its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        model["model"]: {task: (entry["score"], entry["low"], entry["high"]) for task, entry in model["tasks"].items()}
        for model in models
    }
    matrix = results["consensus"]["agreement_matrix"]
    plots = {
        "scores": plot_scores(scores),
        "spectra": plot_spectra(results["spectra"]["eigenvalues"]),
        "agreement": plot_agreement(matrix["labels"], matrix["values"]),
    }
    steps, panels = training_panels(results["training"]["log"])
    if panels:
        plots["training"] = plot_training(steps, panels)
    return plots
