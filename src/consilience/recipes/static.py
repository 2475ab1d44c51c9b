"""Static: a student without layers. Every token is embedded by every teacher; the committee's vectors are the table.

The tokens' texts are a small corpus, so banks, maps and consensus are made as of any other corpus. No step trains
anything; the whole takes minutes. With a consensus of real texts at hand, one ridge regression refines the table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import PLAN, begin_artefact, discard_work, finish_artefact, is_finished, output_path
from consilience.core.errors import ConsilienceError, InputError
from consilience.core.files import write_json
from consilience.core.hashing import content_id
from consilience.core.locks import one_job
from consilience.core.manifests import TIMING
from consilience.core.placing import require_apart
from consilience.core.progress import log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.banks.reader import Bank
    from consilience.core.encoder import Encoder
    from consilience.corpora.text import Corpus, CorpusSpec
    from consilience.students.text import StudentEncoder

DEFAULT_TOKENIZER = "packaged:all-MiniLM-L6-v2"  # bert-base-uncased's WordPiece, 30,522 tokens
DEFAULT_DIMENSIONS = 256  # cited: model2vec's
DEFAULT_RIDGE = 1.0
_LARGEST_RIDGE = 1e12  # assumed: far above it the fit stands still, and at 1e38 32 bits end


@one_job
def static(
    teachers: str | Encoder | Sequence[str | Encoder],
    *,
    out: str | Path,
    tokenizer: str | Path = DEFAULT_TOKENIZER,
    weights: Mapping[str, float] | None = None,
    reference: str | None = None,
    method: str = "orthogonal",
    dimensions: int | None = None,
    axes: Literal["principal", "reference"] = "principal",
    frequencies: CorpusSpec | str | Path | Sequence[str] | None = None,
    lengths: str | Encoder | None = None,
    smoothing: float = 1e-3,
    remove: int = 0,
    whiten: float = 0.5,
    refine: Bank | str | Path | None = None,
    corpus: CorpusSpec | str | Path | Sequence[str] | None = None,
    column: str | None = None,
    where: Mapping[str, str] | None = None,
    limit: int | None = None,
    ridge: float = DEFAULT_RIDGE,
    max_length: int = 512,
    seed: int = 0,
    force: bool = False,
    work: str | Path | None = None,
    overwrite: bool = False,
) -> StudentEncoder:
    """Make a static student from teachers, without training, and store it.

    Every token that stands for a text is embedded by every teacher; the banks are aligned into the reference's frame;
    the consensus is centred, turned to its principal axes, and weighted by a / (a + p), p the token's frequency, or as
    a static teacher weighs it.

    Args:
        teachers: specs ("packaged:NAME", ...) or encoders, one or several.
        out: the student's folder.
        tokenizer: a tokenizer.json, its folder, "packaged:NAME" or a hub name.
        weights: of teachers in the consensus, by spec; 1 for those not named.
        reference: the teacher whose frame the consensus is made in, by spec; the first when not given.
        method: how the others are aligned; see :func:`consilience.align`.
        dimensions: width; 256, or less where the reference is narrower; the targets' with ``refine``.
        axes: "principal", or "reference": the reference's own coordinates and width, as a start for training on
            targets in that frame.
        frequencies: where the tokens' frequencies come from: a corpus, "zipf" (their order in the vocabulary), or
            "none": all such weights are 1. "zipf" when not given, and "none" with ``lengths``.
        lengths: a static teacher, by spec, whose own weights the tokens get: the length of the sum of its rows.
        smoothing: a of a / (a + p).
        remove: common components taken out.
        whiten: exponent in 0..1 by which the axes' variances are evened.
        refine: a bank of targets (a consensus of real texts): the table is fitted to it in closed form.
        corpus: the texts of ``refine``.
        column: column of ``corpus``.
        where: filter of ``corpus``.
        limit: first rows of ``corpus``.
        ridge: how strongly the refined table is held to the unrefined one.
        max_length: tokens that a text is cut to.
        seed: of row samples.
        force: keep maps that are no better than chance.
        work: folder where the tokens' banks stay, for further students of the same tokens; by default they go.
        overwrite: replace what is at ``out``.

    Returns:
        The student. If ``out`` already is this job's student, it is verified and returned.

    Raises:
        AlignmentRefusedError: a teacher's map is at its null.
        CorpusError: a corpus is missing, empty or faulty.
        FrameMismatchError: ``refine`` is a bank of another corpus.
        InputError: an option is wrong.
        ResumeError: ``out`` is another job's.
        TeacherError: a teacher can't be loaded, or returned unusable vectors.

    Source: design, section 4; Arora et al. 2017 (weights); Tulkens and van Dongen 2024, model2vec (tokens as texts).
    """
    import numpy as np

    from consilience.core.encoder import Encoder as EncoderProtocol
    from consilience.corpora.text import open_corpus
    from consilience.recipes.distill import require_same_rows
    from consilience.recipes.initial_student import find_tokenizer
    from consilience.recipes.static_refine import check_refinement, refine_on_bank
    from consilience.recipes.static_weights import find_weigher, token_factors
    from consilience.students.static import StaticStudent, plain_tokenizer, save_static_files
    from consilience.students.text import load_student
    from consilience.students.token_table import (
        check_shape,
        fill_table,
        shape_table,
        token_texts,
    )
    from consilience.students.tokenizer import pad_id, tokenizer_hash

    began = time.monotonic()
    folder = output_path(out, overwrite=overwrite)
    _check_options(smoothing, max_length, ridge, axes, refine, corpus, frequencies)
    members: Sequence[str | Encoder] = [teachers] if isinstance(teachers, str | EncoderProtocol) else teachers
    require_apart(folder, *members, lengths, frequencies, tokenizer, refine, corpus, work)
    encoders = _load(members)
    shares = _shares(encoders, weights)
    anchor = _anchor(encoders, reference)
    words = plain_tokenizer(find_tokenizer(tokenizer))
    texts = token_texts(words)
    target = None if refine is None else _target(refine)
    known = np.array([text is not None for text in texts])
    listed = [text for text in texts if text is not None]
    found = encoders[anchor].dimensions
    width = _width(dimensions, found, axes, remove, refining=target is not None)
    check_shape(len(listed), found, dimensions=width, axes=axes, remove=remove, whiten=whiten)
    plain = frequencies if frequencies is not None else "zipf" if lengths is None else "none"
    source = None if plain in ("zipf", "none") else open_corpus(plain)
    weigher = None if lengths is None else find_weigher(lengths, encoders)
    rows = None
    if corpus is not None:
        rows = open_corpus(corpus, column=column, where=dict(where or {}), limit=limit)
    settings: dict[str, Any] = {
        "method": method,
        "reference": encoders[anchor].name,
        "weights": {encoder.name: share for encoder, share in zip(encoders, shares, strict=True)},
        "frequencies": plain if source is None else _fingerprint(source),
        **({} if weigher is None else {"lengths": weigher.identity()}),
        "smoothing": smoothing,
        "remove": remove,
        "whiten": whiten,
        "force": force,
        "seed": seed,
    }
    refined: dict[str, Any] | None = None
    if target is not None:
        taken = _fingerprint(rows)
        require_same_rows(target, taken["fingerprint"], taken["rows"])
        check_refinement(target.rows, width, dimensions, target.dimensions)
        refined = {"bank": target.id, "ridge": ridge, "corpus": taken}
    plan = {
        "kind": "student",
        "preset": "static",
        "teachers": [encoder.identity() for encoder in encoders],
        "tokenizer": tokenizer_hash(words),
        "dimensions": dimensions,
        "axes": axes,
        "static": settings,
        "max_length": max_length,
        "refine": refined,
    }
    if is_finished(folder, kind="student", job=content_id(plan), overwrite=overwrite):
        log(f"{folder}: already done")
        return load_student(folder)
    # Refuses what it has to before a folder is made.
    factors = token_factors(words, texts, str(plain) if source is None else source, smoothing, weigher)
    partial, resumed = begin_artefact(folder, plan, overwrite=overwrite)
    with _nothing_left(partial, fresh=not resumed):
        store = partial / "tokens" if work is None else Path(work)
        distinct = list(dict.fromkeys(listed))  # "s" and "##s" are one text
        bank = _token_consensus(encoders, shares, anchor, distinct, store, method=method, seed=seed, force=force)
        embedded = time.monotonic() - began
        place = {text: row for row, text in enumerate(distinct)}
        vectors = np.concatenate([block for _, block in bank.iter_shards()])[[place[text] for text in listed]]
        shaped, variance = shape_table(vectors, dimensions=width, axes=axes, remove=remove, whiten=whiten)
        table = fill_table(shaped, factors, known, pad=pad_id(words))
        gauges: dict[str, Any] = {"tokens": len(listed), "texts": len(distinct), "kept_variance": round(variance, 6)}
        frame = f"principal:{content_id(plan)}" if axes == "principal" else bank.frame
        taught: dict[str, Any] = {"bank": bank.id, "teacher": bank.teacher, "extra": bank.manifest.get("extra")}
        rows_seen, seen_corpus = 0, bank.manifest["corpus"]
        if target is not None and rows is not None:
            table, axes, fitted = refine_on_bank(table, words, rows, target, dimensions, ridge, max_length, seed)
            gauges |= fitted
            frame = target.frame if axes == "reference" else f"principal:{content_id(plan)}"
            settings = {**settings, "tokens": taught}
            taught = {"bank": target.id, "teacher": target.teacher, "extra": target.manifest.get("extra")}
            rows_seen, seen_corpus = target.rows, target.manifest["corpus"]
        student = StaticStudent(_tensor(table))
        files = save_static_files(student, words, partial, max_length=max_length)
    write_json(partial / TIMING, {"embed_seconds": round(embedded, 3), "seconds": round(time.monotonic() - began, 3)})
    finish_artefact(
        folder,
        kind="student",
        manifest={
            "job": content_id(plan),
            "preset": "static",
            "config": {"architecture": "static", "vocab_size": len(table), "dimensions": student.dimensions},
            "parameters": int(table.size),
            "dimensions": student.dimensions,
            "max_length": max_length,
            "tokenizer": plan["tokenizer"],
            "frame": frame,
            "axes": axes,
            "target": taught,
            "corpus": seen_corpus,
            "static": settings,
            # Mean and ridge regression are the closed-form minimisers of mimicry.
            "training": {
                "objective": "mimicry",
                "solver": "mean" if target is None else "ridge",
                **({} if target is None else {"ridge": ridge}),
                "seed": seed,
                "steps_done": 0,
                "rows_seen": rows_seen,
            },
            "gauges": gauges,
        },
        files=files,
    )
    log(f"{folder}: {len(listed)} tokens x {student.dimensions} in {time.monotonic() - began:.1f} s")
    return load_student(folder)


@contextmanager
def _nothing_left(partial: Path, *, fresh: bool) -> Iterator[None]:
    """On a refusal, remove a working folder of this run that holds no work: it would refuse the corrected command."""
    try:
        yield
    except ConsilienceError:
        kept = (path for path in partial.rglob("*") if path.is_file() and path.name != PLAN)
        if fresh and not any(kept):
            discard_work(partial)
        raise


def _check_options(
    smoothing: float,
    max_length: int,
    ridge: float,
    axes: str,
    refine: object,
    corpus: object,
    frequencies: object,
) -> None:
    if not 0 < smoothing < math.inf:
        raise InputError(
            f"static: expected a finite --smoothing above 0, got {smoothing}. Change it; 0.001 is usual, and "
            "--frequencies none weighs all tokens alike"
        )
    if not 0 < ridge <= _LARGEST_RIDGE:
        raise InputError(
            f"static: expected --ridge above 0 and at most {_LARGEST_RIDGE:g}, got {ridge}. Change it; 1 is usual, and "
            "without --refine the table stays as it is"
        )
    if max_length < 1:
        raise InputError(f"static: expected --max-length of at least 1, got {max_length}. Raise it")
    if axes not in ("principal", "reference"):
        raise InputError(f"static: expected --axes principal or reference, got {axes!r}. Change it")
    if (refine is None) != (corpus is None):
        raise InputError("static: --refine BANK and --corpus, the bank's texts, need each other. Give both or neither")
    if corpus == "-" or frequencies == "-":
        raise InputError("static: a corpus is read more than once, so it can't be standard input. Give a file")


def _load(members: Sequence[str | Encoder]) -> list[Encoder]:
    from consilience.teachers.registry import load_teacher

    encoders = [load_teacher(member) if isinstance(member, str) else member for member in members]
    if not encoders:
        raise InputError("static: expected at least one teacher, got none. Give --teacher SPEC")
    names = [content_id(encoder.identity()) for encoder in encoders]
    for row, name in enumerate(names):
        if name in names[:row]:
            raise InputError(f"static: teacher {encoders[row].name} is given twice. Use --weight instead")
    return encoders


def _find(encoders: Sequence[Encoder], name: str, what: str) -> int:
    """Return the place of a teacher named by its spec, with or without the backend."""
    found = [i for i, encoder in enumerate(encoders) if name in (encoder.name, encoder.name.partition(":")[2])]
    if len(found) != 1:
        known = ", ".join(encoder.name for encoder in encoders)
        raise InputError(f"static: {what} {name!r} isn't one of the teachers {known}. Name one of them")
    return found[0]


def _shares(encoders: Sequence[Encoder], weights: Mapping[str, float] | None) -> list[float]:
    shares = [1.0] * len(encoders)
    for name, weight in (weights or {}).items():
        if not 0 < weight < math.inf:
            remedy = "Leave the teacher out" if weight <= 0 else "Change --weight"
            raise InputError(f"static: expected a finite weight above 0 for {name}, got {weight}. {remedy}")
        shares[_find(encoders, name, "weight of")] = float(weight)
    total = sum(shares)
    if total == math.inf or min(shares) / total == 0:
        raise InputError(f"static: the weights {shares} are too far apart to add. Bring --weight nearer to 1")
    return shares


def _anchor(encoders: Sequence[Encoder], reference: str | None) -> int:
    return 0 if reference is None else _find(encoders, reference, "reference")


def _fingerprint(corpus: Corpus | None) -> dict[str, Any]:
    from consilience.corpora.fingerprint import fingerprint_corpus

    return {} if corpus is None else dict(fingerprint_corpus(corpus).to_json())


def _target(refine: Bank | str | Path) -> Bank:
    from consilience.banks.reader import Bank, open_bank

    return refine if isinstance(refine, Bank) else open_bank(refine)


def _token_consensus(
    encoders: Sequence[Encoder],
    shares: Sequence[float],
    anchor: int,
    texts: list[str],
    store: Path,
    *,
    method: str,
    seed: int,
    force: bool,
) -> Bank:
    """Embed the tokens' texts with every teacher; align; take the consensus. One teacher is its own consensus."""
    from consilience.recipes.align import align
    from consilience.recipes.consensus import consensus
    from consilience.recipes.embed import embed

    corpus_id = content_id(texts)
    banks = [
        embed(texts, teacher=encoder, out=store / f"embed-{content_id([corpus_id, encoder.identity()])}")
        for encoder in encoders
    ]
    if len(banks) == 1:
        return banks[0]
    job = [[bank.id for bank in banks], anchor, method, seed, force]
    frames = align(
        banks, reference=banks[anchor], method=method, seed=seed, force=force, out=store / f"align-{content_id(job)}"
    )
    weights = {str(bank.path): share for bank, share in zip(banks, shares, strict=True)}
    place = store / f"consensus-{content_id([job, list(shares)])}"
    return consensus(banks, frames=frames, out=place, weights=weights)


def _width(
    dimensions: int | None, found: int, axes: Literal["principal", "reference"], remove: int, *, refining: bool
) -> int:
    """Return the width of the unrefined table; a refined one is cut afterwards."""
    if axes == "reference":
        return found if dimensions is None or refining else dimensions
    if refining:
        return found - remove
    return min(DEFAULT_DIMENSIONS, found - remove) if dimensions is None else dimensions


def _tensor(table: NDArray[np.float32]) -> Any:  # noqa: ANN401 - torch isn't imported by this module
    import torch

    return torch.from_numpy(table)
