"""Two jobs never write one working folder: it is locked from when a job opens it until its verb returns."""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import ParamSpec, TypeVar

from consilience.core.errors import ResumeError

_P = ParamSpec("_P")
_R = TypeVar("_R")
# By file number, of the verb that runs in this thread; a verb that another verb calls has its own.
_held: ContextVar[dict[int, int] | None] = ContextVar("held", default=None)


def one_job(verb: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a verb release, when it returns or fails, what it locked with :func:`hold`."""

    @functools.wraps(verb)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        token = _held.set({})
        try:
            return verb(*args, **kwargs)
        finally:
            for descriptor in (_held.get() or {}).values():
                os.close(descriptor)
            _held.reset(token)

    return run


def hold(work: Path) -> None:
    """Lock a working folder until the verb that is running returns; outside of verbs nothing is locked.

    Raises:
        ResumeError: another job holds it, or has just finished and renamed it.
    """
    held = _held.get()
    if held is None or work.stat().st_ino in held:
        return
    descriptor = lock_work(work)
    number = os.fstat(descriptor).st_ino
    held[number] = descriptor
    if not work.is_dir() or work.stat().st_ino != number:
        raise ResumeError(f"{work}: another job has just finished it. Run the command again")


@contextmanager
def locked(work: Path, *, option: str = "--out", wait: bool = False) -> Iterator[None]:
    """Hold a folder for as long as the block runs, so that two equal commands don't mix.

    Raises:
        ResumeError: as :func:`lock_work`.
    """
    descriptor = lock_work(work, option=option, wait=wait)
    try:
        yield
    finally:
        os.close(descriptor)


def lock_work(work: Path, *, option: str = "--out", wait: bool = False) -> int:
    """Hold a folder until the returned descriptor is closed.

    Args:
        work: the folder.
        option: which option named it, for the message.
        wait: until nobody else holds it.

    Raises:
        ResumeError: another process or thread holds it, and ``wait`` is off; or it was renamed meanwhile.
    """
    try:
        descriptor = os.open(work, os.O_RDONLY)
    except FileNotFoundError as error:
        raise ResumeError(f"{work}: another job has just finished it. Run the command again") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        os.close(descriptor)
        raise ResumeError(f"{work}: another process is writing it. Wait for it or choose another {option}") from error
    return descriptor
