"""Files of word vectors: .npy with a vocabulary, GloVe text, word2vec text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import TeacherError


@dataclass(frozen=True)
class WordTable:
    """Words and their vectors, row by row."""

    words: list[str]
    vectors: NDArray[np.float32]


def read_word_table(path: Path, vocabulary: str | None, *, teacher: str) -> tuple[WordTable, list[tuple[str, Path]]]:
    """Read word vectors of any of the three forms.

    Args:
        path: ``.npy`` matrix, or a text file whose lines are a word and its numbers; a first line of two integers
            (word2vec's header) is checked and skipped.
        vocabulary: file of the words for ``.npy``; None: the same stem with .txt, .vocab or .parquet.
        teacher: name for messages.

    Returns:
        The table, and the files it was read from with the role each has.

    Raises:
        TeacherError: missing or malformed; the message names file and line.
    """
    if not path.is_file():
        raise TeacherError(f"teacher {teacher}: {path}: no such file. Check the path")
    if path.suffix != ".npy":
        return _read_text(path, teacher), [("model", path)]
    words_path = Path(vocabulary).expanduser() if vocabulary is not None else _beside(path, teacher)
    if not words_path.is_file():
        raise TeacherError(f"teacher {teacher}: vocabulary {words_path}: no such file. Check the option vocabulary=")
    words = _read_words(words_path, teacher)
    try:
        vectors = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise TeacherError(
            f"teacher {teacher}: {path.name} isn't a .npy matrix of numbers: {error}. Fetch it again"
        ) from error
    if not isinstance(vectors, np.ndarray):
        raise TeacherError(f"teacher {teacher}: {path.name} is an .npz archive. Save its matrix with numpy.save")
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or len(vectors) != len(words):
        raise TeacherError(
            f"teacher {teacher}: expected a float matrix of {len(words)} rows (one a word of {words_path.name}), "
            f"got {vectors.dtype} {vectors.shape}"
        )
    return WordTable(words, np.ascontiguousarray(vectors, dtype=np.float32)), [
        ("model", path),
        ("vocabulary", words_path),
    ]


def _beside(path: Path, teacher: str) -> Path:
    for suffix in (".txt", ".vocab", ".parquet"):
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix)
    raise TeacherError(f"teacher {teacher}: no vocabulary beside {path.name}. Pass the option vocabulary=PATH")


def _read_words(path: Path, teacher: str) -> list[str]:
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
        except pa.ArrowInvalid as error:
            raise TeacherError(f"teacher {teacher}: {path.name} isn't a parquet file. Fetch it again") from error
        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        texts = [field.name for field in table.schema if any(is_kind(field.type) for is_kind in kinds)]
        if len(texts) != 1:
            raise TeacherError(
                f"teacher {teacher}: {path.name} needs exactly one string column, has {table.column_names}"
            )
        return [word if word is not None else "" for word in table[texts[0]].to_pylist()]
    lines = _decode(path, teacher).rstrip("\n").split("\n")
    counted = [line.rsplit(" ", 1) for line in lines]
    # GloVe's vocab.txt: a word and how often it was seen.
    return [word for word, *_ in counted] if all(len(line) == 2 and line[1].isdigit() for line in counted) else lines


def _read_text(path: Path, teacher: str) -> WordTable:
    lines = _decode(path, teacher).rstrip("\n").split("\n")
    header = lines[0].split()
    declared = (int(header[0]), int(header[1])) if len(header) == 2 and all(part.isdigit() for part in header) else None
    body = lines[1:] if declared else lines
    width = declared[1] if declared else len(lines[0].rstrip().split(" ")) - 1
    if width < 1 or not body or (declared and declared[0] != len(body)):
        expected = (
            f"{declared[0]} lines of {declared[1]} numbers" if declared else "a word and its numbers on each line"
        )
        raise TeacherError(
            f"teacher {teacher}: {path.name}: expected {expected}, got {len(body)} lines. Check the file"
        )
    words: list[str] = []
    vectors = np.empty((len(body), width), dtype=np.float32)
    for row, line in enumerate(body):
        parts = line.rstrip().rsplit(" ", width)  # from the right: a few words of GloVe files hold spaces
        try:
            if len(parts) != width + 1:
                raise ValueError
            vectors[row] = np.array(parts[1:], dtype=np.float32)
        except ValueError as error:
            number = row + (2 if declared else 1)
            raise TeacherError(
                f"teacher {teacher}: {path.name}, line {number}: expected a word and {width} numbers. Check the file"
            ) from error
        words.append(parts[0])
    return WordTable(words, vectors)


def _decode(path: Path, teacher: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TeacherError(
            f"teacher {teacher}: {path.name} isn't UTF-8 text (byte {error.start}). Convert it"
        ) from error
