"""A folder that ``SentenceTransformer(path)`` loads with its own modules: nothing remote, nothing of ours.

The files are written here, not by the library, so that the folder doesn't depend on the version at hand: module
names and keys are the ones that sentence-transformers 5.0 and later all read (older ones can't read a LayerNorm
module from safetensors).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.files import storage_errors, write_json
from consilience.exporters.huggingface import HEAD_FOLDERS, ROTATION_FOLDER, write_tensors
from consilience.exporters.student_parts import StudentParts

if TYPE_CHECKING:
    import torch

_POOLING = "1_Pooling"


def write_modules(parts: StudentParts, folder: Path) -> None:
    """Write the modules beside the backbone: Pooling, Dense (GELU), LayerNorm, Dense, Normalize.

    A rotation is one more Dense without bias before Normalize: scaling a vector and rotating it commute.

    Args:
        parts: the student.
        folder: already holds the backbone (see :func:`consilience.exporters.huggingface.write_backbone`).
    """
    hidden, dimensions = parts.hidden, parts.last.out_features
    first, norm, last = HEAD_FOLDERS
    _write_module(folder / _POOLING, _pooling_config(hidden))
    _write_module(
        folder / first,
        _dense_config(hidden, hidden, "torch.nn.modules.activation.GELU"),
        {"linear.weight": parts.first.weight, "linear.bias": parts.first.bias},
    )
    _write_module(
        folder / norm,
        {"dimension": hidden},
        {"norm.weight": parts.norm.weight, "norm.bias": parts.norm.bias},
    )
    _write_module(
        folder / last,
        _dense_config(hidden, dimensions, "torch.nn.modules.linear.Identity"),
        {"linear.weight": parts.last.weight, "linear.bias": parts.last.bias},
    )
    kinds = ["Transformer", "Pooling", "Dense", "LayerNorm", "Dense"]
    places = ["", _POOLING, first, norm, last]
    if parts.rotation is not None:
        config = _dense_config(dimensions, parts.dimensions, "torch.nn.modules.linear.Identity")
        weight = parts.rotation.T.contiguous()
        _write_module(folder / ROTATION_FOLDER, {**config, "bias": False}, {"linear.weight": weight})
        kinds.append("Dense")
        places.append(ROTATION_FOLDER)
    kinds.append("Normalize")
    places.append(f"{len(places)}_Normalize")
    _write_module(folder / places[-1], {})
    modules = [
        {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    # A bert checkpoint without a pooler: AutoModel would otherwise add a random one, unused but counted and warned of.
    settings = {
        "max_seq_length": parts.max_length,
        "do_lower_case": False,
        "model_args": {"add_pooling_layer": False},
    }
    write_json(folder / "sentence_bert_config.json", settings)
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})


def _pooling_config(hidden: int) -> dict[str, Any]:
    return {
        "word_embedding_dimension": hidden,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }


def _dense_config(inputs: int, outputs: int, activation: str) -> dict[str, Any]:
    return {"in_features": inputs, "out_features": outputs, "bias": True, "activation_function": activation}


def _write_module(folder: Path, config: dict[str, Any], tensors: Mapping[str, torch.Tensor] | None = None) -> None:
    with storage_errors(folder):
        folder.mkdir()
    if tensors is not None:
        write_tensors(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", config)
