"""RKD, distance-wise: the student's pairwise distances follow the target's."""

from __future__ import annotations

import torch
from torch.nn import functional

SMALLEST_SQUARED_DISTANCE = 1e-12  # cited: the authors' code


def rkd_distance(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over all b^2 pairs of the Huber distance between distances, each divided by its own batch's mean.

    Invariant under rotations, shifts and scales of the student.

    Args:
        student: (b, d_s).
        target: (b, d_t); the widths may differ.

    Returns:
        A scalar, 0 when all distances are in proportion.

    Source: Park, Kim, Lu, Cho 2019, arXiv:1904.05068, section 3.2.1; smooth L1, and the diagonal in the mean, as in
        the authors' code.
    """
    with torch.no_grad():
        wanted = relative_distances(target)
    return functional.smooth_l1_loss(relative_distances(student), wanted)


def relative_distances(x: torch.Tensor) -> torch.Tensor:
    """Return pairwise Euclidean distances (b, b), zeros on the diagonal, divided by the mean of the positive ones."""
    norms = x.square().sum(dim=1)
    squared = (norms[:, None] + norms[None, :] - 2 * x @ x.T).clamp(min=SMALLEST_SQUARED_DISTANCE)
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    distances = squared.sqrt().masked_fill(own, 0.0)
    # Off the diagonal the clamp keeps distances positive: the authors' mean over positive ones is the mean over pairs.
    return distances / (distances.sum() / max(len(x) * (len(x) - 1), 1)).clamp(min=SMALLEST_SQUARED_DISTANCE)
