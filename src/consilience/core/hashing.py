"""Content hashes: of files, of JSON values, of rows in order."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 20


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Serialise a JSON value to the one byte string that all equal values share.

    Raises:
        ValueError: the value holds NaN or infinity, which JSON can't carry.

    Example:
        >>> canonical_json({"b": 1, "a": [1.5, None]})
        b'{"a":[1.5,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def content_id(value: Any, *, prefix: str = "") -> str:  # noqa: ANN401 - any JSON value
    """Return a short stable identifier (64 bits, hexadecimal) of a JSON value.

    Example:
        >>> content_id({"a": 1}, prefix="bank-")
        'bank-015abd7f5cc57a2d'
    """
    return prefix + hashlib.sha256(canonical_json(value)).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, reading it in chunks.

    Raises:
        OSError: the file can't be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class RowHasher:
    """Fingerprint of text rows in order: SHA-256 over length-prefixed UTF-8 rows.

    The length prefix makes the fingerprint injective: ``["ab", "c"]`` and ``["a", "bc"]`` differ.

    Example:
        >>> hasher = RowHasher()
        >>> hasher.update("a cat")
        >>> hasher.rows, len(hasher.hexdigest())
        (1, 64)
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256(b"consilience-rows-1\n")
        self.rows = 0

    def update(self, row: str) -> None:
        """Add one row."""
        encoded = row.encode()
        self._digest.update(len(encoded).to_bytes(8, "little"))
        self._digest.update(encoded)
        self.rows += 1

    def hexdigest(self) -> str:
        """Return the fingerprint of the rows so far."""
        return self._digest.hexdigest()
