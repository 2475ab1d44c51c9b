"""Sentences that models are tested on, and whether a training text is one of them."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from consilience.core.errors import CorpusError

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
        paths: tab-separated files with a header that has ``sentence1`` and ``sentence2`` (or ``sentence``, ``text``),
            plain .txt files of one sentence a line, or folders: of a folder its ``sts/*.tsv``, else its own ``*.tsv``.

    Raises:
        CorpusError: nothing is there, or a file has no such column.
    """
    files = [file for path in paths for file in _files(Path(path))]
    return HeldOutSentences((file.name, text) for file in files for text in _sentences(file))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted((path / "sts").glob("*.tsv")) or sorted(path.glob("*.tsv"))
    if not found:
        raise CorpusError(f"{path}: expected a test file, or a folder with *.tsv, found none. Check --held-out")
    return found


def _sentences(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: expected UTF-8 text, byte {error.start} isn't. Check --held-out") from error
    lines = text.split("\n")  # not splitlines: sentences may hold U+2028
    if path.suffix == ".txt":
        yield from (line for line in lines if line.strip())
        return
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(rows, [])
    places = [header.index(column) for column in _COLUMNS if column in header]
    if not places:
        raise CorpusError(f"{path}: expected a header with {' or '.join(_COLUMNS)}, got {header[:5]}. Check --held-out")
    for row in rows:
        yield from (row[place] for place in places if place < len(row))
