"""BCE: match or no match as two balanced classes of pairs."""

from __future__ import annotations

import torch
from torch.nn import functional

TEMPERATURE = 0.07  # assumed: as InfoNCE


def bce(student: torch.Tensor, target: torch.Tensor, *, temperature: float = TEMPERATURE) -> torch.Tensor:
    """Binary cross-entropy of sigmoid(s_i . t_j / T) against "i is j", own and other pairs weighing half each.

    The documents name the force and don't define it. It differs from siglip in that nothing is learned, and in that
    the b (b - 1) other pairs together weigh as much as the b own ones, whatever b.

    Args:
        student: (b, d), L2-normalised.
        target: (b, d), L2-normalised.
        temperature: T.

    Returns:
        A scalar in nats; log 2 when all cosines are 0. A row alone has no other pairs: they count as 0.

    Source: FT4 document, part IV (the name); the definition is this project's.
    """
    logits = student @ target.T / temperature
    rows = len(logits)
    own = logits.diagonal()
    pushed = functional.logsigmoid(-own).sum() - functional.logsigmoid(-logits).sum()
    return (pushed / max(rows * (rows - 1), 1) - functional.logsigmoid(own).mean()) / 2
