"""``consilience frames``: what is known of frames."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True, help="Frames: what students' absolute gauges say in them.", rich_markup_mode=None
)


@app.callback()
def _root() -> None:
    """Keep the verb below a name, although there is one alone."""


@app.command(name="law")
def law(
    students: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of students, or of runs.")],
    into: Annotated[str, typer.Option(help="The model that serves: its frame is rotated into.")],
    corpus: Annotated[str, typer.Option(help="Texts that no student was trained on.")],
    pairs: Annotated[int, typer.Option(min=1, help="Texts that each rotation is fitted to.")] = 2_500,
    held_out: Annotated[int, typer.Option(min=10, help="Other texts that the gauges are read on.")] = 2_500,
    column: Annotated[str | None, typer.Option(help="Column of the text; default 'text'.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Keep rows with COLUMN=VALUE; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only so many rows.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the row samples.")] = 0,
    unrotated: Annotated[
        bool, typer.Option("--unrotated", help="Show refused gauges too: what a naive evaluation would print.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Absolute gauges of students before and after one rotation each, and how seeds agree behind it.

    Gauges of a relational student, or of one whose target is a GPA frame, are refused before the rotation: its
    orientation is free, and they would read a false floor.
    """
    from consilience.cli.corpus import parse_where
    from consilience.recipes.frame_law import frame_law

    result = frame_law(
        students,
        into=into,
        corpus=corpus,
        pairs=pairs,
        held_out=held_out,
        column=column,
        where=parse_where(where or []),
        limit=limit,
        seed=seed,
        unrotated=unrotated,
    )
    if as_json:
        import json

        sys.stdout.write(json.dumps(result) + "\n")
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    from consilience.cli.tables import table_console

    rows = result["rows"]
    table = Table(
        title=f"Gauges against {result['into']} on {rows['held_out']} texts; rotations fitted on {rows['fit']} others",
        title_justify="left",
    )
    for name in ("objective", "target", "family"):
        table.add_column(name)
    for name in ("seed", "cosine before", "after", "R@1 before", "after", "R@1 null"):
        table.add_column(name, justify="right")
    table.add_column("rotation")
    for entry in result["students"]:
        before = entry["before"]
        cells = (
            [f"{before[key]:.3f}" for key in ("cosine", "recall_at_1")]
            if isinstance(before, dict)
            else [before or ""] * 2
        )
        table.add_row(
            entry["objective"],
            entry["target"],
            entry["family"],
            str(entry["seed"]),
            cells[0],
            f"{entry['after']['cosine']:.3f}",
            cells[1],
            f"{entry['after']['recall_at_1']:.3f}",
            f"{entry['null']['recall_at_1']:.3f}",
            entry["verdict"],
        )
    console = table_console(table)
    console.print(table)
    for group in result["across_seeds"]:
        console.print(
            f"{group['objective']} of {group['target']}: seeds differ by {group['spread']:.4f} in agreement after "
            "rotation; "
            f"cosine between seeds {group['cosine']:.3f}",
            markup=False,
            highlight=False,
        )
