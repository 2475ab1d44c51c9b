"""Training of a few parameters on pairs through a frozen trunk: Adam, checkpoints, resumed bit for bit on a CPU."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from consilience.adapters.dispatch import SMALLEST_TEMPERATURE
from consilience.adapters.views import require_two_inputs, require_two_views
from consilience.core.errors import InputError
from consilience.core.progress import log, progress_bar
from consilience.core.seeds import rng_from_name
from consilience.gauges.effective_rank import effective_rank
from consilience.gauges.isotropy import self_cosine
from consilience.gauges.neighbours import gallery_curve
from consilience.training.checkpoint import Position, load_checkpoint, save_checkpoint
from consilience.training.journal import FILE, TrainingLog
from consilience.training.loop import DivergedError
from consilience.training.optimizers import Optimizers
from consilience.training.pair_model import PairModel
from consilience.training.pair_tokens import PairBatches, PairTokens
from consilience.training.precision import choose_precision
from consilience.training.schedule import learning_rate
from consilience.training.settings import LOSS_TEMPERATURE, Precision

_SMALLEST_SAMPLE = 10  # rows for a geometry gauge
_STEPS_WORTH_MEASURING = 100  # the measurement itself takes the time of ten
Gauges = dict[str, float]


@dataclass(frozen=True)
class PairSettings:
    """How a training on pairs runs.

    Attributes:
        steps: optimiser steps.
        batch_rows: pairs a batch.
        lr: peak learning rate of Adam, weight decay 0; warm-up over a twentieth, then a cosine to zero.
        temperature: of the InfoNCE.
        seed: of batches and held-out pairs.
        gauge_readings: how often the gauges are read, besides before the first step.
        log_every: steps between lines of the log.
        precision: of the trained passes: "fp32", "bf16" (autocast), or "auto": the faster one, measured once a machine
            and kept, where the steps are enough to pay for measuring. The gauges are read in fp32.
        checkpoint_seconds: wall-clock time between checkpoints; not part of the result.
    """

    steps: int = 1_500
    batch_rows: int = 96
    lr: float = 1e-3
    temperature: float = LOSS_TEMPERATURE
    seed: int = 0
    gauge_readings: int = 5
    log_every: int = 10
    precision: Precision = "auto"
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        if min(self.steps, self.gauge_readings, self.log_every) < 1 or self.batch_rows < 2:
            raise InputError(
                f"adapt: expected steps of at least 1 and batches of at least 2 pairs, got {self.steps} and "
                f"{self.batch_rows}: a batch's other pairs are its negatives. Raise --steps or --batch-rows"
            )
        if not 0 < self.lr < math.inf:
            raise InputError(f"adapt: expected a finite --lr above 0, got {self.lr}. Change it")
        if not SMALLEST_TEMPERATURE <= self.temperature < math.inf:
            raise InputError(
                f"adapt: expected a finite --loss-temperature of at least {SMALLEST_TEMPERATURE:g}, got "
                f"{self.temperature}. Change it"
            )
        if self.precision not in get_args(Precision):
            raise InputError(f"--precision: expected auto, fp32 or bf16, got {self.precision!r}. Change it")

    def identity(self) -> dict[str, Any]:
        """Return what decides the result, as JSON."""
        return {key: value for key, value in asdict(self).items() if key != "checkpoint_seconds"}


@dataclass(frozen=True)
class PairSummary:
    """What a training did.

    Attributes:
        position: where it ended.
        first: gauges before the first step.
        last: gauges after the last.
        events: what the safeguards did, one entry an event.
        precision: what was trained in, "fp32" or "bf16".
        seconds: of this attempt's steps.
        steps_here: steps of this attempt.
    """

    position: Position
    first: Gauges
    last: Gauges
    events: list[dict[str, Any]]
    precision: str
    seconds: float
    steps_here: int


def pair_infonce(
    left: torch.Tensor, right: torch.Tensor, groups: NDArray[np.int64], *, temperature: float
) -> torch.Tensor:
    """Symmetric in-batch InfoNCE of pairs; another pair with the same text is no negative.

    Args:
        left: (b, d), L2-normalised.
        right: (b, d), L2-normalised.
        groups: (b, 2), numbers of the texts.
        temperature: of the softmax.

    Returns:
        A scalar, in nats.

    Raises:
        InputError: no row has a negative: all pairs of the batch share one text.

    Source: design, section 7; van den Oord, Li, Vinyals 2018, arXiv:1807.03748.

    Example:
        >>> eye = torch.eye(2)
        >>> pair_infonce(eye, eye, np.array([[0, 1], [2, 3]]), temperature=1.0).item()  # log(1 + exp(-1))
        0.3132...
    """
    one, other = groups[:, 0], groups[:, 1]
    # Row i against column j: the same first text, the same second text, or the text itself on the other side.
    same = (one[:, None] == one[None]) | (other[:, None] == other[None]) | (one[:, None] == other[None])
    np.fill_diagonal(same, False)
    if same.sum() == len(same) * (len(same) - 1):
        raise InputError(
            "pairs: a batch holds one class: its pairs share a text, so none is another's negative. Give pairs of "
            "different texts or raise --batch-rows"
        )
    logits = left @ right.T / temperature
    logits = logits.masked_fill(torch.from_numpy(same).to(logits.device), -torch.inf)
    own = torch.arange(len(logits), device=logits.device)
    return (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)) / 2


def train_on_pairs(
    model: PairModel,
    domains: Sequence[PairTokens],
    parameters: Mapping[str, nn.Parameter],
    settings: PairSettings,
    work: Path,
    *,
    gauges: Callable[[], Gauges] | None = None,
    safeguard: Callable[[int, Optimizers], list[dict[str, Any]]] | None = None,
    label: str = "adapt",
) -> PairSummary:
    """Train parameters in place, continuing from the last checkpoint in ``work``.

    Args:
        model: frozen but for the parameters, under the mask that is trained.
        domains: pairs, taken in turn.
        parameters: what is trained, by name.
        settings: length, batches and optimiser.
        work: the artefact's working folder; log and checkpoints go there.
        gauges: read beside those of the held-out pairs.
        safeguard: called after each step with its number; may change the parameters, and returns what it did. A
            function of step and weights alone, so that a resumed run does the same.
        label: of the progress bar.

    Raises:
        DivergedError: the loss, a trained weight or an output isn't finite; the last checkpoint is kept.
        InputError: a batch of one class, or of one view, or an unknown precision.
        StorageError: the disk is full; the last checkpoint is kept.

    Source: design, section 7 ("pure Adam, weight decay 0, trunk frozen").
    """
    batches = PairBatches(domains, rows=settings.batch_rows, seed=settings.seed)
    optimizers = Optimizers(parameters, lr=settings.lr)
    position = load_checkpoint(work, optimizers) or Position(total=settings.steps)
    if position.step:
        log(f"{label}: continuing at step {position.step} of {settings.steps}")
    precision = _choose_precision(model, batches, parameters, settings, work, label)
    every = max(math.ceil(settings.steps / settings.gauge_readings), 1)
    warmup = settings.steps // 20
    began, saved, before = time.monotonic(), time.monotonic(), position.step

    def read(journal: TrainingLog) -> None:
        where = f"{work}: step {position.step}"
        if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters.values()):
            raise _diverged(where, "the trained weights aren't finite", settings)
        numbers = gauges() if gauges is not None else {}
        for domain in domains:
            numbers |= read_pairs(model, domain, settings, where=where)
        journal.write({"step": position.step, "gauges": numbers})

    with (
        TrainingLog(work, keep_bytes=position.log_bytes) as journal,
        progress_bar(label, settings.steps, done=position.step) as bar,
    ):
        if not position.step:
            read(journal)
        while position.step < settings.steps:
            step = position.step
            domain, rows = batches.at(step)
            optimizers.set_lr(learning_rate(step, total=settings.steps, peak=settings.lr, warmup=warmup))
            loss = _step(model, domain, rows, optimizers, settings, precision, where=f"{work}: step {step}")
            position = replace(position, step=step + 1, rows=position.rows + len(rows))
            if step % settings.log_every == 0:
                journal.write({"step": step, "domain": domain.name, "loss": loss})
            for event in safeguard(step + 1, optimizers) if safeguard is not None else []:
                journal.write({"step": step + 1, "event": event})
            if position.step % every == 0 or position.step == settings.steps:
                read(journal)
            if position.step < settings.steps and time.monotonic() - saved >= settings.checkpoint_seconds:
                position = replace(position, log_bytes=journal.sync())
                save_checkpoint(work, position, optimizers)
                saved = time.monotonic()
            bar.advance(1, note=f"loss {loss:.3f}")
    first, last, events = _from_log(work)
    return PairSummary(position, first, last, events, precision, time.monotonic() - began, position.step - before)


def _choose_precision(
    model: PairModel,
    batches: PairBatches,
    parameters: Mapping[str, nn.Parameter],
    settings: PairSettings,
    work: Path,
    label: str,
) -> str:
    """Return what to train in; measured on the first batches of all domains, without effect on the parameters."""
    if settings.precision == "auto" and settings.steps < _STEPS_WORTH_MEASURING:
        return "fp32"
    device = next(model.backbone.parameters()).device
    drawn = [batches.at(step) for step in range(len(batches.domains))]

    def probe() -> None:
        for domain, rows in drawn:
            _loss(model, domain, rows, settings).backward()
        for parameter in parameters.values():
            parameter.grad = None

    shape = {
        "trunk": sorted({tuple(parameter.shape) for parameter in model.backbone.parameters()}),
        "blocks": len(model.blocks),
        "trained": sorted({tuple(parameter.shape) for parameter in parameters.values()}),
        # Roughly, so that a job of another seed finds the choice that this one made.
        "tokens": [_mean_tokens(domain, rows) // 8 for domain, rows in drawn],
    }
    return choose_precision(settings.precision, work, device, shape, probe, label=label)


def _mean_tokens(domain: PairTokens, rows: NDArray[np.int64]) -> int:
    return round(float(np.mean([len(side[row]) for row in rows for side in (domain.left, domain.right)])))


def _step(
    model: PairModel,
    domain: PairTokens,
    rows: NDArray[np.int64],
    optimizers: Optimizers,
    settings: PairSettings,
    precision: str,
    *,
    where: str,
) -> float:
    device = next(model.backbone.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss = _loss(model, domain, rows, settings, where=where)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise _diverged(where, f"the loss became {value}", settings)
    loss.backward()
    optimizers.step()
    optimizers.zero_grad()
    return value


def _diverged(where: str, what: str, settings: PairSettings) -> DivergedError:
    return DivergedError(
        f"{where}: {what} at --lr {settings.lr:g} and --loss-temperature {settings.temperature:g}. Run again with a "
        "lower --lr or a higher --loss-temperature, and --overwrite"
    )


def _loss(
    model: PairModel, domain: PairTokens, rows: NDArray[np.int64], settings: PairSettings, *, where: str = "adapt"
) -> torch.Tensor:
    one, other = ([side[row] for row in rows] for side in (domain.left, domain.right))
    require_two_inputs(one, other, where=where)
    both = model.embed(one + other)
    left, right = both[: len(rows)], both[len(rows) :]
    require_two_views(left, right, where=where)
    # Half precision lacks the digits that cosines near 1 need, and this is one small product a batch.
    with torch.autocast(both.device.type, enabled=False):
        return pair_infonce(left, right, domain.groups[rows], temperature=settings.temperature)


def read_pairs(model: PairModel, domain: PairTokens, settings: PairSettings, *, where: str) -> Gauges:
    """Measure held-out pairs: R@1 in two galleries (it must fall as the gallery grows), effective rank, self-cosine.

    Args:
        model: under the mask that is measured.
        domain: whose held-out pairs.
        settings: whose seed draws the galleries.
        where: for the message.

    Raises:
        DivergedError: the outputs aren't finite.
    """
    left, right = (model.encode_ids([side[row] for row in domain.held_out]) for side in (domain.left, domain.right))
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise _diverged(where, "the outputs aren't finite", settings)
    n = len(left)
    curve = gallery_curve(left, right, sizes=(max(n // 4, 2), n), rng=rng_from_name("galleries", settings.seed))
    numbers = {f"retrieval_at_1_of_{size}": score for size, score in curve.pairs()}
    if n >= _SMALLEST_SAMPLE:
        numbers |= {"effective_rank": effective_rank(left).participation, "self_cosine": self_cosine(left)}
    return {f"{domain.name}/{name}": round(float(value), 6) for name, value in numbers.items()}


def _from_log(work: Path) -> tuple[Gauges, Gauges, list[dict[str, Any]]]:
    """Return first and last gauges and all events: a resumed run has them only here."""
    entries = [json.loads(line) for line in (work / FILE).read_text(encoding="utf-8").splitlines()]
    gauges = [entry["gauges"] for entry in entries if "gauges" in entry]
    events = [{"step": entry["step"], **entry["event"]} for entry in entries if "event" in entry]
    return gauges[0], gauges[-1], events
