"""The parts of a student that the exporters translate: backbone, head, tokenizer, length limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError

if TYPE_CHECKING:
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
    """

    module: nn.Module
    backbone: Any
    first: nn.Linear
    norm: nn.LayerNorm
    last: nn.Linear
    tokenizer: Tokenizer
    max_length: int

    @property
    def hidden(self) -> int:
        """Width of the backbone's token states."""
        return self.first.in_features

    @property
    def dimensions(self) -> int:
        """Width of the embedding."""
        return self.last.out_features


def student_parts(student: StudentEncoder) -> StudentParts:
    """Take a student apart and check that stock modules can express it.

    Raises:
        InputError: the head isn't Linear, exact GELU, LayerNorm, Linear.
    """
    from torch import nn

    head = student.module.head
    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    match layers:
        case [nn.Linear() as first, nn.GELU(approximate="none"), nn.LayerNorm(eps=1e-5) as norm, nn.Linear() as last]:
            return StudentParts(
                student.module, student.module.backbone, first, norm, last, student.tokenizer, student.max_length
            )
        case _:
            found = ", ".join(repr(layer) for layer in layers)
            raise InputError(
                f"export: a head of Linear, exact GELU, LayerNorm (eps 1e-5), Linear expected, got {found}. "
                "Only heads that sentence-transformers' own modules can express are exported"
            )
