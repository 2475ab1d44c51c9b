"""Linear CKA: how alike the two batches' similarity structures are, scale and rotation aside."""

from __future__ import annotations

import torch

SMALLEST_NORM = 1e-12  # assumed: below it all rows are equal and have no structure to compare


def cka(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """One minus the linear centred kernel alignment, ||S'T||^2 / (||S'S|| ||T'T||) in Frobenius norms.

    Invariant under rotations, shifts and scales of the student. Computed from whichever Gram matrices are smaller,
    rows by rows or dimensions by dimensions; the value is the same.

    Args:
        student: (b, d_s).
        target: (b, d_t); the widths may differ.

    Returns:
        A scalar between 0 (alike) and 1; 1 when all rows of one are equal.

    Source: Kornblith, Norouzi, Lee, Hinton 2019, arXiv:1905.00414, section 3.
    """
    s = student - student.mean(dim=0)
    t = target - target.mean(dim=0)
    if len(s) <= max(s.shape[1], t.shape[1]):
        gram_s, gram_t = s @ s.T, t @ t.T
        shared = (gram_s * gram_t).sum()
    else:
        gram_s, gram_t = s.T @ s, t.T @ t
        shared = (s.T @ t).square().sum()
    norm_s, norm_t = gram_s.norm().clamp(min=SMALLEST_NORM), gram_t.norm().clamp(min=SMALLEST_NORM)
    alignment: torch.Tensor = shared / (norm_s * norm_t)
    return 1.0 - alignment
