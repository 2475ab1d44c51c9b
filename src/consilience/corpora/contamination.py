"""Sentences that models are tested on, and whether a training text is one of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from consilience.core.errors import CorpusError, MissingColumnError
from consilience.core.progress import say_once
from consilience.core.text_files import is_decodable, iter_lines
from consilience.corpora.tables import cell_text, format_of, open_table

_ARTICLES = frozenset({"a", "an", "the"})
_WORD = re.compile(r"[^\W_]+")
_NEAR_TOKENS = 2  # cited: the near key needs two tokens or more
_COLUMNS = ("sentence1", "sentence2", "sentence", "text")


def exact_key(text: str) -> str:
    """Return a text without what doesn't distinguish sentences: NFKC, case folded, letters and digits only.

    Blanks go too, so another tokenisation doesn't hide a match.

    Example:
        >>> exact_key("A cat, asleep.") == exact_key("a cat asleep")
        True
    """
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def near_key(text: str) -> tuple[str, ...] | None:
    """Return the multiset of a text's words without articles; None with fewer than two words.

    Example:
        >>> near_key("The cat saw a dog") == near_key("dog saw cat")
        True
    """
    words = [w for w in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()) if w not in _ARTICLES]
    return tuple(sorted(words)) if len(words) >= _NEAR_TOKENS else None


class HeldOutSentences:
    """Sentences of test sets, found again by the exact and the near key.

    Example:
        >>> tested = HeldOutSentences([("sts.tsv", "A cat is on the mat.")])
        >>> tested.find("a cat is on a mat"), tested.find("a dog")
        ('sts.tsv', None)
    """

    def __init__(self, sentences: Iterable[tuple[str, str]]) -> None:
        self._exact: dict[str, str] = {}
        self._near: dict[tuple[str, ...], str] = {}
        for source, sentence in sentences:
            if key := exact_key(sentence):
                self._exact.setdefault(key, source)
            near = near_key(sentence)
            if near is not None:
                self._near.setdefault(near, source)

    def __len__(self) -> int:
        return len(self._exact)

    def find(self, text: str) -> str | None:
        """Return the file that has this sentence, by either key, or None."""
        found = self._exact.get(exact_key(text))
        if found is not None:
            return found
        near = near_key(text)
        return None if near is None else self._near.get(near)


def read_held_out(paths: Sequence[str | Path]) -> HeldOutSentences:
    """Read the sentences of test files.

    Args:
        paths: files with columns ``sentence1`` and ``sentence2`` (or ``sentence``, ``text``) in any format that corpora
            have, .txt files of one sentence a line, or folders: of a folder the files in its ``sts``, else its own.

    Raises:
        CorpusError: nothing is there, or a file has no such column.
    """
    if "" in paths:  # pathlib takes it for the working folder
        raise CorpusError(
            "held-out sentences: expected a path, got an empty one. Name a file or folder with --held-out"
        )
    files = [file for path in paths for file in _files(Path(path))]
    return HeldOutSentences((file.name, text) for file in files for text in _sentences(file))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    folder = path / "sts" if (path / "sts").is_dir() else path
    inside = sorted(file for file in folder.glob("*") if file.is_file() and not file.name.startswith("."))
    found = [file for file in inside if format_of(file) is not None]
    if not found:
        raise CorpusError(f"{path}: expected a test file, or a folder with some, found none. Check --held-out")
    if len(found) < len(inside):
        others = ", ".join(file.name for file in inside if file not in found)
        say_once(f"{folder}: reads {len(found)} files of sentences, leaves out {others}")
    return found


def _sentences(path: Path) -> Iterator[str]:
    label = str(path)
    rows: Iterator[tuple[int, tuple[Any, ...]]]
    if format_of(path) == "text":
        rows = ((number, (line,)) for number, line in iter_lines(path, label))
        columns = ["text"]
    else:
        table = open_table(path, wanted=_COLUMNS[:2])
        columns = [name for name in _COLUMNS if name in table.columns]
        if not columns:
            raise MissingColumnError(
                f"{path}: expected a column {', '.join(_COLUMNS[:-1])} or {_COLUMNS[-1]}; its columns: "
                f"{table.listed()}. Name the sentences' columns so, or give the other files one by one"
            )
        rows = table.rows(columns)
    for number, cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            text = cell_text(cell, label, number, column)
            if not is_decodable(text):
                raise CorpusError(f"{path}: row {number}: expected UTF-8 text. Check --held-out")
            yield text
