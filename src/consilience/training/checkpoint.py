"""Checkpoints: weights, Adam's moments, random state and position; complete or absent, the last two kept."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from consilience.core.errors import BankIntegrityError, InputError
from consilience.core.files import atomic_write, read_json, storage_errors, sync_directory, write_json
from consilience.core.hashing import content_id, file_sha256
from consilience.training.optimizers import Optimizers

KEEP = 2
_FOLDER = "checkpoints"
_STATE, _TENSORS = "state.json", "tensors.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Position:
    """Where a training stands.

    Attributes:
        step: steps done.
        total: steps of the whole training.
        epoch: number of the current epoch.
        batch: batches of that epoch done.
        rows: rows seen.
        tokens: tokens seen.
        places: tokens and padding seen.
        log_bytes: length of the log at this point; what is behind it was written by a run that died.
        readings: readings of the gauges still to come.
        read: steps at the last one.
        review: with ``minutes``, the step after which the total is decided anew.
        reviewed: the step at which it was decided last.
        seconds: wall-clock time since the command began, those of interrupted attempts included.
    """

    step: int = 0
    total: int | None = None
    epoch: int = 0
    batch: int = 0
    rows: int = 0
    tokens: int = 0
    places: int = 0
    log_bytes: int = 0
    readings: int = 0
    read: int = 0
    review: int = 0
    reviewed: int = 0
    seconds: float = 0.0

    @property
    def padding(self) -> float:
        """Share of places that held no token."""
        return 1.0 - self.tokens / self.places if self.places else 0.0


def save_checkpoint(work: Path, position: Position, optimizers: Optimizers) -> Path:
    """Write a checkpoint and delete all but the last two.

    Args:
        work: the artefact's working folder.
        position: where the training stands.
        optimizers: what is trained, and its moments.

    Raises:
        StorageError: the disk is full; older checkpoints are kept.
    """
    from safetensors.torch import save

    folder = work / _FOLDER
    final = folder / f"step-{position.step:09d}"
    temporary = folder / f".{final.name}.tmp"
    with storage_errors(folder):
        for left in folder.glob(".step-*.tmp"):  # by a save that was killed: as large as a checkpoint
            shutil.rmtree(left)
        temporary.mkdir(parents=True)
    tensors = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    for name, parameter in optimizers.parameters.items():
        tensors[f"weight.{name}"] = parameter.detach().cpu().contiguous()
        for key, value in optimizers.state(name).items():
            tensors[f"{key}.{name}"] = value.detach().cpu().contiguous()
    with atomic_write(temporary / _TENSORS) as stream:
        stream.write(save(tensors))
    state = {"position": asdict(position), "sha256": file_sha256(temporary / _TENSORS)}
    write_json(temporary / _STATE, {**state, "id": content_id(state)})
    with storage_errors(final):
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        sync_directory(folder)
    for old in _checkpoints(work)[:-KEEP]:
        shutil.rmtree(old)
    return final


def load_checkpoint(work: Path, optimizers: Optimizers, *, draws: bool = False) -> Position | None:
    """Restore the latest checkpoint into what is trained and its optimisers.

    Args:
        work: the artefact's working folder.
        optimizers: over parameters of the same names and shapes.
        draws: the training draws from torch's generators, which continue where they were.

    Returns:
        Where the training stood, or None when there is no checkpoint.

    Raises:
        BankIntegrityError: the checkpoint's bytes changed.
    """
    from safetensors.torch import load_file

    found = _checkpoints(work)
    if not found:
        return None
    position = _read_intact(found[-1])
    tensors = load_file(found[-1] / _TENSORS)
    if draws:
        torch.set_rng_state(tensors["random.cpu"])
    if draws and torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
    with torch.no_grad():
        for name, parameter in optimizers.parameters.items():
            parameter.copy_(tensors[f"weight.{name}"])
            moments = {key: tensors[f"{key}.{name}"] for key in _MOMENTS if f"{key}.{name}" in tensors}
            if moments:
                optimizers.restore(name, moments)
    return position


def _read_intact(folder: Path) -> Position:
    """Return a checkpoint's position, after both its files were found as they were written."""
    damaged = f"damaged. Delete {folder}: the training then continues at the checkpoint before it, if there is one"
    try:
        state = read_json(folder / _STATE)
        whole = isinstance(state, dict) and state.pop("id", None) == content_id(state)
    except InputError as error:
        raise BankIntegrityError(f"{folder / _STATE}: {damaged}") from error
    if not whole:
        raise BankIntegrityError(f"{folder / _STATE}: {damaged}")
    if not (folder / _TENSORS).is_file() or file_sha256(folder / _TENSORS) != state["sha256"]:
        raise BankIntegrityError(f"{folder / _TENSORS}: {damaged}")
    return Position(**state["position"])


def has_checkpoint(work: Path) -> bool:
    """Return whether a training in this working folder has a checkpoint to continue from."""
    return bool(_checkpoints(work))


def _checkpoints(work: Path) -> list[Path]:
    """Return complete checkpoints, oldest first."""
    return sorted((work / _FOLDER).glob("step-*"))
