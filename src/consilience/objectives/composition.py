"""The objective of a training: weighted terms; every term is computed for the log, also those of weight 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import nn

from consilience.core.errors import InputError, ShapeError
from consilience.objectives.affinity import affinity
from consilience.objectives.bce import bce
from consilience.objectives.cka import cka
from consilience.objectives.cosine import cosine
from consilience.objectives.element_mse import element_mse
from consilience.objectives.infonce import infonce
from consilience.objectives.mimicry import mimicry
from consilience.objectives.names import (
    COMPOSITIONS,
    RELATIONAL,
    TERM_ENTRIES,
    Composition,
    OptimizerSettings,
    is_relational,
    objective_names,
    require_objective,
)
from consilience.objectives.procrustes import procrustes
from consilience.objectives.rkd_angle import rkd_angle
from consilience.objectives.rkd_distance import rkd_distance
from consilience.objectives.shaping import shape_gradient, shaping_anchors
from consilience.objectives.siglip import BIAS, TEMPERATURE, siglip
from consilience.objectives.spread import has_simplices, simplex_rows, spread, spread_projection

__all__ = [
    "COMPOSITIONS",
    "RELATIONAL",
    "TERMS",
    "Composition",
    "Loss",
    "Objective",
    "OptimizerSettings",
    "Term",
    "compose_objective",
    "is_relational",
    "objective_names",
    "require_objective",
]

Term = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

TERMS: dict[str, Term] = {
    "infonce": infonce,
    "mimicry": mimicry,
    "affinity": affinity,
    "cosine": cosine,
    "siglip": siglip,
    "spread": spread,
    "element-mse": element_mse,
    "procrustes": procrustes,
    "bce": bce,
    "rkd-distance": rkd_distance,
    "rkd-angle": rkd_angle,
    "cka": cka,
}
"""Every term by name, with its defaults."""


class Loss(NamedTuple):
    """A loss and what it is made of.

    Attributes:
        total: the weighted sum, with gradient.
        terms: every term that was computed, unweighted, without gradient.
    """

    total: torch.Tensor
    terms: dict[str, torch.Tensor]


class Objective(nn.Module):
    """A weighted sum of terms; what a term learns is a parameter here, what it draws is a buffer.

    Attributes:
        composition: what it was made of.
        name: of the composition, canonical.
        weights: weight by term; terms that aren't named have weight 0.
        optimizer: what the composition is trained with.
        relational: the student's orientation stays free (design, section 6).
        seed: of the projection, the simplices and the anchors.

    Args:
        composition: terms, weights, shaping, optimiser.
        dimensions: the embedding's width; only compositions with a projection or anchors need it.
        seed: of everything that is drawn.

    Raises:
        InputError: the composition needs ``dimensions``, and none were given.
    """

    siglip_log_temperature: nn.Parameter
    siglip_bias: nn.Parameter
    projection: torch.Tensor | None
    anchors: torch.Tensor | None

    __call__: Callable[..., Loss]

    def __init__(self, composition: Composition, *, dimensions: int | None = None, seed: int = 0) -> None:
        super().__init__()
        if composition.needs_dimensions and dimensions is None:
            raise InputError(
                f"objective {composition.name}: it draws a projection or anchors and needs the embedding's width. "
                "Pass dimensions=..."
            )
        self.composition = composition
        self.name = composition.name
        self.weights: Mapping[str, float] = MappingProxyType(dict(composition.weights))
        self.optimizer: OptimizerSettings = composition.optimizer
        self.relational = composition.relational
        self.seed = seed
        # Only what the loss uses is state: terms that are only logged stay at their initial values.
        if "siglip" in self.weights:
            self.siglip_log_temperature = nn.Parameter(torch.tensor(math.log(TEMPERATURE)))
            self.siglip_bias = nn.Parameter(torch.tensor(BIAS))
        drawn = dimensions is not None and "spread" in self.weights
        self.register_buffer(
            "projection", spread_projection(dimensions, seed).clone() if drawn and dimensions else None
        )
        anchored = dimensions is not None and composition.shaping
        self.register_buffer("anchors", shaping_anchors(dimensions, seed) if anchored and dimensions else None)

    def forward(self, student: torch.Tensor, target: torch.Tensor, every_term: bool = False) -> Loss:
        """Compute the loss of a batch, in fp32 or better whatever autocast says.

        At 256 rows of 384 dimensions ``every_term`` costs about 25 ms on one CPU core. Two terms read a part of the
        batch, always the same places: rkd-angle 64 rows, spread 512 simplices; weighted or only logged, it's the same
        part. Spread is left out of the log of a batch too small for a simplex.

        Args:
            student: (b, d), L2-normalised, with gradient.
            target: (b, d), L2-normalised, without gradient. A relational objective takes another width, too; anchored
                terms are then left out of the log.
            every_term: compute the terms of weight 0 too, without gradient, for the log.

        Raises:
            ShapeError: the shapes differ, or a weighted term has too few rows.
            InputError: both are one tensor, have the same values, or the target has a gradient: two views from one
                forward pass, on which a contrastive loss means nothing (design, section 11).
        """
        self._check(student, target)
        with torch.autocast(student.device.type, enabled=False):
            exact = torch.promote_types(student.dtype, torch.float32)
            student, target = student.to(exact), target.to(exact)
            trained = student
            if self.composition.shaping:
                trained = shape_gradient(student, self._anchors(student))
            total = student.new_zeros(())
            terms: dict[str, torch.Tensor] = {}
            for name in TERMS:
                weight = self.weights.get(name, 0.0)
                if weight:
                    value = self._term(name, trained, target)
                    total = total + weight * value
                    terms[name] = value.detach()
                elif every_term and _is_defined(name, student, target):
                    with torch.no_grad():
                        terms[name] = self._term(name, student.detach(), target)
        return Loss(total, terms)

    def extra_repr(self) -> str:
        """Return the composition's name."""
        return self.name

    def _term(self, name: str, student: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return a term's value, with this objective's own parameters and buffers."""
        if name == "siglip" and "siglip" in self.weights:
            return siglip(student, target, temperature=self.siglip_log_temperature.exp(), bias=self.siglip_bias)
        if name == "spread":
            width = student.shape[1]
            own = self.projection
            projection = own if own is not None and len(own) == width else spread_projection(width, self.seed)
            return spread(student, projection=projection, simplices=simplex_rows(len(student), self.seed))
        return TERMS[name](student, target)

    def _anchors(self, student: torch.Tensor) -> torch.Tensor:
        """Return the anchors of the student's width: nested widths of one student have their own."""
        own, width = self.anchors, student.shape[1]
        if own is not None and own.shape[1] == width:
            return own
        return _anchors_of_width(width, self.seed).to(student.device)

    def _check(self, student: torch.Tensor, target: torch.Tensor) -> None:
        if student.ndim != 2 or target.ndim != 2 or len(student) != len(target) or len(student) == 0:
            raise self._shapes_differ(student, target)
        if student.shape != target.shape and not self.relational:
            raise self._shapes_differ(student, target)
        if target.requires_grad:
            raise InputError(
                f"objective {self.name}: the target has a gradient: two views of one forward pass would collapse onto "
                "each other. Pass target.detach() of a forward pass of its own, or a bank's rows"
            )
        if torch.compiler.is_compiling():
            return  # Traced tensors have no memory yet; the first eager step has passed here.
        if student.untyped_storage().data_ptr() == target.untyped_storage().data_ptr():
            raise self._two_views("are one tensor's memory")
        if student.shape == target.shape and student.dtype == target.dtype and torch.equal(student.detach(), target):
            raise self._two_views("have the same values, bit for bit")

    def _shapes_differ(self, student: torch.Tensor, target: torch.Tensor) -> ShapeError:
        return ShapeError(
            f"objective {self.name}: expected students and targets of one shape (b, d), b at least 1, got "
            f"{tuple(student.shape)} and {tuple(target.shape)}. Build the student with the target's width"
        )

    def _two_views(self, what: str) -> InputError:
        return InputError(
            f"objective {self.name}: students and targets {what}: two views from one forward pass leave the loss "
            "underdetermined. Pass targets of another model, or of a second forward pass"
        )


def compose_objective(name: str, *, dimensions: int | None = None, seed: int = 0) -> Objective:
    """Return the objective of a composition's name, or of terms with weights ("infonce=1,mimicry=0.5").

    Args:
        name: as :func:`~consilience.objectives.names.require_objective` takes it.
        dimensions: the embedding's width; compositions with the spread term or shaping need it.
        seed: of the projection, the simplices and the anchors.

    Raises:
        InputError: there is none of that name, or it needs ``dimensions``.

    Example:
        >>> dict(compose_objective("composite").weights)
        {'infonce': 1.0, 'mimicry': 1.0}
    """
    return Objective(require_objective(name), dimensions=dimensions, seed=seed)


def _is_defined(name: str, student: torch.Tensor, target: torch.Tensor) -> bool:
    """Return whether a term has a value on this batch."""
    if name == "spread":
        return has_simplices(len(student), student.shape[1])
    return TERM_ENTRIES[name].frame == "relational" or student.shape == target.shape


@lru_cache(maxsize=16)
def _anchors_of_width(dimensions: int, seed: int) -> torch.Tensor:
    return shaping_anchors(dimensions, seed)
