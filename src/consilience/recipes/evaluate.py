"""Evaluate models: STS from a folder or a hub, the caption-grammar task, geometry, speed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.core.errors import InputError

if TYPE_CHECKING:
    from consilience.core.encoder import Encoder
    from consilience.evaluation.result import EvaluationResult
    from consilience.evaluation.sts import StsTask

DATA_VARIABLE = "CONSILIENCE_DATA"


def evaluate(
    models: Sequence[str | Path | Encoder],
    *,
    tasks: Sequence[str] = ("sts", "grammar"),
    data: str | Path | None = None,
    seed: int = 0,
    resamples: int = 1_000,
    trust_remote_code: bool = False,
    command: str | None = None,
) -> EvaluationResult:
    """Score models on tasks, with 95% bootstrap intervals and paired comparisons between all models.

    Args:
        models: paths, teacher specs or loaded encoders; see :func:`consilience.recipes.encoders.open_encoder`.
        tasks: "sts" (the eight reported tasks), "grammar", or single tasks such as "sts14".
        data: folder with ``sts/*.tsv``; by default the variable CONSILIENCE_DATA, else ``mteb`` and a hub.
        seed: of the bootstrap draws.
        resamples: bootstrap resamples.
        trust_remote_code: let Hugging Face models run code of their own.
        command: what to record as the command that made the numbers.

    Returns:
        The result; ``to_json()`` is what ``consilience evaluate --json`` prints.

    Raises:
        InputError: an unknown model or task, or no data for a task.
        TeacherError: a model can't be loaded or returns unusable vectors.
    """
    from consilience.core.encoder import Encoder as EncoderProtocol
    from consilience.evaluation.suite import evaluate_encoders
    from consilience.recipes.encoders import open_encoder

    if isinstance(models, str | Path):
        models = [models]
    loaded_tasks, selection = load_tasks(tasks, data)  # before the models: it's cheap and fails more often
    encoders: list[Encoder] = []
    names: list[str] = []
    for model in models:
        if isinstance(model, str | Path):
            encoders.append(open_encoder(model, trust_remote_code=trust_remote_code))
            names.append(str(model))
        elif isinstance(model, EncoderProtocol):
            encoders.append(model)
            names.append(model.name)
        else:
            raise InputError(f"evaluate: a path, a spec or an encoder expected as model, got {type(model).__name__}")
    result = evaluate_encoders(encoders, loaded_tasks, selection=selection, seed=seed, resamples=resamples, names=names)
    return result if command is None else replace(result, record={**result.record, "command": command})


def load_tasks(names: Sequence[str], data: str | Path | None = None) -> tuple[list[StsTask], StsTask | None]:
    """Load the tasks that names stand for, and STS-B dev where STS data is at hand.

    Args:
        names: "sts", "grammar", or names of single tasks.
        data: folder with ``sts/*.tsv``; by default the variable CONSILIENCE_DATA, else ``mteb`` and a hub.

    Returns:
        The tasks in the order asked, and the selection task or None.

    Raises:
        InputError: an unknown name, a missing or malformed file, or neither data nor hub.
    """
    from consilience.evaluation.grammar_task import GRAMMAR_TASK, grammar_task
    from consilience.evaluation.sts import REPORTED_TASKS, SELECTION_TASK

    wanted: list[str] = []
    for name in names:
        if name not in ("sts", GRAMMAR_TASK, *REPORTED_TASKS):
            hint = f"; {SELECTION_TASK} is read and reported apart by itself" if name == SELECTION_TASK else ""
            raise InputError(
                f"task {name!r}: unknown. Choose from sts (all eight), {GRAMMAR_TASK}, "
                f"{', '.join(REPORTED_TASKS)}{hint}"
            )
        wanted += [task for task in (REPORTED_TASKS if name == "sts" else (name,)) if task not in wanted]
    folder = data if data is not None else os.environ.get(DATA_VARIABLE) or None
    from_data = [name for name in wanted if name != GRAMMAR_TASK]
    read, selection = _read_sts(from_data, folder)
    by_name = {task.name: task for task in read}
    return [grammar_task() if name == GRAMMAR_TASK else by_name[name] for name in wanted], selection


def _read_sts(names: Sequence[str], folder: str | Path | None) -> tuple[list[StsTask], StsTask | None]:
    from consilience.evaluation.mteb_tasks import load_mteb_tasks
    from consilience.evaluation.sts import SELECTION_TASK, load_selection_task, load_sts_folder

    if not names:
        return [], None
    if folder is not None:
        return load_sts_folder(folder, names), load_selection_task(folder)
    *tasks, selection = load_mteb_tasks([*names, SELECTION_TASK])
    return tasks, selection
