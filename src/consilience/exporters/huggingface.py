"""The backbone as a plain ``transformers`` checkpoint: ``AutoModel`` and ``AutoTokenizer`` load it, no remote code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consilience.core.files import atomic_write, read_json, write_json
from consilience.exporters.student_parts import StudentParts
from consilience.students.backbones import backbone_settings, empty_pooler
from consilience.students.tokenizer import tokenizer_settings

if TYPE_CHECKING:
    import torch


def write_backbone(parts: StudentParts, folder: Path) -> None:
    """Write config, weights (safetensors, with an empty pooler) and tokenizer files of the backbone into ``folder``.

    The tokenizer's configuration names the generic fast tokenizer, which transformers 4 and 5 both know.
    """
    write_json(folder / "config.json", backbone_settings(parts.backbone))
    write_tensors(folder / "model.safetensors", {**parts.backbone.state_dict(), **empty_pooler(parts.backbone)})
    write_tokenizer(parts, folder)


def write_tokenizer(parts: StudentParts, folder: Path) -> None:
    """Write ``tokenizer.json`` and its settings, which also hold the length limit."""
    with atomic_write(folder / "tokenizer.json", "w") as stream:
        stream.write(parts.tokenizer.to_str(pretty=True))
    settings = tokenizer_settings(parts.tokenizer, max_length=parts.max_length)
    write_json(folder / "tokenizer_config.json", settings)
    special = {key: value for key, value in settings.items() if key.endswith("_token")}
    write_json(folder / "special_tokens_map.json", special)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors as fp32 safetensors, atomically; equal tensors give equal bytes."""
    from safetensors.torch import save

    exact = {name: tensor.detach().cpu().float().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as stream:
        stream.write(save(exact, metadata={"format": "pt"}))


def embed_with_automodel(folder: Path, texts: Sequence[str], *, batch: int = 8) -> NDArray[np.float32]:
    """Embed texts with ``AutoModel``, mean pooling and the head's weights read from the folder.

    This is the path of a person who has only ``transformers``; the model card shows the same steps.

    Args:
        folder: an exported folder.
        texts: what to embed.
        batch: texts at a time.

    Returns:
        (n, d) unit rows.
    """
    import torch
    from safetensors.torch import load_file
    from torch.nn import functional
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    backbone = AutoModel.from_pretrained(folder).eval()
    layers = []
    for module in read_json(folder / "modules.json"):
        place, kind = folder / module["path"], module["type"].rsplit(".", 1)[-1]
        if kind in ("Dense", "LayerNorm"):
            layers.append((kind, read_json(place / "config.json"), load_file(place / "model.safetensors")))

    def embed(chunk: list[str]) -> torch.Tensor:
        inputs = tokenizer(chunk, padding=True, truncation=True, return_tensors="pt")
        states = backbone(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
        x = (states * mask).sum(1) / mask.sum(1)
        for kind, config, tensors in layers:
            if kind == "LayerNorm":
                x = functional.layer_norm(x, x.shape[-1:], tensors["norm.weight"], tensors["norm.bias"])
            else:
                x = functional.linear(x, tensors["linear.weight"], tensors.get("linear.bias"))
                x = functional.gelu(x) if config["activation_function"].endswith("GELU") else x
        return functional.normalize(x)

    with torch.no_grad():
        parts = [embed(list(texts[i : i + batch])).numpy() for i in range(0, len(texts), batch)]
    return np.concatenate(parts)
