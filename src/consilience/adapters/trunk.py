"""The trunk under adapters: its blocks found by structure, its identity by content, its outputs on a probe batch.

The trunk is the Hugging Face encoder without pooler and head: what an anchor reads is the stream between the blocks. So
a student, its exported folder and ``AutoModel`` on that folder are one trunk, and two students that score alike are
two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from consilience.core.errors import InputError, TrunkMismatchError
from consilience.core.hashing import canonical_json

# BERT, RoBERTa, MPNet, older ViT; CLIP's towers; DistilBERT; ModernBERT, ViT.
BLOCK_PATHS = ("encoder.layer", "encoder.layers", "transformer.layer", "layers")
_ACCEPTED = (
    "a student (load_student), a SentenceTransformer, or a transformers encoder with its blocks at "
    + ", ".join(BLOCK_PATHS)
    + " (BERT, RoBERTa, MPNet, DistilBERT, ModernBERT, ViT, ...)"
)
# What of a configuration decides the stream between the blocks; names that all encoders alias to these.
_CONFIG_KEYS = (
    *("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("hidden_act", "activation", "hidden_activation", "layer_norm_eps", "norm_eps", "position_embedding_type"),
    *("relative_attention_num_buckets", "global_attn_every_n_layers", "local_attention"),
    *("rope_parameters", "rope_theta", "global_rope_theta", "local_rope_theta", "layer_types", "sliding_window"),
    *("rms_norm_eps", "image_size", "patch_size", "num_channels", "pad_token_id"),
)
_NOT_TRUNK = ("pooler.",)  # random where the checkpoint has none
_NOT_WEIGHTS = ("position_ids", "token_type_ids")  # counters that some releases store
_HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
_FULL = "float32"


@dataclass(frozen=True)
class TrunkIdentity:
    """What a trunk is, independent of file, device and storage precision.

    Attributes:
        name: what a person calls it; not compared.
        fingerprint: SHA-256 (hex) of configuration and weights in fp32.
        dtype: the lowest floating-point precision among its weights.
        rounded: by half-precision dtype, the fingerprint of the weights rounded to it.
        model_type: the architecture, "bert".
        blocks: number of blocks.
        width: of the token states.
    """

    name: str
    fingerprint: str
    dtype: str
    rounded: Mapping[str, str]
    model_type: str
    blocks: int
    width: int

    def matches(self, other: TrunkIdentity) -> bool:
        """Tell whether both are one trunk; a half-precision copy is the trunk that it was rounded from."""
        if self.fingerprint == other.fingerprint:
            return True
        halves = {one.dtype for one in (self, other)} - {_FULL}
        return any(half in self.rounded and self.rounded[half] == other.rounded.get(half) for half in halves)

    def describe(self) -> str:
        """Return name, start of the fingerprint and shape, for messages."""
        return f"{self.name} [{self.fingerprint[:12]}, {self.model_type}, {self.blocks} blocks of {self.width}]"

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {**{key: getattr(self, key) for key in self.__dataclass_fields__}, "rounded": dict(self.rounded)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TrunkIdentity:
        """Read what :meth:`to_json` wrote.

        Raises:
            InputError: a field is missing.
        """
        missing = [key for key in cls.__dataclass_fields__ if key not in value]
        if missing:
            raise InputError(f"trunk: expected the fields of a trunk's identity, missing {', '.join(missing)}")
        return cls(**{key: value[key] for key in cls.__dataclass_fields__})


def find_backbone(model: Any) -> nn.Module:  # noqa: ANN401 - a model of any library
    """Return the one encoder with blocks inside a model.

    Args:
        model: a student, a SentenceTransformer, a transformers model, or a wrapper around one.

    Raises:
        InputError: there is none, or more than one.
    """
    outer = model if isinstance(model, nn.Module) else getattr(model, "module", None)
    if not isinstance(outer, nn.Module):
        raise InputError(
            f"adapters: can't attach to a {type(model).__name__}. Accepted: {_ACCEPTED}. A teacher is attached to as "
            "sentence_transformers.SentenceTransformer(FOLDER) or transformers.AutoModel"
        )
    found: list[tuple[str, nn.Module]] = []
    for name, module in outer.named_modules():
        inside = any(name == above or not above or name.startswith(above + ".") for above, _ in found)
        if not inside and _blocks_of(module) is not None:
            found.append((name, module))
    if len(found) != 1:
        listed = ", ".join(name or "the model" for name, _ in found) or "none"
        raise InputError(
            f"adapters: expected one encoder in a {type(model).__name__}, found {listed}. Accepted: {_ACCEPTED}"
        )
    packed = [name for name, module in found[0][1].named_modules() if type(module).__name__ == "PackedLinear"]
    if packed:
        raise InputError(
            f"adapters: the weights of {packed[0]} are packed for inference, so the trunk can't be recognised. "
            "Attach to sentence_transformers.SentenceTransformer(FOLDER) or transformers.AutoModel instead of a teacher"
        )
    return found[0][1]


def find_blocks(backbone: nn.Module) -> list[nn.Module]:
    """Return an encoder's blocks, first to last.

    Raises:
        InputError: they are where no known encoder has them.
    """
    blocks = _blocks_of(backbone)
    if blocks is None:
        raise InputError(f"adapters: a {type(backbone).__name__} has no blocks. Accepted: {_ACCEPTED}")
    return list(blocks)


def _blocks_of(module: nn.Module) -> nn.ModuleList | None:
    config = getattr(module, "config", None)
    if not isinstance(getattr(config, "hidden_size", None), int) or not hasattr(config, "model_type"):
        return None
    for path in BLOCK_PATHS:
        inner: Any = module
        for part in path.split("."):
            inner = getattr(inner, part, None)
        if isinstance(inner, nn.ModuleList) and len(inner):
            return inner
    return None


def identify_trunk(model: Any, *, name: str | None = None) -> TrunkIdentity:  # noqa: ANN401
    """Return a model's trunk identity; reads every weight once.

    Args:
        model: as for :func:`find_backbone`.
        name: what to call it; by default what the model calls itself.

    Raises:
        InputError: no trunk in it, or its weights aren't loaded.
    """
    backbone = find_backbone(model)
    blocks = find_blocks(backbone)
    config: Any = backbone.config
    settings = {key: value for key in _CONFIG_KEYS if (value := getattr(config, key, None)) is not None}
    settings["blocks"] = len(blocks)
    tensors = {
        key: tensor
        for key, tensor in sorted(backbone.state_dict().items())
        if not key.startswith(_NOT_TRUNK) and not key.endswith(_NOT_WEIGHTS)
    }
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    halves = [half for half in _HALVES if half in dtypes]
    start = canonical_json(_plain(settings))
    digests = {torch.float32: hashlib.sha256(start)}
    # A full-precision trunk answers for both of its roundings, a rounded one only for itself.
    for half in halves or _HALVES:
        digests[half] = hashlib.sha256(start)
    for key, tensor in tensors.items():
        if tensor.is_meta:
            raise InputError(
                f"adapters: the trunk's {key} isn't loaded (it's on the meta device). Load the weights first"
            )
        header = f"{key}{tuple(tensor.shape)}".encode()
        for dtype, digest in digests.items():
            digest.update(header)
            digest.update(_bytes(tensor, dtype))
    return TrunkIdentity(
        name=name or _model_name(model, config),
        fingerprint=digests[torch.float32].hexdigest(),
        dtype=_HALVES[halves[0]] if halves else _FULL,
        rounded={_HALVES[dtype]: digest.hexdigest() for dtype, digest in digests.items() if dtype in _HALVES},
        model_type=str(config.model_type),
        blocks=len(blocks),
        width=int(config.hidden_size),
    )


def require_trunk(expected: TrunkIdentity, found: TrunkIdentity, *, what: str) -> None:
    """Refuse a trunk that isn't the one that something was trained on.

    Args:
        expected: the trunk that it was trained on.
        found: the trunk that it is to work on.
        what: what was trained, for the message.

    Raises:
        TrunkMismatchError: names both trunks.

    Source: design, section 11 ("anchors are trunk-bound").
    """
    if not expected.matches(found):
        raise TrunkMismatchError(
            f"{what} was trained on trunk {expected.describe()} and met trunk {found.describe()}. Anchors are bound to "
            "their trunk: train a library for this one, or pass force=True and have every number marked as forced"
        )


@torch.inference_mode()
def run_probe(backbone: nn.Module) -> torch.Tensor:
    """Return a trunk's token states of a small fixed batch, in evaluation mode.

    Args:
        backbone: the encoder; its training mode is put back afterwards.

    Raises:
        InputError: the encoder takes neither token ids nor pixels.
    """
    device = next(backbone.parameters()).device
    kind = str(getattr(backbone, "main_input_name", "input_ids"))
    config: Any = backbone.config
    inputs: dict[str, torch.Tensor]
    if kind == "input_ids":
        # Rows of two lengths, so that the padding mask takes part.
        ids = torch.arange(1, 19, device=device).reshape(2, 9) * 7 % int(config.vocab_size)
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        inputs = {"input_ids": ids, "attention_mask": mask}
    elif kind == "pixel_values":
        size = config.image_size if isinstance(config.image_size, list | tuple) else (config.image_size,) * 2
        channels = int(getattr(config, "num_channels", 3))
        dtype = next(backbone.parameters()).dtype
        pixels = torch.linspace(-1, 1, channels * size[0] * size[1], device=device)
        inputs = {"pixel_values": pixels.sin().reshape(1, channels, *size).to(dtype)}
    else:
        raise InputError(
            f"adapters: expected an encoder of token ids or pixels, got one of {kind}. Accepted: {_ACCEPTED}"
        )
    with evaluation_mode(backbone):
        states: torch.Tensor = backbone(**inputs).last_hidden_state
    return states.clone()


def require_same_bits(expected: torch.Tensor, found: torch.Tensor, trunk: TrunkIdentity, *, when: str) -> None:
    """Refuse a trunk that doesn't repeat itself on the probe batch.

    Args:
        expected: states of an earlier run of :func:`run_probe`.
        found: states of a later one.
        trunk: the trunk, for the message.
        when: what happened in between, for the message.

    Raises:
        TrunkMismatchError: the states differ in any bit.
    """
    if not torch.equal(expected, found):
        worst = float((expected.double() - found.double()).abs().max())
        raise TrunkMismatchError(
            f"adapters: trunk {trunk.describe()} doesn't return the same bits on a probe batch {when} (largest "
            f"difference {worst:.1e}). Something else hooks into the model, or it isn't deterministic: load it afresh"
        )


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch dropout off while the block runs; every submodule gets its own mode back."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _bytes(tensor: torch.Tensor, dtype: torch.dtype) -> memoryview:
    plain = tensor.detach().cpu()
    if plain.is_floating_point():
        plain = plain.to(dtype)
    return plain.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _model_name(model: Any, config: Any) -> str:  # noqa: ANN401
    for candidate in (getattr(model, "name", None), getattr(config, "_name_or_path", None)):
        if isinstance(candidate, str) and candidate:
            return Path(candidate).name or candidate
    return str(config.model_type)
