"""Other people's safetensors: one file or the shards of an index, and the types that NumPy has no name for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.files import read_json

_INDEX = ".index.json"


def weight_files(path: Path) -> list[Path]:
    """Return the files that hold a model's weights: the one named, or the shards that the index beside it lists.

    Args:
        path: ``model.safetensors``, there or not.

    Returns:
        At least one existing file, or none where there is neither file nor index.

    Raises:
        InputError: the index isn't one, names a shard outside its folder, or a shard is missing.
    """
    index = path.with_name(path.name + _INDEX)
    if path.is_file() or not index.is_file():
        return [path] if path.is_file() else []
    content = read_json(index)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise InputError(f"{index}: expected weight_map, the shard of each tensor. Fetch the model again")
    names = sorted({str(name) for name in shards.values()})
    for name in names:
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise InputError(f"{index}: shard {name!r} isn't a safetensors file of its folder. Don't use this model")
        if not (path.parent / name).is_file():
            raise InputError(f"{index}: its shard {name} is missing. Fetch the model again")
    return [path.parent / name for name in names]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a file's tensors as arrays; bf16 and fp8 become fp32.

    Args:
        path: a safetensors file.

    Raises:
        InputError: it isn't one, or a tensor's type has no reading here.
    """
    from safetensors import SafetensorError, deserialize

    try:
        tensors = deserialize(path.read_bytes())
    except SafetensorError as error:
        raise InputError(f"{path}: isn't a readable safetensors file ({error}). Fetch it again") from error
    return {
        name: _as_array(tensor["dtype"], tensor["data"], where=f"{path}: tensor {name}").reshape(tensor["shape"])
        for name, tensor in tensors
    }


def _as_array(kind: str, data: bytearray, *, where: str) -> NDArray[Any]:
    plain = {"I": "<i", "U": "<u", "F": "<f"}
    if kind == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if kind == "F8_E5M2":  # the upper half of an fp16
        return (np.frombuffer(data, np.uint8).astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if kind == "F8_E4M3":
        bits = np.frombuffer(data, np.uint8).astype(np.uint16)
        # The digits of an fp16 whose exponent is off by 8; one pattern is NaN, none is infinite.
        values = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).view(np.float16).astype(np.float32) * 256
        return np.where((bits & 0x7F) == 0x7F, np.float32(np.nan), values)
    if kind == "BOOL":
        return np.frombuffer(data, np.bool_)
    if kind[0] in plain and kind[1:] in ("8", "16", "32", "64"):
        return np.frombuffer(data, np.dtype(f"{plain[kind[0]]}{int(kind[1:]) // 8}"))
    raise InputError(f"{where} is of type {kind}, which isn't read. Store it as F32, F16 or BF16")
