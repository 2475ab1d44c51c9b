"""What a person decides about a training, checked before anything starts."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from consilience.core.errors import InputError

Precision = Literal["auto", "fp32", "bf16"]
# Measured on STS-B dev: at .07 an anchor spreads a distilled trunk's outputs evenly and loses degrees of similarity; at
# .02 the trunk's spread stays (docs/results.md, "The adapter library").
LOSS_TEMPERATURE = 0.02
WARMUP_STEPS = 50  # assumed; no shorter than the calibration of --minutes, whose steps are all warm-up
HELD_OUT_ROWS = 1024  # assumed: a standard error of the target cosine below 0.005, at 1 % of the time
_HELD_OUT_ROWS_A_MINUTE = 100  # assumed: read three times, they are 3 % of the rows that two cores train on in a minute
_LEAST_HELD_OUT_ROWS = 256


@dataclass(frozen=True)
class TrainingSettings:
    """Length, optimiser and housekeeping of a training.

    Attributes:
        steps: so many optimiser steps; exactly one of ``steps``, ``epochs`` and ``minutes`` is given.
        epochs: so many passes over the training rows, possibly a fraction.
        minutes: as many steps as are done in this wall-clock time, by a measurement at the start.
        seed: of batches, held-out rows and initialisation.
        lr: peak learning rate of Adam.
        batch_rows: rows of a batch of average length.
        objective: name of the composition.
        precision: "fp32", "bf16" (autocast), or "auto".
        matryoshka: nested output widths trained together; none for the whole width alone.
        cache_rows: gradient caching: rows a process embeds with a graph at a time; None embeds a batch in one piece.
        compile: pass the student through ``torch.compile``.
        sparse_embeddings: sparse gradients and lazy Adam for the token table.
        gauge_readings: how often the held-out rows are measured, besides before the first step.
        log_every: steps between two lines of the log.
        checkpoint_seconds: wall-clock time between two checkpoints.
    """

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    seed: int = 0
    lr: float = 6e-4
    batch_rows: int = 256
    objective: str = "composite"
    precision: Precision = "auto"
    matryoshka: tuple[int, ...] = ()
    cache_rows: int | None = None
    compile: bool = False
    sparse_embeddings: bool = False
    gauge_readings: int = 12
    log_every: int = 10
    checkpoint_seconds: float = 120.0

    def __post_init__(self) -> None:
        self._check_types()
        given = [name for name in ("steps", "epochs", "minutes") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"--{name}" for name in given) or "none"
            raise InputError(f"distill: expected exactly one of --steps, --epochs and --minutes, got {found}. Give one")
        amount = getattr(self, given[0])
        if not (math.isfinite(amount) and amount > 0):
            raise InputError(f"distill: expected --{given[0]} above 0, got {amount}. Raise it")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise InputError(f"distill: expected a learning rate above 0, got {self.lr}. Change --lr")
        if self.batch_rows < 2:
            raise InputError(f"distill: expected batches of at least 2 rows, got {self.batch_rows}. Raise --batch-rows")
        if self.precision not in ("auto", "fp32", "bf16"):
            raise InputError(f"distill: expected precision auto, fp32 or bf16, got {self.precision!r}. Choose one")
        if self.cache_rows is not None and self.cache_rows < 1:
            raise InputError(f"distill: expected --cache-rows of at least 1, got {self.cache_rows}. Raise it")
        if not self.checkpoint_seconds > 0:
            raise InputError(f"distill: expected --checkpoint-seconds above 0, got {self.checkpoint_seconds}. Raise it")

    def _check_types(self) -> None:
        """Refuse values of another kind, which Python callers can pass; NumPy's numbers become Python's, for JSON."""
        whole = ("steps", "seed", "batch_rows", "cache_rows", "gauge_readings", "log_every")
        for name in (*whole, "epochs", "minutes", "lr", "checkpoint_seconds"):
            value = getattr(self, name)
            if value is None or (type(value) is int or (type(value) is float and name not in whole)):
                continue
            try:
                plain = (
                    None if isinstance(value, bool | str) else operator.index(value) if name in whole else float(value)
                )
            except (TypeError, ValueError):
                plain = None
            if plain is None:
                wanted = "a whole number" if name in whole else "a number"
                raise InputError(f"distill: expected {name} to be {wanted}, got {value!r}. Change it")
            object.__setattr__(self, name, plain)
        if not isinstance(self.objective, str):
            raise InputError(f"distill: expected objective to be a name or terms, got {self.objective!r}. Change it")

    @property
    def length(self) -> str:
        """The training's length, as its option."""
        name = next(name for name in ("steps", "epochs", "minutes") if getattr(self, name) is not None)
        return f"--{name} {getattr(self, name):g}"

    @property
    def held_out_rows(self) -> int:
        """Rows that are only measured, at most: fewer in a short training, whose minutes they would eat."""
        if self.minutes is None:
            return HELD_OUT_ROWS
        return min(max(round(_HELD_OUT_ROWS_A_MINUTE * self.minutes), _LEAST_HELD_OUT_ROWS), HELD_OUT_ROWS)

    def identity(self) -> dict[str, Any]:
        """Return the fields that the finished student depends on; options that came later only where they're set."""
        later = {"matryoshka": (), "cache_rows": None, "compile": False, "sparse_embeddings": False}
        fields = {key: value for key, value in asdict(self).items() if key != "checkpoint_seconds"}
        kept = {key: value for key, value in fields.items() if key not in later or value != later[key]}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}
