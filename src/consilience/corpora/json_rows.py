"""Rows of JSON: an object a line, or objects one after another, in an array or not, however they are laid out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from consilience.core.errors import CorpusError, MissingColumnError
from consilience.core.text_files import LINE_CHARACTERS, iter_lines, open_text, read_head

_CHUNK = 1 << 18
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder(object_pairs_hook=lambda pairs: _object(pairs))
_FIX = "Give one JSON object a line, or an array of objects"


def read_json_rows(path: Path, label: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the numbered objects of a JSON file: by line where each has its own, else by their place.

    Raises:
        CorpusError: it isn't JSON, or holds something that isn't an object.
    """
    by_line = _has_lines(read_head(path, label))
    for number, value in _lines(path, label) if by_line else _stream(path, label):
        if not isinstance(value, dict):
            where = f"{'line' if by_line else 'row'} {number}"
            raise MissingColumnError(f"{label}: {where}: expected a JSON object, got {type(value).__name__}. {_FIX}")
        yield number, value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; a name that comes twice would have two readings."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceError(f"{twice!r} is there twice in one object; give each value its own name")
    return found


class _TwiceError(ValueError):
    """A name stands twice in one object."""


def _has_lines(head: bytes) -> bool:
    """Say whether each object has its line: the first line is a JSON value, or too long to tell."""
    lines = head.removeprefix(b"\xef\xbb\xbf").lstrip().splitlines(keepends=True)
    if not lines or lines[0].startswith(b"["):
        return not lines
    try:
        json.loads(lines[0])
    except (ValueError, RecursionError):
        return not lines[0].endswith((b"\n", b"\r"))
    return True


def _lines(path: Path, label: str) -> Iterator[tuple[int, Any]]:
    for number, line in iter_lines(path, label):
        if not line.strip():
            continue
        try:
            yield number, _DECODER.decode(line)
        except (ValueError, RecursionError) as error:  # also a number of more digits than Python converts
            raise CorpusError(f"{label}: line {number}: isn't JSON ({error}). {_FIX}") from error


def _stream(path: Path, label: str) -> Iterator[tuple[int, Any]]:
    with open_text(path, label) as stream:
        text = _Values(stream.read, label)
        is_array = text.peek() == "["
        if is_array:
            text.at += 1
        after = text.peek()
        if is_array and after == "]":
            return
        while after:
            text.number += 1
            yield text.number, text.value()
            after = text.peek()
            if is_array:
                text.at += 1
                if after == "]" and not (after := text.peek()):
                    return
                if after != ",":
                    found = repr(after) if after else "the file's end"
                    raise CorpusError(f"{label}: behind row {text.number}: expected ',' or ']', got {found}. {_FIX}")
        if is_array:
            raise CorpusError(f"{label}: the array isn't closed. Fetch the file again")


class _Values:
    """JSON values decoded from chunks of text; memory for one value and one chunk."""

    def __init__(self, read: Callable[[int], str], label: str) -> None:
        self._read, self._label = read, label
        self._text, self.at, self.number = "", 0, 0
        self._decode = _DECODER.raw_decode

    def peek(self) -> str:
        """Return the next character that isn't white space; "" at the end."""
        while True:
            self.at = _SPACE.match(self._text, self.at).end()  # type: ignore[union-attr]  # it matches anywhere
            if self.at < len(self._text):
                return self._text[self.at]
            if not self._fill():
                return ""

    def value(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the next value."""
        self.peek()  # the decoder doesn't skip white space
        while True:
            try:
                value, self.at = self._decode(self._text, self.at)
                return value
            except (ValueError, RecursionError) as error:  # or it goes on in the next chunk
                if len(self._text) - self.at > LINE_CHARACTERS or not self._fill():
                    raise CorpusError(f"{self._label}: row {self.number}: isn't JSON ({error}). {_FIX}") from error

    def _fill(self) -> bool:
        waiting = self._text[self.at :]
        more = self._read(max(_CHUNK, len(waiting)))  # as much again: a long value is decoded a few times, not often
        self._text, self.at = waiting + more, 0
        return bool(more)
