"""``consilience corpus``: look at a corpus before compute is spent on it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def parse_where(conditions: list[str]) -> dict[str, str]:
    """Parse ``column=value`` conditions.

    Raises:
        InputError: one has no "=" or no column.
    """
    from consilience.core.errors import InputError

    parsed: dict[str, str] = {}
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not equals or not column:
            raise InputError(f"--where {condition}: expected COLUMN=VALUE. Name the column and the value it must have")
        parsed[column] = value
    return parsed


def command(
    corpus: Annotated[
        str,
        typer.Argument(help="Text, csv, tsv, JSON, parquet or Arrow file, folder, hub:NAME[:SPLIT], or - for stdin."),
    ],
    column: Annotated[str | None, typer.Option(help="Column of the text; default 'text'.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Keep rows with COLUMN=VALUE; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(help="Read only so many rows.")] = None,
    on_fault: Annotated[
        str, typer.Option(help="What later commands would do with faulty rows: refuse or drop; reports count them.")
    ] = "refuse",
    max_characters: Annotated[int, typer.Option(help="Longer rows are faulty.")] = 50_000,
    tokenizer: Annotated[
        str | None, typer.Option(help="tokenizer.json, its folder, or packaged:NAME, to count tokens.")
    ] = None,
    against: Annotated[str | None, typer.Option(help="Another corpus: judge the shift from it to this one.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report on a corpus: lengths, duplicates, empty and damaged rows. Faulty rows don't fail it."""
    from json import dumps
    from typing import cast

    from consilience.corpora.text import CorpusSpec, OnFault
    from consilience.recipes.corpus import corpus as report_on

    spec = CorpusSpec(
        path=corpus,
        column=column,
        where=parse_where(where or []),
        limit=limit,
        on_fault=cast("OnFault", on_fault),  # the spec checks it
        max_characters=max_characters,
    )
    report, comparison = report_on(spec, tokenizer=tokenizer, against=against)
    if json:
        body = report.to_json()
        if comparison is not None:
            body["comparison"] = comparison.to_json()
        sys.stdout.write(dumps(body) + "\n")
        return
    from rich.console import Console

    headline, *rest = report.to_lines()
    sys.stdout.write(headline + "\n")
    console = Console()
    console.print(report.to_table())
    sys.stdout.write("\n".join(rest) + "\n")
    if comparison is not None:
        sys.stdout.write(f"against {comparison.first}: {comparison.verdict}\n")
