"""The frame law: what a student's absolute gauges say before and after its rotation into the frame that serves.

A student that was compared with its target row by row lives in the target's frame. A relational student (affinity) or
one of a frame without axes (GPA) lives in a frame that nobody chose: its absolute gauges read a false floor until it is
rotated, so they're refused, not printed.

Source: design, section 6; the FT4 document, parts VI and VIII.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.committee.rotation import judge_rotation, solve_rotation
from consilience.core.errors import FrameMismatchError
from consilience.gauges.agreement import paired_cosine
from consilience.objectives.names import is_relational

Family = Literal["anchored", "consensus", "relational"]


@dataclass(frozen=True)
class StudentFrame:
    """What a student's manifest says of its frame.

    Attributes:
        family: "anchored" (one teacher's frame), "consensus", or "relational".
        objective: name of its composition.
        target: what a person calls its target.
        seed: of its training.
        frame_free: no absolute gauge means anything before a rotation.
    """

    family: Family
    objective: str
    target: str
    seed: int
    frame_free: bool


def student_frame(manifest: Mapping[str, Any]) -> StudentFrame:
    """Read a student's place in the frame law from its manifest.

    Args:
        manifest: of a student.
    """
    training, target = manifest["training"], manifest["target"]
    objective = str(training["objective"])
    teacher = target.get("teacher") or {}
    consensus = teacher.get("backend") == "consensus"
    without_axes = bool((target.get("extra") or {}).get("without_axes"))
    turned = str(manifest.get("frame", "")).startswith("principal:")
    name = "consensus" if consensus else str(teacher.get("name") or "teacher")
    relational = is_relational(objective)
    return StudentFrame(
        family="relational" if relational else "consensus" if consensus else "anchored",
        objective=objective,
        target=f"{name} (GPA)" if without_axes else name,
        seed=int(training["seed"]),
        frame_free=relational or without_axes or turned,
    )


def require_rotated(frame: StudentFrame, *, name: str, gauge: str) -> None:
    """Refuse an absolute gauge of a student whose frame nobody chose.

    Raises:
        FrameMismatchError: names the gauge and the command that makes it readable.
    """
    if frame.frame_free:
        relational = frame.family == "relational"
        why = "its objective compares similarities only" if relational else "its target's frame has axes of its own"
        raise FrameMismatchError(
            f"{name}: {gauge} is an absolute gauge, and this student's frame is nobody's ({why}): it would read a "
            "false floor. "
            f"Rotate it first: consilience rotate {name} --into MODEL_OR_BANK --out ROTATION"
        )


@dataclass(frozen=True)
class FrameLawRow:
    """One student's gauges against the model that serves.

    Attributes:
        name: what a person calls the student.
        frame: its place.
        before: cosine and R@1 without a rotation; None when the widths differ.
        after: cosine, R@1 and R@10 with it.
        null: cosine and R@1 of a rotation fitted to shuffled pairs.
        verdict: of the rotation: "ok", "weak" or "refused".
        rotated: its held-out rows after the rotation.
    """

    name: str
    frame: StudentFrame
    before: dict[str, float] | None
    after: dict[str, float]
    null: dict[str, float]
    verdict: str
    rotated: NDArray[np.float32]

    def to_json(self, *, unrotated: bool = False) -> dict[str, Any]:
        """Return the numbers; ``before`` of a frame-free student only when asked for."""
        shown = self.before if unrotated or not self.frame.frame_free else "refused"
        return {
            "name": self.name,
            "family": self.frame.family,
            "objective": self.frame.objective,
            "target": self.frame.target,
            "seed": self.frame.seed,
            "frame_free": self.frame.frame_free,
            "before": shown,
            "after": self.after,
            "null": self.null,
            "verdict": self.verdict,
        }


def measure_student(
    name: str,
    frame: StudentFrame,
    *,
    fit: tuple[NDArray[np.floating], NDArray[np.floating]],
    held_out: tuple[NDArray[np.floating], NDArray[np.floating]],
) -> FrameLawRow:
    """Fit one student's rotation and read its absolute gauges on held-out rows.

    Args:
        name: what a person calls it.
        frame: its place.
        fit: unit rows of the student and of the model that serves.
        held_out: other rows.

    Raises:
        AlignmentRefusedError: fewer pairs than dimensions.
    """
    matrix = solve_rotation(*fit)
    report = judge_rotation(matrix, fit=fit, held_out=held_out).to_json()
    rotated = np.asarray(held_out[0] @ matrix, dtype=np.float32)
    return FrameLawRow(name, frame, report["before"], report["after"], report["null"], report["verdict"], rotated)


def across_seeds(rows: Sequence[FrameLawRow]) -> list[dict[str, Any]]:
    """Return, for every objective and target, how the seeds agree after their rotations.

    Args:
        rows: all students.

    Returns:
        One entry a group of at least two seeds: the spread (largest minus smallest) of the agreement with the model
        that serves, and the mean cosine between two seeds' rotated rows.
    """
    groups: dict[tuple[str, str], list[FrameLawRow]] = {}
    for row in rows:
        groups.setdefault((row.frame.objective, row.frame.target), []).append(row)
    found = []
    for (objective, target), members in groups.items():
        if len(members) < 2:
            continue
        agreements = [row.after["cosine"] for row in members]
        cosines = [
            float(paired_cosine(a.rotated, b.rotated).mean()) for i, a in enumerate(members) for b in members[i + 1 :]
        ]
        found.append(
            {
                "objective": objective,
                "target": target,
                "seeds": [row.frame.seed for row in members],
                "spread": max(agreements) - min(agreements),
                "cosine": float(np.mean(cosines)),
            }
        )
    return found
