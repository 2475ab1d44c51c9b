"""From token states to one vector, for torch tensors and NumPy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.files import read_json
from consilience.core.progress import log
from consilience.teachers.spec import POOLINGS

if TYPE_CHECKING:
    import torch


_MODES = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}


def choose_pooling(chosen: str | None, folder: Path | None, *, teacher: str, prompt: str = "") -> str:
    """Return how token states become one vector: as chosen, else as the folder's ``1_Pooling`` says, else their mean.

    The mean is what sentence-transformers takes where nothing is said; that it was taken is said.

    Args:
        chosen: the option ``pool``, if given.
        folder: of the model's files, if it is one.
        teacher: name for messages.
        prompt: put before each text.

    Raises:
        InputError: the folder's pooling isn't one of ours.
    """
    if chosen is not None:
        return chosen
    config = None if folder is None else folder / "1_Pooling" / "config.json"
    if config is None or not config.is_file():
        log(f"teacher {teacher}: nothing says how token states are pooled, so their mean is taken (pool= chooses)")
        return "mean"
    settings = read_json(config)
    settings = settings if isinstance(settings, dict) else {}
    modes = settings.get("pooling_mode") or [
        name.removeprefix("pooling_mode_") for name, on in settings.items() if name.startswith("pooling_mode_") and on
    ]
    modes = [modes] if isinstance(modes, str) else modes
    found = _MODES.get(modes[0], modes[0]) if len(modes) == 1 else None
    if found not in POOLINGS or (prompt and not settings.get("include_prompt", True)):
        raise InputError(
            f"teacher {teacher}: its 1_Pooling/config.json asks for {', '.join(modes) or 'nothing'}"
            f"{'' if settings.get('include_prompt', True) else ' without the prompt'}, which isn't done here. Use st: "
            f"with the folder, or choose pool={', '.join(POOLINGS[:-1])} or {POOLINGS[-1]}"
        )
    return found


def pool_torch(states: torch.Tensor, lengths: torch.Tensor, pooling: str) -> torch.Tensor:
    """Pool right-padded token states.

    Args:
        states: (b, s, d).
        lengths: (b,), tokens of each row, at least 1.
        pooling: "mean", "cls" (first token), "last" (last token) or "max".

    Returns:
        (b, d), accumulated in fp32.
    """
    import torch

    if pooling == "cls":
        return states[:, 0].float()
    if pooling == "last":
        return states[torch.arange(len(states), device=states.device), lengths - 1].float()
    padded = torch.arange(states.shape[1], device=states.device)[None, :] >= lengths[:, None]
    if pooling == "max":
        return states.masked_fill(padded[..., None], float("-inf")).amax(dim=1).float()
    total = states.masked_fill(padded[..., None], 0.0).sum(dim=1, dtype=torch.float32)
    return total / lengths[:, None]


def pool_numpy(states: NDArray[np.float32], lengths: NDArray[np.int64], pooling: str) -> NDArray[np.float32]:
    """Pool right-padded token states; like :func:`pool_torch`."""
    if pooling == "cls":
        return np.asarray(states[:, 0], dtype=np.float32)
    if pooling == "last":
        return np.asarray(states[np.arange(len(states)), lengths - 1], dtype=np.float32)
    padded = (np.arange(states.shape[1])[None, :] >= lengths[:, None])[..., None]
    if pooling == "max":
        return np.asarray(np.where(padded, -np.inf, states).max(axis=1), dtype=np.float32)
    total = np.where(padded, 0, states).sum(axis=1, dtype=np.float32)
    return np.asarray(total / lengths[:, None], dtype=np.float32)


def normalise_rows(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide each row by its L2 norm; an all-zero row stays zero (and is refused later)."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return np.asarray(embeddings / np.where(norms > 0, norms, 1), dtype=np.float32)
