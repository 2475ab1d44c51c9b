"""An adapter library on a Hugging Face trunk, without Consilience: this file travels with an exported folder.

``AutoModel.from_pretrained(FOLDER)`` is the bare trunk. With ``trust_remote_code=True`` it is the trunk with all
anchors answering; ``model.set_anchors("equiv")`` masks the others (damped), ``model.set_anchors()`` switches all off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from consilience.adapters.atoms import read_atoms

HALVES = (torch.bfloat16, torch.float16)
_FILE = "adapters.safetensors"
_PATHS = ("encoder.layer", "encoder.layers", "transformer.layer", "layers")


class HubAdapters:
    """Mixed into a stock encoder: loads ``adapters.safetensors`` after the trunk and hooks the blocks' outputs."""

    config: Any
    _library: dict[str, torch.Tensor]
    _enabled: tuple[str, ...]
    state_dict: Callable[..., dict[str, torch.Tensor]]

    @classmethod
    def from_pretrained(cls, name: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as transformers has it
        """Load trunk and adapters, which must be the ones that were exported together."""
        from safetensors.torch import load
        from transformers.utils import cached_file

        loaded = super().from_pretrained(name, *args, **kwargs)  # type: ignore[misc]
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        where = {key: kwargs[key] for key in ("revision", "cache_dir", "token", "local_files_only") if key in kwargs}
        folder = Path(name)
        local = folder / _FILE
        file = local if local.is_file() else Path(cached_file(str(name), _FILE, **where))
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != model.config.consilience_adapters["sha256"]:
            raise ValueError(f"{file}: isn't the file that was exported with this config.json. Fetch the folder again")
        model._attach(load(content))
        return loaded

    def save_pretrained(self, folder: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as transformers has it
        """Save trunk and adapters, so that the folder loads again."""
        from safetensors.torch import save_file

        result = super().save_pretrained(folder, *args, **kwargs)  # type: ignore[misc]
        library = self.__dict__.get("_library")  # absent on a model made from its configuration alone
        if library is not None and kwargs.get("is_main_process", True):
            tensors = {key: value.detach().cpu().contiguous() for key, value in library.items()}
            save_file(tensors, Path(folder) / _FILE, metadata={"format": "pt"})
        return result

    def set_anchors(self, *names: str) -> None:
        """Let these anchors answer, under the dispatch of all; none of them leaves the bare trunk."""
        known = self.config.consilience_adapters["names"]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"expected names among {', '.join(known)}, got {', '.join(unknown)}")
        self._enabled = tuple(name for name in known if name in names)

    def _attach(self, tensors: dict[str, torch.Tensor]) -> None:
        settings = self.config.consilience_adapters
        weights = self.state_dict()
        # A trunk loaded in half precision is compared with the rounding of the one that was exported.
        used = {w.dtype for w in weights.values() if w.is_floating_point()}
        dtype = next((half for half in HALVES if half in used), torch.float32)
        if trunk_digest(weights, dtype) != settings["trunk_digests"][str(dtype)]:
            raise ValueError("these adapters were trained on another trunk than the weights beside them")
        # In no module: the model's parameters stay the trunk's.
        self._library = tensors
        self._enabled = tuple(settings["names"])
        for index, block in enumerate(_blocks(self)):
            block.register_forward_hook(_Hook(self, index))


class _Hook:
    """Adds the anchors to a block's output; a copy of the model gets copies, which follow the copy's mask."""

    def __init__(self, model: HubAdapters, index: int) -> None:
        self.model = model
        self.index = index
        self.consilience_adapters = True  # Consilience knows hooks of a library by this name

    def __call__(self, module: Any, args: Any, output: Any) -> Any:  # noqa: ANN401
        """Return the block's output with what the enabled anchors add, or None to leave it."""
        model = self.model
        if not model._enabled:
            return None
        x = output[0] if isinstance(output, tuple) else output
        if model._library["keys"].device != x.device:
            model._library = {key: value.to(x.device) for key, value in model._library.items()}
        states = x.to(model._library["keys"].dtype)
        settings = model.config.consilience_adapters
        adapted = x + add_anchors(model._library, settings, self.index, states, model._enabled).to(x.dtype)
        return (adapted, *output[1:]) if isinstance(output, tuple) else adapted


def add_anchors(
    library: dict[str, torch.Tensor],
    settings: dict[str, Any],
    index: int,
    x: torch.Tensor,
    enabled: tuple[str, ...],
    read: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor] = read_atoms,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return what the enabled anchors add to a block's output.

    Args:
        library: its tensors by name.
        settings: names, temperature and the anchors' shapes.
        index: number of the block.
        x: (..., d), the block's output.
        enabled: names of those that answer.
        read: the address read.
        weights: (A,), what each anchor's amplitude is multiplied by; None for 1.
    """
    shares = _amplitudes(x, library["keys"], settings["temperature"])
    total: torch.Tensor | None = None
    for row, name in enumerate(settings["names"]):
        if name not in enabled:
            continue
        prefix = f"anchors.{name}.blocks.{index}."
        part = {key: library[prefix + key] for key in _KEYS}
        scale = torch.sigmoid(part["gate"])
        features = _features(x, part, settings["shapes"][name], read)
        share = shares[..., row] if weights is None else shares[..., row] * weights[row]
        weighted = (share * scale).unsqueeze(-1).to(features.dtype)
        added = functional.linear(features * weighted, part["output.weight"]) + weighted * part["output.bias"]
        total = added if total is None else total + added
    return torch.zeros_like(x) if total is None else total


_KEYS = (
    *("project.weight", "atoms", "expand.weight", "expand.bias", "norm.weight", "norm.bias"),
    *("output.weight", "output.bias", "gate"),
)


def _features(
    x: torch.Tensor, part: dict[str, torch.Tensor], shape: dict[str, Any], read: Callable[..., torch.Tensor]
) -> torch.Tensor:
    slots = functional.linear(x, part["project.weight"])
    shaped = slots.reshape(*slots.shape[:-1], shape["slots"], shape["slot_width"])
    values = read(shaped, part["atoms"], shape["temperature"]).flatten(-2)
    hidden = torch.relu(functional.linear(values.to(slots.dtype), part["expand.weight"], part["expand.bias"]))
    squared = hidden * hidden
    return functional.layer_norm(squared, squared.shape[-1:], part["norm.weight"], part["norm.bias"], 1e-5)


def _amplitudes(x: torch.Tensor, keys: torch.Tensor, temperature: float) -> torch.Tensor:
    directions = functional.normalize(keys, dim=-1)
    norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)
    u = functional.linear(x, directions) / (norms * temperature)
    largest = u.abs().amax(dim=-1, keepdim=True)
    up, down = torch.exp(u - largest), torch.exp(-u - largest)
    return (up - down) / (up + down).sum(dim=-1, keepdim=True)


def trunk_digest(weights: dict[str, torch.Tensor], dtype: torch.dtype = torch.float32) -> str:
    """Return SHA-256 (hex) of a trunk's weights by name, rounded to a precision; a pooler isn't trunk."""
    digest = hashlib.sha256()
    for key, value in sorted(weights.items()):
        if value.is_floating_point() and not key.startswith("pooler."):
            digest.update(key.encode())
            digest.update(value.detach().cpu().to(dtype).float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _blocks(model: Any) -> Any:  # noqa: ANN401 - a ModuleList
    for path in _PATHS:
        inner: Any = model
        for part in path.split("."):
            inner = getattr(inner, part, None)
        if isinstance(inner, torch.nn.ModuleList):
            return inner
    raise ValueError(f"a {type(model).__name__} has no blocks at {', '.join(_PATHS)}")
