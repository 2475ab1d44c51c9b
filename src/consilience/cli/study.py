"""``consilience study``: a grid of trainings, compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from consilience.recipes.staged_folder import StagedResult


def command(
    study: Annotated[Path, typer.Argument(help="A TOML study, e.g. studies/nine-objectives.toml.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a value, e.g. train.steps=100. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The study's folder.  [default: runs/<study name>]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print which stages would run, and run nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Run a study: objectives x targets x students x seeds, measured, compared and reported.

    Every cell whose output is already there is skipped, an interrupted one continues, and a training that diverges is a
    row of the report. All faults of the study are listed before anything starts.
    """
    from consilience.recipes.study import study as run_study

    result = run_study(study, set=set_ or (), out=out, dry_run=dry_run)
    if json_:
        sys.stdout.write(json.dumps(result.to_json(), allow_nan=False) + "\n")
    elif dry_run:
        sys.stdout.write(_stage_table(result))
    else:
        sys.stdout.write(f"report  {result.report}\n{_summary(result)}")


def _stage_table(result: StagedResult) -> str:
    width = max(len(stage.name) for stage in result.stages)
    lines = [f"{'stage':<{width}}  {'status':<14}  folder"]
    for stage in result.stages:
        folder = stage.folder if stage.folder is not None else "(after the stages above)"
        lines.append(f"{stage.name:<{width}}  {stage.status:<14}  {folder}")
    return "\n".join(lines) + "\n"


def _summary(result: StagedResult) -> str:
    failed = [cell for cell in result.results["cells"] if cell["error"] is not None]
    done = len(result.results["cells"]) - len(failed)
    lines = [f"cells   {done} measured" + (f", {len(failed)} failed" if failed else "")]
    if result.results["leader"] is not None:
        lines.append(f"leader  {result.results['leader']} (by STS-B dev)")
    return "\n".join(lines) + "\n"
