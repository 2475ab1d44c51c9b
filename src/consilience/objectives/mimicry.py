"""Mimicry: the squared distance of each student row to its target; also the composite's per-sample MSE."""

from __future__ import annotations

import torch


def mimicry(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over rows of ||s_i - t_i||^2, the squares summed over dimensions: 2 - 2 cosine on unit rows.

    Averaging over dimensions as well (per-element MSE) would make the term d times smaller, which is a different
    objective ("verbatim") with a different result.

    Args:
        student: (b, d), L2-normalised.
        target: (b, d), L2-normalised.

    Returns:
        A scalar between 0 and 4.

    Source: Yang et al. 2024 (CLIP-KD feature distillation), arXiv:2307.12732; design, section 5.
    """
    return (student - target).square().sum(dim=-1).mean()
