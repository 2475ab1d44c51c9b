"""One ONNX file: token ids and mask in, the normalised embedding and the token states out.

Clients read outputs by name or by place. ``sentence_embedding`` (pooling and head are inside the graph) comes first:
who takes the first output, or that name, needs nothing else. ``last_hidden_state`` is for those that pool themselves:
sentence-transformers' ONNX backend, which goes on with the folder's modules, optimum, transformers.js' pipeline.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.extras import require
from consilience.core.files import storage_errors
from consilience.exporters.student_parts import StudentParts

ONNX_FILE = "onnx/model.onnx"
_OPSET = 18  # cited: >= 17 asked; 18 is the lowest that torch's exporter writes without converting down
EMBEDDING, STATES = "sentence_embedding", "last_hidden_state"  # cited: the names that optimum gives
_LIMIT_BYTES = 1_900_000_000  # a protobuf holds 2 GiB at most; beyond it weights would need a second file


def write_onnx(parts: StudentParts, folder: Path) -> None:
    """Write ``onnx/model.onnx``: inputs ``input_ids`` and ``attention_mask`` (int64, batch x tokens), outputs
    ``sentence_embedding`` (float32, batch x dimensions, length 1) and ``last_hidden_state`` (batch x tokens x hidden).

    Batch and length are dynamic. The file is self-contained (no external data), passes ``onnx.checker``, and holds
    no paths or stack traces of the machine that wrote it, so that equal students give equal files.

    Args:
        parts: the student.
        folder: the export's folder.

    Raises:
        InputError: the weights are too large for one file.
        MissingExtraError: ``onnx`` or ``onnxscript`` isn't installed.
    """  # noqa: D205 - the first sentence names inputs and outputs
    trace_onnx(parts, _OutputsGraph(parts.module), folder)


def trace_onnx(parts: StudentParts, graph: Any, folder: Path, *, more: Mapping[str, Any] | None = None) -> None:  # noqa: ANN401
    """Trace a module over token ids, mask and further inputs into ``onnx/model.onnx``, as :func:`write_onnx` says.

    Args:
        parts: the student that the module holds.
        graph: maps ids, mask and the further inputs to the embedding and the token states.
        folder: the export's folder.
        more: an example of each further input, of a fixed shape, by name.

    Raises:
        InputError: the weights are too large for one file.
        MissingExtraError: ``onnx`` or ``onnxscript`` isn't installed.
    """
    import torch

    onnx = require("onnx", extra="onnx", purpose="to export to ONNX")
    require("onnxscript", extra="onnx", purpose="to export to ONNX")
    more = more or {}
    size = sum(p.numel() * p.element_size() for p in graph.parameters())
    if size > _LIMIT_BYTES:
        raise InputError(f"export: {size} bytes of weights don't fit one ONNX file (2 GiB). Export without onnx")
    target = folder / ONNX_FILE
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    length = min(7, parts.max_length)
    ids = torch.zeros((3, length), dtype=torch.int64)
    mask = torch.ones((3, length), dtype=torch.int64)
    mask[1, length - 2 :] = 0  # a padded row, so that nothing about "no padding" is traced in
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=parts.max_length)}
    with _exporting(parts.backbone):
        program = torch.onnx.export(
            graph.eval(),
            (ids, mask, *more.values()),
            input_names=["input_ids", "attention_mask", *more],
            output_names=[EMBEDDING, STATES],
            dynamic_shapes=(axes, axes, *({} for _ in more)),
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise InputError("export: torch's ONNX exporter returned no program. Use a torch >= 2.6 with dynamo support")
    model = program.model_proto
    _strip_traces(model)
    with storage_errors(target):
        onnx.save_model(model, str(target), save_as_external_data=False)
    onnx.checker.check_model(str(target), full_check=True)


def _OutputsGraph(module: Any) -> Any:  # noqa: ANN401, N802 - builds a torch module; torch is imported lazily
    """Wrap a student so that its forward returns the embedding, then the token states."""
    from torch import Tensor, nn

    class OutputsGraph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = module

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
            output = self.student(input_ids, attention_mask)
            return output.embedding, output.last_hidden_state

    return OutputsGraph()


@contextmanager
def _exporting(backbone: Any) -> Iterator[None]:  # noqa: ANN401 - a transformers model
    """Export with eager attention (fused kernels trace to graphs that fix the mask's shape), quietly."""
    chosen = backbone.config._attn_implementation
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    backbone.config._attn_implementation = "eager"
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside torch's exporter; the result is checked below
            yield
    finally:
        backbone.config._attn_implementation = chosen
        logger.setLevel(level)


def _strip_traces(model: Any) -> None:  # noqa: ANN401 - a protobuf message
    """Remove what the exporter notes about the Python source: paths and stack traces."""
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        del graph.metadata_props[:]
        graph.doc_string = ""
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        for value in (*graph.value_info, *getattr(graph, "input", ()), *getattr(graph, "output", ())):
            if not isinstance(value, str):
                del value.metadata_props[:]
        for tensor in getattr(graph, "initializer", ()):
            del tensor.metadata_props[:]
    del model.metadata_props[:]


def embed_with_onnx(
    folder: Path,
    texts: Sequence[str],
    *,
    batch: int = 8,
    file: str = ONNX_FILE,
    more: Mapping[str, NDArray[np.float32]] | None = None,
) -> NDArray[np.float32]:
    """Embed texts with ``onnxruntime`` and ``tokenizers`` alone, as a service without torch would.

    Args:
        folder: an exported folder with ``onnx/model.onnx``.
        texts: what to embed.
        batch: texts at a time.
        file: which graph of the folder.
        more: further inputs of the graph, by name.

    Returns:
        (n, d) unit rows.
    """
    runtime = require("onnxruntime", extra="onnx", purpose="to run an ONNX export")
    from tokenizers import Tokenizer

    from consilience.core.files import read_json

    settings = read_json(folder / "tokenizer_config.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(settings["model_max_length"])
    pad = settings["pad_token"]
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    session = runtime.InferenceSession(str(folder / file), providers=["CPUExecutionProvider"])
    outputs = [session.get_outputs()[0].name]
    parts = []
    for start in range(0, len(texts), batch):
        encoded = tokenizer.encode_batch(list(texts[start : start + batch]))
        ids = np.asarray([row.ids for row in encoded], dtype=np.int64)
        mask = np.asarray([row.attention_mask for row in encoded], dtype=np.int64)
        parts.append(session.run(outputs, {"input_ids": ids, "attention_mask": mask, **(more or {})})[0])
    return np.concatenate(parts).astype(np.float32, copy=False)
