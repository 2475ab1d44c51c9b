"""Matryoshka training: the loss of nested output widths, each judged as an embedding of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from consilience.core.errors import InputError
from consilience.objectives.composition import Loss, Objective


class NestedObjective(nn.Module):
    """The mean of one objective over nested widths; prefixes of students and targets are renormalised.

    Args:
        make: returns the objective for a width; each width has learned scalars and projections of its own.
        widths: ascending; the last one is the whole embedding.

    Source: Kusupati et al. 2022 (Matryoshka Representation Learning), arXiv:2205.13147.
    """

    def __init__(self, make: Callable[[int], Objective], widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.objectives = nn.ModuleList([make(width) for width in self.widths])

    def forward(self, student: torch.Tensor, target: torch.Tensor, every_term: bool = False) -> Loss:
        """Compute the loss of a batch.

        Args:
            student: (b, d), L2-normalised, with gradient.
            target: (b, d), L2-normalised, in a frame whose leading axes matter most.
            every_term: compute the whole width's terms of weight 0 too, for the log.

        Returns:
            The mean loss; terms of the whole width by name, those of prefixes as ``name@width``.
        """
        total = student.new_zeros(())
        terms: dict[str, torch.Tensor] = {}
        for width, objective in zip(self.widths, self.objectives, strict=True):
            whole = width == self.widths[-1]
            s, t = (rows if whole else functional.normalize(rows[:, :width], dim=-1) for rows in (student, target))
            loss = objective(s, t, every_term=every_term and whole)
            total = total + loss.total / len(self.widths)
            terms |= {name if whole else f"{name}@{width}": value for name, value in loss.terms.items()}
        return Loss(total, terms)


def check_widths(widths: Sequence[int], dimensions: int) -> tuple[int, ...]:
    """Return nested widths, ascending, ending with the whole embedding's.

    Args:
        widths: as asked; the whole width may be left out.
        dimensions: of the whole embedding.

    Raises:
        InputError: a width is below 8 or above the whole, or there is none below it.

    Example:
        >>> check_widths([128, 64], 384)
        (64, 128, 384)
    """
    nested = tuple(sorted({*widths, dimensions}))
    if nested[-1] > dimensions or nested[0] < 8 or len(nested) < 2:
        raise InputError(
            f"distill: expected --matryoshka widths of at least 8 and below the embedding's {dimensions}, got "
            f"{', '.join(str(width) for width in widths)}. Change them"
        )
    return nested


def principal_axes(second_moment: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the orthogonal matrix that turns rows so that every prefix keeps as much of them as a prefix can.

    Without it a prefix of a target is an arbitrary slice. The axes aren't centred: cosines, which the student is
    trained on, stay exactly as they are.

    Args:
        second_moment: (d, d), the mean of outer products of unit rows.

    Returns:
        (d, d), columns by descending share; the sign makes each column's largest entry positive.

    Example:
        >>> principal_axes(np.diag([1.0, 3.0]))
        array([[0., 1.],
               [1., 0.]], dtype=float32)
    """
    _, vectors = np.linalg.eigh(second_moment)
    axes = vectors[:, ::-1]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None, :], axis=0)
    return np.ascontiguousarray(axes * np.sign(largest), dtype=np.float32)
