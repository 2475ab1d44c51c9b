"""What a library does to texts, read off while they pass: amplitudes, usage, drift, escape from damping.

A read is labelled by the mask that was on, and carries the mark of a forced attachment into whatever prints it.

Source: design, section 7 ("Reads").
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from consilience.core.errors import InputError

if TYPE_CHECKING:
    from consilience.adapters.anchor import Anchor
    from consilience.adapters.library import AnchorLibrary
    from consilience.adapters.masks import Mask

ESCAPE_RATIO = 1.5  # cited: design, section 7


@dataclass(frozen=True)
class AmplitudeRead:
    """Amplitudes of a library over some texts, all anchors, whichever of them answered.

    Attributes:
        names: the anchors.
        shares: mean |sinh(u_k) / z| over tokens and blocks, by anchor.
        by_block: the same by block, then anchor.
        usage: share of tokens (over all blocks) whose largest amplitude is the anchor's.
        signed: mean of sinh(u_k) / z, by anchor; negative where an anchor is mostly subtracted.
        tokens: number of tokens, padding not counted where the model was given its mask.
        mask: label of the mask that was on.
        damped: whether that mask left a part of the budget to nobody.
        forced: the two trunks when the library was forced onto a foreign one, else None.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    by_block: tuple[tuple[float, ...], ...]
    usage: tuple[float, ...]
    signed: tuple[float, ...]
    tokens: int
    mask: str
    damped: bool
    forced: dict[str, str] | None

    @property
    def share_sum(self) -> float:
        """Sum of the shares: below 1 whatever the roster, because the anchors divide one budget.

        Source: design, section 11 ("amplitude is conserved").
        """
        return sum(self.shares)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name, with ``share_sum``."""
        return {**asdict(self), "share_sum": self.share_sum}


class AmplitudeRecorder:
    """Adds up amplitudes block by block; use it through ``handle.record()``.

    Args:
        names: the anchors.
        blocks: number of the trunk's blocks.
        forced: as in :class:`AmplitudeRead`.
    """

    def __init__(self, names: tuple[str, ...], blocks: int, *, forced: dict[str, str] | None) -> None:
        self.names = names
        self.forced = forced
        self.in_flight = threading.local()  # its ``real``: (b, s) mask of this thread's batch, set by a hook
        self._absolute = torch.zeros(blocks, len(names), dtype=torch.float64)
        self._signed = torch.zeros_like(self._absolute)
        self._largest = torch.zeros_like(self._absolute)
        self._tokens = torch.zeros(blocks, dtype=torch.float64)
        self._masks: dict[str, Mask] = {}
        self._lock = threading.Lock()

    def add(self, index: int, amplitudes: torch.Tensor, mask: Mask) -> None:
        """Add one block's amplitudes of a batch.

        Args:
            index: number of the block.
            amplitudes: (..., A), in the order of the names.
            mask: what was on.
        """
        values = amplitudes.detach()
        real = getattr(self.in_flight, "real", None)
        if real is not None and real.shape == values.shape[:-1]:
            values = values[real.to(values.device).bool()]
        values = values.reshape(-1, len(self.names)).to("cpu", torch.float64)
        largest = values.abs().argmax(dim=-1)
        with self._lock:
            self._absolute[index] += values.abs().sum(dim=0)
            self._signed[index] += values.sum(dim=0)
            self._largest[index] += torch.bincount(largest, minlength=len(self.names)).double()
            self._tokens[index] += len(values)
            self._masks[mask.label] = mask

    def result(self) -> AmplitudeRead:
        """Return the means.

        Raises:
            InputError: nothing was read, or under several masks, whose rows have to stay apart.
        """
        if not bool((self._tokens > 0).all()):
            raise InputError("reads: expected texts to pass while recording, got none. Encode inside the with block")
        if len(self._masks) > 1:
            raise InputError(
                f"reads: expected one mask, got {', '.join(sorted(self._masks))}. Record every mask on its own: damped "
                "rows don't average with others"
            )
        (mask,) = self._masks.values()
        total = self._tokens.sum()
        by_block = self._absolute / self._tokens[:, None]
        return AmplitudeRead(
            names=self.names,
            shares=_floats(self._absolute.sum(dim=0) / total),
            by_block=tuple(_floats(row) for row in by_block),
            usage=_floats(self._largest.sum(dim=0) / total),
            signed=_floats(self._signed.sum(dim=0) / total),
            tokens=int(self._tokens[0]),
            mask=mask.label,
            damped=mask.damped,
            forced=self.forced,
        )


@dataclass(frozen=True)
class DomainRatio:
    """How much louder an anchor is on its own domain than on neutral text.

    Attributes:
        name: the anchor.
        own: its share on texts of its own domain.
        neutral: its share on other texts.
        forced: as in :class:`AmplitudeRead`.
    """

    name: str
    own: float
    neutral: float
    forced: dict[str, str] | None

    @property
    def ratio(self) -> float:
        """Own over neutral."""
        return self.own / self.neutral

    @property
    def escapes_damping(self) -> bool:
        """Whether it's about as loud elsewhere (a ratio of 1.5 or below): the dispatch doesn't hold it back there."""
        return self.ratio <= ESCAPE_RATIO

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name, with ``ratio`` and ``escapes_damping``."""
        return {**asdict(self), "ratio": self.ratio, "escapes_damping": self.escapes_damping}


def compare_domains(own: AmplitudeRead, neutral: AmplitudeRead, name: str) -> DomainRatio:
    """Compare an anchor's share on its own domain with its share on neutral texts.

    Args:
        own: read over texts of the anchor's domain.
        neutral: read over other texts, under the same mask.
        name: the anchor.

    Raises:
        InputError: the reads are of different libraries or masks, or the anchor isn't in them.

    Source: design, section 7.
    """
    if own.names != neutral.names or own.mask != neutral.mask or name not in own.names:
        raise InputError(
            f"reads: expected two reads of one library and mask with {name}, got {own.mask} over "
            f"{', '.join(own.names)} and {neutral.mask} over {', '.join(neutral.names)}. Record both alike"
        )
    row = own.names.index(name)
    return DomainRatio(name, own.shares[row], neutral.shares[row], own.forced or neutral.forced)


@dataclass(frozen=True)
class DriftRead:
    """How far an anchor moved from its initialisation.

    Attributes:
        name: the anchor.
        mean_radians: mean angle between an atom and where it started, by block.
        max_radians: the largest such angle, by block.
        gates: sigmoid of the gate, by block; .0474 at the start.
    """

    name: str
    mean_radians: tuple[float, ...]
    max_radians: tuple[float, ...]
    gates: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return asdict(self)


def read_drift(library: AnchorLibrary) -> list[DriftRead]:
    """Return every anchor's drift.

    Args:
        library: trained or not.

    Source: design, section 7 (the buffer of the atoms' initialisation).
    """
    return [_drift(name, library.anchor(name)) for name in library.names]


@torch.inference_mode()
def _drift(name: str, anchor: Anchor) -> DriftRead:
    means, largest, gates = [], [], []
    for index in range(len(anchor.blocks)):
        block = anchor.block(index)
        now, start = (torch.nn.functional.normalize(t.double(), dim=-1) for t in (block.atoms, block.atoms_init))
        # The half-angle form keeps its digits at small angles, where an arc cosine has none.
        angles = 2 * torch.atan2((now - start).norm(dim=-1), (now + start).norm(dim=-1))
        means.append(float(angles.mean()))
        largest.append(float(angles.max()))
        gates.append(float(torch.sigmoid(block.gate)))
    return DriftRead(name, tuple(means), tuple(largest), tuple(gates))


def _floats(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
