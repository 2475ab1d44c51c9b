"""The layers of a BERT that came as an ONNX graph: its weights under the names of ``transformers``.

``torch.onnx`` keeps the names of biases and tables, and folds the transposed matrix of a linear layer into a nameless
constant; the node that multiplies by it still carries the layer's path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.extras import require

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_LAYER = re.compile(r"(embeddings\..+|encoder\.layer\.\d+\..+)$")


def read_bert(graph: Path, *, where: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read a BERT's configuration and weights out of an ONNX graph.

    Args:
        graph: an export by ``torch.onnx``.
        where: the model, for messages.

    Returns:
        What its config.json says, and its tensors (fp32) under the names of ``transformers.BertModel``.

    Raises:
        InputError: the graph isn't a BERT's with GELU.
        MissingExtraError: onnx isn't installed.
    """
    import torch

    onnx = require("onnx", extra="onnx", purpose="to start a student from an ONNX graph")
    try:
        model = onnx.load(str(graph))
    except Exception as error:  # protobuf's DecodeError, which onnx doesn't derive from anything narrower
        raise InputError(f"{where}: {graph.name} isn't an ONNX graph. Fetch it again") from error
    constants = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    found: dict[str, NDArray[Any]] = {}
    for name, values in constants.items():
        if match := _LAYER.search(name):
            found[match.group(1)] = values
    for node in model.graph.node:
        path = node.name.strip("/").replace("/", ".")
        match = _LAYER.search(path.removesuffix(".MatMul"))
        if node.op_type == "MatMul" and match and node.input[1] in constants:
            found[f"{match.group(1)}.weight"] = constants[node.input[1]].T
    tensors = {name: torch.from_numpy(np.array(values, dtype=np.float32, order="C")) for name, values in found.items()}
    return _settings(model, tensors, onnx.numpy_helper, where), tensors


def _settings(model: Any, tensors: Mapping[str, torch.Tensor], helper: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - protobuf
    """Return what config.json would say; sizes are the tensors', the heads are in the shape that queries get."""
    depth = len({name.split(".")[2] for name in tensors if name.startswith("encoder.layer.")})
    tokens, positions = (tensors.get(f"embeddings.{name}_embeddings.weight") for name in ("word", "position"))
    inner = tensors.get("encoder.layer.0.intermediate.dense.weight")
    kinds = {node.op_type for node in model.graph.node}
    if tokens is None or positions is None or inner is None or "Erf" not in kinds or "LayerNormalization" not in kinds:
        raise InputError(f"{where}: its ONNX graph isn't a BERT's with GELU. Start from its weights in safetensors")
    hidden = tokens.shape[1]
    whole = {
        node.output[0]: helper.to_array(node.attribute[0].t)
        for node in model.graph.node
        if node.op_type == "Constant" and node.attribute[0].name == "value"
    }
    heads = 0
    for node in model.graph.node:
        shape = [whole.get(name) for name in node.input][-2:] if node.op_type == "Concat" else []
        if "/attention/self/" in node.name and len(shape) == 2 and shape[0] is not None and shape[1] is not None:
            heads = int(shape[0].item())
            break
    if heads < 1 or hidden % heads:
        raise InputError(f"{where}: its ONNX graph doesn't show the attention's heads. Start from its safetensors")
    epsilon = next(
        attribute.f
        for node in model.graph.node
        if node.op_type == "LayerNormalization"
        for attribute in node.attribute
        if attribute.name == "epsilon"
    )
    return {
        "model_type": "bert",
        "vocab_size": tokens.shape[0],
        "hidden_size": hidden,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": inner.shape[0],
        "max_position_embeddings": positions.shape[0],
        "type_vocab_size": tensors["embeddings.token_type_embeddings.weight"].shape[0],
        "hidden_act": "gelu",
        "layer_norm_eps": float(f"{epsilon:.6g}"),  # stored as fp32
    }
