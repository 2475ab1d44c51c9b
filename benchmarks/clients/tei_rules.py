"""text-embeddings-inference's rules for a local folder, read from its source: it can't be built here.

Its ONNX backend takes ``sentence_embedding`` if the graph gives it, and else pools ``last_hidden_state`` or
``token_embeddings``. Its candle backend applies the Dense modules that modules.json lists, when every module there is
one that it knows; an unknown module makes it leave all of them out, with a warning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Without defaults in its structures: a missing or null one ends the start. https://github.com/huggingface/text-embeddings-inference
BERT = (
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "intermediate_size", "hidden_act", "hidden_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps", "pad_token_id",
)  # fmt: skip
POOLING = (
    "pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
)  # fmt: skip
MODULES = tuple(f"sentence_transformers.models.{name}" for name in ("Dense", "Normalize", "Pooling", "Transformer"))
ACTIVATIONS = (None, "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity")


def read_as_tei(folder: Path) -> dict[str, str]:
    """Say by backend what it would make of a folder: "serves it", or what goes wrong."""
    try:
        config = _read(folder / "config.json", BERT)
        pooling = _read(folder / "1_Pooling" / "config.json", POOLING)
        _read(folder / "sentence_bert_config.json", ("max_seq_length",))
    except (OSError, KeyError) as error:
        return dict.fromkeys(("onnx", "candle"), f"doesn't start: {error}")
    if config["model_type"] != "bert" or not pooling["pooling_mode_mean_tokens"] or pooling["pooling_mode_cls_token"]:
        return dict.fromkeys(("onnx", "candle"), "another architecture or pooling than these rules are about")
    return {"onnx": _onnx(folder), "candle": _candle(folder)}


def _read(path: Path, needed: tuple[str, ...]) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    missing = [key for key in needed if content.get(key) is None]
    if missing:
        raise KeyError(f"{path.name} without {', '.join(missing)}")
    return dict(content)


def _onnx(folder: Path) -> str:
    import onnx

    path = folder / "onnx" / "model.onnx"
    if not path.is_file():
        return "no graph"
    outputs = [output.name for output in onnx.load(str(path), load_external_data=False).graph.output]
    if "sentence_embedding" in outputs:
        return "serves it"
    pooled = {"last_hidden_state", "token_embeddings"} & set(outputs)
    return "serves bare mean-pooled states" if pooled else f"fails on every text: outputs {outputs}"


def _candle(folder: Path) -> str:
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    unknown = [module["type"] for module in modules if module["type"] not in MODULES]
    if unknown:
        return "serves bare mean-pooled states"
    for module in modules:
        if module["type"].endswith("Dense"):
            settings = json.loads((folder / module["path"] / "config.json").read_text(encoding="utf-8"))
            if settings.get("activation_function") not in ACTIVATIONS:
                return "doesn't start: an activation it doesn't know"
    return "serves it"
