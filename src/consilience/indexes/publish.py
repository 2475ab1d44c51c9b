"""A new index appears under its name when it's complete, and not before."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consilience.core.errors import InputError, ResumeError
from consilience.core.files import storage_errors, sync_directory


def require_new(out: Path, source: Path) -> None:
    """Refuse to write where something is.

    Raises:
        InputError: ``out`` is the source, lies within it, or exists.
    """
    resolved, origin = out.resolve(), source.resolve()
    if resolved == origin or origin in resolved.parents:
        raise InputError(
            f"{out}: is the source index or lies in it. The source is never changed: choose another --rewrite"
        )
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: already exists. Choose another --rewrite or move it away")
    if out.name in ("", ".."):
        raise InputError(f"{out}: expected the name of a new file or folder. Change --rewrite")


@contextmanager
def published(out: Path, *, inner: str | None = None) -> Iterator[Path]:
    """Give the temporary name ``OUT.partial``; when the block succeeds, flush what is there and rename it to ``out``.

    What a killed run left at the temporary name is dropped first. After an exception nothing is left. While it
    runs, a second process for the same output is refused.

    Args:
        out: the final name.
        inner: name, within the temporary folder, of what becomes ``out``; by default the whole of it.

    Raises:
        ResumeError: another process is writing the same output.
        InputError: something has appeared at ``out`` meanwhile.
        StorageError: the disk is full, read-only or not permitted.
    """
    partial = out.with_name(out.name + ".partial")
    with storage_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with _claimed(out):
        with storage_errors(out):
            _remove(partial)
        try:
            with storage_errors(out):
                yield partial
                _flush(partial)
            if out.exists():
                raise InputError(f"{out}: was made while this job ran. Move it away and run the command again")
            with storage_errors(out):
                (partial if inner is None else partial / inner).rename(out)
                sync_directory(out.parent)
        finally:
            _remove(partial)


@contextmanager
def _claimed(out: Path) -> Iterator[None]:
    """Hold a lock file beside the output, so that two runs don't write one temporary name."""
    lock = out.with_name(out.name + ".partial.lock")
    with storage_errors(out):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another run may have finished and removed the file between our open and our lock.
            ours = lock.exists() and os.fstat(descriptor).st_ino == lock.stat().st_ino
        except BlockingIOError:
            ours = False
        if not ours:
            raise ResumeError(f"{out}: another process is writing it. Wait for it or choose another --rewrite")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush a file, or all files and folders under a folder, to the disk."""
    for entry in [*path.rglob("*"), path] if path.is_dir() else [path]:
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
