"""Affinity: the student's rows relate to each other as the target's rows do."""

from __future__ import annotations

import torch
from torch.nn import functional

TEMPERATURE = 0.07  # assumed: as InfoNCE


def affinity(student: torch.Tensor, target: torch.Tensor, *, temperature: float = TEMPERATURE) -> torch.Tensor:
    """Row-wise cross-entropy between softmax(t t' / tau) and softmax(s s' / tau), mean over rows.

    Invariant under rotations of the student, so a student of this term alone has a frame of its own.

    Args:
        student: (b, d_s), L2-normalised.
        target: (b, d_t), L2-normalised; the widths may differ.
        temperature: tau.

    Returns:
        A scalar in nats; its minimum is the entropy of the target's own distribution.

    Source: Wu et al. 2023 (TinyCLIP), arXiv:2309.12314; design, section 5.
    """
    wanted = functional.softmax(target @ target.T / temperature, dim=-1)
    return functional.cross_entropy(student @ student.T / temperature, wanted)
