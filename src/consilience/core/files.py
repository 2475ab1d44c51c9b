"""Files are written to a temporary name, flushed to the disk and renamed: complete or absent, never half."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from consilience.core.errors import InputError, StorageError

_STORAGE_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),  # the disk
    *(errno.EROFS, errno.EACCES, errno.EPERM),  # permission
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),  # the name
}


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
                "Free some space or choose another --out; finished parts are kept and the same command continues"
            ) from error
        raise


@contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary sibling of ``path`` for writing; on success flush it to the disk and rename it.

    On any exception the temporary file is removed and ``path`` is as it was.

    Args:
        path: the final name; its folder must exist.
        mode: "wb" or "w" (UTF-8, LF).

    Raises:
        StorageError: the disk is full, read-only or not permitted.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else "\n"
    try:
        with storage_errors(path):
            with temporary.open(mode, encoding=encoding, newline=newline) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
            sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write a JSON value atomically: sorted keys, two-space indent, final newline; same value, same bytes."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(path, "w") as stream:
        stream.write(text + "\n")


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
