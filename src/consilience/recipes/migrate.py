"""Migrate: move a vector index into another model's frame without embedding its texts again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import begin_artefact, discard_work, is_finished, output_path
from consilience.core.errors import (
    AlignmentRefusedError,
    CorpusError,
    FrameMismatchError,
    InputError,
    ResumeError,
    ShapeError,
)
from consilience.core.files import read_json, write_json
from consilience.core.locks import one_job
from consilience.core.manifests import TIMING, partial_path
from consilience.core.placing import require_apart
from consilience.core.progress import log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.committee.mapped_encoder import MappedEncoder
    from consilience.committee.migration import MigrationScores, Way
    from consilience.committee.migration_artefact import Migration
    from consilience.core.encoder import Encoder
    from consilience.corpora.id_texts import IdTexts
    from consilience.frames.align import AffineMap
    from consilience.indexes.index import VectorIndex

BAR = 0.8  # assumed: one in five of re-embedding's ten nearest may differ; a person sets their own
FIT_ROWS = 24_000  # cited: design, section 2
HELD_OUT = 5_000
_PROBE_TEXTS = 64
_VARIATION_ROWS = 1_000
MARKER = "rewriting.json"
SAME_MODEL_COSINE = 0.99  # assumed: one model's vectors of a text, stored in any precision from int8 up


@one_job
def migrate(
    index: str,
    *,
    to: str | Path,
    sample: str | Path,
    out: str | Path,
    rewrite: str | None = None,
    id_column: str = "id",
    column: str = "text",
    index_id_column: str | None = None,
    vector_column: str | None = None,
    metric: Literal["cosine", "dot", "l2"] | None = None,
    old_model: str | Path | None = None,
    old_prompt: str | None = None,
    prompt: str | None = None,
    query_prompt: str | None = None,
    methods: Sequence[str] | None = None,
    rank: int | None = None,
    fit_rows: int = FIT_ROWS,
    held_out: int = HELD_OUT,
    limit: int | None = None,
    bar: float = BAR,
    seed: int = 0,
    force: bool = False,
    trust_remote_code: bool = False,
    overwrite: bool = False,
) -> Migration:
    """Fit maps between an index's frame and a new model's, measure them against re-embedding, and apply one.

    The source index is only read. Killed at any moment, the same call continues: embedded shards of the sample are
    kept, and the new index is complete or absent.

    Args:
        index: spec of the source, see :mod:`consilience.indexes.spec`.
        to: the new model: a student, an exported folder, or a teacher spec.
        sample: parquet, jsonl, csv or tsv file of ids and texts that are in the index.
        out: folder of the migration: both maps and the report.
        rewrite: spec of a new index to write; None leaves the index as it is, for the query-side map.
        id_column: the sample's column of ids.
        column: the sample's column of texts.
        index_id_column: the index's column of ids, where several could be meant.
        vector_column: the index's column of vectors, likewise.
        metric: how the index is searched; by default what the store says.
        old_model: the model the index was made with. With it, a sample whose texts aren't in the index will do, and a
            sample that is in the index is checked against it.
        old_prompt: text that the old model was given before each document.
        prompt: text that the new model is given before each document.
        query_prompt: text that the new model is given before each query; the documents' when None.
        methods: maps to try; all when None.
        rank: of the low-rank map.
        fit_rows: texts that the maps are fitted to.
        held_out: other texts that they are judged on.
        limit: distinct texts of the sample at most.
        bar: recall@10 retention that the chosen map must reach, with the lower end of its interval.
        seed: of the samples.
        force: write the new index although the map is below the bar, or fitted to too few texts.
        trust_remote_code: let a Hugging Face model run code of its own.
        overwrite: replace what is at ``out``; never an index.

    Returns:
        The migration.

    Raises:
        AlignmentRefusedError: no map is better than chance, too few texts, or the chosen one is below the bar and
            ``rewrite`` was asked for (the report is at ``out``).
        CorpusError: the sample can't be read.
        InputError: the index, an option, or ids that aren't in the index.
        ResumeError: ``out`` is something else, or is done and its new index was removed.

    Source: design, section 6.
    """
    from consilience.committee.consensus_report import rounded_json
    from consilience.committee.migration import METHODS, WAYS, score_maps
    from consilience.committee.migration_artefact import load_migration, write_migration
    from consilience.core.hashing import content_id
    from consilience.corpora.id_texts import read_id_texts
    from consilience.frames.align import check_method, require_rows
    from consilience.frames.sampling import split_rows
    from consilience.indexes.open import open_index

    chosen_methods = tuple(methods or METHODS)
    for method in chosen_methods:
        check_method(method)
    if not 0 <= bar <= 1:
        raise InputError(f"migrate: expected a bar between 0 and 1, got {bar}. Change --bar")
    if old_prompt is not None and old_model is None:
        raise InputError("migrate: --old-prompt is an option of --old-model. Give that, too, or leave it out")
    folder = output_path(out, overwrite=overwrite)
    require_apart(folder, index, sample, to, old_model)
    source = open_index(index, id_column=index_id_column, vector_column=vector_column, metric=metric)
    texts = read_id_texts(sample, id_column=id_column, column=column, limit=limit, need_ids=old_model is None)
    documents = _model(to, prompt, trust_remote_code)
    asked = documents if query_prompt in (None, prompt) else _model(to, query_prompt, trust_remote_code)
    old_encoder = None if old_model is None else _model(old_model, old_prompt, trust_remote_code)
    most = min(source.dimensions, documents.dimensions)
    if rank is not None and not 1 <= rank <= most:
        raise InputError(f"migrate: expected --rank between 1 and {most}, got {rank}. Change it")
    job: dict[str, Any] = {
        "index": source.fingerprint(),
        "metric": source.metric,
        "sample": _sample_hash(texts),
        "documents": documents.identity(),
        "queries": asked.identity(),
        "old_model": None if old_encoder is None else old_encoder.identity(),
        "methods": list(chosen_methods),
        "rank": rank,
        "fit_rows": fit_rows,
        "held_out": held_out,
        "bar": bar,
        "seed": seed,
        "force": force,
        "rewrite": None if rewrite is None else content_id(rewrite),  # a database's address may hold a password
    }
    if is_finished(folder, kind="migration", job=job, overwrite=overwrite):
        log(f"{folder}: already done")
        done = _require_rewritten(load_migration(folder), rewrite)
        if rewrite is not None:
            _require_there(source, rewrite, (index_id_column, vector_column), folder)
        return done
    if rewrite is not None:
        _require_rewritable(source, rewrite, folder)
    split = split_rows(len(texts.texts), fit_rows, held_out, seed=seed)
    if not force:  # before anything is embedded
        require_rows(len(split.fit), max(source.dimensions, documents.dimensions), where=f"migrate: {sample}")
    work, _ = begin_artefact(folder, job, overwrite=overwrite)
    try:
        old = _old_vectors(source, texts, old_encoder)
        new, seconds = _embedded(texts.texts, documents, work / "documents")
        queries = None if asked is documents else _embedded(texts.texts, asked, work / "queries")[0]
        variation = _variation(texts.texts, new if queries is None else queries, split.held_out)
        scores = score_maps(
            old,
            new,
            queries,
            fit_rows=split.fit,
            held_out=split.held_out,
            metric=source.metric,
            methods=chosen_methods,
            low_rank=rank,
            force=force,
            seed=seed,
        )
        way: Way = "adapter" if rewrite is None else "rewrite"
        chosen = {other: scores.best(other) for other in WAYS if other == way or _usable(scores, other)}
    except (AlignmentRefusedError, CorpusError, FrameMismatchError, InputError, ShapeError):
        discard_work(work)  # a refusal leaves nothing behind
        raise
    best = chosen[way]
    reached = best.retention[10].low >= bar
    rewritten = None
    if rewrite is not None and (reached or force):
        rewritten = _rewrite(source, rewrite, best.affine, work, (index_id_column, vector_column))
    write_json(work / TIMING, _cost(source, seconds, best.affine, old if way == "rewrite" else new, way))
    manifest = {
        "job": job,
        "index": {"kind": source.kind, "rows": source.rows, "dimensions": source.dimensions, "metric": source.metric},
        "model": {"documents": documents.identity(), "queries": asked.identity(), "dimensions": documents.dimensions},
        "rows": {"fit": len(split.fit), "held_out": len(split.held_out), "duplicates": texts.duplicates},
        "gallery": scores.gallery,
        "queries": scores.queries,
        "variation": variation,
        "unmapped": None if scores.unmapped is None else {str(k): v for k, v in scores.unmapped.items()},
        "scores": [score.to_json() for score in scores.scores],
        "chosen": {other: score.method for other, score in chosen.items()},
        "way": way,
        "bar": bar,
        "verdict": "ok" if reached else "below the bar",
        "rewritten": rewritten,
    }
    return _require_rewritten(write_migration(folder, manifest=rounded_json(manifest), chosen=chosen), rewrite)


def _require_rewritten(migration: Migration, rewrite: str | None) -> Migration:
    """Refuse when an index was to be rewritten and the map is below the bar."""
    if rewrite is None or migration.manifest["rewritten"] is not None:
        return migration
    score = chosen_score(migration.manifest)
    kept = score["retention"]["10"]
    raise AlignmentRefusedError(
        f"migrate: recall@10 retention {kept['score']:.3f} [{kept['low']:.3f}, {kept['high']:.3f}] of "
        f"{score['method']} doesn't "
        f"reach the bar of {migration.manifest['bar']:g}, so the index wasn't rewritten (report: "
        f"{migration.path}). Embed the "
        "texts again, or pass a lower --bar, or --force, with --overwrite"
    )


def chosen_score(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of the map that a migration's verdict is about.

    Args:
        manifest: a migration's.
    """
    way, method = manifest["way"], manifest["chosen"][manifest["way"]]
    found: dict[str, Any] = next(s for s in manifest["scores"] if (s["way"], s["method"]) == (way, method))
    return found


def load_query_adapter(
    migration: str | Path, *, model: str | Path, prompt: str | None = None, trust_remote_code: bool = False
) -> MappedEncoder:
    """Open a migration's query-side map behind the new model: its vectors search the old index.

    Args:
        migration: the migration's folder.
        model: the new model, as it was given to ``migrate``.
        prompt: the queries' prompt, as it was given to ``migrate``.
        trust_remote_code: let a Hugging Face model run code of its own.

    Raises:
        FrameMismatchError: another model or prompt than the map was fitted with.
        InputError: no migration, or one without a usable map of this way.
    """
    from consilience.committee.mapped_encoder import MappedEncoder
    from consilience.committee.migration_artefact import load_migration

    stored = load_migration(migration)
    if "adapter" not in stored.maps:
        raise InputError(f"{migration}: its query-side maps were refused; there is none to load")
    encoder = _model(model, prompt, trust_remote_code)
    return MappedEncoder(
        encoder, stored.maps["adapter"], identity=stored.manifest["model"]["queries"], map_id=stored.id
    )


def _model(model: str | Path, prompt: str | None, trust_remote_code: bool) -> Encoder:
    from consilience.recipes.encoders import open_encoder

    if prompt is None:
        return open_encoder(model, trust_remote_code=trust_remote_code)
    from consilience.teachers.registry import load_teacher
    from consilience.teachers.spec import parse_teacher_spec

    if Path(str(model)).exists():
        raise InputError(f"{model}: a prompt needs a teacher spec. Write st:{model}")
    return load_teacher(parse_teacher_spec(str(model), prompt=prompt), trust_remote_code=trust_remote_code)


def _sample_hash(texts: IdTexts) -> str:
    from consilience.core.hashing import RowHasher

    hasher = RowHasher()
    for name in (*(texts.ids or ()), *texts.texts):
        hasher.update(name)
    return hasher.hexdigest()


def _variation(texts: Sequence[str], rows: NDArray[np.float32], held_out: NDArray[np.int64]) -> dict[str, Any]:
    """Show that the queries vary before any retrieval number is quoted on them (design, section 9)."""
    from consilience.gauges.variation import report_variation, require_variation

    shown = held_out[:_VARIATION_ROWS]
    report = report_variation([texts[row] for row in shown.tolist()], rows[shown])
    require_variation(report)
    return report.to_json()


def _usable(scores: MigrationScores, way: Way) -> bool:
    return any(score.way == way and score.fit.verdict != "refused" for score in scores.scores)


def _old_vectors(source: VectorIndex, texts: IdTexts, encoder: Encoder | None) -> NDArray[np.float32]:
    """Return the sample's vectors in the old frame: the index's own, or the old model's."""
    from consilience.teachers.checked import encode_checked

    if encoder is None:
        return source.lookup(texts.ids or ())
    if encoder.dimensions != source.dimensions:
        raise ShapeError(
            f"migrate: {encoder.name} gives {encoder.dimensions} dimensions, the index has {source.dimensions}. It "
            "wasn't made "
            "with this model; give the one it was made with"
        )
    if texts.ids is None:
        return encode_checked(encoder, texts.texts)
    stored = source.lookup(texts.ids)
    from consilience.gauges.agreement import paired_cosine

    probe = encode_checked(encoder, texts.texts[:_PROBE_TEXTS])
    cosine = float(paired_cosine(probe, stored[: len(probe)]).mean())
    if cosine < SAME_MODEL_COSINE:
        raise AlignmentRefusedError(
            f"migrate: {encoder.name} embeds the sample's texts at cosine {cosine:.3f} to the index's own vectors (at "
            "least "
            f"{SAME_MODEL_COSINE} expected). The index was made with another model, prompt or pooling, or the ids "
            "belong to "
            "other texts: check --old-prompt and --id-column, or leave --old-model out"
        )
    return stored


def _embedded(texts: Sequence[str], encoder: Encoder, out: Path) -> tuple[NDArray[np.float32], float]:
    """Embed the sample into a bank, which continues after a kill; return its rows and the seconds it took."""
    import numpy as np

    from consilience.recipes.embed import embed

    bank = embed(texts, teacher=encoder, out=out, dtype="fp32", shard_rows=2048)
    return np.asarray(bank[0 : bank.rows], dtype=np.float32), float(read_json(bank.path / TIMING)["seconds"])


def _rewrite(
    source: VectorIndex, out: str, affine: AffineMap, work: Path, columns: tuple[str | None, str | None]
) -> dict[str, Any]:
    """Write the new index, or recognise the one that an interrupted run of this job has finished."""
    from consilience.indexes.open import write_index

    marker = work / MARKER
    if marker.is_file() and _is_rewritten(source, out, affine, columns):
        log("the new index is there: the interrupted run had finished it")
    else:
        write_json(marker, {"started": True})
        try:
            write_index(source, out, affine.apply, dimensions=affine.d_y)
        except (InputError, ResumeError):
            marker.unlink()  # refused, e.g. because something else is there: it isn't ours
            raise
    return {"rows": source.rows, "dimensions": affine.d_y}


def _require_rewritable(source: VectorIndex, out: str, folder: Path) -> None:
    """Refuse early a new index that can't be written, or that would lie in the report's folder."""
    from consilience.indexes.open import plan_target
    from consilience.indexes.spec import parse_index_spec

    target = parse_index_spec(out, default=getattr(source, "spec", None))
    if target.kind != "pgvector":  # a database's address isn't a path
        place, report = Path(target.location).resolve(), folder.resolve()
        if place == report or report in place.parents or place in report.parents:
            raise InputError(
                f"--rewrite {out}: is, lies in or holds the migration's folder {folder}. Choose another place"
            )
    if not (partial_path(folder) / MARKER).is_file():  # an interrupted run of this job may have finished it
        plan_target(source, out)


def _require_there(source: VectorIndex, out: str, columns: tuple[str | None, str | None], folder: Path) -> None:
    """Refuse to call a migration done whose new index has been removed."""
    from consilience.indexes.open import open_written

    if open_written(source, out, id_column=columns[0], vector_column=columns[1]) is None:
        raise ResumeError(
            f"{folder}: its new index was written and isn't there any more. Pass --overwrite to write it again"
        )


def _is_rewritten(source: VectorIndex, out: str, affine: AffineMap, columns: tuple[str | None, str | None]) -> bool:
    """Say whether ``out`` holds this source's rows behind this map."""
    import numpy as np

    from consilience.indexes.open import open_written

    written = open_written(source, out, id_column=columns[0], vector_column=columns[1])
    if written is None or (written.rows, written.dimensions) != (source.rows, affine.d_y):
        return False
    ids, vectors = next(source.iter_blocks(256))
    return bool(np.allclose(written.lookup(ids), affine.apply(vectors), atol=1e-3))


def _cost(
    source: VectorIndex, seconds: float, affine: AffineMap, sample: NDArray[np.float32], way: Way
) -> Mapping[str, float]:
    """Return what re-embedding the index would take beside migrating it, from the speeds seen here."""
    began = time.perf_counter()
    rows = 0
    while rows < 20_000:
        affine.apply(sample[:2048])
        rows += len(sample[:2048])
    mapping = (time.perf_counter() - began) / rows
    embedding = seconds / len(sample)
    return {
        "embed_rows_per_second": round(1 / max(embedding, 1e-9), 1),
        "map_rows_per_second": round(1 / max(mapping, 1e-9), 1),
        "reembed_seconds": round(embedding * source.rows, 1),
        "migrate_seconds": round(seconds + (mapping * source.rows if way == "rewrite" else 0.0), 1),
    }
