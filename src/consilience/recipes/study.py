"""A study: objectives x targets x students x seeds as one grid of stages, and one report over all of it.

Every bank, target, training and measurement is a stage of its own (see ``stages``), so a study that was killed
continues where it was, and an edited one runs what the edit touches. A training that diverges is a row of the report.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.artefacts import MANIFEST, read_manifest
from consilience.core.errors import ResumeError
from consilience.core.files import storage_errors

if TYPE_CHECKING:
    from consilience.recipes.stages import StageResult

Json = dict[str, Any]


@dataclass(frozen=True)
class StudyResult:
    """What a study did and where it is.

    Attributes:
        out: the study's folder.
        stages: one entry a stage, in order.
        results: everything that ``results.json`` holds; empty for a dry run.
    """

    out: Path
    stages: Sequence[StageResult]
    results: Mapping[str, Any]

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.out / "report.html"

    def to_json(self) -> Json:
        """Return the results as JSON; of a dry run, the stages alone."""
        return dict(self.results) or {"stages": [stage.to_json() for stage in self.stages]}


def study(
    study: str | Path,
    *,
    set: Sequence[str] = (),
    out: str | Path | None = None,
    dry_run: bool = False,
) -> StudyResult:
    """Run a grid of trainings and compare them; what is already there is skipped, what was interrupted continues.

    Args:
        study: the TOML file (docs/study.md lists its keys).
        set: ``key.path=value`` strings that override it, e.g. ``train.steps=100``.
        out: the study's folder; ``runs/<study name>`` when None.
        dry_run: only find out which stages would run.

    Returns:
        The stages, and the results as they are in ``results.json``.

    Raises:
        RecipeError: the study has faults; all are listed and nothing was started.
        ResumeError: ``out`` is another artefact's folder.
        ConsilienceError: a stage refused its input; finished stages are kept.

    Source: design, sections 5, 6 and 10; the FT4 document, parts IV to XI.
    """
    from consilience.recipes.study_file import load_study
    from consilience.recipes.study_grid import StudyGrid
    from consilience.recipes.study_stages import SharedStages

    checked = load_study(study, settings=set)
    folder = Path(out) if out is not None else Path("runs") / checked.name
    _require_study_folder(folder)
    stages = SharedStages(folder, dry_run=dry_run, shelves=[Path(path) for path in checked.banks])
    if not dry_run:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    path = Path(study)
    shown = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    command = shlex.join(["consilience", "study", shown, *(word for text in set for word in ("--set", text))])
    made = StudyGrid(checked, stages).run()
    if dry_run:
        return StudyResult(folder, stages.results, {})
    from consilience.recipes.study_report import collect_study, write_study_report

    results = collect_study(checked, made, stages.results, command=command)
    write_study_report(folder, results)
    return StudyResult(folder, stages.results, results)


def _require_study_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than a study."""
    if folder.exists() and not folder.is_dir():
        raise ResumeError(f"{folder}: is a file, expected a study's folder or a new one. Choose another --out")
    if (folder / MANIFEST).is_file():
        kind = read_manifest(folder)["kind"]
        if kind != "study":
            raise ResumeError(f"{folder}: expected a study's folder or a new one, found a {kind}. Choose another --out")
    elif folder.is_dir() and any(folder.iterdir()):
        started = [path for path in folder.iterdir() if path.name == "seconds.json" or path.name.startswith("corpus-")]
        if not started:
            raise ResumeError(f"{folder}: holds files that aren't a study's. Choose another --out")
