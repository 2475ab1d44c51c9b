"""Semantic textual similarity tasks: pairs of sentences with a gold score, read from files with columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.hashing import file_sha256
from consilience.core.text_files import is_decodable
from consilience.corpora.tables import cell_text, format_of, open_table, stem_of

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
    """Read one task from a file of any format with columns.

    Args:
        path: file with the columns ``sentence1``, ``sentence2`` and ``score``; others are ignored.

    Raises:
        CorpusError: the file is missing, malformed or lacks a column.
        InputError: a row isn't UTF-8 or its score isn't a number (its number is named).
    """
    table = open_table(path, wanted=_COLUMNS)
    table.require(_COLUMNS, f"Give a table with the columns {', '.join(_COLUMNS)}")
    pairs: list[tuple[str, str]] = []
    scores: list[float] = []
    for number, (first, second, gold) in table.rows(_COLUMNS):
        scores.append(_parse_score(path, number, gold))
        texts = [
            cell_text(cell, table.label, number, name) for cell, name in ((first, "sentence1"), (second, "sentence2"))
        ]
        if not all(map(is_decodable, texts)):
            raise InputError(f"{path}: row {number}: UTF-8 expected. Fetch the file again")
        pairs.append((texts[0], texts[1]))
    return StsTask(
        name=stem_of(path),
        sentence1=tuple(pair[0] for pair in pairs),
        sentence2=tuple(pair[1] for pair in pairs),
        score=np.asarray(scores, dtype=np.float64),
        sha256=file_sha256(path),
        source=f"file:{path.name}",
    )


def _parse_score(path: Path, row: int, cell: Any) -> float:  # noqa: ANN401 - any cell
    try:
        score = math.nan if isinstance(cell, str) and "_" in cell else float(cell)  # Python reads 1_0 as 10
    except (TypeError, ValueError):
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
    known = {*REPORTED_TASKS, SELECTION_TASK}
    for candidate in (folder / "sts", folder):
        if candidate.is_dir() and known & _task_files(candidate).keys():
            return candidate
    raise InputError(
        f"{folder}: sts/*.tsv (or {REPORTED_TASKS[0]}.tsv and its like directly) expected, none found. "
        "Point --data (or the variable CONSILIENCE_DATA) at the folder that holds sts/"
    )


def _task_files(folder: Path) -> dict[str, Path]:
    """Return a folder's files with columns by their names without suffixes.

    Raises:
        InputError: two files have one name.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith(".") and format_of(path) not in (None, "text"):
            other = found.setdefault(stem_of(path), path)
            if other != path and stem_of(path) in (*REPORTED_TASKS, SELECTION_TASK):
                raise InputError(f"{folder}: {other.name} and {path.name} are one task. Move one of them away")
    return found


def load_sts_folder(folder: str | Path, names: Sequence[str] = REPORTED_TASKS) -> list[StsTask]:
    """Read tasks from a data folder, in the order asked.

    Args:
        folder: holds ``sts/NAME.tsv`` (or another format with columns), or the files directly.
        names: tasks to read; by default the eight reported ones.

    Raises:
        InputError: a file is missing (all missing ones are named) or malformed.
    """
    root = find_sts_folder(Path(folder))
    files = _task_files(root)
    missing = [f"{name}.tsv" for name in names if name not in files]
    if missing:
        raise InputError(
            f"{root}: {', '.join(missing)} missing. Add the files, name fewer tasks in --tasks or choose another --data"
        )
    return [read_sts_file(files[name]) for name in names]


def load_selection_task(folder: str | Path) -> StsTask | None:
    """Read STS-B dev, the only task that model selection may look at, or return None when the folder lacks it."""
    path = _task_files(find_sts_folder(Path(folder))).get(SELECTION_TASK)
    return None if path is None else read_sts_file(path)
