"""The precision is chosen by what was measured, once."""

from __future__ import annotations

import pytest
import torch

from consilience.core.files import read_json
from consilience.training import precision
from consilience.training.precision import FILE, choose_precision

SHAPE = {"layers": 1}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def instructions(monkeypatch):
    monkeypatch.setattr(precision, "has_bf16_instructions", lambda: True)


class Clock:
    """A clock that only steps move, however busy the machine is."""

    now = 0.0

    @classmethod
    def perf_counter(cls):
        return cls.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(precision, "time", Clock)


def step_that_is(half_seconds, full_seconds):
    def step():
        Clock.now += half_seconds if torch.is_autocast_enabled("cpu") else full_seconds

    return step


@pytest.mark.parametrize(
    ("half", "full", "expected"), [(0.002, 0.01, "bf16"), (0.01, 0.002, "fp32"), (0.01, 0.01, "fp32")]
)
def test_the_faster_one_wins_by_a_margin(tmp_path, half, full, expected):
    assert choose_precision("auto", tmp_path, CPU, SHAPE, step_that_is(half, full)) == expected
    assert read_json(tmp_path / FILE)["precision"] == expected


@pytest.mark.parametrize("same_folder", [True, False], ids=["continued", "another run on this machine"])
def test_the_first_choice_stands(tmp_path, same_folder):
    first, second = tmp_path / "first", tmp_path / ("first" if same_folder else "second")
    first.mkdir()
    second.mkdir(exist_ok=True)
    assert choose_precision("auto", first, CPU, SHAPE, step_that_is(0.002, 0.01)) == "bf16"
    assert choose_precision("auto", second, CPU, SHAPE, step_that_is(0.01, 0.002)) == "bf16"


def test_another_shape_is_measured_anew(tmp_path):
    for name, shape, half, expected in (("a", {"layers": 1}, 0.002, "bf16"), ("b", {"layers": 2}, 0.02, "fp32")):
        (tmp_path / name).mkdir()
        assert choose_precision("auto", tmp_path / name, CPU, shape, step_that_is(half, 0.01)) == expected


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
def test_what_the_person_asked_for_is_not_measured(tmp_path, asked):
    def step():
        raise AssertionError

    assert choose_precision(asked, tmp_path, CPU, SHAPE, step) == asked


def test_without_the_instructions_nothing_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "has_bf16_instructions", lambda: False)

    def step():
        raise AssertionError("a step was timed")

    assert choose_precision("auto", tmp_path, CPU, SHAPE, step) == "fp32"


def test_an_emulated_bf16_is_timed_once(tmp_path):
    taken = []

    def step():
        taken.append(torch.is_autocast_enabled("cpu"))
        Clock.now += 1.0 if taken[-1] else 0.01

    assert choose_precision("auto", tmp_path, CPU, SHAPE, step) == "fp32"
    assert taken == [False, True]
