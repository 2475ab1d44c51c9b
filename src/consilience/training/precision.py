"""fp32 or bf16: measured on the student's own batches at the start, then fixed for good.

Which one is faster on a CPU depends on the machine (bf16 instructions or not) and on the student's width, so
``auto`` times both. The choice is kept twice: in the working folder, so that an interrupted training continues in it,
and in the cache folder, so that the same job on the same machine is the same bytes however busy the machine is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from consilience.core.cache import cache_folder
from consilience.core.files import read_json, storage_errors, write_json
from consilience.core.hashing import content_id
from consilience.core.progress import log
from consilience.training.settings import Precision

FILE = "precision.json"
HOPELESS = 0.5  # of fp32's speed in the first round: emulated, which may take a hundred times as long
ROUNDS = 4  # timed in turn, so that a machine whose speed drifts doesn't decide
REQUIRED_SPEEDUP = 1.25  # assumed: bf16 costs digits, and a choice on the edge would differ from run to run


def choose_precision(
    asked: Precision,
    work: Path,
    device: torch.device,
    shape: Mapping[str, Any],
    step: Callable[[], object],
    *,
    label: str = "distill",
) -> str:
    """Return the precision to train in, "fp32" or "bf16".

    Args:
        asked: "fp32" and "bf16" are taken as they are.
        work: the working folder; a choice made there earlier stands, and then one of this machine for this shape.
        device: on a GPU, "auto" is bf16 where the GPU has it.
        shape: what the speed depends on besides the machine, as JSON.
        step: one forward and backward pass, without effect on the student.
        label: of the line that says what was chosen.

    Raises:
        StorageError: the choice can't be written into the working or the cache folder.
    """
    if asked != "auto":
        return asked
    if device.type != "cpu":
        return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"
    path = work / FILE
    if not path.is_file():
        write_json(path, _measured_here(shape, step))
    choice = read_json(path)
    if not choice["bf16_speedup"]:
        log(f"{label}: this processor has no bf16 instructions: training in fp32")
        return str(choice["precision"])
    log(
        f"{label}: bf16 was {choice['bf16_speedup']:.2f}x the speed of fp32 on this machine (at least "
        f"{REQUIRED_SPEEDUP:g}x is asked): training in {choice['precision']}"
    )
    return str(choice["precision"])


def _measured_here(shape: Mapping[str, Any], step: Callable[[], object]) -> dict[str, Any]:
    """Return this machine's choice for a shape, measured once and kept in the cache folder."""
    machine = {
        "torch": str(torch.__version__),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "bf16": has_bf16_instructions(),
        "threads": torch.get_num_threads(),
    }
    kept = cache_folder() / f"{content_id({**machine, **shape}, prefix='precision-')}.json"
    if not kept.is_file():
        # Without the instructions every product is emulated: one step would take minutes.
        speedup = round(measure_speedup(step), 3) if machine["bf16"] else 0.0
        with storage_errors(kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, {"precision": "bf16" if speedup >= REQUIRED_SPEEDUP else "fp32", "bf16_speedup": speedup})
    choice: dict[str, Any] = read_json(kept)
    return choice


def has_bf16_instructions() -> bool:
    """Say whether this processor computes in bf16 itself."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def measure_speedup(step: Callable[[], object]) -> float:
    """Return how much faster a step is under bf16 autocast on the CPU than in fp32: a ratio of medians.

    Where the first round leaves no hope, its ratio is the result.
    """
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for round_number in range(ROUNDS + 1):
        for half in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                began = time.perf_counter()
                step()
                seconds[half].append(time.perf_counter() - began)
        ratio = seconds[False][-1] / max(seconds[True][-1], 1e-9)
        if ratio < HOPELESS:
            return ratio
        if not round_number:  # it warmed caches and kernels
            seconds = {False: [], True: []}
    return statistics.median(seconds[False]) / statistics.median(seconds[True])
