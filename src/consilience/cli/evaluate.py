"""``consilience evaluate``: models on tasks, as a table or as JSON."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from consilience.evaluation.result import EvaluationResult


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Student or exported folders, .onnx files, teacher specs, packaged names."
        ),
    ],
    tasks: Annotated[
        str, typer.Option(help="Comma-separated: sts (the eight tasks), grammar, or single ones such as sts14.")
    ] = "sts,grammar",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with sts/*.tsv. Default: the variable CONSILIENCE_DATA, else mteb and a hub."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap draws.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 1_000,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let Hugging Face models run code of their own.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Score models: Spearman of cosine with 95% intervals, paired comparisons, geometry, speed, size.

    The mean is the unweighted mean over the eight STS tasks. STS-B dev is reported apart: it is for choosing
    between models and never part of the mean.
    """
    from consilience.recipes.evaluate import evaluate

    result = evaluate(
        models,
        tasks=[name.strip() for name in tasks.split(",") if name.strip()],
        data=data,
        seed=seed,
        resamples=resamples,
        trust_remote_code=trust_remote_code,
        command=shlex.join(["consilience", *sys.argv[1:]]),
    )
    if as_json:
        sys.stdout.write(json.dumps(result.to_json(), allow_nan=False) + "\n")
    else:
        _print_tables(result)


def _print_tables(result: EvaluationResult) -> None:
    from rich.table import Table

    from consilience.cli.tables import table_console

    scores = Table(title="Spearman of cosine [95% bootstrap interval]", title_justify="left")
    scores.add_column("task")
    for model in result.models:
        scores.add_column(model.model, justify="right", overflow="fold")
    for task in result.models[0].tasks:
        cells = [model.tasks[task] for model in result.models]
        scores.add_row(task, *(_interval(cell.score, cell.low, cell.high) for cell in cells))
    scores.add_section()
    count = len(result.models[0].mean_of)
    scores.add_row(
        f"mean of {count}", *(_interval(model.mean, model.mean_low, model.mean_high) for model in result.models)
    )
    for task in result.models[0].selection:
        selected = [model.selection[task] for model in result.models]
        scores.add_section()
        scores.add_row(f"{task} (selection)", *(_interval(cell.score, cell.low, cell.high) for cell in selected))
    scores.add_section()
    scores.add_row("effective rank", *(f"{model.geometry['effective_rank']:.1f}" for model in result.models))
    scores.add_row("self-cosine", *(f"{model.geometry['self_cosine']:.3f}" for model in result.models))
    scores.add_row("spread CV", *(f"{model.geometry['spread_cv']:.3f}" for model in result.models))
    scores.add_row("dimensions", *(str(model.dimensions) for model in result.models))
    scores.add_row(
        "parameters", *("unknown" if model.parameters is None else f"{model.parameters:,}" for model in result.models)
    )
    speeds = [model.sentences_per_second for model in result.models]
    scores.add_row("sentences/s", *(f"{s.median:,.0f} [{s.low:,.0f}, {s.high:,.0f}]" for s in speeds))
    table_console(scores, most=24 * (len(result.models) + 1)).print(scores)
    sys.stdout.write(f"Geometry on {result.models[0].geometry['sample']}.\n")
    if result.comparisons:
        _print_comparisons(result)


def _print_comparisons(result: EvaluationResult) -> None:
    from rich.table import Table

    from consilience.cli.tables import table_console

    table = Table(title="Paired comparisons (same pairs resampled for both)", title_justify="left")
    for column in ("first", "second", "task"):
        table.add_column(column, overflow="fold")
    table.add_column("difference", justify="right")
    table.add_column("p", justify="right")
    for pair in result.comparisons:
        table.add_row(
            pair.first,
            pair.second,
            pair.task,
            _interval(pair.difference, pair.low, pair.high, sign="+"),
            f"{pair.p_value:.3f}",
        )
    table_console(table, most=120).print(table)


def _interval(score: float, low: float, high: float, *, sign: str = "") -> str:
    return f"{score:{sign}.4f} [{low:{sign}.3f}, {high:{sign}.3f}]"
