"""Alignment of a library's keys on pairs: anchors frozen, the dispatch learns who answers where.

What keeps an anchor from starving, without a term in the loss (no top-k, no load balancing):

* **An audible start.** Each key starts at the mean direction of the token states of its own domain, over all blocks, so
  every anchor begins with a positive amplitude on its domain. From random keys an anchor may begin subtracted.
* **Turns.** Batches come from the domains in turn, so a large domain's gradients don't drown a small one's.
* **Revival.** At fixed steps each anchor's share of amplitude is read on its own domain's held-out texts. Below a floor
  (a quarter of an even split) its key is moved half-way back to its start and its moments are cleared. Each revival is
  in the log; whoever still is below the floor at the end is named in the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from consilience.adapters.handle import Handle
from consilience.adapters.masks import ALL, Mask
from consilience.adapters.reads import AmplitudeRead, DomainRatio, compare_domains
from consilience.core.errors import InputError
from consilience.training.optimizers import Optimizers
from consilience.training.pair_loop import Gauges, PairSettings, PairSummary, train_on_pairs
from consilience.training.pair_model import Ids, PairModel
from consilience.training.pair_tokens import PairTokens

STARVED_SHARE = 0.25  # assumed: of an even split, 1 / number of anchors
_CHECKS = 16  # how often the safeguard looks
_SAMPLE = 64  # held-out pairs a domain that it looks at


@dataclass(frozen=True)
class KeyReads:
    """What the dispatch does after the alignment.

    Attributes:
        own: by domain, the amplitudes on its held-out texts under all anchors.
        ratios: by anchor with a domain of its own, its share there over its share on the other domains' texts; with
            one domain there is no neutral text, and no ratio.
        starved: anchors whose share on their own domain is below the floor.
    """

    own: dict[str, AmplitudeRead]
    ratios: dict[str, DomainRatio]
    starved: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return {
            "own": {name: read.to_json() for name, read in self.own.items()},
            "ratios": {name: ratio.to_json() for name, ratio in self.ratios.items()},
            "starved": list(self.starved),
        }


@torch.no_grad()
def mean_state(model: PairModel, domain: PairTokens, *, rows: int = 256) -> torch.Tensor:
    """Return the mean direction of a domain's token states, over all blocks of the bare trunk.

    Args:
        model: without a library, or with all anchors off.
        domain: its first training rows are read.
        rows: how many of them.

    Returns:
        (d,), unit.
    """
    total: list[torch.Tensor] = []

    def hook(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ANN401
        x = output[0] if isinstance(output, tuple) else output
        total.append(functional.normalize(x.float(), dim=-1).flatten(0, -2).sum(dim=0))

    # Rows one by one have no padding to keep out.
    hooks = [block.register_forward_hook(hook) for block in model.blocks]
    try:
        for row in domain.training[:rows]:
            model.embed([domain.left[row]])
    finally:
        for handle in hooks:
            handle.remove()
    return functional.normalize(torch.stack(total).double().sum(dim=0), dim=0).float()


def start_keys(handle: Handle, model: PairModel, domains: Sequence[PairTokens]) -> torch.Tensor:
    """Set every key to its own domain's mean direction; an anchor without a domain gets the mean of all.

    Args:
        handle: of the attached library; its keys are replaced in place.
        model: the trunk.
        domains: named like anchors.

    Returns:
        The start (A, d), a copy.
    """
    with handle.off():
        means = {domain.name: mean_state(model, domain) for domain in domains}
    everything = functional.normalize(torch.stack(list(means.values())).sum(dim=0), dim=0)
    start = torch.stack([means.get(name, everything) for name in handle.library.names])
    with torch.no_grad():
        handle.library.keys.copy_(start)
    return start.clone()


def align_keys(
    handle: Handle, model: PairModel, domains: Sequence[PairTokens], settings: PairSettings, work: Path
) -> tuple[PairSummary, KeyReads]:
    """Train the keys of an attached library, and nothing else.

    Args:
        handle: of the library; its keys are replaced.
        model: the trunk.
        domains: pairs, named like the anchors they belong to.
        settings: length, batches and optimiser.
        work: folder of log and checkpoints.

    Returns:
        What the training did, and the reads after it.

    Raises:
        InputError: a domain's name is given twice.

    Source: design, section 7.
    """
    names = [domain.name for domain in domains]
    if len(set(names)) != len(names):
        raise InputError(f"adapt: expected one pair file a name, got {', '.join(names)}. Name each once")
    library = handle.library
    start = start_keys(handle, model, domains)
    library.trainable(keys=True)
    safeguard = _Safeguard(handle, model, domains, start, settings.steps)
    with handle.training(), handle.all():
        summary = train_on_pairs(
            model,
            domains,
            {"keys": library.keys},
            settings,
            work,
            gauges=lambda: _share_gauges(handle, model, domains),
            safeguard=safeguard,
            label="align keys",
        )
    library.trainable()
    library.keys_trunk = handle.trunk
    return summary, read_keys(handle, model, domains)


class _Safeguard:
    """Moves a starved anchor's key back towards its start; a function of step and keys alone."""

    def __init__(
        self, handle: Handle, model: PairModel, domains: Sequence[PairTokens], start: torch.Tensor, steps: int
    ) -> None:
        self.handle, self.model, self.start = handle, model, start
        self.domains = {domain.name: domain for domain in domains if domain.name in handle.library.names}
        self.every, self.steps = max(steps // _CHECKS, 1), steps

    def __call__(self, step: int, optimizers: Optimizers) -> list[dict[str, Any]]:
        names = self.handle.library.names
        # None in the last quarter: what is revived then would be unfinished.
        if step % self.every or step > 0.75 * self.steps or len(names) < 2:
            return []
        events = []
        for name, domain in self.domains.items():
            row = names.index(name)
            share = read_shares(self.handle, self.model, _texts(domain)).shares[row]
            if share < STARVED_SHARE / len(names):
                self._revive(row, optimizers)
                events.append({"revived": name, "share": round(share, 6)})
        return events

    @torch.no_grad()
    def _revive(self, row: int, optimizers: Optimizers) -> None:
        keys = self.handle.library.keys
        middle = functional.normalize(keys[row], dim=0) + self.start[row].to(keys)
        keys[row] = functional.normalize(middle, dim=0) * keys[row].norm()
        for name, moment in optimizers.state("keys").items():
            if name != "step":
                moment[row] = 0


def read_shares(handle: Handle, model: PairModel, ids: Sequence[Ids], mask: Mask = ALL) -> AmplitudeRead:
    """Read the amplitudes over texts under a mask.

    Args:
        handle: of the library.
        model: the trunk.
        ids: the texts' ids.
        mask: who answers; off reads how the bare trunk's states lie to the keys.
    """
    with handle.under(mask), handle.record() as record:
        model.encode_ids(ids)
    return record.result()


def read_keys(handle: Handle, model: PairModel, domains: Sequence[PairTokens], mask: Mask = ALL) -> KeyReads:
    """Read every domain's amplitudes, and each anchor's on its own domain over the others'.

    Args:
        handle: of the library.
        model: the trunk.
        domains: named like anchors.
        mask: who answers; off is the decomposition before anything is trained.
    """
    texts = {domain.name: _texts(domain, rows=None) for domain in domains}
    own = {name: read_shares(handle, model, ids, mask) for name, ids in texts.items()}
    names = handle.library.names
    ratios = {}
    if len(domains) > 1:
        for name in (name for name in texts if name in names):
            others = [row for other, ids in texts.items() if other != name for row in ids]
            ratios[name] = compare_domains(own[name], read_shares(handle, model, others, mask), name)
    floor = STARVED_SHARE / max(len(names), 1)
    starved = tuple(n for n in names if n in own and own[n].shares[names.index(n)] < floor)
    return KeyReads(own, ratios, starved)


def _share_gauges(handle: Handle, model: PairModel, domains: Sequence[PairTokens]) -> Gauges:
    gauges: Gauges = {}
    for domain in domains:
        read = read_shares(handle, model, _texts(domain))
        gauges |= {f"{domain.name}/share:{n}": round(s, 6) for n, s in zip(read.names, read.shares, strict=True)}
        gauges[f"{domain.name}/share_sum"] = round(read.share_sum, 6)
    return gauges


def _texts(domain: PairTokens, rows: int | None = _SAMPLE) -> list[Ids]:
    chosen = domain.held_out[:rows]
    return [side[row] for side in (domain.left, domain.right) for row in chosen]
