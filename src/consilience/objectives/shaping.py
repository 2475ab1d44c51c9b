"""Shaping: an operator that is the identity forward and bends the gradient backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from consilience.core.seeds import rng_from_name

ANCHORS = 64  # assumed: the documents state no number
RADIAL_DAMPING = 1.0  # assumed: the documents state no number
SEPARATION = 1.0  # assumed: the documents state no number
SMALLEST_NORM = 1e-12  # a row on its anchor has no direction towards it


def shape_gradient(
    student: torch.Tensor,
    anchors: torch.Tensor,
    *,
    damping: float = RADIAL_DAMPING,
    separation: float = SEPARATION,
) -> torch.Tensor:
    """Return the student unchanged, bit for bit; its gradient g is replaced, row by row, on the way back.

    With r = s / ||s|| the row's direction, a its nearest anchor (largest cosine) and u = (a - (a . r) r), normalised,
    the direction in which the row approaches that anchor along the sphere:

    1. Radial damping: g <- g - damping (g . r) r. The part that only changes the row's length is weakened.
    2. Nearest-anchor separation: g <- g - separation min(g . u, 0) u. A step goes along -g, so g . u < 0 means that it
       takes the row towards its nearest anchor; that part is weakened. Steps away from it pass as they are.

    r and u are orthogonal, so the order of the two doesn't matter, and with both factors in [0, 1] no row's gradient
    grows. The documents name the two effects and give no formula; this is the definition here. Behind an L2
    normalisation, where students end, the radial part is already lost in the normalisation's own backward pass: there
    only the separation acts, and damping keeps the gradient that is logged or clipped at this point honest.

    Args:
        student: (b, d), L2-normalised or not.
        anchors: (k, d), L2-normalised, fixed: they receive no gradient.
        damping: share of the radial part that is removed, in [0, 1].
        separation: share of the approach that is removed, in [0, 1].

    Returns:
        The student: the same values (a view of the same memory) with this operator in its graph.

    Source: FT4 document, part XI ("radial damping plus nearest-anchor separation in the backward pass; forward is
        identity"); design, section 5.
    """
    if not (student.requires_grad and torch.is_grad_enabled()):
        return student
    shaped: torch.Tensor = _Shaping.apply(student, anchors, damping, separation)
    return shaped


class _Shaping(torch.autograd.Function):
    """The operator of :func:`shape_gradient`."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        student: torch.Tensor,
        anchors: torch.Tensor,
        damping: float,
        separation: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(student, anchors)
        ctx.damping, ctx.separation = damping, separation
        return student.view_as(student)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:  # noqa: ANN401
        student, anchors = ctx.saved_tensors
        with torch.autocast(gradient.device.type, enabled=False):
            exact = torch.promote_types(gradient.dtype, torch.float32)
            g, s, a = gradient.to(exact), student.to(exact), anchors.to(exact)
            length = s.norm(dim=-1, keepdim=True)
            radius = s / length.clamp(min=SMALLEST_NORM)
            nearest = a[(radius @ a.T).argmax(dim=-1)]
            towards = nearest - (nearest * radius).sum(dim=-1, keepdim=True) * radius
            towards = towards / towards.norm(dim=-1, keepdim=True).clamp(min=SMALLEST_NORM)
            towards = towards * (length > SMALLEST_NORM)  # a zero row is nowhere, its gradient passes as it is
            radial = (g * radius).sum(dim=-1, keepdim=True)
            approach = (g * towards).sum(dim=-1, keepdim=True).clamp(max=0.0)
            shaped = g - ctx.damping * radial * radius - ctx.separation * approach * towards
        return shaped.to(gradient.dtype), None, None, None


def shaping_anchors(dimensions: int, seed: int = 0, count: int = ANCHORS) -> torch.Tensor:
    """Return fixed anchors (count, d): unit rows in fp32, uniform on the sphere."""
    gaussian = rng_from_name(f"shaping/anchors/{dimensions}", seed).standard_normal((count, dimensions))
    units = gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)
    with torch.inference_mode(False):  # the anchors are saved for backward passes
        return torch.from_numpy(units.astype(np.float32))
