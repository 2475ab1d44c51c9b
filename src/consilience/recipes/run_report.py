"""The closing part of a run: what its artefacts say, as ``results.json``, plots, Markdown and HTML."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience._version import __version__
from consilience.core.files import read_json, temporary_sibling
from consilience.core.manifests import TIMING
from consilience.recipes.align import GPA_FRAME
from consilience.recipes.bars import judge_bars
from consilience.recipes.staged_folder import LINK, write_staged_report
from consilience.recipes.verdict import judge_run

if TYPE_CHECKING:
    from consilience.recipes.recipe_file import Recipe
    from consilience.recipes.run import MadeStages
    from consilience.recipes.stages import StageResult

Json = dict[str, Any]


def collect_results(recipe: Recipe, made: MadeStages, stages: Sequence[StageResult], *, command: str) -> Json:
    """Gather from the artefacts what the report shows.

    Args:
        recipe: the recipe as it was run.
        made: the finished stages by role.
        stages: the same in order.
        command: what runs it again.

    Returns:
        The content of ``results.json``.
    """
    from consilience.recipes.measure import tasks_to_run

    evaluation = read_json(made.evaluation.path / "evaluation.json")
    timed = made.evaluation.path / TIMING
    speeds = read_json(timed)["sentences_per_second"] if timed.is_file() else {}
    for model in evaluation["models"]:
        model["sentences_per_second"] = speeds.get(model["model"])
    measured = tasks_to_run(recipe)
    results: Json = {
        "name": recipe.name,
        "seed": recipe.seed,
        "command": command,
        "environment": _environment(),
        "recipe": _portable(recipe),
        "corpus": {
            **_manifest(made.corpus)["corpus"],
            "source": _manifest(made.corpus)["source"],
            "report": read_json(made.corpus.path / "report.json"),
        },
        "teachers": _teachers(recipe, made, evaluation),
        "frames": _frames(recipe, made),
        "consensus": _consensus(made),
        "training": _training(made.student),
        "evaluation": evaluation,
        "skipped_tasks": [task for task in recipe.evaluate.tasks if task not in measured],
        "spectra": read_json(made.evaluation.path / "spectra.json"),
        "export": _export(recipe, made.export),
        "stages": [stage.to_json() for stage in stages],
    }
    trained = _manifest(made.student).get("verdict")
    results["verdict"] = judge_run(evaluation, trained, reference=recipe.align.reference)
    return {**results, "bars": judge_bars(recipe.bars, results)}


def _manifest(stage: StageResult) -> Mapping[str, Any]:
    return stage.manifest or {}


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


def _portable(recipe: Recipe) -> Json:
    """Return the recipe as data; absolute paths shrink to their names, for the report goes to other people."""

    def shorten(value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {key: shorten(item) for key, item in value.items()}
        if isinstance(value, list):
            return [shorten(item) for item in value]
        return portable_text(value) if isinstance(value, str) else value

    result: Json = shorten(recipe.model_dump(exclude_none=True))
    return result


def portable_text(text: str) -> str:
    """Return a path's or spec's text without the folders above an absolute path's last part.

    Example:
        >>> portable_text("static:/data/models/potion?max_length=64"), portable_text("packaged:glove")
        ('static:potion?max_length=64', 'packaged:glove')
    """
    backend, colon, rest = text.rpartition(":") if ":/" in text and "://" not in text else ("", "", text)
    if not rest.startswith(("/", "\\")) and rest[1:3] != ":\\":
        return text
    name, mark, tail = rest.partition("?")
    return f"{backend}{colon}{Path(name).name}{mark}{tail}"


def _teachers(recipe: Recipe, made: MadeStages, evaluation: Json) -> list[Json]:
    from consilience.teachers.registry import teacher_licence

    parameters = {model["model"]: model["parameters"] for model in evaluation["models"]}
    return [
        {
            "name": teacher.name,
            "spec": portable_text(teacher.spec),
            "reference": teacher.name == recipe.align.reference,
            "dimensions": _manifest(bank)["dimensions"],
            "parameters": parameters.get(teacher.name),
            "licence": teacher_licence(teacher.spec),
            "bank": bank.id,
            "seconds": bank.seconds,
            "rows_per_second": _manifest(bank)["rows"] / bank.seconds if bank.seconds else None,
        }
        for teacher in recipe.teachers
        for bank in [made.banks[teacher.name]]
    ]


def _names_by_bank(made: MadeStages) -> dict[str, str]:
    return {str(bank.id): name for name, bank in made.banks.items()}


def _frames(recipe: Recipe, made: MadeStages) -> Json:
    manifest = _manifest(made.frames)
    names = _names_by_bank(made)
    return {
        "id": manifest["frame"],
        "reference": recipe.align.reference or GPA_FRAME,
        "method": manifest["method"],
        "rows": manifest["rows"],
        "fits": [
            {"teacher": names[entry["bank_id"]], **entry["report"]}
            for entry in manifest["teachers"].values()
            if entry["report"] is not None
        ],
    }


def _consensus(made: MadeStages) -> Json:
    extra = _manifest(made.consensus)["extra"]
    report = extra["report"]
    names = _names_by_bank(made)
    labels = {member["label"]: names[member["bank_id"]] for member in extra["members"]}
    matrix = report["agreement_matrix"]
    return {
        **report,
        "teachers": [{**entry, "label": labels[entry["label"]]} for entry in report["teachers"]],
        "agreement_matrix": {"labels": [labels[label] for label in matrix["labels"]], "values": matrix["values"]},
    }


def _training(student: StageResult) -> Json:
    manifest = _manifest(student)
    folder = student.path
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    timing = read_json(folder / TIMING) if (folder / TIMING).is_file() else {}
    return {"manifest": {key: manifest[key] for key in manifest if key != "files"}, "timing": timing, "log": log}


def _export(recipe: Recipe, stage: StageResult) -> Json:
    manifest = _manifest(stage)
    return {
        "folder": stage.path.name,
        "id": stage.id,
        "formats": list(recipe.export.formats),
        "parity": manifest["parity"],
        "bytes": sum((stage.path / name).stat().st_size for name in manifest["files"]),
    }


def write_report(out: Path, results: Json) -> None:
    """Write ``results.json``, the plots, ``report.md``, ``report.html``, the manifest and the link ``model``.

    Args:
        out: the run's folder.
        results: from :func:`collect_results`.
    """
    from consilience.reports.markdown import render_markdown
    from consilience.reports.run_plots import draw_run_plots

    plots = draw_run_plots(results)
    markdown = render_markdown(results, plots={name: f"plots/{name}.svg" for name in plots})
    write_staged_report(out, results, kind="run", document="recipe", markdown=markdown, plots=plots)
    _link(out / LINK, results["export"]["folder"])


def _link(link: Path, target: str) -> None:
    """Point ``model`` at the export, in one step."""
    temporary = temporary_sibling(link)
    temporary.symlink_to(target, target_is_directory=True)
    temporary.replace(link)
