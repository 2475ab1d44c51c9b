"""``consilience static``: a student without layers, made from teachers without training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, cast

import typer


def command(
    teacher: Annotated[list[str], typer.Option(help="Teacher spec, e.g. packaged:all-MiniLM-L6-v2; repeatable.")],
    out: Annotated[Path, typer.Option(help="Folder of the student.")],
    tokenizer: Annotated[
        str | None, typer.Option(help="tokenizer.json, its folder, packaged:NAME or a hub name; default bert-base's.")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(metavar="SPEC=X", help="Weight of a teacher, 1 without; repeatable.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Teacher whose frame the consensus is made in; default the first.")
    ] = None,
    method: Annotated[str, typer.Option(help="How the others are aligned, as in `consilience align`.")] = "orthogonal",
    dimensions: Annotated[int | None, typer.Option(help="Width; default 256, or the targets' with --refine.")] = None,
    axes: Annotated[
        str, typer.Option(help="principal, or reference: the reference's own coordinates and width.")
    ] = "principal",
    frequencies: Annotated[
        str | None,
        typer.Option(help="Corpus that tokens are counted in, zipf (order in the vocabulary; default), none."),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Static teacher whose own weights the tokens get, instead of frequencies.")
    ] = None,
    smoothing: Annotated[float, typer.Option(help="a of the weights a / (a + frequency).")] = 1e-3,
    remove: Annotated[int, typer.Option(help="Common components taken out.")] = 0,
    whiten: Annotated[float, typer.Option(help="0 to 1: how far the axes' variances are evened.")] = 0.5,
    refine: Annotated[
        Path | None, typer.Option(help="Bank of targets that the table is fitted to in closed form.")
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="The texts of --refine.")] = None,
    column: Annotated[str | None, typer.Option(help="Column of --corpus; default 'text'.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Rows of --corpus with COLUMN=VALUE; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(help="Use only so many rows of --corpus.")] = None,
    ridge: Annotated[float, typer.Option(help="How strongly the refined table is held to the unrefined one.")] = 1.0,
    max_length: Annotated[int, typer.Option(help="Tokens a text is cut to.")] = 512,
    seed: Annotated[int, typer.Option(help="Of row samples.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Keep maps that are no better than chance.")] = False,
    work: Annotated[
        Path | None, typer.Option(help="Folder where the tokens' banks stay, for further students.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a static student: a table of token vectors from the teachers' consensus, without training.

    Each token of the tokenizer is embedded by each teacher as a text; a sentence is the weighted mean of its tokens.
    Killed at any moment, the same command continues.
    """
    from consilience.cli.consensus import parse_weights
    from consilience.cli.corpus import parse_where
    from consilience.recipes.static import DEFAULT_TOKENIZER, static

    student = static(
        teacher,
        out=out,
        tokenizer=tokenizer or DEFAULT_TOKENIZER,
        weights=parse_weights(weight or [], what="SPEC"),
        reference=reference,
        method=method,
        dimensions=dimensions,
        axes=cast(Literal["principal", "reference"], axes),
        frequencies=frequencies,
        lengths=lengths,
        smoothing=smoothing,
        remove=remove,
        whiten=whiten,
        refine=refine,
        corpus=corpus,
        column=column,
        where=parse_where(where or []),
        limit=limit,
        ridge=ridge,
        max_length=max_length,
        seed=seed,
        force=force,
        work=work,
        overwrite=overwrite,
    )
    manifest = student.manifest
    if as_json:
        import json

        names = ("id", "parameters", "dimensions", "max_length", "frame", "axes", "static", "gauges")
        sys.stdout.write(json.dumps({"path": str(out), **{name: manifest[name] for name in names}}) + "\n")
        return
    gauges = manifest["gauges"]
    lines = [
        f"{out}: {gauges['tokens']:,} tokens x {manifest['dimensions']} ({gauges['texts']:,} distinct texts), "
        f"{gauges['kept_variance']:.1%} of the variance kept"
    ]
    if "target_cosine" in gauges:
        lines.append(
            f"target cosine on {gauges['held_out_rows']:,} held-out texts: {gauges['target_cosine_before']:.4f} before "
            f"the fit, {gauges['target_cosine']:.4f} after ({gauges['iterations']} iterations)"
        )
    lines.append(f"student {manifest['id']}, frame {manifest['frame']}")
    sys.stdout.write("\n".join(lines) + "\n")
