"""Progress bars on standard error; quiet when it isn't a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol


class Progress(Protocol):
    """A running bar."""

    def advance(self, units: float = 1, *, note: str | None = None, total: float | None = None) -> None:
        """Move the bar by so many units and, optionally, replace the note behind it and the units in all."""
        ...


class _Quiet:
    def advance(self, units: float = 1, *, note: str | None = None, total: float | None = None) -> None:
        """Do nothing."""


@contextmanager
def progress_bar(description: str, total: float | None, *, done: int = 0) -> Iterator[Progress]:
    """Show a bar on standard error while the block runs.

    Args:
        description: what is being done.
        total: units of work, or None when unknown.
        done: units that an earlier, interrupted run already did.
    """
    if not sys.stderr.isatty():
        yield _Quiet()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(description, total=total, completed=done, note="")

        class _Bar:
            def advance(self, units: float = 1, *, note: str | None = None, total: float | None = None) -> None:
                """Advance the rich bar."""
                bars.update(task, advance=units, total=total)
                if note is not None:
                    bars.update(task, note=note)

        yield _Bar()


def log(message: str) -> None:
    """Print one line of information on standard error."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


@cache
def say_once(message: str) -> None:
    """Print a line of information the first time that this process has it to say."""
    log(message)
