"""Adapt: train anchors on a frozen student, align their dispatch.

Anchors are trained one at a time, each alone and undamped, on pairs of its task; then the keys that mix them are
aligned with the anchors frozen. The same call continues an interrupted training and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.locks import one_job
from consilience.training.settings import LOSS_TEMPERATURE

if TYPE_CHECKING:
    from consilience.adapters.library import AnchorLibrary
    from consilience.corpora.contamination import HeldOutSentences
    from consilience.corpora.pairs import OnFault, PairCorpus
    from consilience.gauges.variation import VariationReport
    from consilience.training.pair_loop import PairSettings, PairSummary
    from consilience.training.settings import Precision

REPORT = "report.json"
FIT_STEPS, ALIGN_STEPS, BATCH_ROWS = 1_500, 800, 96  # cited: design, section 7; the batch: issue's bar
FIT_LR = 3e-3  # measured on STS-B dev, 150 steps of the micro trunk: .7646 beside .7588 at 1e-3


@one_job
def adapt_fit(
    student: Any,  # noqa: ANN401 - a path, a name or a loaded model
    *,
    pairs: str | Path | Sequence[tuple[str, str]],
    name: str,
    out: str | Path,
    steps: int = FIT_STEPS,
    batch_rows: int = BATCH_ROWS,
    lr: float = FIT_LR,
    temperature: float = LOSS_TEMPERATURE,
    seed: int = 0,
    precision: Precision = "auto",
    left: str = "sentence1",
    right: str = "sentence2",
    limit: int | None = None,
    on_fault: OnFault = "refuse",
    held_out: Sequence[str | Path] | None = None,
    hidden: int | None = None,
    checkpoint_seconds: float = 60.0,
    overwrite: bool = False,
) -> AnchorLibrary:
    """Train one anchor on pairs and store it as a library of one.

    The trunk, its head included, is frozen; symmetric in-batch InfoNCE on the pooled output, Adam without weight decay.
    The anchor answers alone and undamped while it is trained.

    Args:
        student: a student's folder, an exported or sentence-transformers folder, packaged:NAME, or a loaded model.
        pairs: a file with two columns of text, or the pairs.
        name: of the anchor.
        out: the library's folder.
        steps: optimiser steps.
        batch_rows: pairs a batch; the others of a batch are a pair's negatives.
        lr: peak learning rate.
        temperature: of the InfoNCE.
        seed: of the anchor, the batches and the held-out pairs.
        precision: of the trained passes: "fp32", "bf16", or "auto": the faster one, measured once a machine and kept.
        left: column of the first texts.
        right: column of the second texts.
        limit: use only the first rows.
        on_fault: refuse the file, or drop the row, when a pair is unusable.
        held_out: test files or folders whose sentences no pair may hold; by default the folder of the variable
            CONSILIENCE_DATA, where it is set; [] checks nothing.
        hidden: width of the anchor's hidden layer; the design's 178 when not given.
        checkpoint_seconds: wall-clock time between checkpoints.
        overwrite: replace what is at ``out`` and any partial one there.

    Returns:
        The library, as stored. If ``out`` already is this job's library, it is verified and returned.

    Raises:
        CorpusError: the pairs can't be trained on.
        InputError: an option is wrong, or the student has no blocks.
        ResumeError: ``out`` is another job's.
        StorageError: the disk is full; the last checkpoint stays.

    Source: design, section 7.
    """
    from consilience.adapters.anchor import AnchorConfig
    from consilience.adapters.attach import attach_amoe
    from consilience.adapters.library import KIND, AnchorLibrary, load_library
    from consilience.adapters.reads import read_drift
    from consilience.core.artefacts import begin_artefact, is_finished, output_path
    from consilience.core.progress import log
    from consilience.training.pair_loop import PairSettings, train_on_pairs
    from consilience.training.pair_model import open_pair_model
    from consilience.training.pair_queries import report_queries
    from consilience.training.pair_tokens import tokenize_pairs

    folder = output_path(out, overwrite=overwrite)
    settings = PairSettings(
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        temperature=temperature,
        seed=seed,
        precision=precision,
        checkpoint_seconds=checkpoint_seconds,
    )
    config = AnchorConfig() if hidden is None else AnchorConfig(hidden=hidden)
    corpus = read_pairs_checked(
        pairs, left=left, right=right, limit=limit, on_fault=on_fault, held_out=load_held_out(held_out)
    )
    model = open_pair_model(student)
    trunk = model.trunk
    job = {
        "recipe": "adapt fit",
        "trunk": trunk.fingerprint,
        "model": model.identity(),
        "name": name,
        "anchor": config.to_json(),
        "pairs": corpus.to_json(),
        "training": settings.identity(),
    }
    _require_apart(folder, student, pairs)
    if is_finished(folder, kind=KIND, job=job, overwrite=overwrite):
        log(f"{folder}: already done")
        return load_library(folder)
    library = AnchorLibrary(trunk.width, trunk.blocks)
    library.add(name, seed=seed, config=config)
    work, _ = begin_artefact(folder, {"kind": KIND, "job": job}, overwrite=overwrite)
    domain = tokenize_pairs(model, corpus, name=name, seed=seed)
    queries = {name: report_queries(model, corpus, domain)}  # of the bare trunk, before any retrieval is read
    handle = attach_amoe(model.model, library)
    anchor = library.anchor(name)
    library.trainable(name)
    try:
        with handle.training(), handle.solo(name):
            summary = train_on_pairs(
                model,
                [domain],
                dict(anchor.named_parameters()),
                settings,
                work,
                gauges=lambda: _drift_gauges(library),
                label=f"fit {name}",
            )
    finally:
        library.trainable()
        handle.detach()
    (drift,) = read_drift(library)
    report = training_report(summary, settings, {name: corpus}, queries, {"drift": drift.to_json()})
    library.provenance[name] = _provenance(job, corpus, summary)
    return _store(library, folder, job, report, summary, overwrite=overwrite)


@one_job
def adapt_align(
    student: Any,  # noqa: ANN401 - a path, a name or a loaded model
    anchors: Sequence[str | Path],
    *,
    pairs: Mapping[str, str | Path | Sequence[tuple[str, str]]],
    out: str | Path,
    steps: int = ALIGN_STEPS,
    batch_rows: int = BATCH_ROWS,
    lr: float = 1e-3,
    temperature: float = LOSS_TEMPERATURE,
    routing_temperature: float = 0.1,
    seed: int = 0,
    precision: Precision = "auto",
    left: str = "sentence1",
    right: str = "sentence2",
    limit: int | None = None,
    on_fault: OnFault = "refuse",
    held_out: Sequence[str | Path] | None = None,
    checkpoint_seconds: float = 60.0,
    overwrite: bool = False,
) -> AnchorLibrary:
    """Put anchors into one library and train the keys of its dispatch, the anchors frozen.

    Args:
        student: as for :func:`adapt_fit`.
        anchors: folders of libraries; all their anchors are taken.
        pairs: pairs by anchor's name, one for each anchor.
        out: the library's folder.
        steps: optimiser steps.
        batch_rows: pairs a batch.
        lr: peak learning rate.
        temperature: of the InfoNCE.
        routing_temperature: T of the dispatch; below .1 a line points at the sweep.
        seed: of the batches and the held-out pairs.
        precision: of the trained passes: "fp32", "bf16", or "auto": the faster one, measured once a machine and kept.
        left: column of the first texts.
        right: column of the second texts.
        limit: use only the first rows of each file.
        on_fault: refuse a file, or drop the row, when a pair is unusable.
        held_out: as for :func:`adapt_fit`.
        checkpoint_seconds: wall-clock time between checkpoints.
        overwrite: replace what is at ``out`` and any partial one there.

    Returns:
        The library, as stored; ``report.json`` beside it has the reads: amplitude shares and their sum, usage, the
        ratio of own domain to the others, starved anchors, what the safeguards did.

    Raises:
        CorpusError: pairs can't be trained on.
        InputError: an anchor has no pairs, or a name is taken twice.
        TrunkMismatchError: an anchor belongs to another trunk.

    Source: design, section 7.
    """
    from consilience.adapters.attach import attach_amoe
    from consilience.adapters.library import KIND, load_library
    from consilience.core.artefacts import begin_artefact, is_finished, output_path
    from consilience.core.progress import log
    from consilience.training.key_alignment import align_keys
    from consilience.training.pair_loop import PairSettings
    from consilience.training.pair_model import open_pair_model
    from consilience.training.pair_queries import report_queries
    from consilience.training.pair_tokens import tokenize_pairs

    folder = output_path(out, overwrite=overwrite)
    settings = PairSettings(
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        temperature=temperature,
        seed=seed,
        precision=precision,
        checkpoint_seconds=checkpoint_seconds,
    )
    library = join_libraries([load_library(path) for path in anchors], temperature=routing_temperature)
    if sorted(pairs) != sorted(library.names):
        raise InputError(
            f"adapt align: expected pairs for {', '.join(library.names)}, got {', '.join(pairs) or 'none'}. Give "
            "--pairs NAME=FILE once for each anchor"
        )
    tested = load_held_out(held_out)
    corpora = {
        name: read_pairs_checked(pairs[name], left=left, right=right, limit=limit, on_fault=on_fault, held_out=tested)
        for name in library.names
    }
    model = open_pair_model(student)
    job = {
        "recipe": "adapt align",
        "trunk": model.trunk.fingerprint,
        "model": model.identity(),
        "anchors": {name: library.subset([name]).fingerprint() for name in library.names},
        "routing_temperature": library.temperature,
        "pairs": {name: corpus.to_json() for name, corpus in corpora.items()},
        "training": settings.identity(),
    }
    _require_apart(folder, student, *anchors, *pairs.values())
    if is_finished(folder, kind=KIND, job=job, overwrite=overwrite):
        log(f"{folder}: already done")
        return load_library(folder)
    handle = attach_amoe(model.model, library)
    try:
        work, _ = begin_artefact(folder, {"kind": KIND, "job": job}, overwrite=overwrite)
        domains = [tokenize_pairs(model, corpus, name=name, seed=seed) for name, corpus in corpora.items()]
        with handle.off():
            queries = {domain.name: report_queries(model, corpora[domain.name], domain) for domain in domains}
        summary, reads = align_keys(handle, model, domains, settings, work)
    finally:
        handle.detach()
    if reads.starved:
        log(f"adapt align: starved on their own domain: {', '.join(reads.starved)}; see {REPORT}")
    report = training_report(summary, settings, corpora, queries, {"reads": reads.to_json(), "events": summary.events})
    library.provenance["keys"] = {**job, "gauges": summary.last}
    return _store(library, folder, job, report, summary, overwrite=overwrite)


def join_libraries(libraries: Sequence[AnchorLibrary], *, temperature: float = 0.1) -> AnchorLibrary:
    """Put the anchors of libraries of one trunk into one, in their order.

    Args:
        libraries: at least one.
        temperature: T of the joint dispatch.

    Raises:
        InputError: none, or a name is taken twice.
        TrunkMismatchError: they belong to different trunks.
    """
    from consilience.adapters.library import AnchorLibrary

    if not libraries:
        raise InputError("adapt: expected at least one anchor, got none. Name folders made by adapt fit")
    joined = AnchorLibrary(libraries[0].width, libraries[0].block_count, temperature=temperature)
    for library in libraries:
        for name in library.names:
            key = library.keys.detach()[library.names.index(name)]
            joined.add(name, library.anchor(name), key=key, provenance=library.provenance.get(name))
    return joined


def load_held_out(paths: Sequence[str | Path] | None) -> HeldOutSentences | None:
    """Read test sentences: of these paths, or of CONSILIENCE_DATA where it is set; [] reads none."""
    import os

    from consilience.corpora.contamination import read_held_out
    from consilience.recipes.evaluate import DATA_VARIABLE

    if paths is None:
        folder = os.environ.get(DATA_VARIABLE)
        chosen: list[str | Path] = [folder] if folder and (Path(folder) / "sts").is_dir() else []
    else:
        chosen = list(paths)
    return read_held_out(chosen) if chosen else None


def read_pairs_checked(
    source: str | Path | Sequence[tuple[str, str]],
    *,
    held_out: HeldOutSentences | None,
    **options: Any,  # noqa: ANN401
) -> PairCorpus:
    """Open pairs, and say on standard error when nothing was there to check them for contamination."""
    from consilience.core.progress import log
    from consilience.corpora.pairs import open_pairs

    corpus = open_pairs(source, held_out=held_out, **options)
    if held_out is None:
        log(f"{corpus.name}: not checked against test sets. Name them with --held-out or set CONSILIENCE_DATA")
    return corpus


def _require_apart(out: Path, *inputs: Any) -> None:  # noqa: ANN401
    from consilience.core.placing import require_apart

    require_apart(out, *inputs)


def _drift_gauges(library: AnchorLibrary) -> dict[str, float]:
    from consilience.adapters.reads import read_drift

    gauges = {}
    for read in read_drift(library):
        gauges[f"{read.name}/drift"] = round(sum(read.mean_radians) / len(read.mean_radians), 6)
        gauges[f"{read.name}/gate"] = round(sum(read.gates) / len(read.gates), 6)
    return gauges


def _provenance(job: Mapping[str, Any], corpus: PairCorpus, summary: PairSummary) -> dict[str, Any]:
    """Return what a library's metadata say of an anchor: recipe, data fingerprint, seeds, and how it ended."""
    return {**job, "contamination_checked": corpus.report.held_out > 0, "gauges": summary.last}


def training_report(
    summary: PairSummary,
    settings: PairSettings,
    corpora: Mapping[str, PairCorpus],
    queries: Mapping[str, VariationReport | None],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what report.json says of a training on pairs; R@1 that may not be quoted is refused with its reason."""
    from consilience.training.pair_queries import judge_retrieval

    readings = {"before": summary.first, "after": summary.last}
    return {
        "training": {**settings.identity(), "precision": summary.precision},
        "pairs": {name: {**corpus.to_json(), **corpus.report.to_json()} for name, corpus in corpora.items()},
        "gauges": readings,
        "retrieval": {name: judge_retrieval(name, report, readings) for name, report in queries.items()},
        "rows_seen": summary.position.rows,
        **more,
    }


def _store(
    library: AnchorLibrary,
    folder: Path,
    job: Mapping[str, Any],
    report: Mapping[str, Any],
    summary: PairSummary,
    *,
    overwrite: bool,
) -> AnchorLibrary:
    """Write library, report, log and timing; return the library as stored."""
    from consilience.adapters.library import load_library, save_library
    from consilience.core.manifests import partial_path
    from consilience.training.journal import FILE as LOG

    write_report(partial_path(folder), report, summary)
    save_library(library, folder, job=job, overwrite=overwrite, files=[REPORT, LOG])
    return load_library(folder)


def write_report(work: Path, report: Mapping[str, Any], summary: PairSummary) -> None:
    """Write report.json, and the times of this attempt."""
    from consilience.core.files import write_json
    from consilience.core.manifests import TIMING

    write_json(work / REPORT, report)
    per_step = summary.seconds / summary.steps_here if summary.steps_here else None
    write_json(work / TIMING, {"seconds": summary.seconds, "steps": summary.steps_here, "seconds_per_step": per_step})
