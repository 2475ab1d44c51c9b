"""Distil: train one small student on a bank of targets.

The target is any bank: one teacher's, or a consensus, which is a bank too. The corpus is read and fingerprinted, the
bank must be of the same rows, the rows are tokenised once, and the student is trained; the same call continues an
interrupted training and ends with the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import begin_artefact, finish_artefact, is_finished, output_path
from consilience.core.errors import FrameMismatchError, InputError
from consilience.core.files import read_json, write_json
from consilience.core.hashing import content_id
from consilience.core.locks import one_job
from consilience.core.manifests import TIMING, partial_path
from consilience.core.placing import require_apart
from consilience.core.progress import log
from consilience.recipes.initial_student import STATIC

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.banks.reader import Bank
    from consilience.corpora.text import CorpusSpec
    from consilience.recipes.initial_student import InitialStudent
    from consilience.students.presets import HeadKind, StudentConfig
    from consilience.students.text import StudentEncoder
    from consilience.training.loop import TrainingSummary

_READ_ROWS = 4096
_TOKENS = "tokens"


@one_job
def distill(
    corpus: CorpusSpec | str | Path | Sequence[str],
    *,
    target: Bank | str | Path,
    out: str | Path,
    student: str | StudentConfig | None = None,
    init: str | Path | None = None,
    layers: Sequence[int] | None = None,
    head: HeadKind | None = None,
    token_table: str | Path | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    seed: int = 0,
    lr: float | None = None,
    batch_rows: int | None = None,
    max_length: int | None = None,
    tokenizer: str | Path | None = None,
    vocab_size: int = 30_522,
    objective: str | None = None,
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    matryoshka: Sequence[int] = (),
    cache_rows: int | None = None,
    compile: bool = False,
    sparse_embeddings: bool | None = None,
    column: str | None = None,
    where: Mapping[str, str] | None = None,
    limit: int | None = None,
    on_fault: Literal["refuse", "drop"] = "refuse",
    max_characters: int = 50_000,
    checkpoint_seconds: float = 120.0,
    tensorboard: bool = False,
    teachers: Sequence[str] = (),
    overwrite: bool = False,
) -> StudentEncoder:
    """Train a student on a bank of targets and store it.

    On a CPU the files depend on the arguments alone, not on how often the job was interrupted, as long as the number of
    threads stays; with ``minutes`` that holds from the moment the number of steps is fixed.

    Args:
        corpus: a file, folder, data set, "-" for standard input, a spec, or the rows; the target's rows.
        target: the bank, or its folder, that the student learns to reproduce.
        out: the student's folder.
        student: random weights of a preset ("captionbert-8192", "mini", "micro") or a shape; or "static": a token table
            alone. Without it and ``init``, the student starts from the most influential layers of the teacher in whose
            frame the target is, or of another one; where no teacher has layers that can be had, from a static table.
        init: weights to start from: a teacher spec or a model's folder (depth pruning, see ``layers``), a student's
            folder, or a static student's with ``student="static"``.
        layers: numbers of the blocks that are kept; all of ``init`` when not given.
        head: "mlp", "linear" or "none" (the token states' mean is the embedding); the shape's when not given.
        token_table: a static student whose table the token embeddings start from.
        steps: length in optimiser steps; exactly one of ``steps``, ``epochs``, ``minutes`` is given.
        epochs: length in passes over the corpus.
        minutes: length in wall-clock time, reading and tokenising included; turned into steps by what was measured, and
            again while it runs.
        seed: of weights, batches and held-out rows.
        lr: peak learning rate of Adam; 2e-4 for trained layers and 6e-4 for random ones when not given.
        batch_rows: rows of a batch of average length; 64 for trained layers and the preset's when not given.
        max_length: tokens after which a text is cut; the preset's when not given.
        tokenizer: a tokenizer.json, its folder, "packaged:NAME", a hub name, or "train" for WordPiece of the corpus;
            bert-base-uncased's WordPiece when not given.
        vocab_size: of a trained tokenizer.
        objective: name of a composition of loss terms, or terms with weights, such as "infonce=1,mimicry=0.5";
            "mimicry" for trained layers and "composite" for random ones when not given.
        precision: "fp32", "bf16", or "auto": on a CPU the faster one, measured once a machine and kept; on a GPU bf16
            where it has it.
        matryoshka: nested output widths trained together; targets are then turned into their principal axes, and the
            student's frame is the turned one.
        cache_rows: gradient caching: rows that are embedded with a graph at a time, so that a contrastive batch may be
            larger than memory; its gradient is the whole batch's.
        compile: pass the student through ``torch.compile``.
        sparse_embeddings: sparse gradients and lazy Adam for the token table; by default for static students only.
        column: column of the text, where the corpus has columns.
        where: keep rows whose columns equal these values.
        limit: use only the first rows.
        on_fault: refuse the corpus, or drop the row, when one is empty, undecodable or too long.
        max_characters: rows longer than this are faulty.
        checkpoint_seconds: wall-clock time between checkpoints.
        tensorboard: also log to ``OUT.tensorboard``.
        teachers: specs of the target's teachers, the one in whose frame it is first, where the target's bank doesn't
            name them so that they can be found: folders lie anywhere.
        overwrite: replace what is at ``out`` and any partial student there.

    Returns:
        The student. If ``out`` already is this job's student, it is verified and returned.

    Raises:
        CorpusError: the corpus is missing, empty or faulty.
        FrameMismatchError: the target is a bank of another corpus.
        InputError: an option is wrong.
        ResumeError: ``out`` is another job's: a finished student never continues into another corpus or target.
        StorageError: the disk is full; the last checkpoint stays and the same call continues.

    Source: design, sections 4, 5 and 11.
    """
    began = time.monotonic()
    from consilience.banks.reader import Bank, open_bank
    from consilience.core.seeds import seed_from_name
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import open_corpus
    from consilience.objectives.names import require_objective
    from consilience.recipes.closed_form import fit_head, fit_static, require_head_rows
    from consilience.recipes.default_start import target_teachers
    from consilience.recipes.initial_student import StartOptions, start_student
    from consilience.recipes.verdict import describe, judge
    from consilience.students.text import count_parameters, load_student
    from consilience.students.tokenizer import pad_id, tokenizer_hash
    from consilience.training.checkpoint import has_checkpoint
    from consilience.training.loop import require_trainable, train
    from consilience.training.nested import check_widths
    from consilience.training.optimizers import require_sparse_fit
    from consilience.training.processes import join_processes
    from consilience.training.settings import TrainingSettings
    from consilience.training.token_store import build_token_store

    folder = output_path(out, overwrite=overwrite)
    board = folder.with_name(folder.name + ".tensorboard") if tensorboard else None
    if board is not None and os.path.lexists(board) and not board.is_dir():
        raise InputError(f"{board}: is in the way of TensorBoard's folder. Move it away")
    bank = target if isinstance(target, Bank) else open_bank(target)
    require_apart(folder, bank.path, corpus, tokenizer, init, token_table)
    asked = None if objective is None else require_objective(objective)
    texts = open_corpus(
        corpus, column=column, where=dict(where or {}), limit=limit, on_fault=on_fault, max_characters=max_characters
    )
    identity = fingerprint_corpus(texts)
    require_same_rows(bank, identity.fingerprint, identity.rows)
    start = start_student(
        StartOptions(
            student=student,
            init=init,
            layers=layers,
            head=head,
            token_table=token_table,
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            dimensions=bank.dimensions,
            seed=seed_from_name("student", seed),
            teachers=target_teachers(bank, teachers),
        ),
        texts,
    )
    composition = asked or require_objective(start.objective)
    settings = TrainingSettings(
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        seed=seed,
        lr=start.lr if lr is None else lr,
        batch_rows=start.batch_rows if batch_rows is None else batch_rows,
        objective=composition.name,
        precision=precision,
        matryoshka=check_widths(matryoshka, bank.dimensions) if matryoshka else (),
        cache_rows=cache_rows,
        compile=compile,
        sparse_embeddings=start.name == STATIC if sparse_embeddings is None else sparse_embeddings,
        checkpoint_seconds=checkpoint_seconds,
    )
    if settings.sparse_embeddings:
        require_sparse_fit(composition.optimizer)
    length = _length(start, max_length)
    words = start.tokenizer
    sha256 = tokenizer_hash(words)
    processes = join_processes()
    require_trainable(settings, rows=identity.rows, processes=processes.num_processes)
    if start.fits_head:
        require_head_rows(start, identity.rows, settings)
    plan = {
        "kind": "student",
        "preset": start.name,
        "student": dict(start.config),
        **start.origin,
        "corpus": identity.to_json(),
        "target": bank.id,
        "tokenizer": sha256,
        "max_length": length,
        "training": {**settings.identity(), "processes": processes.num_processes},
    }
    if is_finished(folder, kind="student", job=content_id(plan), overwrite=overwrite):
        log(f"{folder}: already done")
        return load_student(folder)
    with processes.main_process_first():  # the others find its folder and its tokens
        work, _ = begin_artefact(folder, plan, overwrite=overwrite, lock=processes.is_main_process)
        if processes.is_main_process:
            _write_attempts(work, [*_read_attempts(work), {"seconds": None, "rows_per_second": None}])
        store = build_token_store(
            texts.batches(_READ_ROWS),
            work / _TOKENS,
            tokenizer=words,
            tokenizer_sha256=sha256,
            pad=pad_id(words),
            max_length=length,
            corpus_fingerprint=identity.fingerprint,
            rows=identity.rows,
        )
    axes = _principal_axes(bank) if settings.matryoshka else None
    if start.fits_head and not has_checkpoint(work):
        fit_head(start, store, bank, axes, settings)
    static_kept = None
    if start.fits_table or processes.is_main_process:
        static_kept = fit_static(start, store, bank, axes, settings)
    summary = train(start.module, store, bank, settings, work, axes=axes, began=began, tensorboard=board)
    if processes.is_main_process:
        found = judge(
            static=static_kept,
            held_out=summary.held_out_rows,
            readings=summary.readings,
            random=not start.taught_by and start.name != STATIC,
        )
        _write_student(folder, start, plan, bank, summary, axes, verdict=found, seconds=time.monotonic() - began)
        line = describe(
            found, parameters=count_parameters(start.module), operations=start.operations, length=settings.length
        )
        log(f"{folder}: {line}")
    processes.wait_for_everyone()
    return load_student(folder)


def _length(start: InitialStudent, max_length: int | None) -> int:
    length = start.max_length if max_length is None else max_length
    longest = start.max_positions or length
    if not 3 <= length <= longest:
        raise InputError(
            f"distill: expected --max-length between 3 and the student's {longest} positions, got {length}"
        )
    return length


def _principal_axes(bank: Bank) -> NDArray[np.float32]:
    """Return the axes of all targets, from one streaming pass."""
    import numpy as np

    from consilience.frames.rows import normalise_rows
    from consilience.training.nested import principal_axes

    moment = np.zeros((bank.dimensions, bank.dimensions))
    for _, rows in bank.iter_blocks(_READ_ROWS):
        unit = normalise_rows(rows, where=str(bank.path))
        moment += unit.T @ unit
    return principal_axes(moment / bank.rows)


def require_same_rows(bank: Bank, fingerprint: str, rows: int) -> None:
    """Refuse a target of another corpus.

    Args:
        bank: the target.
        fingerprint: of the corpus at hand.
        rows: how many it has.

    Raises:
        FrameMismatchError: its fingerprint or number of rows differs.
    """
    if bank.corpus_fingerprint != fingerprint or bank.rows != rows:
        raise FrameMismatchError(
            f"{bank.path}: a bank of corpus {bank.corpus_fingerprint[:12]}... ({bank.rows} rows), this corpus is "
            f"{fingerprint[:12]}... ({rows} rows). Give the corpus, column, filters and limit that the bank was made "
            "with, or embed this corpus first"
        )


def _read_attempts(work: Path) -> list[dict[str, Any]]:
    try:
        found = read_json(work / TIMING)
    except InputError:  # not there yet, or damaged: telemetry stops no training
        found = None
    attempts = found.get("attempts") if isinstance(found, dict) else None
    return list(attempts) if isinstance(attempts, list) else []


def _write_attempts(work: Path, attempts: list[dict[str, Any]]) -> None:
    write_json(work / TIMING, {"attempts": attempts})


def _frame(plan: Mapping[str, Any], bank: Bank, axes: NDArray[np.float32] | None) -> str:
    """Return the id of a student's frame: its target's, the target's turned one, or nobody's."""
    from consilience.objectives.names import require_objective

    if require_objective(plan["training"]["objective"]).relational:
        return f"free:{content_id(plan)}"  # it was never compared with its target's rows
    return bank.frame if axes is None else f"principal:{content_id([bank.frame, axes.tobytes().hex()])}"


def _write_student(
    folder: Path,
    start: InitialStudent,
    plan: Mapping[str, Any],
    bank: Bank,
    summary: TrainingSummary,
    axes: NDArray[np.float32] | None,
    *,
    verdict: Mapping[str, Any],
    seconds: float,
) -> None:
    """Write the student's files beside the log, and the manifest; rename the folder."""
    from consilience.students.text import count_parameters, save_student_files
    from consilience.training.journal import FILE as LOG

    work = partial_path(folder)
    module = start.module.cpu()
    files = save_student_files(module, start.tokenizer, work, max_length=plan["max_length"])
    position = summary.position
    # Attempts that were killed keep the empty entry of their start.
    last = {"seconds": round(seconds, 3), "rows_per_second": summary.rows_per_second}
    _write_attempts(work, [*_read_attempts(work)[:-1], last])
    finish_artefact(
        folder,
        kind="student",
        manifest={
            "job": content_id(plan),
            "preset": plan["preset"],
            "config": plan["student"],
            "parameters": count_parameters(module),
            "dimensions": bank.dimensions,
            "max_length": plan["max_length"],
            "tokenizer": plan["tokenizer"],
            "frame": _frame(plan, bank, axes),
            **({} if axes is None else {"matryoshka": plan["training"]["matryoshka"]}),
            "target": {"bank": bank.id, "teacher": bank.teacher, "extra": bank.manifest.get("extra")},
            "corpus": plan["corpus"],
            **({"start": dict(start.taught_by)} if start.taught_by else {}),
            "training": {
                **plan["training"],
                "precision": summary.precision,
                "warmup_steps": summary.warmup_steps,
                "steps_done": position.step,
                "rows_seen": position.rows,
                "tokens_seen": position.tokens,
                "padding": round(position.padding, 6),
                "held_out_rows": summary.held_out_rows,
            },
            "gauges": summary.gauges,
            "verdict": dict(verdict),
        },
        files=[*files, LOG],
    )
    speed = f"{summary.rows_per_second:.0f} rows/s, " if summary.rows_per_second else ""
    cosine = summary.gauges["target_cosine"]
    log(f"{folder}: {position.step} steps, {speed}padding {position.padding:.2%}, target cosine {cosine:.4f}")
