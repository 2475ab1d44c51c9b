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
from consilience.exporters.huggingface import write_tensors
from consilience.exporters.student_parts import Stage, StudentParts

if TYPE_CHECKING:
    import torch

_POOLING = "1_Pooling"


def write_modules(parts: StudentParts, folder: Path) -> None:
    """Write the modules beside the backbone: Pooling, the layers behind it as Dense and LayerNorm, Normalize.

    A rotation and a cut to fewer dimensions are in the last Dense, so that Normalize comes after them.

    Args:
        parts: the student.
        folder: already holds the backbone (see :func:`consilience.exporters.huggingface.write_backbone`).
    """
    _write_module(folder / _POOLING, _pooling_config(parts.hidden))
    kinds, places = ["Transformer", "Pooling"], ["", _POOLING]
    for stage, place in zip(parts.stages, parts.folders, strict=True):
        _write_stage(stage, folder / place)
        kinds.append(stage.kind)
        places.append(place)
    kinds.append("Normalize")
    places.append(f"{len(places)}_Normalize")
    _write_module(folder / places[-1], {})
    modules = [
        {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": parts.max_length, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})


def _write_stage(stage: Stage, folder: Path) -> None:
    name = "norm" if stage.kind == "LayerNorm" else "linear"
    tensors = {f"{name}.weight": stage.weight}
    if stage.bias is not None:
        tensors[f"{name}.bias"] = stage.bias
    if stage.kind == "LayerNorm":
        _write_module(folder, {"dimension": len(stage.weight)}, tensors)
        return
    outputs, inputs = stage.weight.shape
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": stage.bias is not None,
        "activation_function": "torch.nn.modules.activation.GELU" if stage.gelu else "torch.nn.modules.linear.Identity",
    }
    _write_module(folder, config, tensors)


def _pooling_config(hidden: int) -> dict[str, Any]:
    return {
        "word_embedding_dimension": hidden,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }


def _write_module(folder: Path, config: dict[str, Any], tensors: Mapping[str, torch.Tensor] | None = None) -> None:
    with storage_errors(folder):
        folder.mkdir()
    if tensors is not None:
        write_tensors(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", config)
