"""fp32 or bf16: measured on the student's own batches at the start, then fixed for good.

Which one is faster on a CPU depends on the machine (bf16 instructions or not) and on the student's width, so
``auto`` times both. The choice is written down at once: an interrupted training continues in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from consilience.core.files import read_json, write_json
from consilience.core.progress import log
from consilience.training.settings import Precision

FILE = "precision.json"
ROUNDS = 4  # timed in turn, so that a machine whose speed drifts doesn't decide
REQUIRED_SPEEDUP = 1.25  # assumed: bf16 costs digits, and a choice on the edge would differ from run to run


def choose_precision(asked: Precision, work: Path, device: torch.device, step: Callable[[], object]) -> str:
    """Return the precision to train in, "fp32" or "bf16".

    Args:
        asked: "fp32" and "bf16" are taken as they are.
        work: the working folder; a choice made there earlier stands.
        device: on a GPU, "auto" is bf16 where the GPU has it.
        step: one forward and backward pass, without effect on the student.
    """
    if asked != "auto":
        return asked
    if device.type != "cpu":
        return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"
    path = work / FILE
    if path.is_file():
        return str(read_json(path)["precision"])
    speedup = measure_speedup(step)
    chosen = "bf16" if speedup >= REQUIRED_SPEEDUP else "fp32"
    write_json(path, {"precision": chosen, "bf16_speedup": round(speedup, 3)})
    log(f"distill: bf16 is {speedup:.2f}x the speed of fp32 here: training in {chosen}")
    return chosen


def measure_speedup(step: Callable[[], object]) -> float:
    """Return how much faster a step is under bf16 autocast on the CPU than in fp32: a ratio of medians."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for round_number in range(ROUNDS + 1):
        for half in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                began = time.perf_counter()
                step()
                if round_number:  # the first round warms caches and kernels
                    seconds[half].append(time.perf_counter() - began)
    return statistics.median(seconds[False]) / statistics.median(seconds[True])
