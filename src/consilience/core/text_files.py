"""Text files as streams of lines, whatever they are compressed with; every reader of lines and tables starts here.

Text is decoded as UTF-8 with ``surrogateescape``: bytes that aren't UTF-8 become lone surrogates, which no valid text
holds. So damage stays a property of its row, and the reader of the rows decides about it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from consilience.core.errors import CorpusError
from consilience.core.progress import say_once

LINE_CHARACTERS = 64 << 20  # assumed: a longer "line" is not a line of text, and reading it could exhaust the memory
HEAD_BYTES = 1 << 16
_CONTROL_SHARE = 0.1  # assumed: text with more control bytes than this is a binary file
_CONTROL = bytes(c for c in range(32) if c not in b"\t\n\r\f\x1b")
_TAR_MAGIC = slice(257, 262)
_FOREIGN = {
    b"PAR1": "parquet (name it .parquet)",
    b"ARROW1": "an Arrow file (name it .arrow)",
    b"PK\x03\x04": "a zip archive",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x7fELF": "a program",
    b"%PDF": "a PDF",
    b"SQLite format 3\0": "an SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


def _arrow(codec: str) -> Callable[[Path], Any]:
    def opened(path: Path) -> Any:  # noqa: ANN401 - pyarrow is untyped
        import pyarrow as pa

        return pa.input_stream(str(path), compression=codec)

    return opened


COMPRESSIONS: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".bz2": (b"BZh", bz2.open),
    ".xz": (b"\xfd7zXZ\0", lzma.open),
    ".zst": (b"\x28\xb5\x2f\xfd", _arrow("zstd")),
    ".lz4": (b"\x04\x22\x4d\x18", _arrow("lz4")),
}
"""Suffix, first bytes and opener of each compression; the first bytes decide, whatever a file is called."""
_BZ2_SECOND_MAGIC = (b"1AY&SY", b"\x17rE8P\x90")  # "BZh" alone may begin a text


@contextmanager
def open_bytes(path: Path, label: str) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed as its first bytes say.

    Raises:
        CorpusError: the file can't be opened, or its compressed data is damaged.
    """
    kind = None
    try:
        with path.open("rb") as raw:
            kind = _compression(raw.read(10))
            raw.seek(0)
            if kind is None:
                yield raw
                return
        with COMPRESSIONS[kind][1](path) as unpacked, io.BufferedReader(unpacked, 1 << 18) as stream:
            yield stream
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(f"{label}: damaged {kind} data ({error}). Fetch the file again") from error
    except OSError as error:
        if kind is not None and error.strerror is None:
            raise CorpusError(f"{label}: damaged {kind} data ({error}). Fetch the file again") from error
        raise CorpusError(
            f"{label}: can't read: {error.strerror or error}. Check the file and its permissions"
        ) from error


def _compression(start: bytes) -> str | None:
    for suffix, (magic, _) in COMPRESSIONS.items():
        if start.startswith(magic) and (suffix != ".bz2" or start[4:10] in _BZ2_SECOND_MAGIC):
            return suffix
    return None


def read_head(path: Path, label: str) -> bytes:
    """Return the first decompressed bytes of a text file, at most :data:`HEAD_BYTES`.

    Raises:
        CorpusError: it can't be read, or isn't UTF-8 text.
    """
    with open_bytes(path, label) as stream:
        head = stream.read(HEAD_BYTES)
    what = next((name for magic, name in _FOREIGN.items() if head.startswith(magic)), None)
    if what is None and head[_TAR_MAGIC] == b"ustar":
        what = "a tar archive"
    if what is None and head and len(head) - len(head.translate(None, _CONTROL)) > _CONTROL_SHARE * len(head):
        what = "a binary file"
    if what is not None:
        raise CorpusError(f"{label}: expected UTF-8 text, found {what}. Convert it to UTF-8 text or parquet")
    return head


@contextmanager
def open_text(path: Path, label: str, newline: str = "") -> Iterator[io.TextIOWrapper]:
    """Open a text file without its byte order mark; bytes that aren't UTF-8 become lone surrogates.

    Raises:
        CorpusError: see :func:`open_bytes`.
    """
    with open_bytes(path, label) as stream:
        decoded = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline=newline)
        try:
            yield decoded
        finally:
            decoded.detach()


def is_decodable(text: str) -> bool:
    """Say whether a text holds no lone surrogates, which stand for bytes that aren't UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def line_end(head: bytes) -> str:
    """Return what ends a text's lines by its start: a line feed, or a carriage return where there is none."""
    return "\r" if b"\r" in head[: HEAD_BYTES - 1] and b"\n" not in head else "\n"


def iter_lines(path: Path, label: str) -> Iterator[tuple[int, str]]:
    r"""Yield numbered lines that end at ``\n`` or ``\r\n``; at ``\r`` only in a file without ``\n``, which is said.

    Raises:
        CorpusError: it isn't text, has an endless line, or ends its lines in two ways.
    """
    end = line_end(read_head(path, label))
    bare = end == "\r"
    with open_text(path, label, end) as stream:
        number = 0
        while line := stream.readline(LINE_CHARACTERS):
            number += 1
            if line.endswith(end):
                line = line[:-1]
            elif len(line) == LINE_CHARACTERS:
                raise CorpusError(f"{label}: line {number} is longer than {LINE_CHARACTERS}. This isn't a text file")
            if bare and "\n" in line:
                raise CorpusError(
                    f"{label}: line {number}: lines end at CR, and at LF from here on. Write the file with one of them"
                )
            if bare and number == 2:
                say_once(f"{label}: has no LF, so its lines end at CR")
            yield number, line[:-1] if line.endswith("\r") else line
