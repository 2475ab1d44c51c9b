"""Where things are kept that can be made again: unpacked models, measurements of this machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from consilience.core.errors import ConsilienceError, StorageError
from consilience.core.files import read_json, storage_errors, write_json
from consilience.core.hashing import file_sha256
from consilience.core.locks import locked

_CHECKSUMS = "files.json"
_STALE_SECONDS = 86_400
_verified: set[tuple[object, ...]] = set()  # hashed once a process unless a file changes


def cache_folder() -> Path:
    """Return the platform's cache folder for Consilience; the variable CONSILIENCE_CACHE overrides it."""
    chosen = os.environ.get("CONSILIENCE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "consilience"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local"))) / "consilience" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "consilience"


def cached_folder(name: str, build: Callable[[Path], None], *, checksums: Mapping[str, str] | None = None) -> Path:
    """Return a folder of the cache, made if it isn't there or isn't whole.

    It's built under a temporary name and renamed when complete; a killed run leaves no half folder under the name, and
    two processes can't disturb each other. Checksums are verified once a process, so a damaged folder is made again.

    Args:
        name: the folder's, with whatever its content depends on.
        build: writes the files into the empty folder that it's given.
        checksums: sha256 of every file, by its path in the folder, where they're pinned; else those of what was built
            are stored with it.

    Raises:
        StorageError: the cache folder can't be written.
    """
    final = cache_folder() / name
    if _is_whole(final, checksums):
        return final
    with storage_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        _sweep(final)
        work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=final.parent))
    try:
        build(work)
        with storage_errors(final):
            if checksums is None:
                write_json(work / _CHECKSUMS, {path: file_sha256(work / path) for path in _files(work)})
            with locked(final.parent, wait=True):
                if not _is_whole(final, checksums):  # otherwise another process was first; both hold the same bytes
                    _make_way(final, {*_files(work), _CHECKSUMS})
                    work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


def _make_way(final: Path, own: set[str]) -> None:
    """Delete a damaged folder, of which only the files that it should have are ours to delete."""
    if not final.is_dir():
        return
    strange = sorted({*_files(final)} - own)
    if strange:
        raise StorageError(f"{final / strange[0]}: isn't the cache's, so {final} can't be made again. Move it away")
    shutil.rmtree(final)


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _is_whole(folder: Path, checksums: Mapping[str, str] | None) -> bool:
    """Return whether a cached folder holds exactly the bytes that were written."""
    if not folder.is_dir():
        return False
    try:
        states = ((path, (folder / path).stat()) for path in _files(folder))
        key = (str(folder), tuple((path, state.st_size, state.st_mtime_ns) for path, state in states))
        if key in _verified:
            return True
        wanted = read_json(folder / _CHECKSUMS) if checksums is None else checksums
        own = {_CHECKSUMS} if checksums is None else set()
        whole = set(_files(folder)) == {*wanted, *own} and all(
            file_sha256(folder / path) == digest for path, digest in wanted.items()
        )
    except (ConsilienceError, OSError, TypeError):
        return False
    if whole:
        _verified.add(key)
    return whole


def _sweep(final: Path) -> None:
    """Remove what killed runs left of this folder; what is younger than a day may be another process's."""
    for left in final.parent.glob(f".{final.name}-????????"):  # as mkdtemp names them
        if not left.is_symlink() and time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
