"""What a bank's manifest has to hold; checked whenever a bank is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from consilience.core.errors import BankIntegrityError, InputError
from consilience.core.hashing import canonical_json, content_id
from consilience.core.manifests import read_manifest

DTypeName = Literal["fp16", "fp32"]
STORAGE_DTYPES: dict[str, str] = {"fp16": "<f2", "fp32": "<f4"}  # safetensors are little-endian
SAFETENSORS_DTYPES: dict[str, str] = {"fp16": "F16", "fp32": "F32"}
TENSOR_NAME = "embeddings"

_Text = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, Field(ge=1)]


class ShardEntry(BaseModel):
    """One shard: a safetensors file with the rows ``start`` up to ``stop``."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    # The pattern is also what keeps a manifest from naming files outside its folder.
    file: Annotated[str, Field(pattern=r"^shard-[0-9]{5,}\.safetensors$")]
    start: Annotated[int, Field(ge=0)]
    stop: _Count
    bytes: _Count


class CorpusEntry(BaseModel):
    """The identity of the corpus that was embedded; more fields than these may be there."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    fingerprint: _Text
    rows: _Count


class Preprocessing(BaseModel):
    """What happened to a teacher's vectors before they were stored."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    l2_normalise: bool
    computed_in: Literal["fp32"]
    minimum_norm: float
    cast: Literal["round to nearest, ties to even"]


class BankManifest(BaseModel):
    """The fields of a bank's manifest."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Literal["bank"]
    schema_version: int
    id: _Text
    files: dict[str, str]
    rows: _Count
    dimensions: _Count
    dtype: DTypeName
    normalised: bool
    corpus: CorpusEntry
    teacher: dict[str, Any]
    frame: _Text
    shard_rows: _Count
    shards: list[ShardEntry]
    preprocessing: Preprocessing
    extra: dict[str, Any]

    @model_validator(mode="after")
    def _shards_cover_the_rows(self) -> BankManifest:
        position = 0
        for shard in self.shards:
            if shard.start != position or shard.stop <= shard.start:
                raise ValueError(
                    f"shard {shard.file} covers {shard.start}:{shard.stop}, expected it to start at {position}"
                )
            position = shard.stop
        if position != self.rows:
            raise ValueError(f"the shards cover {position} rows, the bank has {self.rows}")
        if self.corpus.rows != self.rows:
            raise ValueError(f"the corpus has {self.corpus.rows} rows, the bank {self.rows}")
        if {shard.file for shard in self.shards} != set(self.files) or len(self.shards) != len(self.files):
            raise ValueError("the shards aren't the listed files")
        return self


def read_bank_manifest(path: Path) -> tuple[BankManifest, dict[str, Any]]:
    """Read and validate a bank's manifest.

    Args:
        path: the bank's folder.

    Returns:
        The checked manifest, and the same as plain JSON.

    Raises:
        InputError: no bank is there.
        BankIntegrityError: the manifest was edited or contradicts itself.
    """
    raw = read_manifest(path, "bank")
    try:
        return BankManifest.model_validate(raw), raw
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "manifest"
        raise BankIntegrityError(f"{path}/manifest.json: {field}: {first['msg']}. Rebuild the bank") from error


def shard_name(index: int) -> str:
    """Return the file name of a shard.

    Example:
        >>> shard_name(7)
        'shard-00007.safetensors'
    """
    return f"shard-{index:05d}.safetensors"


def shard_ranges(rows: int, shard_rows: int) -> list[tuple[int, int]]:
    """Return the row ranges of all shards.

    Example:
        >>> shard_ranges(5, 2)
        [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + shard_rows, rows)) for start in range(0, rows, shard_rows)]


def teacher_frame(teacher: dict[str, Any]) -> str:
    """Return the name of a teacher's own frame.

    Args:
        teacher: the teacher's identity.

    Example:
        >>> teacher_frame({"backend": "static", "name": "t"})
        'teacher:808e12d8fd325d14'
    """
    return f"teacher:{content_id(teacher)}"


def as_json(value: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the value as it reads back from a JSON file (tuples are lists, keys are strings).

    Raises:
        InputError: it isn't JSON.
    """
    try:
        plain: dict[str, Any] = json.loads(canonical_json(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: can't be written as JSON: {error}") from error
    return plain
