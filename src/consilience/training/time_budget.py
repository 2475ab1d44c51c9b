"""How many steps fit into ``--minutes``: measured while the training runs, decided again and again, and written down.

A machine may be busy in its first minute and free afterwards, or the other way round, so the number of steps isn't
decided once: after an eighth of what is left, the speed since the last decision decides anew. Decisions are kept in the
working folder, and a resumed training takes them over at the same steps instead of measuring.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

from consilience.core.files import read_json, write_json

FILE = "decisions.json"
FIRST_STEPS = 6  # measured: allocators and kernels settle within three; all of them are warm-up
FIRST_SHARE = 0.1  # of the time: a machine on which six steps take longer decides after fewer
REVIEWS = 8  # a decision stands for an eighth of the steps that are left
GAUGE_SHARE = 0.03  # of the time, for all readings of the gauges together
WRITE_BYTES_PER_SECOND = 150e6  # assumed: a slow disk, checksum included


@dataclass(frozen=True)
class Decision:
    """How a training goes on.

    Attributes:
        step: after which it was decided.
        total: steps of the whole training.
        readings: readings of the gauges still to come, the last one included.
    """

    step: int
    total: int
    readings: int

    @property
    def review(self) -> int:
        """The step after which it's decided anew."""
        return self.step + max(math.ceil((self.total - self.step) / REVIEWS), 1)


class TimeBudget:
    """The decisions of one training with ``--minutes``.

    Args:
        seconds: the time given, from the start of the command.
        work: the working folder, where earlier decisions may be.
        most_readings: of the gauges, besides the first.
        final_bytes: size of the finished student's files.
    """

    def __init__(self, seconds: float, work: Path, *, most_readings: int, final_bytes: int) -> None:
        self._seconds = seconds
        self._path = work / FILE
        self._most_readings = most_readings
        self._write_seconds = final_bytes / WRITE_BYTES_PER_SECOND
        kept = read_json(self._path) if self._path.is_file() else []
        self._known: dict[int, Decision] = {entry["step"]: Decision(**entry) for entry in kept}
        self._steps = self._step_seconds = 0.0
        self.gauge_seconds = 0.0

    def measured(self, steps: int, seconds: float) -> None:
        """Take note of steps and the wall-clock time that they took, checkpoints included and gauges not.

        What was measured before counts half.
        """
        self._steps = self._steps / 2 + steps
        self._step_seconds = self._step_seconds / 2 + seconds

    def first_review(self, steps: int, seconds: float) -> bool:
        """Say whether the first steps are enough to decide: a resumed training decides where it did before."""
        if self._known:
            return bool(steps == min(self._known))
        return steps >= FIRST_STEPS or (steps > 1 and seconds > FIRST_SHARE * self._seconds)

    def decide(self, step: int, *, spent: float, readings: int | None) -> Decision:
        """Return how the training goes on from a step: as it was decided there before, or by what was measured.

        Args:
            step: steps done.
            spent: seconds since the command began, those of interrupted attempts included.
            readings: of the gauges still to come; None at the first decision, which chooses their number.
        """
        if step not in self._known:
            if readings is None:
                affordable = GAUGE_SHARE * self._seconds / max(self.gauge_seconds, 1e-9)
                readings = int(min(max(affordable, 1), self._most_readings))
            left = self._seconds - spent - readings * self.gauge_seconds - self._write_seconds
            steps = int(left * self._steps / max(self._step_seconds, 1e-9))
            self._known[step] = Decision(step, step + max(steps, 0), readings)
            write_json(self._path, [asdict(decision) for decision in self._known.values()])
        return self._known[step]
