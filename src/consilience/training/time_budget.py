"""How many steps fit into ``--minutes``: measured on the training's own first steps, then fixed for good."""

from __future__ import annotations

from dataclasses import dataclass

WARM_STEPS = 5  # measured: allocators and kernels settle within three
TIMED_STEPS = 40  # at most this many, and never more than this share of the time:
TIMED_SHARE = 0.15
MARGIN = 0.05  # of the whole, for what isn't measured: a main job was once 1.4% over with 3%
WRITE_BYTES_PER_SECOND = 150e6  # assumed: a slow disk, checksum included


@dataclass(frozen=True)
class TimeBudget:
    """Wall-clock costs of a training.

    Attributes:
        seconds: the time given, from the start of the command.
        spent: how much of it is gone.
        step_seconds: mean time of a step.
        gauge_seconds: time of one reading of the gauges.
        gauge_readings: readings still to come.
        checkpoint_seconds: time between checkpoints.
        checkpoint_bytes: size of one; the finished student is about a third of it.
    """

    seconds: float
    spent: float
    step_seconds: float
    gauge_seconds: float
    gauge_readings: int
    checkpoint_seconds: float
    checkpoint_bytes: int

    def steps_left(self) -> int:
        """Return how many more steps fit, at least one.

        Example:
            >>> TimeBudget(100.0, 7.0, 1.0, 1.0, 10, 1e9, 0).steps_left()
            78
        """
        write = self.checkpoint_bytes / WRITE_BYTES_PER_SECOND
        left = self.seconds * (1 - MARGIN) - self.spent - self.gauge_readings * self.gauge_seconds - write
        share = 1.0 / (1.0 + write / self.checkpoint_seconds)
        return max(int(left * share / self.step_seconds), 1)
