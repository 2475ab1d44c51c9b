"""The one boundary around somebody's model: whatever a call into it raises becomes one line, and first use is tried."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ConsilienceError, TeacherError
from consilience.core.progress import log
from consilience.teachers.checked import check_embeddings

PROBES = (
    "A cat.",
    "Two dogs are running across a snowy field.",
    "Nobody expected the third violinist, who had never played in public before, to finish the piece alone!",
)
# Assumed: above the position tables of the usual encoders (512 and a few), whose end a probe has to reach; a model with
# a longer limit is tried at this length only, since its whole length would take minutes.
_LONGEST_PROBE = 600
# Relative to the longest vector. Rounding stays two orders of magnitude below; a mask that a model ignores, positions
# that padding shifts and scales of a quantised batch are far above.
_SAME_ROW = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 2e-2}
_one_load = threading.RLock()
_TRUST = "Pass --trust-remote-code (in Python trust_remote_code=True) if you trust the model's own code"


@contextmanager
def model_call(teacher: str, call: str, fix: str) -> Iterator[None]:
    """Turn whatever somebody's model or its library raises into one line.

    Args:
        teacher: name for the message.
        call: what is tried, after "can't": "load it", "embed 3 texts".
        fix: what the person can do about it.

    Raises:
        TeacherError: anything but our own errors was raised inside.
    """
    try:
        yield
    except ConsilienceError:
        raise
    except BaseException as error:
        # The Rust libraries' panics derive from BaseException directly.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        fix = _TRUST if "trust_remote_code" in str(error) else fix
        raise TeacherError(
            f"teacher {teacher}: can't {call}: {type(error).__name__}: {first_line(error)}. {fix}"
        ) from error


@contextmanager
def loading(teacher: str, fix: str = "Check the name, or fetch the model again") -> Iterator[None]:
    """Load a model of transformers or sentence-transformers: quietly, and refusing what these only warn of.

    Bars, loggers and the type that transformers loads in are the process's: threads load one after another.

    Raises:
        TeacherError: the load failed, left weights at random values, or made another kind of model of the files.
    """
    from transformers.utils import logging as transformers_logging

    collect = _Collect(logging.WARNING)
    with _one_load:
        loggers = [logging.getLogger("transformers"), logging.getLogger("sentence_transformers")]
        before = [(one.level, one.handlers, one.propagate) for one in loggers]
        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()
        for one in loggers:
            one.handlers, one.propagate = [collect], False
            one.setLevel(logging.WARNING)
        try:
            with model_call(teacher, "load it", fix):
                yield
        finally:
            for one, (level, handlers, propagate) in zip(loggers, before, strict=True):
                one.handlers, one.propagate = handlers, propagate
                one.setLevel(level)
            if bars:
                transformers_logging.enable_progress_bar()
    _refuse_warned(teacher, collect.messages)


class _Collect(logging.Handler):
    """Keeps the messages."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _refuse_warned(teacher: str, warnings: Sequence[str]) -> None:
    for warning in warnings:
        kind = re.match(r"Converting (\w+) model ", warning)
        if kind is not None:
            raise TeacherError(
                f"teacher {teacher}: it is a {kind[1]}, which gives no vector of a text of this kind. Choose a "
                "SentenceTransformer"
            )
        rows = re.findall(r"^(\S+)\s*\|\s*MISSING", re.sub(r"\x1b\[[0-9;]*m", "", warning), re.MULTILINE)
        missing = [name for name in rows if "pooler." not in name]  # BERT's pooler, which nothing here reads
        if missing:
            raise TeacherError(
                f"teacher {teacher}: its files lack {len(missing)} of the weights ({missing[0]}, ...), which would be "
                "random numbers. Fetch the whole model, of the class that its config.json names"
            )


def try_first_use(
    encode: Callable[[Sequence[str], bool], NDArray[np.float32]],
    *,
    teacher: str,
    max_length: int | None,
    dtype: str = "fp32",
    fix: str = "Try another model",
) -> tuple[list[str], NDArray[np.float32], bool]:
    """Embed short texts and one of the full length, each alone and all in one batch.

    Args:
        encode: maps (texts, whether they share one batch) to vectors.
        teacher: name for messages.
        max_length: tokens at which a text is cut; None: it isn't.
        dtype: of the computation, for the tolerance.
        fix: what to do if even a short text fails.

    Returns:
        The probes, their vectors each alone, and whether texts may share a batch.

    Raises:
        TeacherError: a probe can't be embedded alone, or its vector is NaN, infinite or zero.
    """
    longest = min(max_length or _LONGEST_PROBE, _LONGEST_PROBE)
    probes = [*PROBES, " ".join(["cat"] * longest)]
    rows = []
    for probe in probes:
        if probe is probes[-1]:
            fix = "Pass a smaller max_length="
        with model_call(teacher, f"embed a text of {len(probe.split())} words", fix):
            rows.append(check_embeddings(encode([probe], False), rows=1, dimensions=None, teacher=teacher))
    alone = np.concatenate(rows)
    try:
        share = agree(encode(probes, True), alone, _SAME_ROW[dtype])
    except Exception:  # no padding token, a graph for one row, ...: each alone works, as was just seen
        share = False
    return probes, alone, share


def say_one_by_one(teacher: str) -> None:
    """Say why a teacher is slow."""
    log(f"teacher {teacher}: its vectors change with the batch, so texts are embedded one by one, which is slower")


def agree(one: NDArray[np.float32], other: NDArray[np.float32], tolerance: float = 1e-5) -> bool:
    """Tell whether two sets of vectors are the same to a tolerance, relative to the longest.

    Assumed for the default: fp32 rounding through a few layers stays two orders of magnitude below; a wrong graph is
    far above.
    """
    if one.shape != other.shape:
        return False
    scale = max(float(np.linalg.norm(other, axis=1).max()), 1e-12)
    return bool(np.abs(one - other).max() <= tolerance * scale)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, shortened, without a full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else "no message")[:300].rstrip(". ")
