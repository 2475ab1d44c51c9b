"""One ONNX file of a student with its adapters: the mask is an input, or baked in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.adapters.atoms import read_atoms_plain
from consilience.adapters.trunk import find_blocks
from consilience.core.errors import InputError
from consilience.core.extras import require
from consilience.core.files import read_json, storage_errors
from consilience.exporters.hub_adapters import add_anchors
from consilience.exporters.onnx import _exporting, _rename_values, _strip_traces
from consilience.exporters.student_parts import StudentParts

ADAPTED_ONNX = "onnx/model.onnx"
ANCHORS = "anchors"
_OUTPUT = "consilience_embedding"
_OPSET = 18


def write_adapted_onnx(
    parts: StudentParts,
    tensors: dict[str, Any],
    settings: dict[str, Any],
    folder: Path,
    enabled: tuple[str, ...] | None,
) -> None:
    """Write ``onnx/model.onnx``: ids, mask and, unless the mask is baked in, ``anchors`` in; the embedding out.

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

    onnx = require("onnx", extra="onnx", purpose="to export to ONNX")
    require("onnxscript", extra="onnx", purpose="to export to ONNX")
    target = folder / ADAPTED_ONNX
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    length = min(7, parts.max_length)
    ids = torch.zeros((3, length), dtype=torch.int64)
    mask = torch.ones((3, length), dtype=torch.int64)
    mask[1, length - 2 :] = 0
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=parts.max_length)}
    inputs: tuple[torch.Tensor, ...] = (ids, mask)
    names, shapes = ["input_ids", "attention_mask"], [axes, axes]
    if enabled is None:
        inputs = (*inputs, torch.ones(len(settings["names"])))
        names, shapes = [*names, ANCHORS], [*shapes, {}]
    graph = _graph(parts, tensors, settings, enabled)
    try:
        with _exporting(parts.backbone):
            program = torch.onnx.export(
                graph.eval(),
                inputs,
                input_names=names,
                output_names=[_OUTPUT],
                dynamic_shapes=tuple(shapes),
                opset_version=_OPSET,
                dynamo=True,
                verbose=False,
            )
    finally:
        graph.remove_hooks()
    if program is None:
        raise InputError("adapt export: torch's ONNX exporter returned no program. Use a torch >= 2.6 with dynamo")
    model = program.model_proto
    _strip_traces(model)
    _rename_values(model.graph, {"embedding": "embedding_lookup", _OUTPUT: "embedding"})
    with storage_errors(target):
        onnx.save_model(model, str(target), save_as_external_data=False)
    onnx.checker.check_model(str(target), full_check=True)


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

        def forward(self, input_ids: Tensor, attention_mask: Tensor, anchors: Tensor | None = None) -> Tensor:
            self._weights[0] = anchors
            try:
                embedding: Tensor = self.student(input_ids, attention_mask).embedding
            finally:
                self._weights[0] = None
            return embedding

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
    runtime = require("onnxruntime", extra="onnx", purpose="to run an ONNX export")
    from tokenizers import Tokenizer

    settings = read_json(folder / "tokenizer_config.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(settings["model_max_length"])
    pad = settings["pad_token"]
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    session = runtime.InferenceSession(str(folder / ADAPTED_ONNX), providers=["CPUExecutionProvider"])
    more = {} if anchors is None else {ANCHORS: np.asarray(anchors, dtype=np.float32)}
    parts = []
    for start in range(0, len(texts), batch):
        encoded = tokenizer.encode_batch(list(texts[start : start + batch]))
        ids = np.asarray([row.ids for row in encoded], dtype=np.int64)
        mask = np.asarray([row.attention_mask for row in encoded], dtype=np.int64)
        parts.append(session.run(["embedding"], {"input_ids": ids, "attention_mask": mask, **more})[0])
    return np.concatenate(parts).astype(np.float32, copy=False)
