"""SigLIP: every pair of the batch is judged on its own, as a match or not."""

from __future__ import annotations

import torch
from torch.nn import functional

TEMPERATURE = 10.0  # cited: Zhai et al. 2023, section 3.2; the initial value of exp(t')
BIAS = -10.0  # cited: Zhai et al. 2023, section 3.2; initial value


def siglip(
    student: torch.Tensor,
    target: torch.Tensor,
    *,
    temperature: float | torch.Tensor = TEMPERATURE,
    bias: float | torch.Tensor = BIAS,
) -> torch.Tensor:
    """Sum over pairs, over b, of log(1 + exp(-z_ij (temperature s_i . t_j + bias))); z is 1 on the diagonal, -1 off it.

    No normalisation over the batch couples the pairs. The bias offsets that b - 1 of b pairs are negative; without
    it the first steps only push all pairs apart.

    Args:
        student: (b, d), L2-normalised.
        target: (b, d), L2-normalised.
        temperature: multiplies cosines (the inverse of InfoNCE's T); learned through its logarithm by the objective.
        bias: added to them; learned by the objective.

    Returns:
        A scalar in nats per row, 0 at best.

    Source: Zhai, Mustafa, Kolesnikov, Beyer 2023, arXiv:2303.15343, section 3.2 and algorithm 1.
    """
    logits = student @ target.T * temperature + bias
    signs = 2 * torch.eye(len(logits), dtype=logits.dtype, device=logits.device) - 1
    return -functional.logsigmoid(signs * logits).sum() / len(logits)
