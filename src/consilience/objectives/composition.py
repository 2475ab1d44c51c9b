"""Named compositions of terms; every term is computed for the log, also those of weight 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from consilience.core.errors import InputError, ShapeError
from consilience.objectives.affinity import affinity
from consilience.objectives.cosine import cosine
from consilience.objectives.infonce import infonce
from consilience.objectives.mimicry import mimicry

Term = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

TERMS: dict[str, Term] = {"infonce": infonce, "mimicry": mimicry, "affinity": affinity, "cosine": cosine}

# The composite's per-sample MSE is mimicry. Source: design, section 5.
COMPOSITIONS: dict[str, dict[str, float]] = {
    "composite": {"infonce": 1.0, "mimicry": 1.0},
    "infonce": {"infonce": 1.0},
    "mimicry": {"mimicry": 1.0},
    "consensus-mse": {"mimicry": 1.0},
    "affinity": {"affinity": 1.0},
    "cosine": {"cosine": 1.0},
}


# Compositions that compare similarities only: the student's orientation stays free. Source: design, section 6.
RELATIONAL = ("affinity",)


class Loss(NamedTuple):
    """A loss and what it is made of.

    Attributes:
        total: the weighted sum, with gradient.
        terms: every term that was computed, unweighted, without gradient.
    """

    total: torch.Tensor
    terms: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Objective:
    """A weighted sum of terms.

    Attributes:
        name: of the composition.
        weights: weight by term; terms that aren't named have weight 0.
    """

    name: str
    weights: Mapping[str, float]

    def __call__(self, student: torch.Tensor, target: torch.Tensor, *, every_term: bool = False) -> Loss:
        """Compute the loss of a batch.

        Args:
            student: (b, d), L2-normalised, with gradient.
            target: (b, d), L2-normalised.
            every_term: compute the terms of weight 0 too, without gradient, for the log.

        Raises:
            ShapeError: the shapes differ.
        """
        if student.shape != target.shape or student.ndim != 2:
            raise ShapeError(
                f"objective {self.name}: expected students and targets of one shape (b, d), got "
                f"{tuple(student.shape)} and {tuple(target.shape)}. Build the student with the target's width"
            )
        total = student.new_zeros(())
        terms: dict[str, torch.Tensor] = {}
        for name, term in TERMS.items():
            weight = self.weights.get(name, 0.0)
            if weight:
                value = term(student, target)
                total = total + weight * value
                terms[name] = value.detach()
            elif every_term:
                with torch.no_grad():
                    terms[name] = term(student.detach(), target)
        return Loss(total, terms)


def compose_objective(name: str) -> Objective:
    """Return a named composition.

    Raises:
        InputError: there is none of that name.

    Example:
        >>> compose_objective("composite").weights
        {'infonce': 1.0, 'mimicry': 1.0}
    """
    if name not in COMPOSITIONS:
        raise InputError(f"objective {name!r}: no such composition. Choose {', '.join(sorted(COMPOSITIONS))}")
    return Objective(name, dict(COMPOSITIONS[name]))
