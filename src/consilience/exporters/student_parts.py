"""The parts of a student that the exporters translate: backbone, head, tokenizer, length limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from torch import nn

    from consilience.students.text import StudentEncoder


@dataclass(frozen=True)
class StudentParts:
    """What is exported.

    Attributes:
        module: the whole student; maps ids and mask to the normalised embedding.
        backbone: the Hugging Face model inside it, without a pooler.
        first: the head's first Linear; an exact GELU follows it.
        norm: the head's LayerNorm.
        last: the head's last Linear.
        tokenizer: the student's.
        max_length: tokens that the student sees at most, special ones included.
        rotation: (d, d_to) into the frame that serves, applied behind the head; ``module`` does it too.
    """

    module: nn.Module
    backbone: Any
    first: nn.Linear
    norm: nn.LayerNorm
    last: nn.Linear
    tokenizer: Tokenizer
    max_length: int
    rotation: torch.Tensor | None = None

    @property
    def hidden(self) -> int:
        """Width of the backbone's token states."""
        return self.first.in_features

    @property
    def dimensions(self) -> int:
        """Width of the embedding."""
        return int(self.last.out_features if self.rotation is None else self.rotation.shape[1])


def student_parts(student: StudentEncoder, rotation: NDArray[np.float32] | None = None) -> StudentParts:
    """Take a student apart and check that stock modules can express it.

    Args:
        student: as loaded.
        rotation: (d, d_to), into the frame that serves; None leaves the student in its own.

    Raises:
        InputError: the head isn't Linear, exact GELU, LayerNorm, Linear.
    """
    import torch
    from torch import nn

    head = student.module.head
    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    match layers:
        case [nn.Linear() as first, nn.GELU(approximate="none"), nn.LayerNorm(eps=1e-5) as norm, nn.Linear() as last]:
            turn = None if rotation is None else torch.from_numpy(rotation)
            module = student.module if turn is None else _rotated(student.module, turn)
            return StudentParts(
                module, student.module.backbone, first, norm, last, student.tokenizer, student.max_length, turn
            )
        case _:
            found = ", ".join(repr(layer) for layer in layers)
            raise InputError(
                f"export: a head of Linear, exact GELU, LayerNorm (eps 1e-5), Linear expected, got {found}. "
                "Only heads that sentence-transformers' own modules can express are exported"
            )


def _rotated(module: nn.Module, rotation: torch.Tensor) -> nn.Module:
    """Wrap a student so that its embedding leaves it rotated and of length 1."""
    from torch import Tensor, nn

    from consilience.students.text import StudentOutput

    class RotatedStudent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = module
            self.rotation = nn.Linear(rotation.shape[0], rotation.shape[1], bias=False)
            self.rotation.weight = nn.Parameter(rotation.T.contiguous(), requires_grad=False)

        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> StudentOutput:
            states, embedding = self.student(input_ids, attention_mask)
            return StudentOutput(states, nn.functional.normalize(self.rotation(embedding), dim=-1))

    return RotatedStudent().eval()
