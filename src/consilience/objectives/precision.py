"""Where small problems are solved: in fp64, on a device that has it."""

from __future__ import annotations

import torch

WITHOUT_FP64 = ("mps",)  # cited: torch refuses fp64 there; Apple's GPUs have neither fp64 nor all decompositions


def to_solver(x: torch.Tensor, *, double: bool = True) -> torch.Tensor:
    """Return x where it can be decomposed, with its gradient; the result goes back with ``.to(x)``.

    Args:
        x: any rows.
        double: in fp64; otherwise in its own precision.

    Example:
        >>> to_solver(torch.ones(2, 2)).dtype
        torch.float64
    """
    here = x.cpu() if x.device.type in WITHOUT_FP64 else x
    return here.double() if double else here
