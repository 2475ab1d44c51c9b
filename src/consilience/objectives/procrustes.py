"""Procrustes residual: what is left of the distance to the target after the best rotation."""

from __future__ import annotations

import math

import torch

from consilience.objectives.precision import to_solver


def procrustes(student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Least mean over rows of ||s_i R - t_i||^2 over orthogonal R: (||S||^2 + ||T||^2 - 2 ||S'T||_*) / b.

    ||.||_* is the nuclear norm, the sum of singular values. Minimising it makes the student's rows congruent to the
    target's, in an orientation of their own. The rotation is about the origin, without centring or scale: both are
    on the unit sphere. It is found anew for every batch, so with b rows below d dimensions it fits noise, too: rows
    drawn at random have a residual well below 2.

    R is solved in fp64 and held fixed in the backward pass: at the best rotation the residual doesn't change with it
    to first order (envelope theorem). So the gradient with respect to the student is exact, 2 (s_i - t_i R') / b, and
    no singular value decomposition is differentiated, whose gradient grows without bound where two values coincide.
    Without a gradient, for the log, singular values in the inputs' own precision suffice and take a third of the time.

    Args:
        student: (b, d_s), L2-normalised.
        target: (b, d_t), L2-normalised; where the widths differ, the narrower is embedded in the wider's space.

    Returns:
        A scalar between 0 and 2 on unit rows; NaN where a value isn't finite.

    Source: Schoenemann 1966; FT4 document, part V, where it weighs 0.3 beside InfoNCE.
    """
    trained = student.requires_grad and torch.is_grad_enabled()
    s, t = to_solver(student, double=trained), to_solver(target, double=trained)
    # LAPACK refuses what isn't finite; the trainer reports a loss that is NaN.
    if not bool(torch.isfinite(s).all() and torch.isfinite(t).all()):
        return student.sum() * math.nan
    squares = s.square().sum() + t.square().sum()
    if trained:
        shared = ((s @ best_rotation(s.detach(), t.detach())) * t).sum()
    elif len(s) < min(s.shape[1], t.shape[1]):
        r_s, r_t = torch.linalg.qr(s.T, mode="r")[1], torch.linalg.qr(t.T, mode="r")[1]
        shared = torch.linalg.svdvals(r_s @ r_t.T).sum()
    else:
        shared = torch.linalg.svdvals(s.T @ t).sum()
    # Rounding may put a residual of nothing below it.
    return ((squares - 2 * shared) / len(s)).clamp(min=0.0).to(student)


def best_rotation(s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return R (d_s, d_t) that minimises ||s R - t||, orthogonal between the spans of s and t.

    With fewer rows than dimensions the decomposed matrix is (b, b) instead of (d_s, d_t), and several times faster.
    """
    if len(s) >= min(s.shape[1], t.shape[1]):
        u, _, vh = torch.linalg.svd(s.T @ t, full_matrices=False)
        return torch.mm(u, vh)
    basis_s, r_s = torch.linalg.qr(s.T)
    basis_t, r_t = torch.linalg.qr(t.T)
    u, _, vh = torch.linalg.svd(r_s @ r_t.T)
    return torch.mm(basis_s @ u, vh @ basis_t.T)
