"""The frame law: families, refusals, and that a free orientation is found again."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.committee.frame_law import across_seeds, measure_student, require_rotated, student_frame
from consilience.core.errors import FrameMismatchError
from consilience.frames.rows import normalise_rows


def manifest(objective="composite", backend="static", name="t", seed=0, **extra):
    return {
        "training": {"objective": objective, "seed": seed},
        "target": {"teacher": {"backend": backend, "name": name}, "extra": extra or None},
    }


@pytest.mark.parametrize(
    ("found", "family", "frame_free"),
    [
        (manifest(), "anchored", False),
        (manifest("affinity"), "relational", True),
        (manifest(backend="consensus"), "consensus", False),
        (manifest(backend="consensus", without_axes=True), "consensus", True),
        (manifest("affinity", backend="consensus"), "relational", True),
    ],
)
def test_families(found, family, frame_free):
    frame = student_frame(found)
    assert (frame.family, frame.frame_free) == (family, frame_free)
    if frame_free:
        with pytest.raises(FrameMismatchError, match="consilience rotate s --into"):
            require_rotated(frame, name="s", gauge="cosine to minilm")
    else:
        require_rotated(frame, name="s", gauge="cosine to minilm")


def test_a_free_orientation_reads_a_false_floor_and_the_rotation_finds_it():
    rng = np.random.default_rng(0)
    target = normalise_rows(rng.standard_normal((900, 16)), where="t")
    rows = []
    for seed in (0, 1):
        turn = np.linalg.qr(rng.standard_normal((16, 16)))[0]
        noisy = normalise_rows(target + 0.1 * rng.standard_normal(target.shape), where="t")
        student = noisy @ turn
        frame = student_frame(manifest("affinity", seed=seed))
        rows.append(
            measure_student(
                f"s{seed}", frame, fit=(student[:500], target[:500]), held_out=(student[500:], target[500:])
            )
        )
    assert abs(rows[0].before["cosine"]) < 0.2
    assert rows[0].after["cosine"] > 0.9
    assert rows[0].to_json()["before"] == "refused"
    assert rows[0].to_json(unrotated=True)["before"]["cosine"] == rows[0].before["cosine"]
    (group,) = across_seeds(rows)
    assert group["seeds"] == [0, 1]
    assert group["spread"] < 0.01
    assert group["cosine"] > 0.8  # two seeds agree once both are in one frame
    assert across_seeds(rows[:1]) == []
