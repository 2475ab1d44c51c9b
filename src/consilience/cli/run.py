"""``consilience run``: the whole job from one recipe."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from consilience.recipes.run import RunResult


def command(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe, e.g. recipes/quickstart.toml.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a value, e.g. train.minutes=5. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run's folder.  [default: runs/<recipe name>]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print which stages would run, and run nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Run a recipe: corpus, teachers' banks, alignment, consensus, student, evaluation, export, report.

    Every stage whose output is already there is skipped, an interrupted one continues. All faults of the recipe
    are listed before anything starts.
    """
    from consilience.recipes.run import run

    result = run(recipe, set=set_ or (), out=out, dry_run=dry_run)
    if json_:
        sys.stdout.write(json.dumps(result.to_json(), allow_nan=False) + "\n")
    elif dry_run:
        sys.stdout.write(_stage_table(result))
    else:
        sys.stdout.write(_closing_lines(result))


def _stage_table(result: RunResult) -> str:
    width = max(len(stage.name) for stage in result.stages)
    lines = [f"{'stage':<{width}}  {'status':<14}  folder"]
    for stage in result.stages:
        folder = stage.folder if stage.folder is not None else "(after the stages above)"
        lines.append(f"{stage.name:<{width}}  {stage.status:<14}  {folder}")
    return "\n".join(lines) + "\n"


def _closing_lines(result: RunResult) -> str:
    model = result.out / "model"
    lines = [f"report  {result.report}", f"model   {model}"]
    if (model / "modules.json").is_file():
        lines += [
            "",
            "from sentence_transformers import SentenceTransformer",
            f'SentenceTransformer("{model.as_posix()}").encode(["a cat on a mat"])',
        ]
    return "\n".join(lines) + "\n"
