"""Cosine: one minus the mean cosine to the target."""

from __future__ import annotations

import torch


def cosine(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over rows of 1 - s_i . t_i: half of mimicry on unit rows.

    Args:
        student: (b, d), L2-normalised.
        target: (b, d), L2-normalised.

    Returns:
        A scalar between 0 and 2.
    """
    return 1.0 - (student * target).sum(dim=-1).mean()
