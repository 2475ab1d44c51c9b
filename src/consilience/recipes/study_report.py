"""The closing part of a study: what its artefacts say, as ``results.json``, plots, Markdown and HTML."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience._version import __version__
from consilience.recipes.run_report import portable_text
from consilience.recipes.staged_folder import write_staged_report
from consilience.recipes.study_analysis import (
    Condition,
    MeasuredCell,
    compare,
    compare_all,
    conditions_of,
    holm,
    leader,
    single_against_consensus,
)
from consilience.recipes.study_findings import (
    across_seeds,
    anchor_dial,
    anchor_strength,
    committee_table,
    descent,
    dial_correlations,
    set_point,
)
from consilience.recipes.study_measure import read_measures

if TYPE_CHECKING:
    from consilience.recipes.stages import StageResult
    from consilience.recipes.study_cells import MadeCell, MadeStudy
    from consilience.recipes.study_file import Study

Json = dict[str, Any]
_GAUGES = ("target_cosine", "effective_rank", "self_cosine", "frame_gap")


def collect_study(study: Study, made: MadeStudy, stages: Sequence[StageResult], *, command: str) -> Json:
    """Gather from the artefacts what the report shows.

    Args:
        study: as it was run.
        made: the finished stages by role.
        stages: the same in order.
        command: what runs it again.

    Returns:
        The content of ``results.json``.
    """
    from consilience.committee.consensus_report import rounded_json
    from consilience.recipes.measure import tasks_to_run

    base = study.base()
    facts = {name: read_measures(stage.path)[0] for name, stage in made.facts.items()}
    consensus = frozenset(part.name for part in study.targets if part.is_consensus)
    cells = [_cell(made_cell) for made_cell in made.cells]
    conditions = conditions_of(cells)
    best = leader(conditions)
    dial = anchor_dial(conditions)
    measured = tasks_to_run(base)
    results: Json = {
        "name": study.name,
        "command": command,
        "environment": _environment(),
        "study": _portable(study.model_dump(exclude_none=True)),
        "corpus": {**(made.corpus.manifest or {})["corpus"], "source": (made.corpus.manifest or {})["source"]},
        "seed": study.seed,
        "resamples": study.evaluate.resamples,
        "skipped_tasks": [task for task in study.evaluate.tasks if task not in measured],
        "targets": _targets(study, made, facts),
        "law": None if made.law is None else (made.law.manifest or {})["facts"],
        "retrieval": None if made.retrieval is None else (made.retrieval.manifest or {})["facts"],
        "teachers": {name: read_measures(stage.path)[0] for name, stage in made.teachers.items()},
        "cells": [_cell_json(cell, made_cell) for cell, made_cell in zip(cells, made.cells, strict=True)],
        "conditions": [_condition_json(condition) for condition in conditions],
        "leader": best.name if best else None,
        "comparisons": compare_all(conditions),
        "against_leader": _against(best, conditions) if best else [],
        "single_against_consensus": single_against_consensus(conditions, consensus),
        "set_points": [set_point(condition) for condition in conditions],
        "dial": dial,
        "dial_correlations": dial_correlations(dial),
        "across_seeds": across_seeds(conditions),
        "descent": [descent(condition) for condition in conditions],
        "committees": committee_table(conditions, facts),
        "stages": [stage.to_json() for stage in stages],
    }
    rounded: Json = rounded_json(results, 7)
    return rounded


def _against(best: Condition, conditions: Sequence[Condition]) -> list[Json]:
    """Compare the leader with every other condition; Holm over this family alone."""
    others = [condition for condition in conditions if condition is not best]
    found = [pair for other in others if (pair := compare(best, other, "mean")) is not None]
    for pair, adjusted in zip(found, holm([pair["p_value"] for pair in found]), strict=True):
        pair["p_holm"], pair["family"] = adjusted, len(found)
    return found


def _environment() -> Json:
    from importlib.metadata import version

    packages = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {
        "consilience": __version__,
        "python": platform.python_version(),
        **packages,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def _portable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the study as data; absolute paths shrink to their names, for the report goes to other people."""
    if isinstance(value, dict):
        return {key: _portable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return portable_text(value) if isinstance(value, str) else value


def _targets(study: Study, made: MadeStudy, facts: Mapping[str, Json]) -> list[Json]:
    return [
        {
            "name": part.name,
            "kind": "consensus" if part.is_consensus else "bank" if part.bank else "teacher",
            "of": part.teacher or None,
            "method": study.align_of(part).method if part.is_consensus else None,
            "weights": dict(part.weights),
            "leave_out": list(part.leave_out),
            "bank": made.targets[part.name].id,
            **facts[part.name],
        }
        for part in study.targets
        if part.name in facts
    ]


def _cell(made: MadeCell) -> MeasuredCell:
    log = _log(made.student.path)
    training = _training(made, log)
    if made.failed or made.measures is None:
        return MeasuredCell(made.cell, training, error=str((made.student.manifest or {}).get("error")))
    measures, arrays = read_measures(made.measures.path)
    return MeasuredCell(made.cell, training, measures, arrays, error=measures.get("fault"))


def _log(folder: Path) -> list[Json]:
    """Return the lines of a training's log; none where the training left none."""
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def _training(made: MadeCell, log: Sequence[Json]) -> Json:
    """Return what a training did: its length, its gauges and terms by step."""
    manifest = made.student.manifest or {}
    done = manifest.get("training", {})
    readings = [entry for entry in log if "gauges" in entry]
    lines = [entry for entry in log if "terms" in entry]
    names = list(lines[0]["terms"]) if lines else []
    return {
        "steps": done.get("steps_done", lines[-1]["step"] if lines else 0),
        "rows": done.get("rows_seen"),
        "tokens": done.get("tokens_seen"),
        "parameters": manifest.get("parameters"),
        "seconds": made.student.seconds,
        "objective_weights": _weights(made.cell.objective),
        "anchor_strength": anchor_strength(made.cell.objective, lines[0]["terms"]) if lines else 0.0,
        "gauge_steps": [entry["step"] for entry in readings],
        **{name: [entry["gauges"][name] for entry in readings if name in entry["gauges"]] for name in _GAUGES},
        "term_steps": [entry["step"] for entry in lines],
        "terms": {name: [entry["terms"].get(name) for entry in lines] for name in names},
        "loss": [entry["loss"] for entry in lines],
    }


def _weights(objective: str) -> Json:
    from consilience.objectives.names import require_objective

    return dict(require_objective(objective).weights)


def _cell_json(cell: MeasuredCell, made: MadeCell) -> Json:
    return {
        "objective": cell.cell.objective,
        "target": cell.cell.target,
        "student": cell.cell.student,
        "seed": cell.cell.seed,
        "folder": made.student.path.name,
        "id": made.student.id,
        "error": cell.error,
        "training": dict(cell.training),
        "measures": dict(cell.measures),
    }


def _condition_json(condition: Condition) -> Json:
    return {
        "name": condition.name,
        "objective": condition.cell.objective,
        "target": condition.cell.target,
        "student": condition.cell.student,
        "seeds": [cell.cell.seed for cell in condition.cells],
        "mean": condition.mean("mean"),
        "stsb-dev": condition.mean("stsb-dev"),
    }


def write_study_report(out: Path, results: Json) -> None:
    """Write ``results.json``, the plots, ``report.md``, ``report.html`` and the manifest.

    Args:
        out: the study's folder.
        results: from :func:`collect_study`.
    """
    from consilience.reports.study_markdown import render_study
    from consilience.reports.study_plots import draw_study_plots

    plots = draw_study_plots(results)
    markdown = render_study(results, plots={name: f"plots/{name}.svg" for name in plots})
    write_staged_report(out, results, kind="study", document="study", markdown=markdown, plots=plots)
