"""The one protocol that evaluation, banks and serving know of a model: texts in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


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
        """Embed texts.

        Row i depends on ``texts[i]`` alone, up to floating-point rounding. Rows are finite; they are not
        normalised unless the model itself does so.

        Returns:
            Array (n, d), float32, in the order of the texts.

        Raises:
            TeacherError: a vector is NaN, infinite or all zero, or the backend failed.
        """
        ...
