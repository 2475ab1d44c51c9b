"""From token states to one vector, for torch tensors and NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


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
