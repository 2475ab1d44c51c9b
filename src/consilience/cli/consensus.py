"""``consilience consensus``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

if TYPE_CHECKING:
    from consilience.banks.reader import Bank


def command(
    banks: Annotated[list[Path], typer.Argument(metavar="BANK...", help="Banks of one corpus, one a teacher.")],
    frames: Annotated[Path, typer.Option(help="Frame set of `consilience align`.")],
    out: Annotated[Path, typer.Option(help="Folder of the consensus bank.")],
    weight: Annotated[
        list[str] | None, typer.Option(metavar="BANK=X", help="Weight of a bank or teacher, 1 without; repeatable.")
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar="BANK", help="Bank or teacher that doesn't count; repeatable.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="fp16 or fp32.")] = "fp16",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the consensus of the teachers as a bank: per row, the normalised mean of the aligned embeddings.

    Killed at any moment, the same command continues. The report is measured on rows that no map was fitted to.
    """
    from consilience.core.errors import InputError
    from consilience.recipes.consensus import consensus

    if dtype not in ("fp16", "fp32"):
        raise InputError(f"--dtype: expected fp16 or fp32, got {dtype!r}")
    bank = consensus(
        banks,
        frames=frames,
        out=out,
        weights=parse_weights(weight or [], what="BANK"),
        leave_out=leave_out or [],
        dtype=cast(Literal["fp16", "fp32"], dtype),
        overwrite=overwrite,
    )
    if as_json:
        import json

        facts = {
            "path": str(bank.path),
            "id": bank.id,
            "rows": bank.rows,
            "dimensions": bank.dimensions,
            "frame": bank.frame,
            **bank.manifest["extra"],
        }
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        _show(bank)


def parse_weights(options: list[str], *, what: str) -> dict[str, float]:
    """Turn ``NAME=NUMBER`` words into a mapping.

    Args:
        options: as given behind ``--weight``.
        what: what the names are, for errors: "BANK" or "SPEC".

    Raises:
        InputError: a word isn't of that form, or a name is given twice.
    """
    from consilience.core.errors import InputError

    weights: dict[str, float] = {}
    for option in options:
        name, separator, value = option.rpartition("=")
        if name in weights:
            raise InputError(f"--weight: {name} is given twice. Give each {what.lower()} one weight")
        try:
            weights[name] = float(value)
        except ValueError:
            separator = ""
        if not separator or not name:
            raise InputError(f"--weight: expected {what}=NUMBER, got {option!r}. Write {name or what}=2")
    return weights


def _show(bank: Bank) -> None:
    from rich.table import Table

    from consilience.cli.tables import table_console

    report: dict[str, Any] = bank.manifest["extra"]["report"]
    sample = report["sample"]
    where = "that no map was fitted to" if sample["held_out"] else "of this corpus (the maps are of another one)"
    table = Table(title=f"Consensus, measured on {sample['rows']} rows {where}", title_justify="left")
    table.add_column("", overflow="fold")
    for name in ("weight", "rank", "entropy rank", "spread CV", "self-cosine", "agreement", "with others"):
        table.add_column(name, justify="right")

    def geometry(entry: dict[str, Any]) -> list[str]:
        rank = entry["effective_rank"]
        return [
            f"{rank['participation']:.1f}",
            f"{rank['entropy']:.1f}",
            f"{rank['spread_cv']:.3f}",
            f"{entry['self_cosine']:.3f}",
        ]

    table.add_row("consensus", "", *geometry(report["target"]), "", "")
    for entry in report["teachers"]:
        others = entry.get("agreement_with_others")
        table.add_row(
            entry["label"],
            f"{entry['weight']:.3f}",
            *geometry(entry),
            f"{entry['agreement']['mean']:.3f}",
            f"{others['mean']:.3f}" if others else "",
        )
    console = table_console(table)
    console.print(table)
    norm = report["centroid_norm"]
    console.print(
        f"centroid norm before normalisation: mean {norm['mean']:.3f}, p01 {norm['p01']:.3f}, p50 {norm['p50']:.3f}, "
        f"p99 {norm['p99']:.3f}",
        highlight=False,
    )
    console.print(f"bank {bank.id} in {bank.path}, frame {bank.frame}", markup=False, highlight=False)
