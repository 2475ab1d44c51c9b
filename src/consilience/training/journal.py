"""The training log: one JSON object a line, the same lines however often the training was interrupted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from consilience.core.extras import require
from consilience.core.files import storage_errors

FILE = "log.jsonl"


class TrainingLog:
    """Appends to ``log.jsonl`` and, when asked, to TensorBoard.

    Args:
        work: the artefact's working folder.
        keep_bytes: what the last checkpoint vouches for; the rest was written by a run that died, and is cut off.
        tensorboard: folder of the event files, outside the artefact; None for none.

    Raises:
        MissingExtraError: TensorBoard is asked for and isn't installed.
    """

    def __init__(self, work: Path, *, keep_bytes: int, tensorboard: Path | None = None) -> None:
        self._path = work / FILE
        with storage_errors(self._path):
            self._stream = self._path.open("ab")
            self._stream.truncate(keep_bytes)
        self._board: Any = None
        if tensorboard is not None:
            require("tensorboard", extra="tensorboard", purpose="to write TensorBoard logs")
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(tensorboard))

    def write(self, entry: dict[str, Any]) -> None:
        """Append a line; ``entry["step"]`` is TensorBoard's step."""
        line = json.dumps(entry, sort_keys=True, allow_nan=False) + "\n"
        with storage_errors(self._path):
            self._stream.write(line.encode())
        if self._board is not None:
            for name, value in _scalars(entry):
                self._board.add_scalar(name, value, entry["step"])

    def sync(self) -> int:
        """Flush to the disk and return the length in bytes."""
        with storage_errors(self._path):
            self._stream.flush()
            os.fsync(self._stream.fileno())
        return self._path.stat().st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with storage_errors(self._path):  # what is still buffered is written now
            self._stream.close()
        if self._board is not None:
            self._board.close()


def readings_of(work: Path) -> list[dict[str, float]]:
    """Return the gauges' readings in a log, from before the first step on.

    Args:
        work: the artefact's folder.
    """
    entries = map(json.loads, (work / FILE).read_text(encoding="utf-8").splitlines())
    return [entry["gauges"] for entry in entries if "gauges" in entry]


def _scalars(entry: dict[str, Any]) -> list[tuple[str, float]]:
    """Flatten an entry: nested names are joined by a slash."""
    flat: list[tuple[str, float]] = []
    for name, value in entry.items():
        if isinstance(value, dict):
            flat += [(f"{name}/{inner}", float(number)) for inner, number in value.items()]
        elif name != "step":
            flat.append((name, float(value)))
    return flat
