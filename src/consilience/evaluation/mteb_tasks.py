"""The same eight tasks through ``mteb`` and a model hub, for when no data folder is given."""

from __future__ import annotations

import hashlib
import os
import socket
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.extras import require
from consilience.core.hashing import canonical_json
from consilience.evaluation.sts import REPORTED_TASKS, SELECTION_TASK, StsTask

_MTEB_NAMES = {
    "stsb-test": ("STSBenchmark", "test"),
    "sick-r": ("SICK-R", "test"),
    "sts12": ("STS12", "test"),
    "sts13": ("STS13", "test"),
    "sts14": ("STS14", "test"),
    "sts15": ("STS15", "test"),
    "sts16": ("STS16", "test"),
    "biosses": ("BIOSSES", "test"),
    SELECTION_TASK: ("STSBenchmark", "validation"),
}


def load_mteb_tasks(names: Sequence[str] = REPORTED_TASKS) -> list[StsTask]:
    """Fetch tasks at the revisions that the installed ``mteb`` pins.

    Args:
        names: our task names; by default the eight reported ones.

    Raises:
        InputError: the hub can't be reached or the data isn't in its local cache.
        MissingExtraError: ``mteb`` isn't installed.
    """
    mteb = require("mteb", extra="hub", purpose="to fetch the STS tasks (or give --data DIR)")
    _require_hub(names[0])
    return [_load_task(mteb, name) for name in names]


def _require_hub(first: str) -> None:
    """Refuse at once when the hub's name doesn't resolve; its client would retry for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or urllib.request.getproxies():
        return  # offline mode reads the local cache; behind a proxy, names needn't resolve here
    host = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).hostname or ""
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        raise InputError(_unreachable(first, f"{host} isn't reachable")) from error


def _unreachable(task: str, reason: str) -> str:
    return (
        f"task {task}: can't be fetched through mteb: {reason}. Give a folder with sts/*.tsv: --data DIR or the "
        "environment variable CONSILIENCE_DATA; or run --tasks grammar, which needs no data"
    )


def _load_task(mteb: Any, name: str) -> StsTask:  # noqa: ANN401 - an untyped module
    known, split = _MTEB_NAMES[name]
    task = mteb.get_task(known)
    try:
        task.load_data()
    except (OSError, ValueError, RuntimeError) as error:
        # datasets raises ConnectionError (an OSError), DatasetNotFoundError (an OSError) or ValueError when offline
        raise InputError(_unreachable(name, f"{type(error).__name__}: {error}")) from error
    rows = task.dataset[split]
    sentence1, sentence2 = tuple(map(str, rows["sentence1"])), tuple(map(str, rows["sentence2"]))
    score = np.asarray(rows["score"], dtype=np.float64)
    content = canonical_json([sentence1, sentence2, score.tolist()])
    dataset = task.metadata.dataset
    return StsTask(
        name=name,
        sentence1=sentence1,
        sentence2=sentence2,
        score=score,
        sha256=hashlib.sha256(content).hexdigest(),
        source=f"mteb:{known}/{split} ({dataset['path']}@{dataset['revision']})",
    )
