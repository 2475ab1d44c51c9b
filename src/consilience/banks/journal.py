"""Which shards of an unfinished bank are done: one JSON line each, appended and flushed after the shard's file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from consilience.core.files import atomic_write, storage_errors

JOURNAL = "shards.jsonl"


@dataclass(frozen=True)
class ShardRecord:
    """A finished shard.

    Attributes:
        index: number of the shard.
        sha256: of its file.
        bytes: size of its file.
        unit: whether all its rows have norm one.
        seconds: what it took; goes into ``timing.json`` only.
    """

    index: int
    sha256: str
    bytes: int
    unit: bool
    seconds: float


class Journal:
    """An append-only list of finished shards.

    Args:
        folder: the bank's working folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self.records: dict[int, ShardRecord] = {}
        if not self.path.is_file():
            return
        self.records, whole = _read(self.path)
        if not whole:
            # A kill or a full disk tore a line, or a shard was written again: keep what is whole.
            self._rewrite()

    def append(self, record: ShardRecord) -> None:
        """Record a shard whose file is already on the disk.

        Raises:
            StorageError: the line can't be written; the journal is as before.
        """
        before = self.path.stat().st_size if self.path.is_file() else 0
        line = json.dumps(asdict(record), sort_keys=True).encode() + b"\n"
        with storage_errors(self.path):
            try:
                with self.path.open("ab", buffering=0) as stream:
                    remaining = memoryview(line)
                    while remaining:  # after a short write the next one says why
                        remaining = remaining[stream.write(remaining) :]
                    os.fsync(stream.fileno())
            except OSError:
                if self.path.is_file():
                    os.truncate(self.path, before)
                raise
        self.records[record.index] = record

    def discard(self, index: int) -> None:
        """Forget a shard whose file turned out damaged."""
        del self.records[index]
        self._rewrite()

    def _rewrite(self) -> None:
        with atomic_write(self.path) as stream:
            for _, record in sorted(self.records.items()):
                stream.write(json.dumps(asdict(record), sort_keys=True).encode() + b"\n")


def finished_shards(folder: Path) -> list[int]:
    """Return the numbers of the shards that a working folder's journal lists, changing nothing."""
    path = folder / JOURNAL
    return sorted(_read(path)[0]) if path.is_file() else []


def _read(path: Path) -> tuple[dict[int, ShardRecord], bool]:
    """Return the records, and whether every line is one."""
    records = {}
    lines = path.read_bytes().splitlines(keepends=True)
    for line in lines:
        record = _parse(line)
        if record is not None:
            records[record.index] = record
    return records, len(records) == len(lines)


def _parse(line: bytes) -> ShardRecord | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return ShardRecord(**json.loads(line))
    except (ValueError, TypeError):
        return None
