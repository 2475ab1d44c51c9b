"""The parts of a student that the exporters translate: backbone, the layers behind the pooling, tokenizer, length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from torch import nn

    from consilience.students.text import StudentEncoder

_FIRST_STAGE = 2  # Transformer and Pooling come before


@dataclass(frozen=True)
class Stage:
    """One layer behind the pooling, of a kind that sentence-transformers has.

    Attributes:
        kind: "Dense" (a Linear) or "LayerNorm" (eps 1e-5).
        weight: (outputs, inputs) of a Dense, (width,) of a LayerNorm.
        bias: None where there is none.
        gelu: an exact GELU follows.
    """

    kind: Literal["Dense", "LayerNorm"]
    weight: torch.Tensor
    bias: torch.Tensor | None = None
    gelu: bool = False


@dataclass(frozen=True)
class StudentParts:
    """What is exported.

    Attributes:
        module: the whole student; maps ids and mask to the normalised embedding.
        backbone: the Hugging Face model inside it, without a pooler.
        stages: the layers between mean pooling and normalisation, a rotation and a cut to fewer dimensions included;
            ``module`` does all of them.
        tokenizer: the student's.
        max_length: tokens that the student sees at most, special ones included.
        hidden: width of the backbone's token states.
        dimensions: width of the embedding.
    """

    module: nn.Module
    backbone: Any
    stages: tuple[Stage, ...]
    tokenizer: Tokenizer
    max_length: int
    hidden: int
    dimensions: int

    @property
    def folders(self) -> tuple[str, ...]:
        """Where each stage is in an exported folder."""
        return tuple(f"{number}_{stage.kind}" for number, stage in enumerate(self.stages, _FIRST_STAGE))


def student_parts(
    student: StudentEncoder, rotation: NDArray[np.float32] | None = None, truncate_dim: int | None = None
) -> StudentParts:
    """Take a student apart and check that stock modules can express it.

    Args:
        student: as loaded.
        rotation: (d, d_to), into the frame that serves; None leaves the student in its own.
        truncate_dim: leading dimensions to keep; all when not given.

    Raises:
        InputError: the head is none of a student's kinds, or both a rotation and a width are given.
    """
    import torch

    if rotation is not None and truncate_dim is not None:
        raise InputError(
            "export: a rotation and a width exclude each other: the leading dimensions of another frame mean nothing. "
            "Leave --rotation or --truncate-dim out"
        )
    module: nn.Module = student.module
    stages = _head_stages(student.module.get_submodule("head"))
    dimensions = student.dimensions
    if rotation is not None:
        turn = torch.from_numpy(rotation).T.contiguous()
        stages = _mapped_stages(stages, turn)
        module, dimensions = _followed_by(module, turn), len(turn)
    if truncate_dim is not None and truncate_dim != dimensions:
        check_width(student.manifest, truncate_dim, dimensions)
        cut = torch.eye(truncate_dim, dimensions)
        stages = _mapped_stages(stages, cut)
        module, dimensions = _followed_by(module, cut), truncate_dim
    return StudentParts(
        module,
        student.module.backbone,
        stages,
        student.tokenizer,
        student.max_length,
        int(student.module.backbone.config.hidden_size),
        dimensions,
    )


def trained_widths(manifest: Mapping[str, Any]) -> list[int]:
    """Return the nested widths that a student was trained at, ascending; [] when it has only its own."""
    return sorted(int(width) for width in manifest.get("matryoshka") or [])


def check_width(manifest: Mapping[str, Any], width: int, dimensions: int) -> None:
    """Refuse to cut an embedding where the student wasn't made for it.

    Args:
        manifest: the student's.
        width: dimensions to keep.
        dimensions: dimensions there are.

    Raises:
        InputError: it was trained at other widths, or at its full one only.
    """
    widths = trained_widths(manifest)
    # Coordinates along principal axes are ordered by variance, so any prefix is the best of its width.
    ordered = "axes.safetensors" in manifest.get("files", {})
    if not 1 <= width <= dimensions or not (ordered or width in widths):
        known = f"it was trained at {', '.join(map(str, widths))}" if widths else "it was trained at no smaller width"
        any_width = f"any width up to {dimensions}" if ordered else known
        raise InputError(
            f"export: can't cut {dimensions} dimensions to {width}: {any_width}. "
            "Change --truncate-dim, or distil with --matryoshka"
        )


def _head_stages(head: nn.Module) -> tuple[Stage, ...]:
    from torch import nn

    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    match layers:
        case [nn.Linear() as first, nn.GELU(approximate="none"), nn.LayerNorm(eps=1e-5) as norm, nn.Linear() as last]:
            return (
                Stage("Dense", first.weight, first.bias, gelu=True),
                Stage("LayerNorm", norm.weight, norm.bias),
                Stage("Dense", last.weight, last.bias),
            )
        case [nn.Linear() as only]:
            return (Stage("Dense", only.weight, only.bias),)
        case [nn.Identity()]:
            return ()
        case _:
            found = ", ".join(repr(layer) for layer in layers)
            raise InputError(
                "export: a head of Linear, exact GELU, LayerNorm (eps 1e-5), Linear, or of one Linear, or none "
                f"expected, got {found}. Only heads that sentence-transformers' own modules can express are exported"
            )


def _mapped_stages(stages: tuple[Stage, ...], weight: torch.Tensor) -> tuple[Stage, ...]:
    """Fold a matrix (outputs, inputs) into the last Linear, or add it as one where there is none.

    Some clients serve one Dense, not two. A rotation behind the normalisation may come before it: scaling commutes.
    """
    if not stages:
        return (Stage("Dense", weight),)
    last, exact = stages[-1], weight.double()
    bias = None if last.bias is None else (exact @ last.bias.double()).float()
    return (*stages[:-1], Stage("Dense", (exact @ last.weight.double()).float(), bias))


def _followed_by(module: nn.Module, weight: torch.Tensor) -> nn.Module:
    """Wrap a student so that its embedding leaves it mapped by a matrix (outputs, inputs) and of length 1."""
    from torch import Tensor, nn

    from consilience.students.text import StudentOutput

    class MappedStudent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = module
            self.map = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            self.map.weight = nn.Parameter(weight, requires_grad=False)

        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> StudentOutput:
            states, embedding = self.student(input_ids, attention_mask)
            return StudentOutput(states, nn.functional.normalize(self.map(embedding), dim=-1))

    return MappedStudent().eval()
