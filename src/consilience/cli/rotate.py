"""``consilience rotate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from consilience.committee.rotation import Rotation


def command(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A student, an exported model, any model, or a bank.")],
    into: Annotated[str, typer.Option(help="Whose frame it shall be in: a bank or a model.")],
    out: Annotated[Path, typer.Option(help="Folder of the rotation.")],
    pairs: Annotated[int, typer.Option(min=1, help="Rows that it is fitted to.")] = 2_500,
    held_out: Annotated[int, typer.Option(min=10, help="Other rows that it is judged on.")] = 2_500,
    corpus: Annotated[str | None, typer.Option(help="Texts for a model to embed; a bank's own corpus.")] = None,
    column: Annotated[str | None, typer.Option(help="Column of the text; default 'text'.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Keep rows with COLUMN=VALUE; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only so many rows.")] = None,
    bank: Annotated[Path | None, typer.Option(help="Also write FROM, a bank, rotated, into this folder.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the row samples.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Keep a rotation that is no better than chance.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit one orthogonal matrix that carries vectors of one model into the frame of another.

    The report has held-out cosine, R@1 and R@10 before and after, and the null of shuffled pairs. The matrix changes no
    cosine between the model's own vectors; consilience export --rotation puts it behind a student.
    """
    from consilience.cli.corpus import parse_where
    from consilience.recipes.rotate import require_bank_target, rotate, rotate_bank

    if bank is not None:
        require_bank_target(source, into=into, rotation=out, out=bank, overwrite=overwrite)
    rotation = rotate(
        source,
        into=into,
        out=out,
        pairs=pairs,
        held_out=held_out,
        corpus=corpus,
        column=column,
        where=parse_where(where or []),
        limit=limit,
        seed=seed,
        force=force,
        overwrite=overwrite,
    )
    if bank is not None:
        rotate_bank(source, rotation=rotation, out=bank, overwrite=overwrite)
    if as_json:
        import json

        sys.stdout.write(json.dumps({"path": str(rotation.path), **rotation.manifest}) + "\n")
    else:
        _show(rotation)


def _show(rotation: Rotation) -> None:
    from rich.table import Table

    from consilience.cli.tables import table_console

    manifest: dict[str, Any] = rotation.manifest
    report, rows = manifest["report"], manifest["rows"]
    title = f"{manifest['source']['label']} into {manifest['target']['label']}: {rows['fit']:,} pairs fitted"
    table = Table()
    table.add_column(f"{rows['held_out']:,} held out")
    for name in ("cosine", "R@1", "R@10"):
        table.add_column(name, justify="right")
    lines = [("before", report["before"]), ("after", report["after"]), ("null", report["null"])]
    for label, numbers in lines:
        found = numbers or {}
        cells = [found.get(key) for key in ("cosine", "recall_at_1", "recall_at_10")]
        table.add_row(label, *("" if cell is None else f"{cell:.3f}" for cell in cells))
    console = table_console(table)
    console.print(title, markup=False, highlight=False)
    console.print(table)
    notes = [
        f"retention {report['retention']:.0%} of the in-sample R@1; verdict {report['verdict']}",
        *report["reasons"],
        f"{rotation.id} in {rotation.path}",
    ]
    for note in notes:
        console.print(note, markup=False, highlight=False)
