"""Distil: train one small student on a bank of targets.

The target is any bank: one teacher's, or a consensus, which is a bank too. The corpus is read and fingerprinted, the
bank must be of the same rows, the rows are tokenised once, and the student is trained; the same call continues an
interrupted training and ends with the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import (
    TIMING,
    begin_artefact,
    finish_artefact,
    is_finished,
    partial_path,
    require_apart,
)
from consilience.core.errors import FrameMismatchError, InputError
from consilience.core.files import read_json, write_json
from consilience.core.hashing import content_id
from consilience.core.progress import log

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from consilience.banks.reader import Bank
    from consilience.corpora.text import Corpus, CorpusSpec
    from consilience.students.presets import StudentConfig
    from consilience.students.text import StudentEncoder
    from consilience.training.loop import TrainingSummary

DEFAULT_TOKENIZER = "packaged:all-MiniLM-L6-v2"  # bert-base-uncased's WordPiece, 30,522 tokens
_READ_ROWS = 4096
_TOKENS = "tokens"


def distill(
    corpus: CorpusSpec | str | Path | Sequence[str],
    *,
    target: Bank | str | Path,
    out: str | Path,
    student: str | StudentConfig = "mini",
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    seed: int = 0,
    lr: float = 6e-4,
    batch_rows: int | None = None,
    max_length: int | None = None,
    tokenizer: str | Path | None = None,
    vocab_size: int = 30_522,
    objective: str = "composite",
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    column: str | None = None,
    where: Mapping[str, str] | None = None,
    limit: int | None = None,
    on_fault: Literal["refuse", "drop"] = "refuse",
    max_characters: int = 50_000,
    checkpoint_seconds: float = 120.0,
    tensorboard: bool = False,
    overwrite: bool = False,
) -> StudentEncoder:
    """Train a student on a bank of targets and store it.

    On a CPU the files depend on the arguments alone, not on how often the job was interrupted, as long as the number of
    threads stays; with ``minutes`` that holds from the moment the number of steps is fixed.

    Args:
        corpus: a file, folder, data set, "-" for standard input, a spec, or the rows; the target's rows.
        target: the bank, or its folder, that the student learns to reproduce.
        out: the student's folder.
        student: a preset ("captionbert-8192", "mini", "micro") or a shape.
        steps: length in optimiser steps; exactly one of ``steps``, ``epochs``, ``minutes`` is given.
        epochs: length in passes over the corpus.
        minutes: length in wall-clock time, reading and tokenising included; turned into steps early on.
        seed: of weights, batches and held-out rows.
        lr: peak learning rate of Adam.
        batch_rows: rows of a batch of average length; the preset's when not given.
        max_length: tokens after which a text is cut; the preset's when not given.
        tokenizer: a tokenizer.json, its folder, "packaged:NAME", a hub name, or "train" for WordPiece of the corpus;
            bert-base-uncased's WordPiece when not given.
        vocab_size: of a trained tokenizer.
        objective: name of the composition of loss terms.
        precision: "fp32", "bf16", or "auto": on a CPU the faster one, measured once a machine and kept; on a GPU bf16
            where it has it.
        column: column of the text, where the corpus has columns.
        where: keep rows whose columns equal these values.
        limit: use only the first rows.
        on_fault: refuse the corpus, or drop the row, when one is empty, undecodable or too long.
        max_characters: rows longer than this are faulty.
        checkpoint_seconds: wall-clock time between checkpoints.
        tensorboard: also log to ``OUT.tensorboard``.
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
    from consilience.objectives.composition import compose_objective
    from consilience.students.presets import resolve_config
    from consilience.students.text import build_student, load_student
    from consilience.students.tokenizer import pad_id, tokenizer_hash
    from consilience.training.loop import train
    from consilience.training.processes import join_processes
    from consilience.training.settings import TrainingSettings
    from consilience.training.token_store import build_token_store

    folder = Path(out)
    name, config = resolve_config(student)
    compose_objective(objective)
    settings = TrainingSettings(
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        seed=seed,
        lr=lr,
        batch_rows=config.batch_rows if batch_rows is None else batch_rows,
        objective=objective,
        precision=precision,
        checkpoint_seconds=checkpoint_seconds,
    )
    length = _length(config, max_length)
    bank = target if isinstance(target, Bank) else open_bank(target)
    texts = open_corpus(
        corpus, column=column, where=dict(where or {}), limit=limit, on_fault=on_fault, max_characters=max_characters
    )
    identity = fingerprint_corpus(texts)
    _require_same_rows(bank, identity.fingerprint, identity.rows)
    words = _tokenizer(tokenizer or DEFAULT_TOKENIZER, texts, vocab_size)
    sha256 = tokenizer_hash(words)
    processes = join_processes()
    plan = {
        "kind": "student",
        "preset": name,
        "student": config.to_json(),
        "corpus": identity.to_json(),
        "target": bank.id,
        "tokenizer": sha256,
        "max_length": length,
        "training": {**settings.identity(), "processes": processes.num_processes},
    }
    require_apart(folder, bank.path, corpus, tokenizer)
    if is_finished(folder, kind="student", job=content_id(plan), overwrite=overwrite):
        log(f"{folder}: already done")
        return load_student(folder)
    with processes.main_process_first():  # the others find its folder and its tokens
        work, _ = begin_artefact(folder, plan, overwrite=overwrite and processes.is_main_process)
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
    module = build_student(
        config if name == "custom" else name,
        vocab_size=words.get_vocab_size(),
        dimensions=bank.dimensions,
        seed=seed_from_name("student", seed),
        pad=pad_id(words),
    )
    board = folder.with_name(folder.name + ".tensorboard") if tensorboard else None
    summary = train(module, store, bank, settings, work, began=began, tensorboard=board)
    if processes.is_main_process:
        _write_student(folder, module.cpu(), words, plan, bank, summary, seconds=time.monotonic() - began)
    processes.wait_for_everyone()
    return load_student(folder)


def _length(config: StudentConfig, max_length: int | None) -> int:
    length = config.max_length if max_length is None else max_length
    if not 3 <= length <= config.max_positions:
        raise InputError(
            f"distill: expected --max-length between 3 and the student's {config.max_positions} positions, got {length}"
        )
    return length


def _require_same_rows(bank: Bank, fingerprint: str, rows: int) -> None:
    """Refuse a target of another corpus.

    Raises:
        FrameMismatchError: its fingerprint or number of rows differs.
    """
    if bank.corpus_fingerprint != fingerprint or bank.rows != rows:
        raise FrameMismatchError(
            f"{bank.path}: a bank of corpus {bank.corpus_fingerprint[:12]}... ({bank.rows} rows), this corpus is "
            f"{fingerprint[:12]}... ({rows} rows). Give the corpus, column, filters and limit that the bank was made "
            "with, or embed this corpus first"
        )


def _tokenizer(source: str | Path, texts: Corpus, vocab_size: int) -> Tokenizer:
    """Load the tokenizer, from the packaged teachers' files too, or train it on the corpus."""
    from consilience.students.tokenizer import load_tokenizer, train_tokenizer

    if source == "train":
        return train_tokenizer(texts, vocab_size=vocab_size)
    if str(source).startswith("packaged:"):
        from consilience.teachers.packaged import packaged_files

        files = packaged_files(str(source).removeprefix("packaged:"))
        found = [path for file, path in sorted(files.items()) if Path(file).name == "tokenizer.json"]
        if not found:
            raise InputError(f"{source}: has no tokenizer.json. Choose another tokenizer")
        return load_tokenizer(found[0])
    return load_tokenizer(source)


def _read_attempts(work: Path) -> list[dict[str, Any]]:
    return list(read_json(work / TIMING)["attempts"]) if (work / TIMING).is_file() else []


def _write_attempts(work: Path, attempts: list[dict[str, Any]]) -> None:
    write_json(work / TIMING, {"attempts": attempts})


def _write_student(
    folder: Path,
    module: Any,  # noqa: ANN401 - a TextStudent; torch isn't imported by this module
    words: Tokenizer,
    plan: Mapping[str, Any],
    bank: Bank,
    summary: TrainingSummary,
    *,
    seconds: float,
) -> None:
    """Write the student's files beside the log, and the manifest; rename the folder."""
    from consilience.objectives.composition import RELATIONAL
    from consilience.students.text import count_parameters, save_student_files
    from consilience.training.journal import FILE as LOG

    work = partial_path(folder)
    files = save_student_files(module, words, work, max_length=plan["max_length"])
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
            # A relational student was never compared with its target's rows: its frame is nobody's, not the target's.
            "frame": f"free:{content_id(plan)}" if plan["training"]["objective"] in RELATIONAL else bank.frame,
            "target": {"bank": bank.id, "teacher": bank.teacher, "extra": bank.manifest.get("extra")},
            "corpus": plan["corpus"],
            "training": {
                **plan["training"],
                "precision": summary.precision,
                "steps_done": position.step,
                "rows_seen": position.rows,
                "tokens_seen": position.tokens,
                "padding": round(position.padding, 6),
                "held_out_rows": summary.held_out_rows,
            },
            "gauges": summary.gauges,
        },
        files=[*files, LOG],
    )
    speed = f"{summary.rows_per_second:.0f} rows/s, " if summary.rows_per_second else ""
    cosine = summary.gauges["target_cosine"]
    log(f"{folder}: {position.step} steps, {speed}padding {position.padding:.2%}, target cosine {cosine:.4f}")
