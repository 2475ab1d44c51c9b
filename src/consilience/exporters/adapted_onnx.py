"""One ONNX file of a student with its adapters: the mask is an input, or baked in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.adapters.atoms import read_atoms_plain
from consilience.adapters.trunk import find_blocks
from consilience.exporters.hub_adapters import add_anchors
from consilience.exporters.onnx import embed_with_onnx, trace_onnx
from consilience.exporters.student_parts import StudentParts

ANCHORS = "anchors"


def write_adapted_onnx(
    parts: StudentParts,
    tensors: dict[str, Any],
    settings: dict[str, Any],
    folder: Path,
    enabled: tuple[str, ...] | None,
) -> None:
    """Write ``onnx/model.onnx``: ids, mask and, unless it is baked in, ``anchors`` in; embedding and states out.

    Args:
        parts: the student; a library on it is switched off meanwhile by the caller's mask.
        tensors: the library's, by name.
        settings: as config.json has them.
        folder: the export's.
        enabled: names that are baked in; None makes the mask an input.

    Raises:
        InputError: torch's exporter gave nothing.
        MissingExtraError: ``onnx`` or ``onnxscript`` isn't installed.
    """
    import torch

    graph = _graph(parts, tensors, settings, enabled)
    more = {ANCHORS: torch.ones(len(settings["names"]))} if enabled is None else {}
    try:
        trace_onnx(parts, graph, folder, more=more)
    finally:
        graph.remove_hooks()


def _graph(
    parts: StudentParts, tensors: dict[str, Any], settings: dict[str, Any], enabled: tuple[str, ...] | None
) -> Any:  # noqa: ANN401
    """Return the student with hooks of its own, written as formulas that the exporter can trace."""
    import torch
    from torch import Tensor, nn

    class AdaptedGraph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = parts.module
            self.library = nn.ParameterDict()
            for number, value in enumerate(tensors.values()):
                self.library[f"t{number}"] = nn.Parameter(value, requires_grad=False)
            self._order = list(tensors)
            self._weights: list[Tensor | None] = [None]
            self._hooks = [
                block.register_forward_hook(self._hook(index))
                for index, block in enumerate(find_blocks(parts.backbone))
            ]

        def _hook(self, index: int) -> Any:  # noqa: ANN401
            names = tuple(settings["names"]) if enabled is None else enabled

            def hook(module: nn.Module, args: Any, output: Any) -> Any:  # noqa: ANN401
                if not names:
                    return None
                x = output[0] if isinstance(output, tuple) else output
                library = {name: self.library[f"t{number}"] for number, name in enumerate(self._order)}
                added = add_anchors(library, settings, index, x, names, read_atoms_plain, self._weights[0])
                return (x + added, *output[1:]) if isinstance(output, tuple) else x + added

            return hook

        def remove_hooks(self) -> None:
            for hook in self._hooks:
                hook.remove()

        def forward(
            self, input_ids: Tensor, attention_mask: Tensor, anchors: Tensor | None = None
        ) -> tuple[Tensor, Tensor]:
            self._weights[0] = anchors
            try:
                output = self.student(input_ids, attention_mask)
            finally:
                self._weights[0] = None
            return output.embedding, output.last_hidden_state

    with torch.no_grad():
        return AdaptedGraph()


def embed_with_adapted_onnx(
    folder: Path, texts: Sequence[str], anchors: Sequence[float] | None = None, *, batch: int = 7
) -> NDArray[np.float32]:
    """Embed texts with ``onnxruntime`` and ``tokenizers`` alone.

    Args:
        folder: an exported folder.
        texts: what to embed.
        anchors: one number an anchor, for a file whose mask is an input; None for one with a baked mask.
        batch: texts at a time.

    Returns:
        (n, d) unit rows.
    """
    more = None if anchors is None else {ANCHORS: np.asarray(anchors, dtype=np.float32)}
    return embed_with_onnx(folder, texts, batch=batch, more=more)
