"""``consilience align``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from consilience.committee.frame_set import FrameSet


def command(
    banks: Annotated[list[Path], typer.Argument(metavar="BANK...", help="Banks of one corpus, one a teacher.")],
    out: Annotated[Path, typer.Option(help="Folder of the frame set.")],
    reference: Annotated[
        str | None, typer.Option(help="Whose frame it will be: a bank's path or a teacher's name; not with gpa.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="whitened, orthogonal, orthogonal-scaled, isotropic, ridge or low-rank into the reference's frame; "
            "gpa into a frame that no teacher owns."
        ),
    ] = "whitened",
    fit_rows: Annotated[int, typer.Option(min=1, help="Rows that the maps are fitted to.")] = 24_000,
    held_out_rows: Annotated[int, typer.Option(min=1, help="Disjoint rows that they are judged on.")] = 5_000,
    shrinkage: Annotated[
        str, typer.Option(help="Added to the covariances, times their mean eigenvalue; ledoit-wolf; or gcv.")
    ] = "1e-3",
    rank: Annotated[int | None, typer.Option(min=1, help="Of low-rank maps; default 99% of the variance.")] = None,
    dimensions: Annotated[int | None, typer.Option(min=1, help="Of a gpa frame; default the widest bank's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the row samples.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Keep maps that the fit report refuses.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit a map of every teacher into the reference's frame; refuse those no better than chance.

    The maps are fitted to a stratified sample of rows and judged on other rows: R@1 is the share of held-out rows whose
    own reference row is nearest, beside its multiple of chance and a shuffled null.
    """
    from consilience.recipes.align import align

    frames = align(
        banks,
        reference=reference,
        method=method,
        fit_rows=fit_rows,
        held_out_rows=held_out_rows,
        shrinkage=_shrinkage(shrinkage),
        rank=rank,
        dimensions=dimensions,
        seed=seed,
        force=force,
        out=out,
        overwrite=overwrite,
    )
    if as_json:
        import json

        sys.stdout.write(json.dumps({"path": str(frames.path), **frames.manifest}) + "\n")
    else:
        _show(frames)


def _shrinkage(text: str) -> float | Literal["ledoit-wolf", "gcv"]:
    from consilience.core.errors import InputError

    if text == "ledoit-wolf":
        return "ledoit-wolf"
    if text == "gcv":
        return "gcv"
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"--shrinkage: expected a number, ledoit-wolf or gcv, got {text!r}. Use e.g. 1e-3") from error


def _show(frames: FrameSet) -> None:
    from rich.table import Table

    from consilience.cli.tables import table_console
    from consilience.recipes.align import GPA_FRAME

    manifest: dict[str, Any] = frames.manifest
    rows = manifest["rows"]
    into = manifest["reference"]["label"] if manifest["reference"] else GPA_FRAME
    table = Table(
        title=f"Maps into {into} ({manifest['method']}; {rows['fit']} rows fitted, {rows['held_out']} held out)",
        title_justify="left",
    )
    table.add_column("teacher", overflow="fold")
    for name in ("N/d", "cosine in", "out", "null", "R@1 in", "out", "x chance", "retention", "rank", "verdict"):
        table.add_column(name, justify="right" if name != "verdict" else "left")
    notes = []
    for entry in frames.teachers.values():
        r = entry["report"]
        if r is None:
            continue
        table.add_row(
            entry["label"],
            f"{r['rows_per_dimension']:.1f}",
            f"{r['in_sample_cosine']:.3f}",
            f"{r['out_of_sample_cosine']:.3f}",
            f"{r['null_cosine']:.3f}",
            f"{r['in_sample_recall']:.3f}",
            f"{r['out_of_sample_recall']:.3f}",
            f"{r['chance_multiple']:.0f}",
            f"{r['retention']:.0%}",
            f"{r['source_rank']:.1f}",
            r["verdict"],
        )
        notes += [f"{entry['label']}: {reason}" for reason in r["reasons"]]
    console = table_console(table)
    console.print(table)
    if "gpa" in manifest:
        gpa = manifest["gpa"]
        notes.append(
            f"{gpa['iterations']} iterations{'' if gpa['converged'] else ', not converged'}, residual "
            f"{gpa['residual']:.3f}, held-out cosine to the mean {gpa['alignment']:.3f}. A GPA frame has no axes "
            "of its "
            "own: rotate a student of it into a frame that serves (consilience rotate) before any absolute gauge"
        )
    for note in notes:
        console.print(note, markup=False, highlight=False)
    console.print(f"frame {frames.frame} in {frames.path}", markup=False, highlight=False)
