"""The header of a safetensors file, read without the tensors and without trusting it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from consilience.core.errors import BankIntegrityError

_MAXIMUM_HEADER_BYTES = 100_000_000  # cited: the limit of the safetensors format


class SafetensorsHeader(NamedTuple):
    """What a header says.

    Attributes:
        tensors: by name: dtype (as in "F16"), shape and data_offsets, relative to ``data_start``.
        metadata: free strings.
        data_start: byte at which the data begin.
    """

    tensors: dict[str, dict[str, Any]]
    metadata: dict[str, str]
    data_start: int


def read_safetensors_header(path: Path) -> SafetensorsHeader:
    """Read the header: an 8-byte little-endian length, then JSON.

    Raises:
        BankIntegrityError: the file is missing, too short, or its header isn't one.

    Source: safetensors format, https://huggingface.co/docs/safetensors
    """
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            size = path.stat().st_size
            if not 2 <= length <= min(size - 8, _MAXIMUM_HEADER_BYTES):
                raise BankIntegrityError(
                    f"{path}: not a whole safetensors file ({size} bytes). Rebuild or fetch it again"
                )
            header = json.loads(stream.read(length))
    except FileNotFoundError as error:
        raise BankIntegrityError(f"{path}: missing. Rebuild or fetch its folder again") from error
    except ValueError as error:
        raise BankIntegrityError(f"{path}: malformed safetensors header. Rebuild or fetch it again") from error
    if not isinstance(header, dict) or not all(isinstance(v, dict) for v in header.values()):
        raise BankIntegrityError(f"{path}: malformed safetensors header. Rebuild or fetch it again")
    metadata = header.pop("__metadata__", {})
    return SafetensorsHeader(header, metadata, 8 + length)
