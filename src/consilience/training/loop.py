"""The training loop: batches, loss, Adam, gauges, checkpoints; resumed bit for bit on a CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from accelerate import PartialState
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from consilience.core.errors import ConsilienceError, InputError
from consilience.core.hashing import content_id
from consilience.core.progress import log, progress_bar
from consilience.core.seeds import seed_from_name, torch_turn
from consilience.objectives.composition import Objective, compose_objective
from consilience.objectives.names import require_objective
from consilience.students.text import encode_ids
from consilience.training.batching import BatchPlan, Rows
from consilience.training.checkpoint import Position, has_checkpoint, load_checkpoint, save_checkpoint
from consilience.training.gauges import SMALLEST_CORPUS, prefix_cosines, read_gauges, split_held_out
from consilience.training.gradients import GradientOfBatch, draws_numbers
from consilience.training.journal import TrainingLog, readings_of
from consilience.training.nested import NestedObjective, check_widths
from consilience.training.optimizers import Optimizers, make_tables_sparse
from consilience.training.precision import choose_precision
from consilience.training.schedule import learning_rate
from consilience.training.settings import WARMUP_STEPS, TrainingSettings
from consilience.training.time_budget import Decision, TimeBudget
from consilience.training.token_store import TokenStore

if TYPE_CHECKING:
    from consilience.banks.reader import Bank


class DivergedError(ConsilienceError):
    """The loss became NaN or infinite."""


@dataclass(frozen=True)
class TrainingSummary:
    """What a training did.

    Attributes:
        position: where it ended.
        gauges: the last reading.
        readings: all of the log, from before the first step on.
        held_out_rows: rows that were only measured.
        precision: "fp32" or "bf16".
        warmup_steps: steps of the learning rate's warm-up.
        rows_per_second: of this attempt, steps only; None when it did none.
        seconds: of this attempt.
    """

    position: Position
    gauges: dict[str, float]
    readings: Sequence[Mapping[str, float]]
    held_out_rows: int
    precision: str
    warmup_steps: int
    rows_per_second: float | None
    seconds: float


def train(
    student: nn.Module,
    store: TokenStore,
    targets: Bank,
    settings: TrainingSettings,
    work: Path,
    *,
    axes: NDArray[np.float32] | None = None,
    began: float | None = None,
    tensorboard: Path | None = None,
) -> TrainingSummary:
    """Train a student in place on a bank of targets, continuing from the last checkpoint in ``work``.

    Args:
        student: of any kind, the same each time (a fresh one from the same seed); its weights are replaced by the
            checkpoint's.
        store: the corpus's tokens.
        targets: one row a corpus row; normalised here.
        settings: length and optimiser.
        work: the artefact's working folder; log and checkpoints go there.
        axes: (d, d) orthogonal, applied to the targets: the principal axes of a Matryoshka training.
        began: ``time.monotonic()`` at the start of the command, from which ``minutes`` count.
        tensorboard: folder for TensorBoard's event files.

    Raises:
        InputError: the corpus is too small.
        DivergedError: the loss isn't finite; the last checkpoint is kept.
        StorageError: the disk is full; the last checkpoint is kept.

    Source: design, section 5.
    """
    require_trainable(settings, rows=len(store), processes=int(PartialState().num_processes))
    began = time.monotonic() if began is None else began
    # Dropout draws from torch's generators, which the process has once: it gets them alone, and gives them back.
    with torch_turn(range(torch.cuda.device_count())) if draws_numbers(student) else nullcontext():
        trainer = _Trainer(student, store, targets, settings, work, axes, began)
        if not trainer.is_main:
            return trainer.run(None)
        with TrainingLog(work, keep_bytes=trainer.position.log_bytes, tensorboard=tensorboard) as journal:
            return trainer.run(journal)


def require_trainable(settings: TrainingSettings, *, rows: int, processes: int) -> None:
    """Refuse a corpus or a batch that no training can use, before anything is written.

    Raises:
        InputError: too few rows, or batches too small for the objective and the processes.
    """
    if rows < SMALLEST_CORPUS:
        raise InputError(
            f"distill: expected a corpus of at least {SMALLEST_CORPUS} rows, got {rows}: a tenth is held out to be "
            "measured. Give more rows"
        )
    _batch_plan(settings, processes=processes)


class _Trainer:
    """One training; a class because its parts share a dozen long-lived values."""

    def __init__(
        self,
        student: nn.Module,
        store: TokenStore,
        targets: Bank,
        settings: TrainingSettings,
        work: Path,
        axes: NDArray[np.float32] | None,
        began: float,
    ) -> None:
        self.settings, self.store, self.targets, self.work, self.began = settings, store, targets, work, began
        self.training_rows, self.held_out = split_held_out(len(store), seed=settings.seed, most=settings.held_out_rows)
        state = PartialState()
        self.plan = _batch_plan(settings, processes=int(state.num_processes))
        tables = make_tables_sparse(student) if settings.sparse_embeddings else []
        with state.main_process_first():  # the others read its choice
            self.precision = choose_precision(
                settings.precision, work, state.device, self._shape(student), partial(self._probe, student.train())
            )
        self.accelerator = _accelerator(self.precision)
        self.is_main = bool(self.accelerator.is_main_process)
        self.processes, self.rank = int(self.accelerator.num_processes), int(self.accelerator.process_index)
        self.device = self.accelerator.device
        self.axes = None if axes is None else torch.from_numpy(axes).to(self.device)
        self.student = student.to(self.device).train()
        self.objective = _objective(settings, targets.dimensions).to(self.device)
        trained = {name: value for name, value in student.named_parameters() if value.requires_grad}
        scalars = {f"objective.{name}": value for name, value in self.objective.named_parameters()}
        optimizer = require_objective(settings.objective).optimizer
        self.optimizers = Optimizers({**trained, **scalars}, sparse=tables, settings=optimizer, lr=settings.lr)
        draws = draws_numbers(student)
        if draws:
            torch.manual_seed(seed_from_name(f"dropout/{self.rank}", settings.seed))
        self.position = load_checkpoint(work, self.optimizers, draws=draws) or Position()
        self.rows_before = self.position.rows
        module = cast(nn.Module, torch.compile(student, dynamic=True)) if settings.compile else student
        self.gradient = GradientOfBatch(
            self.accelerator,
            self.accelerator.prepare_model(module) if self.processes > 1 else module,
            self.objective,
            store,
            cache_rows=settings.cache_rows,
        )
        self.gauges: dict[str, float] = {}
        self.asked_warmup = optimizer.warmup_steps
        self.warmup = WARMUP_STEPS
        self.step_seconds = 0.0
        self.spent_before = self.position.seconds
        self.budget = None if settings.minutes is None else self._budget(settings.minutes * 60.0)
        self.saved = self.measured_until = time.monotonic()

    def run(self, journal: TrainingLog | None) -> TrainingSummary:
        """Train to the end."""
        started, steps_before = time.monotonic(), self.position.step
        self.batches = self._batches_of(self.position.epoch)
        if steps_before:
            log(f"distill: continuing at step {steps_before} of {self.position.total}")
        else:
            self._read_gauges(journal)
            self._fix_total(journal)
        self._choose_warmup()
        at = self.position
        with progress_bar("distill", at.total, done=at.step) as bar:
            while self.position.step < (self.position.total or 0):
                loss = self._step(journal)
                at = self.position
                if self.budget is not None and at.step == at.review:
                    self._review(journal)
                if self._reading_is_due():
                    self._read_gauges(journal)
                if at.step < (at.total or 0) and time.monotonic() - self.saved >= self.settings.checkpoint_seconds:
                    self._save(journal)
                bar.advance(1, note=self._note(loss), total=self.position.total)
        if journal is not None:
            journal.sync()
        return TrainingSummary(
            position=self.position,
            gauges=self.gauges,
            readings=readings_of(self.work) if self.is_main else (),
            held_out_rows=len(self.held_out),
            precision=self.precision,
            warmup_steps=self.warmup,
            rows_per_second=self._rows_per_second(),
            seconds=time.monotonic() - started,
        )

    def _fix_total(self, journal: TrainingLog | None) -> None:
        """Decide the number of steps; with ``minutes``, by doing the first ones and timing them."""
        settings = self.settings
        if self.budget is not None:
            began = time.monotonic()
            while not self.budget.first_review(self.position.step, time.monotonic() - began):
                self._step(journal)
            self._review(journal)
            self._save(journal)  # from here on the decisions stand, whoever continues
            return
        if settings.steps is not None:
            total = settings.steps
        else:
            epochs = settings.epochs or 0.0
            whole = math.floor(epochs)
            total = sum(len(self._batches_of(epoch)) for epoch in range(whole))
            if epochs > whole:
                total += round((epochs - whole) * len(self._batches_of(whole)))
            total = max(total, 1)
        self.position = replace(self.position, total=total, readings=settings.gauge_readings)

    def _budget(self, seconds: float) -> TimeBudget:
        trained = sum(p.numel() for p in self.student.parameters() if p.requires_grad)
        readings = self.settings.gauge_readings
        return TimeBudget(seconds, self.work, most_readings=readings, final_bytes=4 * trained)

    def _review(self, journal: TrainingLog | None) -> None:
        """Decide anew how many steps fit into the time that is left; all processes take the main one's word."""
        budget, at, now = cast(TimeBudget, self.budget), self.position, time.monotonic()
        decision: Decision | None = None
        if self.is_main:
            budget.measured(at.step - at.reviewed, now - self.measured_until)
            spent = self.spent_before + now - self.began
            decision = budget.decide(at.step, spent=spent, readings=at.readings if at.total else None)
        if self.processes > 1:
            from accelerate.utils import broadcast_object_list

            decision = broadcast_object_list([decision])[0]
        decided = cast(Decision, decision)
        if at.total is None:
            log(f"distill: about {decided.total} steps fit into {self.settings.minutes:g} minutes")
        self.position = replace(
            at, total=decided.total, readings=decided.readings, review=decided.review, reviewed=at.step
        )
        self._write(journal, {"step": at.step, "total": decided.total})
        self._choose_warmup()
        self.measured_until = time.monotonic()

    def _reading_is_due(self) -> bool:
        """Say whether the held-out rows are read now: evenly over the steps, and at the end."""
        at, total = self.position, self.position.total or 0
        return at.step >= total or (at.readings > 1 and (at.step - at.read) * at.readings >= total - at.read)

    def _choose_warmup(self) -> None:
        """Shorten the warm-up of short trainings; that of ``minutes`` has begun before the length was known."""
        total = self.position.total
        if total is not None:
            if self.asked_warmup is None:
                self.warmup = min(WARMUP_STEPS, total // 10)
            else:  # the documents' 1,000 of 8,000 steps
                self.warmup = min(self.asked_warmup, total // 8)

    def _shape(self, student: nn.Module) -> dict[str, Any]:
        """Return what a step's speed depends on besides the machine."""
        weights = [list(parameter.shape) for parameter in student.parameters() if parameter.requires_grad]
        return {"weights": content_id(weights), "batch_rows": self._piece_rows()}

    def _piece_rows(self) -> int:
        """Return how many rows are embedded at a time."""
        return min(self.settings.cache_rows or self.settings.batch_rows, self.settings.batch_rows)

    def _probe(self, student: nn.Module) -> None:
        """Pass one typical batch forward and backward, for a measurement; the student stays as it is."""
        rows = self.training_rows[: self._piece_rows()]
        ordered = rows[np.argsort(self.store.lengths[rows], kind="stable")]
        ids, mask = self.store.gather(ordered[len(ordered) // 4 : -(len(ordered) // 4) or None])
        tensors = torch.from_numpy(ids), None if mask is None else torch.from_numpy(mask)
        student(*tensors).embedding.sum().backward()
        student.zero_grad(set_to_none=True)

    def _batches_of(self, epoch: int) -> list[Rows]:
        return self.plan.epoch(self.store.lengths, self.training_rows, epoch)

    def _step(self, journal: TrainingLog | None) -> float:
        """Take one optimiser step; return its loss."""
        began = time.monotonic()
        at = self.position
        rows = self.batches[at.batch]
        lr = learning_rate(at.step, total=at.total, peak=self.settings.lr, warmup=self.warmup)
        self.optimizers.set_lr(lr)
        logged = at.step % self.settings.log_every == 0
        loss = self.gradient(rows, self._targets(rows), every_term=logged)
        if not math.isfinite(loss.value):
            raise self._diverged(f"the loss became {loss.value}", at.step)
        self.optimizers.step()
        self.optimizers.zero_grad()
        self.position = at = replace(
            at,
            step=at.step + 1,
            batch=at.batch + 1,
            rows=at.rows + len(rows),
            tokens=at.tokens + loss.tokens,
            places=at.places + loss.places,
        )
        if logged:
            entry = {"step": at.step, "rows": at.rows, "epoch": at.epoch, "lr": lr, "loss": loss.value}
            numbers = {name: float(term) for name, term in loss.terms.items()}
            learned = {name: float(value.detach()) for name, value in self.objective.named_parameters()}
            more = {"learned": learned} if learned else {}
            self._write(journal, {**entry, "padding": round(at.padding, 6), "terms": numbers, **more})
        if at.batch == len(self.batches):
            self.position = replace(at, epoch=at.epoch + 1, batch=0)
            self.batches = self._batches_of(at.epoch + 1)
        self.step_seconds += time.monotonic() - began
        return loss.value

    def _diverged(self, what: str, step: int) -> DivergedError:
        kept = "; the last checkpoint is kept there" if has_checkpoint(self.work) else ""
        return DivergedError(
            f"{self.work}: {what} in step {step}, at --lr {self.settings.lr:g}{kept}. Run again with a lower --lr and "
            "--overwrite"
        )

    def _targets(self, rows: Rows) -> torch.Tensor:
        target = torch.from_numpy(np.asarray(self.targets[rows], dtype=np.float32)).to(self.device)
        target = functional.normalize(target, dim=-1)
        return target if self.axes is None else target @ self.axes

    def _read_gauges(self, journal: TrainingLog | None) -> None:
        began = time.monotonic()
        if self.is_main:
            self.student.eval()
            ids = [self.store[int(row)] for row in self.held_out]
            with self.accelerator.autocast():
                embeddings = encode_ids(self.student, ids, pad=self.store.pad)
            self.student.train()
            if not np.isfinite(embeddings).all():
                raise self._diverged("the embeddings of held-out rows aren't finite", self.position.step)
            targets = self._targets(self.held_out).cpu().numpy()
            self.gauges = read_gauges(embeddings, targets, seed=self.settings.seed)
            self.gauges |= prefix_cosines(embeddings, targets, self.settings.matryoshka)
            self._write(journal, {"step": self.position.step, "rows": self.position.rows, "gauges": self.gauges})
        self.position = replace(self.position, read=self.position.step, readings=max(self.position.readings - 1, 0))
        self.accelerator.wait_for_everyone()
        if self.budget is not None:
            self.budget.gauge_seconds = time.monotonic() - began
        self.measured_until += time.monotonic() - began  # what a step costs doesn't include them

    def _save(self, journal: TrainingLog | None) -> None:
        # Each process reads its own clock, so no process may wait for another here; only the main one writes.
        if journal is not None:
            spent = self.spent_before + time.monotonic() - self.began
            self.position = replace(self.position, log_bytes=journal.sync(), seconds=round(spent, 3))
            save_checkpoint(self.work, self.position, self.optimizers)
        self.saved = time.monotonic()

    def _write(self, journal: TrainingLog | None, entry: dict[str, Any]) -> None:
        if journal is not None:
            journal.write(entry)

    def _rows_per_second(self) -> float | None:
        """Return the speed of this attempt's steps, or None before the first."""
        return (self.position.rows - self.rows_before) / self.step_seconds if self.step_seconds else None

    def _note(self, loss: float) -> str:
        speed = self._rows_per_second() or 0.0
        cosine = self.gauges.get("target_cosine", float("nan"))
        rank = self.gauges.get("effective_rank", float("nan"))
        return f"loss {loss:.3f}  target cosine {cosine:.3f}  rank {rank:.1f}  {speed:.0f} rows/s"


def _batch_plan(settings: TrainingSettings, *, processes: int) -> BatchPlan:
    """Return how epochs are cut: gradient caching sorts the pieces of a batch by length, so its batches may mix."""
    cached = settings.cache_rows is not None and settings.cache_rows < settings.batch_rows
    mega = 1 if cached else BatchPlan.mega_batches
    least = require_objective(settings.objective).least_rows
    return BatchPlan(settings.batch_rows, settings.seed, mega_batches=mega, multiple_of=processes, least_rows=least)


def _objective(settings: TrainingSettings, dimensions: int) -> nn.Module:
    """Return the composition, nested over widths where that's asked for."""

    def make(width: int) -> Objective:
        return compose_objective(settings.objective, dimensions=width, seed=settings.seed)

    if not settings.matryoshka:
        return make(dimensions)
    return NestedObjective(make, check_widths(settings.matryoshka, dimensions))


def _accelerator(precision: str) -> Any:  # noqa: ANN401 - accelerate is untyped
    """Return accelerate's object for device, precision and processes."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # Accelerate keeps the first precision of a process for good; a second training may have another.
    AcceleratorState._reset_state()
    return Accelerator(mixed_precision="bf16" if precision == "bf16" else "no")
