"""What the commands of ``consilience adapt`` read from words and print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal


def parse_named(words: Sequence[str]) -> dict[str, str | Path | Sequence[tuple[str, str]]]:
    """Turn NAME=FILE words into a mapping.

    Raises:
        InputError: a word without "=", or a name given twice.
    """
    from consilience.core.errors import InputError

    found: dict[str, str | Path | Sequence[tuple[str, str]]] = {}
    for word in words:
        name, mark, file = word.partition("=")
        if not (name and mark and file):
            raise InputError(f"--pairs: expected NAME=FILE, got {word!r}. Name the anchor whose pairs they are")
        if name in found:
            raise InputError(f"--pairs: {name} is given twice. Name each anchor once")
        found[name] = file
    return found


def write_json_line(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON object."""
    import json

    sys.stdout.write(json.dumps(value) + "\n")


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is text and whose others are numbers."""
    from rich.table import Table

    from consilience.cli.tables import table_console

    shown = Table()
    for place, title in enumerate(header):
        shown.add_column(title, justify="right" if place else "left")
    for row in rows:
        shown.add_row(*row)
    table_console(shown).print(shown)


def fault_choice(word: str) -> Literal["refuse", "drop"]:
    """Check the word behind ``--on-fault``."""
    from consilience.core.errors import InputError

    if word == "refuse":
        return "refuse"
    if word == "drop":
        return "drop"
    raise InputError(f"--on-fault: expected refuse or drop, got {word!r}. Change it")


def show_library(out: Path, *, as_json: bool) -> None:
    """Print what a finished library or anchor reports."""
    from consilience.core.files import read_json
    from consilience.core.manifests import read_manifest

    manifest, report = read_manifest(out), read_json(out / "report.json")
    if as_json:
        write_json_line({"path": str(out), **manifest, "report": report})
        return
    from consilience.training.pair_queries import is_refused

    gauges, verdicts = report["gauges"], report["retrieval"]
    show_table(
        ["held-out gauge", "before", "after"],
        [
            [name, f"{value:.4f}" if value is not None else "", f"{gauges['after'][name]:.4f}"]
            for name, value in ((name, gauges["before"].get(name)) for name in gauges["after"])
            if not is_refused(name, verdicts)
        ],
    )
    for domain, verdict in verdicts.items():
        if verdict["refused"]:
            sys.stdout.write(f"R@1 of {domain} isn't quoted: {'; '.join(verdict['refused'])}\n")
    reads = report.get("reads")
    if reads:
        names = [anchor["name"] for anchor in manifest["anchors"]]  # a library: LoRA has no reads
        show_table(
            ["texts of", *(f"share of {name}" for name in names), "sum", "own / others"],
            [
                [
                    domain,
                    *(f"{share:.4f}" for share in read["shares"]),
                    f"{read['share_sum']:.4f}",
                    f"{reads['ratios'][domain]['ratio']:.2f}" if domain in reads["ratios"] else "",
                ]
                for domain, read in reads["own"].items()
            ],
        )
        if reads["starved"]:
            sys.stdout.write(f"starved: {', '.join(reads['starved'])}\n")
    sys.stdout.write(f"{manifest['id']} in {out}\n")


def show_study(out: Path, results: dict[str, Any], *, as_json: bool) -> None:
    """Print the report of a roster, a sweep or a transplant."""
    if as_json:
        write_json_line({"path": str(out), **results})
    else:
        sys.stdout.write((out / "report.md").read_text(encoding="utf-8"))
