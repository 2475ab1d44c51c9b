"""Bars: what is measured stands beside what was seen, and a missed one says so."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from consilience.recipes.bars import find_metric, judge_bars
from consilience.recipes.recipe_file import BarPart

RESULTS = {
    "evaluation": {"models": [{"model": "student", "mean": 0.68, "tasks": {"stsb-test": {"score": 0.7}}}]},
    "frames": {"fits": [{"teacher": "glove", "out_of_sample_cosine": 0.57}]},
}


def verdict(**bar):
    return judge_bars([BarPart(what="w", **bar)], RESULTS)[0]["verdict"]


def test_items_of_lists_go_by_name():
    assert find_metric(RESULTS, "evaluation.models.student.tasks.stsb-test.score") == 0.7
    assert find_metric(RESULTS, "frames.fits.glove.out_of_sample_cosine") == 0.57
    assert find_metric(RESULTS, "frames.fits.wordllama.out_of_sample_cosine") is None
    assert find_metric(RESULTS, "frames.fits") is None


@pytest.mark.parametrize(
    ("bar", "expected"),
    [
        ({"at_least": 0.672}, "met"),
        ({"at_least": 0.69}, "missed"),
        ({"seen": 0.681, "within": 0.002}, "met"),
        ({"seen": 0.69, "within": 0.002}, "missed"),
        ({"seen": 0.69}, ""),
    ],
)
def test_a_threshold_judges(bar, expected):
    assert verdict(metric="evaluation.models.student.mean", **bar) == expected


def test_what_was_not_measured_is_not_met():
    assert verdict(metric="evaluation.models.teacher.mean", at_least=0.1) == "not measured"


def test_within_needs_a_number_to_be_near_to():
    with pytest.raises(ValidationError, match="within needs seen"):
        BarPart(what="w", metric="m", within=0.1)
