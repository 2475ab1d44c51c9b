"""An int8 ONNX file beside the fp32 one: smaller by about four, faster where the processor multiplies bytes.

Matrix products in the layers become dynamic int8 products (weights by output channel, activations when they come); the
tables of tokens and positions become int8 with one scale a row. The head, which runs once a text, stays fp32.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.extras import require
from consilience.core.files import storage_errors
from consilience.exporters.onnx import ONNX_FILE, embed_with_onnx

INT8_FILE = "onnx/model_int8.onnx"
# Assumed: a quantised student below it on any fixed text is broken, not rounded. Real students stay above .99.
LEAST_COSINE = 0.95
_LEAST_ROWS = 64  # smaller tables (distances, token types) aren't worth a scale a row


def write_int8(folder: Path) -> None:
    """Write ``onnx/model_int8.onnx`` from ``onnx/model.onnx``, with the same inputs and output.

    Weights have 7 bits, so that processors which add pairs of byte products in 16 bits (AVX2 and AVX-512 without VNNI)
    don't overflow and give what others give.

    Args:
        folder: the export's folder.

    Raises:
        MissingExtraError: ``onnx`` or ``onnxruntime`` isn't installed.

    Source: Jacob et al. 2018, arXiv:1712.05877; onnxruntime's dynamic quantisation.
    """
    onnx = require("onnx", extra="onnx", purpose="to quantise an ONNX export")
    quantization = require("onnxruntime.quantization", extra="onnx", purpose="to quantise an ONNX export")
    target = folder / INT8_FILE
    with storage_errors(target), _quiet():
        quantization.quantize_dynamic(
            folder / ONNX_FILE,
            target,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=_layer_products(onnx.load(str(folder / ONNX_FILE))),
            per_channel=True,
            reduce_range=True,
            weight_type=quantization.QuantType.QInt8,
        )
        model = onnx.load(str(target))
        _quantise_tables(model.graph)
        onnx.save_model(model, str(target), save_as_external_data=False)
    onnx.checker.check_model(str(target), full_check=True)


def _layer_products(model: Any) -> list[str]:  # noqa: ANN401 - a protobuf message
    """Return the names of the matrix products before the pooling: those that give one row a token, not one a text."""
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(model).graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.value_info, *graph.output)}
    return [node.name for node in graph.node if node.op_type == "MatMul" and ranks.get(node.output[0]) != 2]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence onnxruntime's advice to prepare the graph first, which was made for other exporters' graphs."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def _quantise_tables(graph: Any) -> None:  # noqa: ANN401 - a protobuf message
    """Replace every look-up in a table of floats by look-ups in bytes and in one scale a row."""
    from onnx import helper, numpy_helper

    tables = {tensor.name: tensor for tensor in graph.initializer}
    nodes, replaced = [], set()
    for node in graph.node:
        table = tables.get(node.input[0]) if node.op_type == "Gather" else None
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        values = None if table is None or axis != 0 else numpy_helper.to_array(table)
        if values is None or values.ndim != 2 or values.dtype != np.float32 or len(values) < _LEAST_ROWS:
            nodes.append(node)
            continue
        name, places, out = node.input[0], node.input[1], node.output[0]
        if name not in replaced:
            rows, scales = quantise_rows(values)
            graph.initializer.append(numpy_helper.from_array(rows, f"{name}_int8"))
            graph.initializer.append(numpy_helper.from_array(scales, f"{name}_scales"))
            replaced.add(name)
        nodes += [
            helper.make_node("Gather", [f"{name}_int8", places], [f"{out}_bytes"], name=f"{out}_bytes", axis=0),
            helper.make_node("Cast", [f"{out}_bytes"], [f"{out}_float"], name=f"{out}_float", to=1),  # 1: float32
            helper.make_node("Gather", [f"{name}_scales", places], [f"{out}_scale"], name=f"{out}_scale", axis=0),
            helper.make_node("Mul", [f"{out}_float", f"{out}_scale"], [out], name=f"{out}_table"),
        ]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def quantise_rows(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round a table to int8 with one scale a row.

    Args:
        table: (n, d), not normalised.

    Returns:
        Bytes (n, d) and scales (n, 1); their product is within half a scale of the table.

    Example:
        >>> rows, scales = quantise_rows(np.array([[1.0, -0.5], [0.0, 0.0]], dtype=np.float32))
        >>> rows.tolist()
        [[127, -64], [0, 0]]
    """
    largest = np.abs(table).max(axis=1, keepdims=True)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(table / scales).astype(np.int8), scales


def embed_with_int8(folder: Path, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embed texts with ``onnx/model_int8.onnx``, one at a time.

    Activations are rounded together with those of their batch, so a vector depends a little on its neighbours.

    Returns:
        (n, d) unit rows.
    """
    return embed_with_onnx(folder, texts, batch=1, file=INT8_FILE)
