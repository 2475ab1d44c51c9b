"""A new index appears under its name when it's complete, and not before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consilience.core.artefacts import begin_artefact, discard_work, read_plan, require_output
from consilience.core.errors import InputError
from consilience.core.files import place, storage_errors
from consilience.core.locks import locked
from consilience.core.manifests import partial_path


def require_new(out: Path, source: Path) -> None:
    """Refuse to write where something is.

    Raises:
        InputError: ``out`` is the source, lies within it, or exists, or is no place for a new file or folder.
        ResumeError: somebody's file or folder has the working folder's name.
        StorageError: its folder can't be written.
    """
    resolved, origin = out.resolve(), source.resolve()
    if resolved == origin or origin in resolved.parents:
        raise InputError(
            f"{out}: is the source index or lies in it. The source is never changed: choose another --rewrite"
        )
    if out.exists():
        raise InputError(f"{out}: already exists. Choose another --rewrite or move it away")
    require_output(out, option="--rewrite")


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """Give a name in the working folder ``OUT.partial``; when the block succeeds, flush it and rename it to ``out``.

    What a killed run left in the working folder is dropped first. After an exception nothing is left. While it
    runs, a second process for the same output is refused.

    Args:
        out: the final name.

    Raises:
        ResumeError: another process is writing the same output, somebody's file or folder has the working folder's
            name, or something has appeared at ``out`` meanwhile.
        InputError: no place for a new file or folder.
        StorageError: the disk is full, read-only or not permitted.
    """
    plan, work = {"index": out.name}, partial_path(out)
    require_output(out, option="--rewrite")
    if read_plan(work) == plan:
        with locked(work, option="--rewrite"):
            discard_work(work)
    begin_artefact(out, plan, lock=False)
    with locked(work, option="--rewrite"):
        fresh = work / "index" / out.name
        try:
            with storage_errors(out):
                fresh.parent.mkdir()
                yield fresh
                _flush(fresh)
            place(fresh, out)
        finally:
            discard_work(work)


def _flush(path: Path) -> None:
    """Flush a file, or all files and folders under a folder, to the disk."""
    for entry in [*path.rglob("*"), path] if path.is_dir() else [path]:
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
