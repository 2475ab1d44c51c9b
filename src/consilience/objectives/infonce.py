"""InfoNCE between students and targets of one batch."""

from __future__ import annotations

import torch
from torch.nn import functional

TEMPERATURE = 0.07  # cited: design, section 5


def infonce(student: torch.Tensor, target: torch.Tensor, *, temperature: float = TEMPERATURE) -> torch.Tensor:
    """Symmetric cross-entropy of s t' / T against the diagonal: each row picks its own target and is picked by it.

    Args:
        student: (b, d), L2-normalised.
        target: (b, d), L2-normalised.
        temperature: T.

    Returns:
        A scalar: the mean of both directions, in nats; log b when all cosines are equal.

    Source: van den Oord, Li, Vinyals 2018, arXiv:1807.03748; symmetric as Radford et al. 2021, arXiv:2103.00020.
    """
    logits = student @ target.T / temperature
    own = torch.arange(len(logits), device=logits.device)
    return (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)) / 2
