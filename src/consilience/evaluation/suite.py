"""The harness: encoders in, scores with intervals and paired comparisons out. It knows no model's loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import Encoder
from consilience.core.errors import InputError
from consilience.evaluation.embed_once import embed_distinct, measure_speed
from consilience.evaluation.geometry import GeometrySample, geometry_sample, measure_geometry
from consilience.evaluation.grammar_task import grammar_task
from consilience.evaluation.resampling import paired_difference, percentile_interval, task_replicates
from consilience.evaluation.result import Comparison, EvaluationResult, ModelResult, Speed, TaskScore
from consilience.evaluation.sts import REPORTED_TASKS, SELECTION_TASK, StsTask
from consilience.stats.correlation import spearman

SPEED_SENTENCES = 256


@dataclass(frozen=True)
class _Measured:
    """What one pass over the sentences with one model gives; the vectors themselves aren't kept."""

    cosines: dict[str, NDArray[np.float64]]
    geometry: dict[str, Any]
    sentences_per_second: Speed


@dataclass(frozen=True)
class _Scored:
    """A task's score with the replicates that its interval and comparisons are made from."""

    score: TaskScore
    replicates: NDArray[np.float64]


def evaluate_encoders(
    encoders: Sequence[Encoder],
    tasks: Sequence[StsTask],
    *,
    selection: StsTask | None = None,
    seed: int = 0,
    resamples: int = 1_000,
    names: Sequence[str] | None = None,
) -> EvaluationResult:
    """Score encoders on tasks: Spearman of cosine, all pairs of a task pooled.

    Each distinct sentence is embedded once per model. Bootstrap draws depend on the task and the seed alone, so
    every comparison between models is paired.

    Args:
        encoders: models, already loaded.
        tasks: what is reported; STS-B dev is refused here.
        selection: STS-B dev, scored apart and never in the mean; also the sample for the geometry.
        seed: of all draws.
        resamples: bootstrap resamples.
        names: what to call the models; by default the encoders' names.

    Returns:
        Scores, means, geometry, speed, and the comparisons of all pairs of models.

    Raises:
        InputError: no model or task, equal names, or the selection task among the reported ones.
        TeacherError: a model returns NaN, infinite or misshapen vectors.

    Source:
        Design, section 10.
    """
    labels = list(names) if names is not None else [encoder.name for encoder in encoders]
    _check_request(labels, tasks)
    grammar = next((task for task in tasks if task.name == "grammar"), None) or grammar_task()
    sample = geometry_sample(selection, grammar)
    speed_sample = grammar.sentence1[:SPEED_SENTENCES]
    averaged = mean_tasks([task.name for task in tasks])

    known = [*tasks, *([] if selection is None else [selection])]
    measured = [_measure(encoder, known, sample, speed_sample) for encoder in encoders]
    scored = _score_all(measured, labels, known, seed, resamples)
    models = [
        _model_result(encoder, label, entry, scores, averaged, [task.name for task in tasks])
        for encoder, label, entry, scores in zip(encoders, labels, measured, scored, strict=True)
    ]
    comparisons = [
        comparison
        for i, j in combinations(range(len(models)), 2)
        for comparison in _compare(labels[i], labels[j], scored[i], scored[j], [task.name for task in tasks], averaged)
    ]
    record = {
        "seed": seed,
        "seeds": 1,
        "resamples": resamples,
        "data": {task.name: {"sha256": task.sha256, "source": task.source, "pairs": len(task)} for task in known},
        "speed_sample": f"{len(speed_sample)} grammar captions, median, least and most of 5 passes after a warm-up",
    }
    return EvaluationResult(tuple(models), tuple(comparisons), record)


def mean_tasks(names: Sequence[str]) -> tuple[str, ...]:
    """Return the tasks that the mean is over: the eight STS tasks when all are there, else all tasks run.

    Example:
        >>> mean_tasks(["sts12", "grammar"])
        ('sts12', 'grammar')
        >>> len(mean_tasks([*REPORTED_TASKS, "grammar"]))
        8
    """
    return REPORTED_TASKS if set(REPORTED_TASKS) <= set(names) else tuple(names)


def _check_request(labels: Sequence[str], tasks: Sequence[StsTask]) -> None:
    if not labels:
        raise InputError("evaluate: at least one model expected, got none")
    if not tasks:
        raise InputError("evaluate: at least one task expected, got none. Name some: --tasks sts,grammar")
    for kind, given in (("model", labels), ("task", [task.name for task in tasks])):
        repeated = sorted({name for name in given if given.count(name) > 1})
        if repeated:
            raise InputError(f"evaluate: {kind} {repeated[0]} is given twice. Name each {kind} once")
    if any(task.name == SELECTION_TASK for task in tasks):
        raise InputError(
            f"evaluate: {SELECTION_TASK} is the selection task and isn't reported beside the others. "
            "It's read and reported apart whenever the data folder has it"
        )


def _measure(
    encoder: Encoder, tasks: Sequence[StsTask], sample: GeometrySample, speed_sample: Sequence[str]
) -> _Measured:
    sentences = set(sample.texts)
    for task in tasks:
        sentences.update(task.sentence1, task.sentence2)
    table = embed_distinct(encoder, sentences)
    return _Measured(
        cosines={task.name: table.cosines(task.sentence1, task.sentence2) for task in tasks},
        geometry=measure_geometry(table.rows(sample.texts), sample),
        sentences_per_second=measure_speed(encoder, speed_sample),
    )


def _score_all(
    measured: Sequence[_Measured], labels: Sequence[str], tasks: Sequence[StsTask], seed: int, resamples: int
) -> list[dict[str, _Scored]]:
    """Score each model on each task; all models share the draws of a task."""
    scored: list[dict[str, _Scored]] = [{} for _ in measured]
    for task in tasks:
        cosines = [entry.cosines[task.name] for entry in measured]
        for values, label in zip(cosines, labels, strict=True):
            if np.ptp(values) == 0:
                raise InputError(
                    f"{label}: gives every pair of task {task.name} the cosine {values[0]:g}: no order to correlate. "
                    "The model has collapsed, or all its vectors are zero"
                )
        replicates = task_replicates(cosines, task.score, task=task.name, seed=seed, resamples=resamples)
        for scores, values, drawn in zip(scored, cosines, replicates, strict=True):
            score = TaskScore(spearman(values, task.score), *percentile_interval(drawn), len(task))
            scores[task.name] = _Scored(score, drawn)
    return scored


def _model_result(
    encoder: Encoder,
    label: str,
    measured: _Measured,
    scores: dict[str, _Scored],
    averaged: tuple[str, ...],
    reported: Sequence[str],
) -> ModelResult:
    mean_low, mean_high = percentile_interval(_mean_replicates(scores, averaged))
    return ModelResult(
        model=label,
        parameters=encoder.parameters,
        dimensions=encoder.dimensions,
        tasks={name: scores[name].score for name in reported},
        mean=_mean(scores, averaged),
        mean_low=mean_low,
        mean_high=mean_high,
        mean_of=averaged,
        geometry=measured.geometry,
        sentences_per_second=measured.sentences_per_second,
        selection={name: entry.score for name, entry in scores.items() if name not in reported},
        identity=encoder.identity(),
    )


def _mean(scores: dict[str, _Scored], averaged: Sequence[str]) -> float:
    return float(np.mean([scores[name].score.score for name in averaged]))


def _mean_replicates(scores: dict[str, _Scored], averaged: Sequence[str]) -> NDArray[np.float64]:
    return np.asarray(np.mean([scores[name].replicates for name in averaged], axis=0), dtype=np.float64)


def _compare(
    first: str,
    second: str,
    ours: dict[str, _Scored],
    theirs: dict[str, _Scored],
    reported: Sequence[str],
    averaged: Sequence[str],
) -> list[Comparison]:
    found = {
        name: paired_difference(
            ours[name].score.score, theirs[name].score.score, ours[name].replicates, theirs[name].replicates
        )
        for name in reported
    }
    found["mean"] = paired_difference(
        _mean(ours, averaged),
        _mean(theirs, averaged),
        _mean_replicates(ours, averaged),
        _mean_replicates(theirs, averaged),
    )
    return [
        Comparison(first, second, name, pair.difference, pair.low, pair.high, pair.p_value)
        for name, pair in found.items()
    ]
