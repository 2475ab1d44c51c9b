"""A model with a library as an encoder: one row of a mask table, named and identified as what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.adapters.attach import handle_of
from consilience.adapters.handle import Handle
from consilience.adapters.masks import ALL, Mask
from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError


class AdaptedEncoder:
    """Texts through a model under one mask of its library; an :class:`~consilience.core.encoder.Encoder`.

    The mask holds inside :meth:`encode` and nowhere else. The identity names library, mask and, where the library was
    forced onto a foreign trunk, both trunks, so no bank or table takes these vectors for the bare model's.

    Args:
        model: a student, or a SentenceTransformer.
        mask: from ``handle.make_mask(...)`` or ``handle.table_masks()``, or None for all anchors.
        name: what a table calls it; by default the model's name with the mask's label.

    Raises:
        InputError: the model carries no library.
    """

    def __init__(self, model: Any, mask: Mask | None = None, *, name: str | None = None) -> None:  # noqa: ANN401
        handle = handle_of(model)
        if handle is None:
            raise InputError("adapters: the model carries no library. Attach one first")
        self._model = model
        self._handle: Handle = handle
        self.mask = mask or ALL
        mark = " (forced onto a foreign trunk)" if handle.forced and self.mask.kind != "off" else ""
        self.name = name or f"{handle.trunk.name}, {self.mask.label}{mark}"
        self.dimensions = int(self.encode(["a"]).shape[1])

    @property
    def parameters(self) -> int | None:
        """Number of parameters: the model's, and those of the anchors and keys that answer."""
        own = getattr(self._model, "parameters", None)
        count = own if isinstance(own, int) else sum(p.numel() for p in self._model.parameters())
        library = self._handle.library
        if self.mask.kind == "off":
            return count
        if self.mask.kind == "solo":
            return count + library.anchor(self.mask.names[0]).parameter_count
        return (
            count
            + library.keys.numel()
            + sum(library.anchor(n).parameter_count for n in self.mask.names or library.names)
        )

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors: the model's identity, or its trunk's, and what the library adds."""
        own = getattr(self._model, "identity", None)
        base = own() if callable(own) else {"backend": "trunk", "trunk": self._handle.trunk.to_json()}
        return {**base, "adapters": self._handle.describe(self.mask)}

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts under the mask; see :class:`consilience.core.encoder.Encoder`."""
        with self._handle.under(self.mask):
            if hasattr(self._model, "identity"):
                vectors = self._model.encode(texts)
            else:
                with self._handle.turns:
                    vectors = self._model.encode(texts, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)
