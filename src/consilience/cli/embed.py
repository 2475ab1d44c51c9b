"""The verb ``embed``."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class DType(StrEnum):
    """Stored types."""

    fp16 = "fp16"
    fp32 = "fp32"


class OnFault(StrEnum):
    """What to do with a row that no teacher should be given."""

    refuse = "refuse"
    drop = "drop"


def command(
    corpus: Annotated[
        str, typer.Argument(help="File, folder, datasets folder, hub:NAME[:SPLIT], or - for standard input.")
    ],
    teacher: Annotated[
        str,
        typer.Option(
            help="Teacher spec, e.g. packaged:all-MiniLM-L6-v2, st:NAME, hf:NAME?pool=mean, onnx:PATH, static:PATH, "
            "vectors:PATH, https://..., or embeddings that exist: bank:PATH, parquet:PATH#COLUMN, npy:PATH."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the bank.")],
    column: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Keep rows with COLUMN=VALUE; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first rows.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Text that the teacher puts before each row.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Tokens after which the teacher cuts a row.")] = None,
    dtype: Annotated[DType, typer.Option(help="Stored type.")] = DType.fp16,
    shard_rows: Annotated[int, typer.Option(min=1, help="Rows a shard, the unit of resumption.")] = 8192,
    device: Annotated[str | None, typer.Option(help="Where the teacher runs: cpu, cuda, mps.")] = None,
    on_fault: Annotated[
        OnFault, typer.Option(help="Refuse the corpus or drop the row when one is empty, undecodable or too long.")
    ] = OnFault.refuse,
    max_characters: Annotated[int, typer.Option(min=1, help="Longer rows are faulty.")] = 50_000,
    raw: Annotated[bool, typer.Option("--raw", help="Store vectors as they are, not at unit length.")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the teacher run code from its repository.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is at --out; an interrupted run of this job is continued.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Embed a corpus with one teacher into a bank. Killed at any moment, the same command continues."""
    from consilience.cli.corpus import parse_where
    from consilience.recipes.embed import embed

    bank = embed(
        corpus,
        teacher=teacher,
        out=out,
        column=column,
        where=parse_where(where or []),
        limit=limit,
        prompt=prompt,
        max_length=max_length,
        dtype=dtype.value,
        shard_rows=shard_rows,
        device=device,
        on_fault=on_fault.value,
        max_characters=max_characters,
        trust_remote_code=trust_remote_code,
        overwrite=overwrite,
        normalise=not raw,
    )
    if as_json:
        facts = {
            "path": str(bank.path),
            "id": bank.id,
            "rows": bank.rows,
            "dimensions": bank.dimensions,
            "dtype": dtype.value,
            "normalised": bank.normalised,
            "frame": bank.frame,
            "teacher": bank.teacher,
            "corpus": bank.manifest["corpus"],
        }
        sys.stdout.write(json.dumps(facts) + "\n")
