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
    student: Annotated[
        str | None,
        typer.Option(
            help="Random weights of a preset (captionbert-8192, mini, micro), or static. Default: layers of the "
            "teacher in whose frame the target is."
        ),
    ] = None,
    init: Annotated[
        str | None, typer.Option(help="Weights to start from: a teacher spec, a model's folder, a student's folder.")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="Blocks that are kept: 0,2,5. Default: all of --init, the most influential ones without it."),
    ] = None,
    head: Annotated[str | None, typer.Option(help="mlp, linear or none (the mean of the token states).")] = None,
    token_table: Annotated[
        Path | None, typer.Option(help="Static student whose table the token embeddings start from.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Length in optimiser steps.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Length in passes over the corpus.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Length in wall-clock time.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, batches and held-out rows.")] = 0,
    lr: Annotated[
        float | None, typer.Option(help="Peak learning rate; default 2e-4 for trained layers, 6e-4 for random ones.")
    ] = None,
    batch_rows: Annotated[
        int | None, typer.Option(help="Rows of an average batch; default 64 for trained layers, or the preset's.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens a text is cut to; default the preset's.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="tokenizer.json, its folder, packaged:NAME, a hub name, or 'train'; default bert-base's."),
    ] = None,
    vocab_size: Annotated[int, typer.Option(help="Vocabulary of a trained tokenizer.")] = 30_522,
    objective: Annotated[
        str | None,
        typer.Option(
            help="A composition (docs/objectives.md), or terms: infonce=1,mimicry=0.5; default mimicry for trained "
            "layers, composite for random ones."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16, or auto: the faster, measured.")] = "auto",
    matryoshka: Annotated[str | None, typer.Option(help="Nested output widths trained together: 64,128.")] = None,
    cache_rows: Annotated[
        int | None, typer.Option(help="Gradient caching: rows with a graph at a time; a batch may then exceed memory.")
    ] = None,
    compile: Annotated[bool, typer.Option(help="Pass the student through torch.compile.")] = False,
    sparse_embeddings: Annotated[
        bool | None, typer.Option(help="Sparse gradients for the token table; default for static students.")
    ] = None,
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

    choices: dict[str, Any] = {"on_fault": on_fault, "precision": precision, "head": head}  # the recipe checks them
    trained = distill(
        corpus,
        target=target,
        out=out,
        student=student,
        init=init,
        layers=_numbers(layers, "--layers"),
        token_table=token_table,
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
        matryoshka=_numbers(matryoshka, "--matryoshka") or (),
        cache_rows=cache_rows,
        compile=compile,
        sparse_embeddings=sparse_embeddings,
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


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """Parse ``0,2,5``."""
    if text is None:
        return None
    from consilience.core.errors import InputError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"distill: expected whole numbers separated by commas, got {option} {text!r}. Write 0,2,5")
    return tuple(int(part) for part in parts)
