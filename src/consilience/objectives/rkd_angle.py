"""RKD, angle-wise: the angles in triples of student rows follow the target's."""

from __future__ import annotations

import torch
from torch.nn import functional

from consilience.objectives.precision import to_solver

ROWS = 64  # assumed: 64^3 angles; the whole of a batch of 256 is 64 times as many
SMALLEST_SQUARED_DISTANCE = 1e-12  # as rkd_distance: rows closer than this have no direction between them


def rkd_angle(student: torch.Tensor, target: torch.Tensor, *, rows: int = ROWS) -> torch.Tensor:
    """Mean over triples (i, j, k) of the Huber distance between cosines of the angle at row i.

    Invariant under rotations, shifts and scales of the student. Triples grow with the third power of the batch, so
    they are made of at most ``rows`` rows, evenly spaced in it: always the same places, and batches are shuffled.
    Angles are computed in fp64 from inner products, because these cancel where rows are close.

    Args:
        student: (b, d_s).
        target: (b, d_t); the widths may differ.
        rows: of which triples are made; b or more: of all.

    Returns:
        A scalar between 0 and 1.5.

    Source: Park, Kim, Lu, Cho 2019, arXiv:1904.05068, section 3.2.2; smooth L1, and degenerate triples in the mean
        with cosine 0, as in the authors' code.
    """
    count = min(rows, len(student))
    chosen = torch.arange(count, device=student.device) * len(student) // count
    with torch.no_grad():
        wanted = angle_cosines(to_solver(target[chosen]))
    return functional.smooth_l1_loss(angle_cosines(to_solver(student[chosen])), wanted).to(student)


def angle_cosines(x: torch.Tensor) -> torch.Tensor:
    """Return cos(x_j - x_i, x_k - x_i) as (i, j, k); 0 where a difference vanishes."""
    gram = x @ x.T
    norms = gram.diagonal()
    squared = norms[:, None] + norms[None, :] - 2 * gram
    apart = squared > SMALLEST_SQUARED_DISTANCE
    # The masked entries are replaced before the root, too: their gradient would be infinite times zero.
    inverse = torch.where(apart, squared, torch.ones_like(squared)).rsqrt() * apart
    products = gram[None, :, :] - gram[:, :, None] - gram[:, None, :] + norms[:, None, None]
    return products * inverse[:, :, None] * inverse[:, None, :]
