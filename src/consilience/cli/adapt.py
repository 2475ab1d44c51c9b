"""``consilience adapt``: adapters on a frozen student."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.adapt_output import (
    fault_choice,
    parse_named,
    show_library,
    show_study,
    show_table,
    write_json_line,
)

app = typer.Typer(
    no_args_is_help=True, help="Adapters on a frozen student: train, mix, measure.", rich_markup_mode=None
)

_PAIRS_HELP = "Pairs (csv, tsv, JSON, parquet or Arrow) as NAME=FILE; once for each anchor."
Student = Annotated[str, typer.Argument(help="A student, an exported or sentence-transformers folder, packaged:NAME.")]
NamedPairs = Annotated[list[str], typer.Option("--pairs", metavar="NAME=FILE", help=_PAIRS_HELP)]
Out = Annotated[Path, typer.Option(help="Folder of the result.")]
BatchRows = Annotated[int, typer.Option(min=2, help="Pairs a batch; the others of a batch are the negatives.")]
Rate = Annotated[float, typer.Option(help="Peak learning rate of Adam.")]
LossTemperature = Annotated[float, typer.Option(help="Of the InfoNCE; lower keeps more of the student's geometry.")]
Seed = Annotated[int, typer.Option(min=0, help="Of anchors, batches and held-out pairs.")]
Left = Annotated[str, typer.Option(help="Column of the first texts.")]
Right = Annotated[str, typer.Option(help="Column of the second texts.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only so many rows of a pair file.")]
OnFault = Annotated[str, typer.Option(help="Unusable pairs: refuse the file, or drop them.")]
HeldOut = Annotated[
    list[Path] | None,
    typer.Option(help="Test file or folder whose sentences no pair may hold; default: CONSILIENCE_DATA."),
]
Precision = Annotated[str, typer.Option(help="fp32, bf16, or auto: the faster, measured.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Data = Annotated[Path | None, typer.Option(help="Folder with sts/*.tsv; default: CONSILIENCE_DATA.")]
Tasks = Annotated[str, typer.Option(help="sts (all eight), grammar, or single tasks, separated by commas.")]


@app.command(name="fit")
def fit(
    student: Student,
    pairs: Annotated[Path, typer.Option(help="Pairs (csv, tsv, JSON, parquet or Arrow).")],
    name: Annotated[str, typer.Option(help="Of the anchor.")],
    out: Out,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 1_500,
    batch_rows: BatchRows = 96,
    lr: Rate = 3e-3,
    loss_temperature: LossTemperature = 0.02,
    seed: Seed = 0,
    precision: Precision = "auto",
    left: Left = "sentence1",
    right: Right = "sentence2",
    limit: Limit = None,
    on_fault: OnFault = "refuse",
    held_out: HeldOut = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train one anchor on pairs, the student frozen.

    In-batch InfoNCE on the pooled output. A killed run continues and ends with the same bytes.
    """
    from consilience.recipes.adapt import adapt_fit

    checked: dict[str, Any] = {"precision": precision}  # by the recipe
    adapt_fit(
        student,
        pairs=pairs,
        name=name,
        out=out,
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        temperature=loss_temperature,
        seed=seed,
        left=left,
        right=right,
        limit=limit,
        on_fault=fault_choice(on_fault),
        held_out=held_out,
        overwrite=overwrite,
        **checked,
    )
    show_library(out, as_json=as_json)


@app.command(name="lora")
def lora(
    student: Student,
    pairs: Annotated[Path, typer.Option(help="Pairs (csv, tsv, JSON, parquet or Arrow).")],
    name: Annotated[str, typer.Option(help="Of the task, as for adapt fit.")],
    out: Out,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 1_500,
    batch_rows: BatchRows = 96,
    lr: Rate = 1e-3,
    loss_temperature: LossTemperature = 0.02,
    seed: Seed = 0,
    precision: Precision = "auto",
    left: Left = "sentence1",
    right: Right = "sentence2",
    limit: Limit = None,
    on_fault: OnFault = "refuse",
    held_out: HeldOut = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train PEFT's LoRA as the baseline of an anchor: its parameter count, the same pairs, the same steps."""
    from consilience.recipes.adapt_lora import adapt_lora

    checked: dict[str, Any] = {"precision": precision}  # by the recipe
    adapt_lora(
        student,
        pairs=pairs,
        name=name,
        out=out,
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        temperature=loss_temperature,
        seed=seed,
        left=left,
        right=right,
        limit=limit,
        on_fault=fault_choice(on_fault),
        held_out=held_out,
        overwrite=overwrite,
        **checked,
    )
    show_library(out, as_json=as_json)


@app.command(name="align")
def align(
    student: Student,
    anchors: Annotated[list[Path], typer.Argument(metavar="ANCHOR...", help="Folders made by adapt fit.")],
    pairs: NamedPairs,
    out: Out,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 800,
    batch_rows: BatchRows = 96,
    lr: Rate = 1e-3,
    temperature: Annotated[float, typer.Option(help="Of the dispatch; sharper than .1 has measured worse.")] = 0.1,
    loss_temperature: LossTemperature = 0.02,
    seed: Seed = 0,
    precision: Precision = "auto",
    left: Left = "sentence1",
    right: Right = "sentence2",
    limit: Limit = None,
    on_fault: OnFault = "refuse",
    held_out: HeldOut = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Put anchors into one library and train the keys that mix them.

    The report has amplitude shares and their sum, usage, each anchor's share on its own domain over the others', and
    who starved.
    """
    from consilience.recipes.adapt import adapt_align

    checked: dict[str, Any] = {"precision": precision}  # by the recipe
    adapt_align(
        student,
        anchors,
        pairs=parse_named(pairs),
        out=out,
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        routing_temperature=temperature,
        temperature=loss_temperature,
        seed=seed,
        left=left,
        right=right,
        limit=limit,
        on_fault=fault_choice(on_fault),
        held_out=held_out,
        overwrite=overwrite,
        **checked,
    )
    show_library(out, as_json=as_json)


@app.command(name="control")
def control(
    student: Student,
    library: Annotated[Path, typer.Argument(help="Folder of the library that is controlled.")],
    pairs: NamedPairs,
    out: Out,
    seed: Seed = 0,
    left: Left = "sentence1",
    right: Right = "sentence2",
    limit: Limit = None,
    on_fault: OnFault = "refuse",
    held_out: HeldOut = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Make a library's capacity control: random, untrained arms of its shape, keys aligned as the library's were.

    Give the pairs that the library's keys were aligned on; steps, rate and temperatures are taken from it.
    """
    from consilience.recipes.adapt_table import adapt_control

    adapt_control(
        student,
        library,
        pairs=parse_named(pairs),
        out=out,
        seed=seed,
        left=left,
        right=right,
        limit=limit,
        on_fault=fault_choice(on_fault),
        held_out=held_out,
        overwrite=overwrite,
    )
    show_library(out, as_json=as_json)


@app.command(name="table")
def table(
    student: Student,
    library: Annotated[Path, typer.Argument(help="Folder of a library.")],
    tasks: Tasks = "sts",
    data: Data = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap draws.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 1_000,
    force: Annotated[bool, typer.Option("--force", help="Attach a library of another trunk; the rows say so.")] = False,
    lora: Annotated[list[Path] | None, typer.Option(help="A baseline made by adapt lora; repeatable.")] = None,
    control: Annotated[Path | None, typer.Option(help="The library's random arms, made by adapt control.")] = None,
    as_json: AsJson = False,
) -> None:
    """Score the student with its anchors masked: off, each damped, each alone, all."""
    from consilience.recipes.adapt_table import adapt_table

    words = [word for word in tasks.split(",") if word]
    result = adapt_table(
        student,
        library,
        tasks=words,
        data=data,
        seed=seed,
        resamples=resamples,
        force=force,
        lora=lora or (),
        control=control,
    )
    if as_json:
        write_json_line(result.to_json())
        return
    names, selection = list(result.models[0].tasks), list(result.models[0].selection)
    show_table(
        ["mask", *names, "mean", "95% interval", "rank", "self-cosine", *selection],
        [
            [
                model.model,
                *(f"{model.tasks[name].score:.4f}" for name in names),
                f"{model.mean:.4f}",
                f"{model.mean_low:.4f}..{model.mean_high:.4f}",
                f"{model.geometry['effective_rank']:.1f}",
                f"{model.geometry['self_cosine']:+.4f}",
                *(f"{model.selection[name].score:.4f}" for name in selection),
            ]
            for model in result.models
        ],
    )


@app.command(name="roster")
def roster(
    student: Student,
    candidates: Annotated[list[Path], typer.Argument(metavar="CANDIDATE...", help="Folders made by adapt fit.")],
    pairs: NamedPairs,
    out: Out,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps of each trial's key alignment.")] = 800,
    batch_rows: BatchRows = 96,
    lr: Rate = 1e-3,
    most: Annotated[int | None, typer.Option(min=1, help="Members at most.")] = None,
    seed: Seed = 0,
    data: Data = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 1_000,
    limit: Limit = None,
    held_out: HeldOut = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Select a library's anchors greedily, each against a random, untrained arm of its size.

    Reads STS-B dev only; halts when no candidate clears the random arm. A killed run continues with the next trial.
    """
    from consilience.recipes.adapt_roster import adapt_roster

    results = adapt_roster(
        student,
        candidates,
        pairs=parse_named(pairs),
        out=out,
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        most=most,
        seed=seed,
        data=data,
        resamples=resamples,
        limit=limit,
        held_out=held_out,
        overwrite=overwrite,
    )
    show_study(out, results, as_json=as_json)


@app.command(name="sweep")
def sweep(
    student: Student,
    library: Annotated[Path, typer.Argument(help="Folder of a library; its keys are trained anew.")],
    pairs: NamedPairs,
    out: Out,
    more: Annotated[list[float] | None, typer.Argument(hidden=True)] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(help="Of the dispatch; several may follow. Default .10 .05 .02.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Alignments a temperature.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps of each alignment.")] = 800,
    batch_rows: BatchRows = 96,
    lr: Rate = 1e-3,
    data: Data = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 1_000,
    limit: Limit = None,
    held_out: HeldOut = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Align a library's keys at several routing temperatures and score each on STS-B dev."""
    from consilience.recipes.adapt_roster import adapt_sweep

    results = adapt_sweep(
        student,
        library,
        pairs=parse_named(pairs),
        out=out,
        temperatures=[*(temperature or []), *(more or [])] or (0.10, 0.05, 0.02),
        seeds=seeds,
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        data=data,
        resamples=resamples,
        limit=limit,
        held_out=held_out,
        overwrite=overwrite,
    )
    show_study(out, results, as_json=as_json)


@app.command(name="transplant")
def transplant(
    source: Annotated[str, typer.Argument(metavar="A", help="The trunk that the library was trained on.")],
    target: Annotated[str, typer.Argument(metavar="B", help="Another trunk of its shape.")],
    library: Annotated[Path, typer.Option(help="Folder of A's library.")],
    pairs: NamedPairs,
    out: Out,
    native: Annotated[
        Path | None, typer.Option(help="B's own library of these anchors; trained into OUT.native when not given.")
    ] = None,
    tasks: Tasks = "sts",
    data: Data = None,
    fit_steps: Annotated[int, typer.Option(min=1, help="Steps of each anchor trained here.")] = 1_500,
    align_steps: Annotated[int, typer.Option(min=1, help="Steps of each key alignment.")] = 800,
    batch_rows: BatchRows = 96,
    lr: Rate = 1e-3,
    seed: Seed = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 1_000,
    limit: Limit = None,
    held_out: HeldOut = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a library keeps of its gain on another trunk, and what recovers the rest.

    Native on A; forced onto B; its keys re-aligned on B; its anchors retrained on B.
    """
    from consilience.recipes.adapt_transplant import adapt_transplant

    results = adapt_transplant(
        source,
        target,
        library=library,
        pairs=parse_named(pairs),
        out=out,
        native=native,
        tasks=[word for word in tasks.split(",") if word],
        data=data,
        fit_steps=fit_steps,
        align_steps=align_steps,
        batch_rows=batch_rows,
        lr=lr,
        seed=seed,
        resamples=resamples,
        limit=limit,
        held_out=held_out,
        overwrite=overwrite,
    )
    show_study(out, results, as_json=as_json)


@app.command(name="export")
def export(
    student: Annotated[Path, typer.Argument(help="A student.")],
    library: Annotated[Path, typer.Argument(help="Folder of its library.")],
    out: Out,
    formats: Annotated[str, typer.Option(help="huggingface, onnx, separated by commas.")] = "huggingface,onnx",
    mask: Annotated[
        str, typer.Option(help="Of the ONNX file: input, all, off, or names separated by commas, baked in.")
    ] = "input",
    force: Annotated[bool, typer.Option("--force", help="Export a library of another trunk; it says so.")] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a student with its library as one folder for other software.

    Hugging Face: the bare student without remote code, the same bits as here with it. ONNX: needs no code at all.
    """
    from consilience.recipes.adapt_export import adapt_export

    chosen = [word for word in formats.split(",") if word]
    manifest = adapt_export(student, library, out=out, formats=chosen, mask=mask, force=force, overwrite=overwrite)
    if as_json:
        write_json_line({"path": str(out), **manifest})
        return
    parity = manifest["parity"]
    if "huggingface" in parity:
        sys.stdout.write(f"huggingface: the same bits ({', '.join(parity['huggingface']['bit_identical'])})\n")
    for label, difference in parity.get("onnx", {}).items():
        sys.stdout.write(f"onnx, {label}: differs by at most {difference:.1e}\n")
    sys.stdout.write(f"{manifest['id']} in {out}\n")
