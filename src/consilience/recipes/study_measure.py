"""What a study measures: targets, students, the model that serves, retrieval; each an artefact that is made once.

Bootstrap replicates are kept with every student. The draws depend on the task and the study's seed alone, so
replicates of students that were measured months apart are paired, and comparing them embeds nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.artefacts import begin_artefact, discard_work, finish_artefact
from consilience.core.errors import AlignmentRefusedError, ConsilienceError, CorpusError, InputError
from consilience.core.files import atomic_write, read_json, write_json
from consilience.core.manifests import partial_path
from consilience.core.seeds import rng_from_name

if TYPE_CHECKING:
    from consilience.core.encoder import Encoder
    from consilience.evaluation.embed_once import SentenceTable
    from consilience.evaluation.geometry import GeometrySample
    from consilience.evaluation.sts import StsTask
    from consilience.recipes.recipe_file import CorpusPart
    from consilience.recipes.study_file import LawPart, RetrievalPart

Json = dict[str, Any]
TARGET_ROWS = 5_000  # assumed: the consensus report's sample size, so that ranks compare
RETRIEVAL = "retrieval"
_MEASURES, _TEXTS, _ARRAYS = "measures.json", "texts.json", "arrays.safetensors"


@dataclass(frozen=True)
class Bench:
    """What every student of a study is measured on.

    Attributes:
        tasks: reported ones.
        selection: STS-B dev, or None.
        sample: the texts that geometry is measured on.
        seed: of all draws.
        resamples: of the bootstrap.
        law: folder of the law's target, or None.
        retrieval: folder of the retrieval texts, or None.
        unrotated: also keep the absolute gauges of frame-free students before their rotation.
    """

    tasks: Sequence[StsTask]
    selection: StsTask | None
    sample: GeometrySample
    seed: int
    resamples: int
    law: Path | None = None
    retrieval: Path | None = None
    unrotated: bool = False


def open_part(part: CorpusPart, *, seed: int, column: str | None = None) -> list[str]:
    """Return the texts of a corpus part, or of the grammar's stream of that seed.

    Args:
        part: the table; small enough to be held in memory.
        seed: of the grammar.
        column: instead of the part's own.
    """
    from consilience.corpora.caption_grammar import generate_captions
    from consilience.corpora.text import CorpusSpec, open_corpus

    if part.grammar is not None:
        return list(generate_captions(part.grammar, seed=seed))
    spec = part.model_dump(exclude={"grammar"})
    return list(open_corpus(CorpusSpec(**{**spec, "column": column or part.column})))


def make_law_target(server: Encoder, law: LawPart, known: frozenset[str], *, seed: int, out: Path, plan: Json) -> None:
    """Embed fresh texts with the model that serves: those that its rotations are fitted to, and those they're read on.

    Args:
        server: the model that serves.
        law: where the texts come from, and how many.
        known: texts that students are trained on; none of them is used.
        seed: of the sample.
        out: the artefact's folder.
        plan: what identifies it.

    Raises:
        AlignmentRefusedError: too few texts that no student knows.
        InputError: the texts don't vary.
    """
    from consilience.frames.sampling import split_rows
    from consilience.gauges.variation import report_variation, require_variation
    from consilience.teachers.checked import encode_checked

    work, _ = begin_artefact(out, plan)
    texts = list(dict.fromkeys(open_part(law.corpus, seed=seed + 1)))  # another stream than the training captions
    fresh = [text for text in texts if text not in known]
    split = split_rows(len(fresh), law.pairs, law.held_out, seed=seed)
    chosen = {name: [fresh[row] for row in rows] for name, rows in (("fit", split.fit), ("held_out", split.held_out))}
    vectors = {name: encode_checked(server, rows) for name, rows in chosen.items()}
    variation = report_variation(chosen["held_out"], vectors["held_out"])
    require_variation(variation)  # before any retrieval number is quoted on them
    write_json(work / _TEXTS, chosen)
    _save(work / _ARRAYS, {name: np.asarray(rows, dtype=np.float32) for name, rows in vectors.items()})
    facts = {
        "into": server.name.rsplit("/", 1)[-1],
        "rows": {name: len(rows) for name, rows in chosen.items()},
        "left_out": {"repeated or known to students": len(texts) - len(fresh)},
        "variation": variation.to_json(),
    }
    finish_artefact(out, kind="evaluation", manifest={**plan, "facts": _rounded(facts)}, files=[_TEXTS, _ARRAYS])


def make_retrieval(part: RetrievalPart, known: frozenset[str], *, seed: int, out: Path, plan: Json) -> None:
    """Choose pairs of texts of one group each: queries and the gallery in which each shall find its own.

    Args:
        part: where the texts and their groups come from.
        known: texts that students are trained on; none of them is used.
        seed: of the sample.
        out: the artefact's folder.
        plan: what identifies it.

    Raises:
        CorpusError: rows without a group, or too few groups with two fresh texts.
    """
    work, _ = begin_artefact(out, plan)
    texts = open_part(part.corpus, seed=seed)
    groups = open_part(part.corpus, seed=seed, column=part.group)
    if len(texts) != len(groups):
        raise CorpusError(
            f"{part.corpus.path}: {len(texts)} texts and {len(groups)} values of {part.group!r}; a row lacks one. "
            "Filter such rows out with retrieval.corpus.where"
        )
    members: dict[str, list[str]] = {}
    for text, group in zip(texts, groups, strict=True):
        if text not in known and text not in members.setdefault(group, []):
            members[group].append(text)
    pairs = [(found[0], found[1]) for found in members.values() if len(found) > 1]
    if len(pairs) < part.queries:
        raise CorpusError(
            f"{part.corpus.path}: expected {part.queries} groups of {part.group!r} with two texts that no student "
            f"knows, got {len(pairs)}. Lower retrieval.queries"
        )
    rows = np.sort(rng_from_name("retrieval", seed).permutation(len(pairs))[: part.queries])
    queries, gallery = ([pairs[row][side] for row in rows.tolist()] for side in (0, 1))
    write_json(work / _TEXTS, {"queries": queries, "gallery": gallery})
    manifest = {**plan, "facts": {"queries": len(queries), "groups": len(pairs)}}
    finish_artefact(out, kind="evaluation", manifest=manifest, files=[_TEXTS])


def describe_target(bank_folder: Path, *, out: Path, plan: Json) -> None:
    """Measure a target before any training is spent: effective rank, self-cosine, agreement of its members.

    Args:
        bank_folder: the bank.
        out: the artefact's folder.
        plan: what identifies it.
    """
    from consilience.banks.reader import open_bank
    from consilience.frames.rows import normalise_rows
    from consilience.frames.sampling import stratified_rows
    from consilience.gauges.effective_rank import effective_rank
    from consilience.gauges.isotropy import self_cosine

    work, _ = begin_artefact(out, plan)
    bank = open_bank(bank_folder)
    rows = stratified_rows(bank.rows, min(TARGET_ROWS, bank.rows), np.random.default_rng(0))
    unit = normalise_rows(np.asarray(bank[rows], dtype=np.float32), where=str(bank_folder))
    extra = bank.manifest.get("extra") or {}
    report = extra.get("report") or {}
    facts: Json = {
        "dimensions": bank.dimensions,
        "rows": len(rows),
        "effective_rank": effective_rank(unit).to_json(),
        "self_cosine": self_cosine(unit),
        "frame_free": bool(extra.get("without_axes")),
        "members": [
            {"bank": member["bank_id"], "name": member["teacher"].get("name"), "weight": member["weight"]}
            for member in extra.get("members", [])
        ],
        "centroid_norm": report.get("centroid_norm", {}).get("mean"),
        "agreement": _mean_agreement(report, [member["weight"] for member in extra.get("members", [])]),
    }
    write_json(work / _MEASURES, _rounded(facts))
    finish_artefact(out, kind="evaluation", manifest=plan, files=[_MEASURES])


def _mean_agreement(report: Mapping[str, Any], weights: Sequence[float]) -> float | None:
    """Return the mean cosine between the members that count, or None without two of them."""
    values = report.get("agreement_matrix", {}).get("values")
    kept = [i for i, weight in enumerate(weights) if weight > 0]
    if values is None or len(kept) < 2:
        return None
    return float(np.mean([values[i][j] for i in kept for j in kept if i < j]))


def measure_encoder(
    encoder: Encoder, bench: Bench, *, out: Path, plan: Json, student: Mapping[str, Any] | None
) -> None:
    """Measure one model: task scores with replicates, geometry, retrieval and, of a student, the frame law.

    A model that can't be measured (collapsed, say) gets an artefact that says why, so that the study goes on.

    Args:
        encoder: the model.
        bench: what it's measured on.
        out: the artefact's folder.
        plan: what identifies it.
        student: a student's manifest; None of another model, which gets no rotation.
    """
    work, _ = begin_artefact(out, plan)
    try:
        found, arrays = _measure(encoder, bench)
        if student is not None and bench.law is not None:
            found["law"], rotated = _law(encoder, student, bench.law, unrotated=bench.unrotated)
            arrays.update(rotated)
    except InputError as error:  # the tasks are loaded already: this is the model's fault
        found, arrays = {"fault": str(error).replace(encoder.name, "this model")}, {}
    write_json(work / _MEASURES, _rounded(found))
    _save(work / _ARRAYS, arrays)
    finish_artefact(out, kind="evaluation", manifest=plan, files=[_MEASURES, _ARRAYS])


def read_measures(folder: Path) -> tuple[Json, dict[str, NDArray[np.float64]]]:
    """Return what :func:`measure_encoder` or :func:`describe_target` wrote: numbers, and arrays in float64.

    Args:
        folder: the artefact's.
    """
    path = folder / _ARRAYS
    arrays = _load(path) if path.is_file() else {}
    return read_json(folder / _MEASURES), {name: rows.astype(np.float64) for name, rows in arrays.items()}


def _measure(encoder: Encoder, bench: Bench) -> tuple[Json, dict[str, NDArray[np.floating]]]:
    from consilience.evaluation.embed_once import embed_distinct
    from consilience.evaluation.geometry import measure_geometry
    from consilience.evaluation.suite import mean_tasks

    pairs = None if bench.retrieval is None else read_json(bench.retrieval / _TEXTS)
    known = [*bench.tasks, *([] if bench.selection is None else [bench.selection])]
    sentences = set(bench.sample.texts)
    for task in known:
        sentences.update(task.sentence1, task.sentence2)
    for texts in (pairs or {}).values():
        sentences.update(texts)
    table = embed_distinct(encoder, sentences)
    arrays: dict[str, NDArray[np.floating]] = {}
    scores = {task.name: _score(table, task, bench, arrays) for task in known}
    reported = [task.name for task in bench.tasks]
    averaged = mean_tasks(reported)
    found: Json = {
        "parameters": encoder.parameters,
        "dimensions": encoder.dimensions,
        "tasks": {name: scores[name] for name in reported},
        "selection": {name: score for name, score in scores.items() if name not in reported},
        "mean": float(np.mean([scores[name]["score"] for name in averaged])),
        "mean_of": list(averaged),
        "geometry": measure_geometry(table.rows(bench.sample.texts), bench.sample),
    }
    arrays["mean"] = np.mean([arrays[name] for name in averaged], axis=0)
    found["mean_low"], found["mean_high"] = _interval(arrays["mean"])
    if pairs is not None:
        try:
            found[RETRIEVAL] = _retrieval(table, pairs, bench, arrays)
        except InputError as error:  # queries that don't vary, or a score that doesn't fall: the gauge is refused
            found[RETRIEVAL] = {"refused": str(error)}
    return found, arrays


def _score(table: SentenceTable, task: StsTask, bench: Bench, arrays: dict[str, NDArray[np.floating]]) -> Json:
    from consilience.evaluation.resampling import task_replicates
    from consilience.stats.correlation import spearman

    cosines = table.cosines(task.sentence1, task.sentence2)
    if np.ptp(cosines) == 0:
        raise InputError(f"gives every pair of task {task.name} the cosine {cosines[0]:g}: it has collapsed")
    drawn = task_replicates([cosines], task.score, task=task.name, seed=bench.seed, resamples=bench.resamples)[0]
    arrays[task.name] = drawn
    low, high = _interval(drawn)
    return {"score": spearman(cosines, task.score), "low": low, "high": high, "pairs": len(task)}


def _retrieval(
    table: SentenceTable, pairs: Mapping[str, list[str]], bench: Bench, arrays: dict[str, NDArray[np.floating]]
) -> Json:
    """Read R@1 and R@10; refused when the queries don't vary or the score doesn't fall as the gallery grows."""
    from consilience.gauges.neighbours import gallery_curve, nearest, require_falling
    from consilience.gauges.variation import report_variation, require_variation

    queries, gallery = table.rows(pairs["queries"]), table.rows(pairs["gallery"])
    alive = (np.linalg.norm(queries, axis=1) > 0).all() and (np.linalg.norm(gallery, axis=1) > 0).all()
    if not alive:
        raise InputError("retrieval: a text has no embedding (a zero vector)")
    require_variation(report_variation(pairs["queries"], queries))
    n = len(queries)
    curve = gallery_curve(queries, gallery, sizes=(max(n // 10, 2), n), rng=rng_from_name("gallery", bench.seed))
    require_falling(curve)
    found = nearest(queries, gallery, k=min(10, n), metric="cosine")
    own = found == np.arange(n)[:, None]
    result: Json = {"gallery": n, "curve": [list(pair) for pair in curve.pairs()]}
    drawn = rng_from_name("bootstrap/retrieval", bench.seed).integers(0, n, size=(bench.resamples, n), dtype=np.int32)
    for name, hits in (("recall_at_1", own[:, 0]), ("recall_at_10", own.any(axis=1))):
        arrays[name] = hits.astype(np.float64)[drawn].mean(axis=1)
        low, high = _interval(arrays[name])
        result[name] = {"score": float(hits.mean()), "low": low, "high": high}
    return result


def _law(
    encoder: Encoder, manifest: Mapping[str, Any], folder: Path, *, unrotated: bool
) -> tuple[Json, dict[str, NDArray[np.floating]]]:
    """Rotate the student into the serving model's frame; keep its rotated rows to compare seeds."""
    from consilience.committee.frame_law import measure_student, student_frame
    from consilience.committee.rotation import unit_pairs
    from consilience.teachers.checked import encode_checked

    texts, arrays = read_json(folder / _TEXTS), _load(folder / _ARRAYS)
    sides = {
        name: unit_pairs(encode_checked(encoder, texts[name]), arrays[name], names=("this model", "the serving model"))
        for name in ("fit", "held_out")
    }
    frame = student_frame(manifest)
    try:
        row = measure_student("student", frame, fit=sides["fit"], held_out=sides["held_out"])
    except AlignmentRefusedError as error:  # rows that share nothing with the serving model's
        return {"family": frame.family, "frame_free": frame.frame_free, "refused": str(error)}, {}
    return row.to_json(unrotated=unrotated), {"rotated": row.rotated.astype(np.float16)}


def write_failure(error: ConsilienceError, work: Path, *, out: Path, plan: Json) -> None:
    """Write the artefact of a training that failed: why, and its log; what it left behind is removed.

    Args:
        error: why.
        work: the student's folder, which has only a partial one.
        out: the artefact's folder.
        plan: what identifies it.
    """
    import shutil

    target, _ = begin_artefact(out, plan)
    left = partial_path(work)
    files = []
    if (left / "log.jsonl").is_file():
        shutil.copyfile(left / "log.jsonl", target / "log.jsonl")
        files.append("log.jsonl")
    reason = str(error).replace(f"{left}: ", "").replace(str(left), left.name)
    finish_artefact(out, kind="failure", manifest={**plan, "error": reason}, files=files)
    discard_work(left)


def _interval(replicates: NDArray[np.floating]) -> tuple[float, float]:
    from consilience.evaluation.resampling import percentile_interval

    return percentile_interval(np.asarray(replicates, dtype=np.float64))


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    from consilience.committee.consensus_report import rounded_json

    return rounded_json(value, 7)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    from safetensors.numpy import load

    found: dict[str, NDArray[Any]] = load(path.read_bytes())
    return found


def _save(path: Path, arrays: Mapping[str, NDArray[np.floating]]) -> None:
    from safetensors.numpy import save

    with atomic_write(path) as stream:
        stream.write(save({name: np.ascontiguousarray(rows) for name, rows in arrays.items()}))
