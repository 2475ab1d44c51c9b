"""``consilience distill``: train a student on a bank of targets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    corpus: Annotated[str, typer.Argument(help="The target's corpus: file, folder, hub:NAME[:SPLIT], or - for stdin.")],
    target: Annotated[
        Path, typer.Option(help="Bank that the student learns to reproduce: a teacher's or a consensus.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the student.")],
    student: Annotated[str, typer.Option(help="Preset: captionbert-8192, mini or micro.")] = "mini",
    steps: Annotated[int | None, typer.Option(help="Length in optimiser steps.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Length in passes over the corpus.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Length in wall-clock time.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, batches and held-out rows.")] = 0,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 6e-4,
    batch_rows: Annotated[int | None, typer.Option(help="Rows of an average batch; default the preset's.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens a text is cut to; default the preset's.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="tokenizer.json, its folder, packaged:NAME, a hub name, or 'train'; default bert-base's."),
    ] = None,
    vocab_size: Annotated[int, typer.Option(help="Vocabulary of a trained tokenizer.")] = 30_522,
    objective: Annotated[str, typer.Option(help="composite, infonce, mimicry, consensus-mse, affinity or cosine.")] = (
        "composite"
    ),
    precision: Annotated[str, typer.Option(help="fp32, bf16, or auto: the faster, measured.")] = "auto",
    column: Annotated[str | None, typer.Option(help="Column of the text; default 'text'.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Keep rows with COLUMN=VALUE; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(help="Use only so many rows.")] = None,
    on_fault: Annotated[str, typer.Option(help="Faulty rows: refuse the corpus or drop them.")] = "refuse",
    max_characters: Annotated[int, typer.Option(help="Longer rows are faulty.")] = 50_000,
    checkpoint_seconds: Annotated[float, typer.Option(help="Time between checkpoints.")] = 120.0,
    tensorboard: Annotated[bool, typer.Option(help="Also log to OUT.tensorboard.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace what is at --out.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the student's manifest as one JSON object.")] = False,
) -> None:
    """Train one small student on a bank. The same command continues an interrupted training."""
    from json import dumps
    from typing import Any

    from consilience.cli.corpus import parse_where
    from consilience.recipes.distill import distill

    choices: dict[str, Any] = {"on_fault": on_fault, "precision": precision}  # the recipe checks them
    trained = distill(
        corpus,
        target=target,
        out=out,
        student=student,
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        seed=seed,
        lr=lr,
        batch_rows=batch_rows,
        max_length=max_length,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        objective=objective,
        column=column,
        where=parse_where(where or []),
        limit=limit,
        max_characters=max_characters,
        checkpoint_seconds=checkpoint_seconds,
        tensorboard=tensorboard,
        overwrite=overwrite,
        **choices,
    )
    if json:
        sys.stdout.write(dumps(trained.manifest) + "\n")
