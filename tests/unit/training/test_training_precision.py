"""The precision is chosen by what was measured, once."""

from __future__ import annotations

import time

import pytest
import torch

from consilience.core.files import read_json
from consilience.training.precision import FILE, choose_precision

CPU = torch.device("cpu")


def step_that_is(half_seconds, full_seconds):
    def step():
        time.sleep(half_seconds if torch.is_autocast_enabled("cpu") else full_seconds)

    return step


@pytest.mark.parametrize(
    ("half", "full", "expected"), [(0.002, 0.01, "bf16"), (0.01, 0.002, "fp32"), (0.01, 0.01, "fp32")]
)
def test_the_faster_one_wins_by_a_margin(tmp_path, half, full, expected):
    assert choose_precision("auto", tmp_path, CPU, step_that_is(half, full)) == expected
    assert read_json(tmp_path / FILE)["precision"] == expected


def test_the_first_choice_stands_when_the_training_continues(tmp_path):
    first = choose_precision("auto", tmp_path, CPU, step_that_is(0.002, 0.01))
    assert choose_precision("auto", tmp_path, CPU, step_that_is(0.01, 0.002)) == first == "bf16"


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
def test_what_the_person_asked_for_is_not_measured(tmp_path, asked):
    def step():
        raise AssertionError

    assert choose_precision(asked, tmp_path, CPU, step) == asked
