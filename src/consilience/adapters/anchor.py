"""The anchor: one small gated relay on every block of a trunk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from consilience.adapters.atoms import read_atoms
from consilience.core.errors import InputError
from consilience.core.seeds import torch_seed

if TYPE_CHECKING:
    from consilience.adapters.trunk import TrunkIdentity

# By (width, hidden): parameters of a block. Source: design, sections 7 and 8.
CITED_BLOCK_PARAMETERS = {(512, 178): 136_599, (512, 74): 76_383}


@dataclass(frozen=True)
class AnchorConfig:
    """The shape of an anchor's block.

    Attributes:
        slots: S, reads a token.
        slot_width: D, coordinates of a slot.
        atoms: K, unit vectors that every slot is compared with.
        temperature: tau of the read.
        hidden: h, width of the layer between the reads and the output.
        gate: what the gate starts at, before its sigmoid.

    Source: design, section 7.
    """

    slots: int = 16
    slot_width: int = 4
    atoms: int = 64
    temperature: float = 0.1
    hidden: int = 178
    gate: float = -3.0

    def __post_init__(self) -> None:
        if min(self.slots, self.slot_width, self.atoms, self.hidden) < 1 or not self.temperature > 0:
            raise InputError(
                f"anchor: expected sizes of at least 1 and a temperature above 0, got {asdict(self)}. "
                "Change the anchor's configuration"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def count_block_parameters(width: int, config: AnchorConfig) -> int:
    """Return how many parameters an anchor has on one block.

    Args:
        width: d, of the block's output.
        config: the shape.

    Example:
        >>> count_block_parameters(512, AnchorConfig())
        136599
    """
    reads, hidden = config.slots * config.slot_width, config.hidden
    table = config.atoms * config.slot_width
    return width * reads + table + (reads * hidden + hidden) + 2 * hidden + (hidden * width + width) + 1


class AnchorBlock(nn.Module):
    """One block's part of an anchor: x + sigmoid(g) y(x).

    y = Linear(LayerNorm(relu(Linear(reads))^2)), reads = the atoms under the slots x P. It starts as the identity,
    because the last layer starts at zero.

    Args:
        width: d, of the block's output.
        config: the shape.

    Raises:
        InputError: the parameter count isn't the cited one.

    Source: design, section 7.
    """

    atoms_init: torch.Tensor

    def __init__(self, width: int, config: AnchorConfig) -> None:
        super().__init__()
        reads = config.slots * config.slot_width
        self.config = config
        self.project = nn.Linear(width, reads, bias=False)
        nn.init.orthogonal_(self.project.weight)
        start = nn.functional.normalize(torch.randn(config.atoms, config.slot_width), dim=-1)
        self.atoms = nn.Parameter(start)
        self.register_buffer("atoms_init", start.clone())
        self.expand = nn.Linear(reads, config.hidden)
        self.norm = nn.LayerNorm(config.hidden)
        self.output = nn.Linear(config.hidden, width)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.gate = nn.Parameter(torch.tensor(config.gate))
        counted = sum(parameter.numel() for parameter in self.parameters())
        expected = CITED_BLOCK_PARAMETERS.get((width, config.hidden)) if self._is_cited() else None
        if counted != (expected or count_block_parameters(width, config)):
            raise InputError(
                f"anchor: expected {expected:,} parameters a block of width {width}, built {counted:,}. Report this"
            )

    def _is_cited(self) -> bool:
        return (self.config.slots, self.config.slot_width, self.config.atoms) == (16, 4, 64)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last layer maps to the output.

        Args:
            x: (..., d), a block's output.

        Returns:
            (..., h).
        """
        slots = self.project(x)
        shaped = slots.reshape(*slots.shape[:-1], self.config.slots, self.config.slot_width)
        read = read_atoms(shaped, self.atoms, self.config.temperature).flatten(-2)
        hidden = torch.relu(self.expand(read.to(slots.dtype)))
        # The square of a half-precision number overflows early (fp16 at 256), so it's taken in full precision.
        with torch.autocast(hidden.device.type, enabled=False):
            full = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
            squared = full * full
            return nn.functional.layer_norm(
                squared,
                self.norm.normalized_shape,
                self.norm.weight.to(full.dtype),
                self.norm.bias.to(full.dtype),
                self.norm.eps,
            ).to(hidden.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the anchor's output, undamped.

        Args:
            x: (..., d), a block's output.
        """
        return x + mix([self], x).to(x.dtype)


def mix(blocks: list[AnchorBlock], x: torch.Tensor, amplitudes: list[torch.Tensor] | None = None) -> torch.Tensor:
    """Return the sum of a_k (anchor_k(x) - x) over some anchors of one block.

    The amplitudes scale the narrow hidden layers instead of the wide outputs, which is the same sum.

    Args:
        blocks: the anchors' parts, at least one.
        x: (..., d), the block's output.
        amplitudes: (...,) each, or None for 1.

    Returns:
        (..., d), in the precision of the computation.
    """
    total: torch.Tensor | None = None
    for number, block in enumerate(blocks):
        scale = torch.sigmoid(block.gate)
        features = block.features(x)
        weight, bias = block.output.weight, block.output.bias
        if amplitudes is None:
            part = nn.functional.linear(features, weight, bias) * scale
        else:
            weighted = (amplitudes[number] * scale).unsqueeze(-1).to(features.dtype)
            # The bias is one more column of the weight, under a feature that is 1.
            part = nn.functional.linear(features * weighted, weight) + weighted * bias
        total = part if total is None else total + part
    if total is None:
        raise InputError("anchor: expected at least one anchor to mix, got none. Name one")
    return total


class Anchor(nn.Module):
    """An adapter for one task: an :class:`AnchorBlock` on each block of a trunk.

    Args:
        width: d, of the trunk's token states.
        blocks: number of the trunk's blocks.
        config: shape of a block; None for the design's.
        seed: of the initialisation; the global random state is left as it was.
        random_output: start the last layers at random instead of at zero. A random, untrained arm for capacity
            controls: with zeros it would be the identity, which controls for nothing.

    Raises:
        InputError: a size below one.

    Source: design, section 7.

    Example:
        >>> sum(p.numel() for p in Anchor(512, 12).parameters())
        1639188
    """

    def __init__(
        self,
        width: int,
        blocks: int,
        config: AnchorConfig | None = None,
        *,
        seed: int = 0,
        random_output: bool = False,
    ) -> None:
        super().__init__()
        if min(width, blocks) < 1:
            raise InputError(f"anchor: expected a width and blocks of at least 1, got {width} and {blocks}")
        self.width = width
        self.config = config or AnchorConfig()
        self.trunk: TrunkIdentity | None = None  # what it was trained on; set when it is first attached
        with torch_seed(seed):
            self.blocks = nn.ModuleList(AnchorBlock(width, self.config) for _ in range(blocks))
            if random_output:
                for index in range(blocks):
                    self.block(index).output.reset_parameters()

    def block(self, index: int) -> AnchorBlock:
        """Return the part on one block of the trunk."""
        block = self.blocks[index]
        if not isinstance(block, AnchorBlock):
            raise InputError(f"anchor: block {index} was replaced by a {type(block).__name__}. Build the anchor anew")
        return block

    @property
    def parameter_count(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())
