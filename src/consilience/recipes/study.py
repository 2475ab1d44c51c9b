"""A study: objectives x targets x students x seeds as one grid of stages, and one report over all of it.

Every bank, target, training and measurement is a stage of its own (see ``stages``), so a study that was killed
continues where it was, and an edited one runs what the edit touches. A training that diverges is a row of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.core.locks import one_job
from consilience.recipes.staged_folder import StagedResult, begin_staged, recorded_command, require_staged_folder

Json = dict[str, Any]


@one_job
def study(
    study: str | Path,
    *,
    set: Sequence[str] = (),
    out: str | Path | None = None,
    dry_run: bool = False,
) -> StagedResult:
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
    require_staged_folder(folder, "study")
    stages = SharedStages(
        folder, dry_run=dry_run, shelves=[Path(path) for path in (*checked.banks, *checked.optional_banks)]
    )
    if not dry_run:
        begin_staged(folder, "study")
    command = recorded_command("study", study, set)
    made = StudyGrid(checked, stages).run()
    if dry_run:
        return StagedResult(folder, stages.results, {})
    from consilience.recipes.study_report import collect_study, write_study_report

    results = collect_study(checked, made, stages.results, command=command)
    write_study_report(folder, results)
    return StagedResult(folder, stages.results, results)
