"""Per-element MSE: mimicry divided by the width, an anchor in name only."""

from __future__ import annotations

import torch


def element_mse(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over rows and dimensions of (s - t)^2: mimicry / d, so on unit rows at most 4 / d.

    Beside InfoNCE it's about a thousand times smaller at the start of a training, which is what the verbatim
    composition replicates.

    Args:
        student: (b, d), L2-normalised.
        target: (b, d), L2-normalised.

    Returns:
        A scalar between 0 and 4 / d.

    Source: FT4 document, part IV; design, section 5 ("verbatim").
    """
    return (student - target).square().mean()
