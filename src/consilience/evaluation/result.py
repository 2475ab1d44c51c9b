"""What an evaluation found, as data and as the JSON object that ``consilience evaluate --json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TaskScore:
    """Spearman of cosine on one task, with its 95% bootstrap interval."""

    score: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Speed:
    """Sentences a second over a few timed passes: the same model on the same machine reads differently each time."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class ModelResult:
    """One model's numbers.

    Attributes:
        model: what the person called it.
        parameters: used by inference, or None when unknown.
        dimensions: width of the vectors.
        tasks: scores by task name, in the order asked; never the selection task.
        mean: unweighted mean over the eight STS tasks where all are present, else over the tasks run.
        mean_low: lower end of the mean's 95% interval (pairs resampled within each task; the tasks are fixed).
        mean_high: upper end.
        mean_of: the tasks that the mean is over.
        geometry: gauges on the fixed sample.
        sentences_per_second: on a fixed sample, after loading and a warm-up: median, least and most.
        selection: STS-B dev, reported apart; for choosing between models, never for claims.
        identity: what determines the vectors.
    """

    model: str
    parameters: int | None
    dimensions: int
    tasks: Mapping[str, TaskScore]
    mean: float
    mean_low: float
    mean_high: float
    mean_of: tuple[str, ...]
    geometry: Mapping[str, Any]
    sentences_per_second: Speed
    selection: Mapping[str, TaskScore]
    identity: Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Two models on the same resampled pairs.

    Attributes:
        first: a model.
        second: the model that it is compared with.
        task: a task's name, or "mean".
        difference: score of the first minus score of the second.
        low: lower end of the difference's 95% interval.
        high: upper end.
        p_value: two-sided; not corrected for the number of comparisons.
    """

    first: str
    second: str
    task: str
    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class EvaluationResult:
    """All models' results and every pair's comparisons.

    Attributes:
        models: in the order given.
        comparisons: all pairs of models, per task and for the mean.
        record: what produced the numbers: seed, resamples, the tasks' checksums and sources, the command.
    """

    models: tuple[ModelResult, ...]
    comparisons: tuple[Comparison, ...]
    record: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of ``consilience evaluate --json``."""
        return {
            "models": [_model_json(model) for model in self.models],
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            **self.record,
        }


def _model_json(model: ModelResult) -> dict[str, Any]:
    return {
        "model": model.model,
        "parameters": model.parameters,
        "dimensions": model.dimensions,
        "tasks": {name: asdict(score) for name, score in model.tasks.items()},
        "mean": model.mean,
        "mean_low": model.mean_low,
        "mean_high": model.mean_high,
        "mean_of": list(model.mean_of),
        "geometry": dict(model.geometry),
        "sentences_per_second": asdict(model.sentences_per_second),
        "selection": {name: asdict(score) for name, score in model.selection.items()},
        "identity": dict(model.identity),
    }
