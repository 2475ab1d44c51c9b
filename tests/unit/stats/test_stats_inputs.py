"""Statistics refuse what has no answer, and are fast enough for a whole suite."""

from __future__ import annotations

import time

import numpy as np
import pytest

from consilience.core.errors import InputError, ShapeError
from consilience.stats.bootstrap import bootstrap_interval, paired_bootstrap
from consilience.stats.correlation import spearman
from consilience.stats.permutation import sign_flip_test

RNG = np.random.default_rng
RAMP = np.arange(10.0)


def test_constant_nan_and_short_inputs_are_refused():
    with pytest.raises(InputError, match="scores that vary"):
        spearman(np.ones(10), RAMP)
    with pytest.raises(InputError, match="NaN"):
        spearman(np.where(RAMP == 3, np.nan, RAMP), RAMP)
    with pytest.raises(ShapeError):
        spearman(RAMP[:2], RAMP[:2])
    with pytest.raises(ShapeError):
        paired_bootstrap(RAMP, RAMP[:5], RAMP, rng=RNG(0))
    with pytest.raises(InputError, match="resamples"):
        bootstrap_interval(RAMP, RAMP, rng=RNG(0), resamples=0)
    with pytest.raises(InputError, match="level"):
        bootstrap_interval(RAMP, RAMP, rng=RNG(0), level=95)
    with pytest.raises(ShapeError):
        sign_flip_test(np.empty(0), rng=RNG(0))
    with pytest.raises(InputError):
        sign_flip_test(np.array([np.nan]), rng=RNG(0))


def test_perfect_agreement_has_a_degenerate_interval():
    interval = bootstrap_interval(RAMP, RAMP**3, rng=RNG(0), resamples=50)
    assert interval.low == pytest.approx(1)
    assert interval.high == pytest.approx(1)
    assert set(interval.to_json()) == {"score", "low", "high", "level"}


def test_equal_models_do_not_differ():
    rng = RNG(1)
    gold = rng.standard_normal(100)
    x = gold + rng.standard_normal(100)
    result = paired_bootstrap(x, x, gold, rng=rng, resamples=50)
    assert (result.difference, result.low, result.high, result.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_a_thousand_resamples_of_ten_thousand_pairs_take_seconds():
    rng = RNG(2)
    gold = rng.integers(0, 26, 10_000) / 5
    x = gold + rng.standard_normal(10_000)
    began = time.process_time()
    interval = bootstrap_interval(x, gold, rng=rng)
    assert time.process_time() - began < 8
    assert interval.high - interval.low < 0.03
