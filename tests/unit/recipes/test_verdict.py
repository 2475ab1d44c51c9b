"""The verdict on a training: what it compares, what it says, and which command it names."""

import numpy as np
import pytest

from consilience.recipes.default_start import most_influential
from consilience.recipes.verdict import describe, judge, judge_run


def readings(*kept):
    return [{"neighbours_kept": share} for share in kept]


@pytest.mark.parametrize(
    ("kept", "static", "random", "verdict", "said"),
    [
        ((0.3, 0.5, 0.60, 0.61), 0.5, False, "ok", "held-out texts"),
        ((0.3, 0.4, 0.50, 0.56), 0.5, False, "rising", "run the same command with --minutes 6 --overwrite"),
        ((0.0, 0.1, 0.15, 0.20), 0.5, False, "below static", "--minutes 6 --overwrite"),
        ((0.0, 0.1, 0.15, 0.20), 0.5, True, "below static", "leave out --student"),
        ((0.3, 0.6), None, False, "ok", "held-out texts"),
    ],
)
def test_verdicts(kept, static, random, verdict, said):
    found = judge(static=static, held_out=200, readings=readings(*kept), random=random)
    assert found["verdict"] == verdict
    line = describe(found, parameters=19_000_000, operations=None, length="--minutes 2")
    assert line.startswith(f"keeps {kept[-1]:.0%} of its target's")
    assert said in line
    assert ("a static table" in line) == (static is not None)
    assert ("NOT WORTH USING" in line) == (verdict == "below static")


def test_two_thirds_of_the_layers_are_kept_in_their_order():
    influence = np.array([0.31, 0.12, 0.10, 0.12, 0.15, 0.55])
    assert most_influential(influence) == (0, 1, 4, 5)
    assert most_influential(influence[:4]) == (0, 1, 3)
    assert most_influential(influence[:1]) == (0,)


def model(name, mean, speed):
    return {
        "model": name, "mean": mean, "mean_of": ["a", "b"], "parameters": 10, "sentences_per_second": {"median": speed}
    }  # fmt: skip


@pytest.mark.parametrize(("mean", "wanted"), [(0.7, None), (0.5, "NOT WORTH USING")])
def test_a_run_is_judged_beside_the_reference_and_the_static_student(mean, wanted):
    models = [model("student", mean, 200), model("static", 0.6, 9000), model("big", 0.8, 50)]
    found = judge_run({"models": models}, {"neighbours_kept": 0.5, "verdict": "ok"}, reference="big")
    assert (found["kept"], found["speed"], found["static"]) == (round(mean / 0.8, 4), 4.0, 0.6)
    assert f"keeps {mean / 0.8:.1%} of big's mean score over 2 tasks, at 4.0 times its speed" in found["said"]
    assert ("NOT WORTH USING" in found["said"]) == (wanted is not None)


def test_without_anything_to_compare_a_run_has_no_verdict():
    assert judge_run({"models": [model("student", 0.5, 1)]}, None, reference=None) is None
