"""Files are written to a temporary name, flushed to the disk and renamed: complete or absent, never half."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from consilience.core.errors import InputError, ResumeError, StorageError

_STORAGE_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),  # the disk
    *(errno.EROFS, errno.EACCES, errno.EPERM),  # permission
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP),  # the name
    *(errno.EBUSY, errno.EXDEV),  # a mount point
}

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EBUSY}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}  # some network and removable file systems


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the file system's refusals (disk full, read-only, no permission) into a StorageError.

    Args:
        path: what was being written, for the message.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _STORAGE_ERRNOS:
            raise StorageError(
                f"{path}: can't write: {os.strerror(error.errno or 0)}. "
                "Free some space or choose another place; finished parts are kept and the same command continues"
            ) from error
        raise


TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")  # names of this module's; a killed write leaves one


def temporary_sibling(path: Path) -> Path:
    """Return a new name beside ``path`` that is nobody's."""
    return path.with_name(f".{secrets.token_hex(8)}.tmp")


@contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary sibling of ``path`` for writing; on success flush it to the disk and rename it.

    On any exception the temporary file is removed and ``path`` is as it was.

    Args:
        path: the final name; its folder must exist.
        mode: "wb" or "w" (UTF-8, LF); "xb" or "x" to refuse a ``path`` that exists when the writing is done.

    Raises:
        StorageError: the disk is full, read-only or not permitted.
        ResumeError: ``path`` was made meanwhile, and ``mode`` is exclusive.
    """
    temporary = temporary_sibling(path)
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else "\n"
    try:
        with storage_errors(path):
            with temporary.open(mode.replace("w", "x"), encoding=encoding, newline=newline) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            if "x" in mode:
                place(temporary, path)
            else:
                temporary.replace(path)
                sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def place(temporary: Path, out: Path) -> None:
    """Give a finished file or folder its final name, which nothing else has.

    Raises:
        ResumeError: something has appeared at ``out``; it and ``temporary`` are as they were.
        StorageError: the file system refused.
    """
    with storage_errors(out):
        try:
            if temporary.is_dir():
                temporary.rename(out)  # a folder's rename replaces nothing but an empty folder
            else:
                _place_file(temporary, out)
        except OSError as error:
            if error.errno in _TAKEN:
                raise ResumeError(
                    f"{out}: was made while this job ran. Move it away and run the command again"
                ) from error
            raise
        sync_directory(out.parent)


def _place_file(temporary: Path, out: Path) -> None:
    try:
        os.link(temporary, out)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(out):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(out)) from error
        temporary.rename(out)
    else:
        temporary.unlink()


def sync_directory(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write a JSON value atomically: sorted keys, two-space indent, final newline; same value, same bytes."""
    with atomic_write(path, "w") as stream:
        stream.write(json_text(value))


def json_text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return what :func:`write_json` writes."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file.

    Raises:
        InputError: it is missing or isn't JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file. Check the path") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: isn't valid JSON ({error}). Rebuild or fetch it again") from error
