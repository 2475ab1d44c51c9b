"""A model whose vectors are mapped into another frame: the new model's queries, asked of the old index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import Encoder, takes_texts
from consilience.core.errors import FrameMismatchError
from consilience.frames.align import AffineMap


class MappedEncoder:
    """An encoder behind an affine map; unit vectors out.

    Args:
        encoder: the model.
        affine: map of its frame into another.
        identity: of the model that the map was fitted with; the encoder must be the same, prompt included.
        map_id: id of the artefact that holds the map.

    Raises:
        FrameMismatchError: the encoder isn't the model of the fit; the message says in what it differs.
    """

    def __init__(self, encoder: Encoder, affine: AffineMap, *, identity: Mapping[str, Any], map_id: str) -> None:
        require_same_model(identity, encoder.identity(), where=map_id)
        self._encoder, self._affine, self._map_id = encoder, affine, map_id

    @property
    def name(self) -> str:
        """The model's name and the map's id."""
        return f"{self._encoder.name} through {self._map_id}"

    @property
    def dimensions(self) -> int:
        """Width of the frame mapped into."""
        return self._affine.d_y

    @property
    def parameters(self) -> int | None:
        """Parameters of the model and the map."""
        own = self._encoder.parameters
        return None if own is None else own + self._affine.matrix.size + self._affine.bias.size

    def identity(self) -> dict[str, Any]:
        """Return the model's identity and the map's id."""
        return {"backend": "mapped", "name": self.name, "model": self._encoder.identity(), "map": self._map_id}

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts and map them.

        Returns:
            Rows (n, d) in the frame mapped into, L2-normalised.

        Raises:
            TeacherError: the model failed.
        """
        return self._affine.apply(self._encoder.encode(texts))


def require_same_model(fitted: Mapping[str, Any], used: Mapping[str, Any], *, where: str) -> None:
    """Refuse another model, or the same one with another prompt, than a map was fitted with.

    Args:
        fitted: identity at the fit.
        used: identity now.
        where: names the map.

    Raises:
        FrameMismatchError: they differ; the message lists in what.
    """
    keys = [key for key in sorted({*fitted, *used}) if fitted.get(key) != used.get(key)]
    if keys:
        listed = ", ".join(f"{key}: {fitted.get(key)!r} there, {used.get(key)!r} here" for key in keys)
        raise FrameMismatchError(
            f"{where}: the map was fitted with another model or prompt ({listed}). Use the model as it was, or fit "
            "again: "
            "consilience migrate"
        )
