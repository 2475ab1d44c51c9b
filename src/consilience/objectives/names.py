"""What objectives there are: terms and compositions by name, readable without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from consilience.core.errors import InputError

Frame = Literal["anchored", "relational", "student only"]
SHAPED = "+shaping"


@dataclass(frozen=True)
class TermEntry:
    """What is known of a term without computing it.

    Attributes:
        formula: of its value on a batch of b rows; s and t are L2-normalised student and target rows.
        source: paper or document.
        frame: "anchored" compares student rows with target rows; "relational" compares the student's similarities
            with the target's and is blind to rotations of the student; "student only" never reads the target.
        least_rows: fewer rows have no such value.
    """

    formula: str
    source: str
    frame: Frame
    least_rows: int = 2


TERM_ENTRIES: dict[str, TermEntry] = {
    "infonce": TermEntry(
        "symmetric cross-entropy of s t' / 0.07 against the diagonal",
        "van den Oord et al. 2018, arXiv:1807.03748",
        "anchored",
    ),
    "mimicry": TermEntry("mean over i of sum over d of (s - t)²", "CLIP-KD, arXiv:2307.12732", "anchored"),
    "affinity": TermEntry(
        "cross-entropy of softmax(s s' / 0.07) against softmax(t t' / 0.07)", "TinyCLIP, arXiv:2309.12314", "relational"
    ),
    "cosine": TermEntry("1 - mean over i of s_i · t_i", "design, section 5", "anchored"),
    "siglip": TermEntry(
        "1/b sum over i, j of log(1 + exp(-z_ij (τ s_i · t_j + β))), z = 1 on the diagonal and -1 off it; "
        "τ and β are learned, from 10 and -10",
        "Zhai et al. 2023, arXiv:2303.15343",
        "anchored",
    ),
    "spread": TermEntry(
        "(CV - target)², CV of the volumes of 512 simplices of 5 rows on a fixed 16-d projection; "
        "the target is the CV of isotropic rows, 0.386",
        "design, section 5; FT4 document, part IV",
        "student only",
        least_rows=5,
    ),
    "element-mse": TermEntry("mean over i and d of (s - t)²: mimicry / d", "FT4 document, part IV", "anchored"),
    "procrustes": TermEntry(
        "least of mean over i of ‖s_i R - t_i‖² over orthogonal R",
        "Schoenemann 1966; FT4 document, part V",
        "relational",
    ),
    "bce": TermEntry(
        "half the mean of log(1 + exp(-s_i · t_i / 0.07)) plus half the mean of log(1 + exp(s_i · t_j / 0.07)), i ≠ j",
        "FT4 document, part IV (names it only)",
        "anchored",
    ),
    "rkd-distance": TermEntry(
        "Huber distance of the students' pairwise distances to the targets', each divided by its mean",
        "Park et al. 2019, arXiv:1904.05068",
        "relational",
    ),
    "rkd-angle": TermEntry(
        "Huber distance of the cosines of the angles in triples of rows; 64 rows, evenly spaced in the batch",
        "Park et al. 2019, arXiv:1904.05068",
        "relational",
        least_rows=3,
    ),
    "cka": TermEntry(
        "1 - ‖S'T‖² / (‖S'S‖ ‖T'T‖), S and T centred", "Kornblith et al. 2019, arXiv:1905.00414", "relational"
    ),
}
"""Every term by name, in the order in which a batch computes and logs them."""


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimiser that a composition was published with; its schedule is always cosine.

    Attributes:
        kind: "adam", or "adamw" (decoupled weight decay).
        weight_decay: as torch.optim's.
        warmup_steps: linear steps before the cosine; None: the trainer's own choice.
        clip_norm: largest norm of the whole gradient; None: not clipped.
    """

    kind: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0
    warmup_steps: int | None = None
    clip_norm: float | None = None


@dataclass(frozen=True)
class Composition:
    """A weighted sum of terms.

    Attributes:
        name: canonical; :func:`require_objective` of it gives the same composition.
        weights: weight by term, each above 0; terms that aren't named have weight 0.
        source: where it is from.
        shaping: the backward-only operator is put on the student.
        optimizer: what it's trained with.
    """

    name: str
    weights: Mapping[str, float]
    source: str
    shaping: bool = False
    optimizer: OptimizerSettings = OptimizerSettings()

    @property
    def relational(self) -> bool:
        """Whether no term compares student rows with target rows: the student's orientation is nobody's."""
        return all(TERM_ENTRIES[name].frame != "anchored" for name in self.weights)

    @property
    def least_rows(self) -> int:
        """Rows that every batch must have for all its terms to be defined."""
        return max(TERM_ENTRIES[name].least_rows for name in self.weights)

    @property
    def needs_dimensions(self) -> bool:
        """Whether it draws a projection or anchors of the embedding's width."""
        return self.shaping or "spread" in self.weights


_COMPOSITE = {"infonce": 1.0, "mimicry": 1.0}
# Cited: design, section 5 and FT4 document, part XII.
_VERBATIM_OPTIMIZER = OptimizerSettings("adamw", weight_decay=0.01, warmup_steps=1000, clip_norm=1.0)

COMPOSITIONS: dict[str, Composition] = {
    entry.name: entry
    for entry in (
        Composition("mimicry", {"mimicry": 1.0}, "CLIP-KD, arXiv:2307.12732"),
        Composition("infonce", {"infonce": 1.0}, "arXiv:1807.03748"),
        Composition("affinity", {"affinity": 1.0}, "TinyCLIP, arXiv:2309.12314"),
        Composition("siglip", {"siglip": 1.0}, "arXiv:2303.15343"),
        Composition("composite", _COMPOSITE, "the consensus recipe"),
        Composition("composite+spread", {**_COMPOSITE, "spread": 1e-3}, "FT4 document, part VII"),
        Composition("composite+shaping", _COMPOSITE, "FT4 document, part XI", shaping=True),
        Composition(
            "verbatim",
            {"element-mse": 1.0, "infonce": 1.0, "spread": 0.1},
            "FT4 document, part IV",
            optimizer=_VERBATIM_OPTIMIZER,
        ),
        Composition("consensus-mse", {"mimicry": 1.0}, "FT4 document: mimicry, against a consensus"),
        Composition("cosine", {"cosine": 1.0}, "design, section 5"),
        Composition("bce", {"bce": 1.0}, "FT4 document, part IV"),
        Composition("composite+bce", {**_COMPOSITE, "bce": 1.0}, "FT4 document, part XI; weight assumed"),
        Composition("procrustes", {"procrustes": 1.0}, "Schoenemann 1966"),
        Composition(
            "infonce+procrustes+spread", {"infonce": 1.0, "procrustes": 0.3, "spread": 1e-3}, "FT4 document, part V"
        ),
        Composition("rkd", {"rkd-distance": 1.0, "rkd-angle": 2.0}, "arXiv:1904.05068: RKD-DA"),
        Composition("cka", {"cka": 1.0}, "arXiv:1905.00414"),
    )
}
"""The named compositions; the first nine are the rows of the design's table."""

RELATIONAL = tuple(name for name, entry in COMPOSITIONS.items() if entry.relational)
"""Named compositions that compare similarities only: the student's orientation is free. Source: design, section 6."""


def objective_names() -> tuple[str, ...]:
    """Return the names of the compositions.

    Example:
        >>> objective_names()[:3]
        ('mimicry', 'infonce', 'affinity')
    """
    return tuple(COMPOSITIONS)


def require_objective(text: str) -> Composition:
    """Return the composition of a name, or of terms with weights.

    Args:
        text: a composition's name, or ``term=weight`` pairs between commas; either with ``+shaping`` behind it.

    Raises:
        InputError: there is no such composition or term, or a weight isn't a number above 0.

    Example:
        >>> dict(require_objective("infonce=1, mimicry=.5").weights)
        {'infonce': 1.0, 'mimicry': 0.5}
        >>> require_objective("mimicry=.5,infonce=1+shaping").name
        'infonce=1,mimicry=0.5+shaping'
    """
    text = text.strip()
    if text in COMPOSITIONS:
        return COMPOSITIONS[text]
    shaping = text.endswith(SHAPED)
    base = text.removesuffix(SHAPED).rstrip()
    suffix = SHAPED if shaping else ""
    if shaping and base in COMPOSITIONS and not COMPOSITIONS[base].shaping:
        entry = COMPOSITIONS[base]
        return Composition(base + suffix, entry.weights, entry.source, shaping=True, optimizer=entry.optimizer)
    if "=" not in base:
        raise InputError(
            f"objective {text!r}: no such composition. Choose {', '.join(sorted(COMPOSITIONS))}, or give terms with "
            f"weights, as infonce=1,mimicry=0.5. The terms are {', '.join(sorted(TERM_ENTRIES))}"
        )
    weights = _parse_weights(base, where=text)
    name = ",".join(f"{term}={_short(weight)}" for term, weight in weights.items()) + suffix
    return Composition(name, weights, "given as terms", shaping=shaping)


def is_relational(text: str) -> bool:
    """Return whether students of this objective are frame-free (design, section 6).

    Args:
        text: as :func:`require_objective` takes it.

    Raises:
        InputError: as :func:`require_objective`.

    Example:
        >>> is_relational("affinity"), is_relational("affinity=1,cka=2"), is_relational("affinity=1,mimicry=0.1")
        (True, True, False)
    """
    return require_objective(text).relational


def _parse_weights(text: str, *, where: str) -> dict[str, float]:
    """Return the weights of "term=weight,term=weight", in the order of the terms' table."""
    given: dict[str, float] = {}
    for item in text.split(","):
        term, _, number = (part.strip() for part in item.partition("="))
        if term not in TERM_ENTRIES:
            raise InputError(f"objective {where!r}: no term {term!r}. Choose among {', '.join(sorted(TERM_ENTRIES))}")
        if term in given:
            raise InputError(f"objective {where!r}: {term} is given twice. Give each term one weight")
        given[term] = _parse_weight(number, term, where=where)
    if all(TERM_ENTRIES[term].frame == "student only" for term in given):
        raise InputError(f"objective {where!r}: no term reads the target. Add one that does, as mimicry=1")
    return {term: given[term] for term in TERM_ENTRIES if term in given}


def _parse_weight(number: str, term: str, *, where: str) -> float:
    expected = f"objective {where!r}: expected a number above 0 as the weight of {term}, got {number!r}"
    try:
        weight = float(number)
    except ValueError as error:
        raise InputError(f"{expected}. Write {term}=1") from error
    if not (math.isfinite(weight) and weight > 0):
        raise InputError(f"{expected}. Leave a term out to give it weight 0: it's logged all the same")
    return weight


def _short(weight: float) -> str:
    """Return the shortest text that reads as the weight again."""
    return str(int(weight)) if weight == int(weight) and weight < 1e6 else repr(weight)
