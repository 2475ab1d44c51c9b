"""Evaluation: texts in, scores with intervals out; it sees models only as ``core.encoder.Encoder``."""

from consilience.evaluation.result import Comparison, EvaluationResult, ModelResult, TaskScore
from consilience.evaluation.sts import REPORTED_TASKS, SELECTION_TASK, StsTask, load_sts_folder
from consilience.evaluation.suite import evaluate_encoders

__all__ = [
    "REPORTED_TASKS",
    "SELECTION_TASK",
    "Comparison",
    "EvaluationResult",
    "ModelResult",
    "StsTask",
    "TaskScore",
    "evaluate_encoders",
    "load_sts_folder",
]
