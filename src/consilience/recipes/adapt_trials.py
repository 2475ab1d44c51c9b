"""What roster, sweep and transplant share: trials that are kept when the job is killed, and paired scores."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.adapters.handle import Handle
    from consilience.adapters.library import AnchorLibrary
    from consilience.adapters.masks import Mask
    from consilience.corpora.pairs import PairCorpus
    from consilience.evaluation.sts import StsTask
    from consilience.training.pair_loop import PairSettings
    from consilience.training.pair_model import PairModel
    from consilience.training.pair_tokens import PairTokens

KIND = "adapt-study"
RESULTS, REPORT = "results.json", "report.md"


class Trials:
    """Trials of a job, each done once: a killed job continues with the first that is missing.

    Args:
        work: the artefact's working folder.
    """

    def __init__(self, work: Path) -> None:
        self._work = work

    def run(self, name: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """Return a trial's result, made now or by an earlier attempt.

        Args:
            name: of the trial.
            make: gets a folder for checkpoints and returns JSON.
        """
        from consilience.core.files import read_json, write_json
        from consilience.core.progress import log

        stem = re.sub(r"[^a-z0-9_.-]", "-", name)
        path = self._work / "trials" / f"{stem}.json"
        if path.is_file():
            return dict(read_json(path))
        folder = self._work / "running" / stem
        folder.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        result = make(folder)
        write_json(path, result)
        shutil.rmtree(folder)
        log(f"adapt: {name}: {result['score']:.4f}")
        return dict(read_json(path))  # as a continued job will see it


@dataclass(frozen=True)
class Bench:
    """A trunk, pairs and tasks that trials are run on.

    Attributes:
        model: the trunk, carrying no library.
        domains: pairs that keys are aligned on, the same for all trials.
        settings: of the alignment.
        tasks: what is scored.
    """

    model: PairModel
    domains: Sequence[PairTokens]
    settings: PairSettings
    tasks: Sequence[StsTask]

    def score(self, mask: Mask | None = None) -> dict[str, Any]:
        """Score the model as it is: ``score`` (the mean of tasks) and ``cosines`` of each task's pairs."""
        from consilience.adapters.adapted_encoder import AdaptedEncoder

        return score_encoder(AdaptedEncoder(self.model.model, mask, name=self.model.name), self.tasks)

    def score_bare(self) -> dict[str, Any]:
        """Score the trunk without a library."""
        from consilience.training.pair_model import PlainEncoder

        return score_encoder(PlainEncoder(self.model), self.tasks)

    def aligned(
        self, library: AnchorLibrary, folder: Path, *, settings: PairSettings | None = None, force: bool = False
    ) -> dict[str, Any]:
        """Align a library's keys and score it: ``score``, ``cosines``, ``reads``, ``events``."""
        from consilience.training.key_alignment import align_keys

        def measure(handle: Handle) -> dict[str, Any]:
            summary, reads = align_keys(handle, self.model, self.domains, settings or self.settings, folder)
            return {**self.score(), "reads": reads.to_json(), "events": summary.events}

        return self.attached(library, measure, force=force)

    def attached(
        self, library: AnchorLibrary, measure: Callable[[Handle], dict[str, Any]], *, force: bool = False
    ) -> dict[str, Any]:
        """Attach a library, measure, take it off; ``forced`` says where it was forced onto a foreign trunk."""
        from consilience.adapters.attach import attach_amoe

        handle = attach_amoe(self.model.model, library, force=force)
        try:
            return {**measure(handle), "forced": handle.forced}
        finally:
            handle.detach()


def score_encoder(encoder: Any, tasks: Sequence[StsTask]) -> dict[str, Any]:  # noqa: ANN401 - an Encoder
    """Score an encoder: the mean of the tasks' Spearman correlations, and the cosines that it rests on."""
    import numpy as np

    from consilience.evaluation.embed_once import embed_distinct
    from consilience.stats.correlation import spearman

    table = embed_distinct(encoder, {text for task in tasks for text in (*task.sentence1, *task.sentence2)})
    cosines = {task.name: table.cosines(task.sentence1, task.sentence2) for task in tasks}
    scores = {task.name: float(spearman(cosines[task.name], task.score)) for task in tasks}
    return {
        "score": float(np.mean(list(scores.values()))),
        "tasks": scores,
        "cosines": {name: values.tolist() for name, values in cosines.items()},
    }


def paired(
    first: Mapping[str, Any], second: Mapping[str, Any], tasks: Sequence[StsTask], *, seed: int, resamples: int
) -> dict[str, float]:
    """Compare two trials' means on the same resampled pairs: difference, 95% interval, p-value."""
    import numpy as np

    from consilience.evaluation.resampling import paired_difference

    one, other = (_replicates(trial, tasks, seed, resamples) for trial in (first, second))
    found = paired_difference(first["score"], second["score"], np.mean(one, axis=0), np.mean(other, axis=0))
    return {"difference": found.difference, "low": found.low, "high": found.high, "p_value": found.p_value}


def interval(trial: Mapping[str, Any], tasks: Sequence[StsTask], *, seed: int, resamples: int) -> tuple[float, float]:
    """Return the 95% interval of a trial's score."""
    import numpy as np

    from consilience.evaluation.resampling import percentile_interval

    return percentile_interval(np.mean(_replicates(trial, tasks, seed, resamples), axis=0))


def _replicates(trial: Mapping[str, Any], tasks: Sequence[StsTask], seed: int, resamples: int) -> NDArray[np.float64]:
    import numpy as np

    from consilience.evaluation.resampling import task_replicates

    rows = [
        task_replicates(
            [np.asarray(trial["cosines"][task.name])], task.score, task=task.name, seed=seed, resamples=resamples
        )[0]
        for task in tasks
    ]
    return np.stack(rows)


def shown(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial without what only the comparisons need."""
    return {key: value for key, value in trial.items() if key != "cosines"}


def load_selection(data: str | Path | None) -> StsTask:
    """Load STS-B dev, the only task that a selection may read.

    Raises:
        InputError: it isn't at hand.
    """
    import os

    from consilience.evaluation.sts import SELECTION_TASK, load_selection_task
    from consilience.recipes.evaluate import DATA_VARIABLE

    folder = data if data is not None else os.environ.get(DATA_VARIABLE) or None
    task = load_selection_task(folder) if folder is not None else None
    if task is None:
        raise InputError(
            f"adapt: expected {SELECTION_TASK}.tsv, which selection reads, in {folder or 'no folder'}. Name the folder "
            f"that holds sts/ with --data, or set {DATA_VARIABLE}"
        )
    return task


def tokenize_all(model: PairModel, corpora: Mapping[str, PairCorpus], *, seed: int) -> list[PairTokens]:
    """Tokenise named pairs, in their order."""
    from consilience.training.pair_tokens import tokenize_pairs

    return [tokenize_pairs(model, corpus, name=name, seed=seed) for name, corpus in corpora.items()]


def store_study(out: Path, job: Mapping[str, Any], results: Mapping[str, Any], markdown: str) -> dict[str, Any]:
    """Write results and report and finish the artefact; return the results as written."""
    from consilience.core.artefacts import finish_artefact
    from consilience.core.files import atomic_write, read_json, write_json
    from consilience.core.manifests import partial_path

    work = partial_path(out)
    write_json(work / RESULTS, results)
    with atomic_write(work / REPORT, "w") as stream:
        stream.write(markdown)
    finish_artefact(out, kind=KIND, manifest={"job": dict(job)}, files=[RESULTS, REPORT])
    return dict(read_json(out / RESULTS))


def finished_study(out: Path, job: Mapping[str, Any], *, overwrite: bool) -> dict[str, Any] | None:
    """Return the results that are at ``out`` when they are this job's, None when there is work to do."""
    from consilience.core.artefacts import is_finished
    from consilience.core.files import read_json
    from consilience.core.manifests import verify_artefact

    if not is_finished(out, kind=KIND, job=dict(job), overwrite=overwrite):
        return None
    verify_artefact(out, KIND)
    found: dict[str, Any] = read_json(out / RESULTS)
    return found
