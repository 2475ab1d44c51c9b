"""The one protocol that evaluation, banks and serving know of a model: texts in, vectors out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.text_files import is_decodable

_Encode = TypeVar("_Encode", bound=Callable[..., NDArray[np.float32]])


@runtime_checkable
class Encoder(Protocol):
    """Anything that maps texts to vectors of one width."""

    @property
    def name(self) -> str:
        """What a person calls it: a teacher's spec or a path."""
        ...

    @property
    def dimensions(self) -> int:
        """Width of the vectors."""
        ...

    @property
    def parameters(self) -> int | None:
        """Number of parameters that inference uses, or None when unknown (a remote endpoint)."""
        ...

    def identity(self) -> dict[str, Any]:
        """Everything that determines the vectors, as JSON: backend, name, revision or weights hash, prompt, ..."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; ours are safe to call from several threads at once.

        Row i depends on ``texts[i]`` alone, up to floating-point rounding. Rows are finite; they are not
        normalised unless the model itself does so.

        Returns:
            Array (n, d), float32, in the order of the texts; of one text, given as a str, its vector (d,).

        Raises:
            InputError: something among the texts isn't a str.
            TeacherError: a vector is NaN, infinite or all zero, or the backend failed.
        """
        ...


def takes_texts(encode: _Encode) -> _Encode:
    """Give an ``encode`` method everybody's rule for its argument.

    One text, a str, gives one vector (d,), as in sentence-transformers. A list, a tuple, a column of strings or an
    array of them gives (n, d), nothing gives (0, d), and anything else is refused. The method gets a list of at least
    one str.

    Args:
        encode: maps a list of texts to rows (n, d).
    """

    @functools.wraps(encode)
    def checked(self: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = text_list((texts,) if isinstance(texts, str) else texts, where=self.name)
        vectors = encode(self, rows) if rows else np.empty((0, self.dimensions), dtype=np.float32)
        return vectors[0] if isinstance(texts, str) else vectors

    return cast("_Encode", checked)


def text_list(texts: Iterable[str], *, where: str) -> list[str]:
    """Return texts as a list of plain str.

    Args:
        texts: anything in an order that holds str and its subclasses (NumPy's) only.
        where: who asks, for the message.

    Raises:
        InputError: no such thing; or an item that isn't a str, or one that no encoder can read; says which.

    Example:
        >>> import pyarrow
        >>> text_list(np.array(["a cat", "a dog"]), where="model") == text_list(
        ...     pyarrow.array(["a cat", "a dog"]), where="model"
        ... )
        True
    """
    rows = in_order(texts, where=where)
    # Both questions are asked of all texts at once: one by one they cost a tenth of a static student's time.
    if not {str}.issuperset(map(type, rows)):
        for row, text in enumerate(rows):
            if not isinstance(text, str):
                raise InputError(f"{where}: text {row} isn't a str but {_shown(text)}. Leave it out or make it text")
            rows[row] = str(text)
    if not all(map(str.isascii, rows)):
        for row, text in enumerate(rows):
            if not is_decodable(text):
                raise InputError(
                    f"{where}: text {row} holds half a character (a lone surrogate). Decode it again or drop it"
                )
    return rows


def in_order(texts: Iterable[Any], *, where: str) -> list[Any]:
    """Return what several texts are given in as a list, whatever its items are.

    Args:
        texts: a list, a tuple, an array, a column, an iterator.
        where: who asks, for the message.

    Raises:
        InputError: one text, bytes, a table, or something without an order.
    """
    # A data frame's items are its columns' names, a mapping's its keys; a set has no order.
    flat = getattr(texts, "ndim", 1) == 1 and not isinstance(texts, str | bytes | bytearray | Mapping | Set)
    if not flat or not isinstance(texts, Iterable):
        raise InputError(f"{where}: expected a text or a list of texts, got {_shown(texts)}. Give a list of str")
    columns = getattr(texts, "to_pylist", None)  # of pyarrow, whose items are scalars of its own
    return list(texts) if columns is None else list(columns())


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r:.40}"
