"""Semantic textual similarity tasks: pairs of sentences with a gold score, read from tab-separated files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError

REPORTED_TASKS = ("stsb-test", "sick-r", "sts12", "sts13", "sts14", "sts15", "sts16", "biosses")
"""The eight tasks whose unweighted mean is reported, in the order of the tables (design, section 10)."""

SELECTION_TASK = "stsb-dev"
"""The one task that model selection may read; it is reported apart and is never part of the mean."""

_COLUMNS = ("sentence1", "sentence2", "score")


@dataclass(frozen=True)
class StsTask:
    """Sentence pairs with gold similarity scores; a task is data with a checksum.

    Attributes:
        name: as in tables and JSON; for tasks read from files, the file's stem.
        sentence1: first sentences.
        sentence2: second sentences, as many.
        score: gold scores, any monotone scale, finite.
        sha256: checksum of what the task was read or made from.
        source: where the pairs come from, for the record.
    """

    name: str
    sentence1: tuple[str, ...]
    sentence2: tuple[str, ...]
    score: NDArray[np.float64]
    sha256: str
    source: str

    def __post_init__(self) -> None:
        """Check the columns' lengths.

        Raises:
            InputError: the columns differ in length, there are fewer than three pairs, or all scores are equal.
        """
        lengths = (len(self.sentence1), len(self.sentence2), len(self.score))
        if len(set(lengths)) != 1:
            raise InputError(f"task {self.name}: columns of one length expected, got {lengths}. Check its source")
        if lengths[0] < 3:
            raise InputError(f"task {self.name}: at least 3 pairs are needed for a correlation, got {lengths[0]}")
        if np.ptp(self.score) == 0:
            raise InputError(
                f"task {self.name} ({self.source}): gold scores that differ expected, all are {self.score[0]:g}. "
                "Check the column score"
            )

    def __len__(self) -> int:
        return len(self.score)


def read_sts_file(path: Path) -> StsTask:
    """Read one task from a tab-separated file: header, no quoting, rows end at LF only.

    Args:
        path: file with the columns ``sentence1``, ``sentence2`` and ``score``; others are ignored.

    Raises:
        InputError: the file is missing, not UTF-8, lacks a column, or a row is malformed (its number is named).
    """
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file. Check --data (or the variable CONSILIENCE_DATA)") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: UTF-8 expected, byte {error.start} isn't. Fetch the file again") from error
    lines = text.split("\n")  # never str.splitlines: sentences may hold U+2028, form feeds and the like
    if lines[-1] == "":
        lines.pop()
    header = lines[0].split("\t") if lines else []
    missing = [column for column in _COLUMNS if column not in header]
    if missing:
        raise InputError(
            f"{path}: row 1: a header with the columns {', '.join(_COLUMNS)} expected, {', '.join(missing)} missing. "
            "Use tab-separated values with a header, rows that end at LF, no byte-order mark"
        )
    first, second, gold = (header.index(column) for column in _COLUMNS)
    pairs: list[tuple[str, str]] = []
    scores: list[float] = []
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if len(cells) != len(header):
            raise InputError(f"{path}: row {number}: {len(header)} columns expected, got {len(cells)}. Fix the row")
        scores.append(_parse_score(path, number, cells[gold]))
        pairs.append((cells[first], cells[second]))
    return StsTask(
        name=path.name.removesuffix(".tsv"),
        sentence1=tuple(pair[0] for pair in pairs),
        sentence2=tuple(pair[1] for pair in pairs),
        score=np.asarray(scores, dtype=np.float64),
        sha256=hashlib.sha256(content).hexdigest(),
        source=f"file:{path.name}",
    )


def _parse_score(path: Path, row: int, cell: str) -> float:
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{path}: row {row}: a finite number expected as score, got {cell!r}. Fix or drop the row")
    return score


def find_sts_folder(folder: Path) -> Path:
    """Return the folder that holds the tasks' files: ``folder/sts`` or ``folder`` itself.

    Raises:
        InputError: neither holds a known task.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder. Check --data (or the variable CONSILIENCE_DATA)")
    known = (*REPORTED_TASKS, SELECTION_TASK)
    for candidate in (folder / "sts", folder):
        if any((candidate / f"{name}.tsv").is_file() for name in known):
            return candidate
    raise InputError(
        f"{folder}: sts/*.tsv (or {REPORTED_TASKS[0]}.tsv and its like directly) expected, none found. "
        "Point --data (or the variable CONSILIENCE_DATA) at the folder that holds sts/"
    )


def load_sts_folder(folder: str | Path, names: Sequence[str] = REPORTED_TASKS) -> list[StsTask]:
    """Read tasks from a data folder, in the order asked.

    Args:
        folder: holds ``sts/NAME.tsv``, or the files directly.
        names: tasks to read; by default the eight reported ones.

    Raises:
        InputError: a file is missing (all missing ones are named) or malformed.
    """
    root = find_sts_folder(Path(folder))
    missing = [f"{name}.tsv" for name in names if not (root / f"{name}.tsv").is_file()]
    if missing:
        raise InputError(
            f"{root}: {', '.join(missing)} missing. Add the files, name fewer tasks in --tasks or choose another --data"
        )
    return [read_sts_file(root / f"{name}.tsv") for name in names]


def load_selection_task(folder: str | Path) -> StsTask | None:
    """Read STS-B dev, the only task that model selection may look at, or return None when the folder lacks it."""
    path = find_sts_folder(Path(folder)) / f"{SELECTION_TASK}.tsv"
    return read_sts_file(path) if path.is_file() else None
