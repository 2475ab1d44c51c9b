"""Under the null, p-values are uniform over seeds; under an effect they are small."""

from __future__ import annotations

import numpy as np
from scipy.stats import kstest

from consilience.stats.bootstrap import bootstrap_interval, paired_bootstrap
from consilience.stats.permutation import shuffled_pairs_test, sign_flip_test


def test_sign_flip_p_values_are_uniform():
    p = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        p.append(sign_flip_test(rng.standard_normal(30), rng=rng, permutations=199))
    assert kstest(p, "uniform").pvalue > 0.01


def test_shuffled_pairs_p_values_are_uniform():
    p = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        p.append(shuffled_pairs_test(rng.standard_normal(40), rng.standard_normal(40), rng=rng, permutations=199))
    assert kstest(p, "uniform").pvalue > 0.01


def test_paired_bootstrap_p_values_are_uniform_for_equal_models():
    p = []
    for seed in range(250):
        rng = np.random.default_rng(seed)
        gold = rng.standard_normal(200)
        first, second = (gold + rng.standard_normal(200) for _ in range(2))
        p.append(paired_bootstrap(first, second, gold, rng=rng, resamples=400).p_value)
    assert kstest(p, "uniform").pvalue > 0.01
    assert 0.02 <= np.mean(np.array(p) < 0.1) <= 0.2


def test_paired_bootstrap_sees_a_better_model():
    rng = np.random.default_rng(0)
    gold = rng.standard_normal(500)
    result = paired_bootstrap(gold + rng.standard_normal(500) * 0.5, gold + rng.standard_normal(500), gold, rng=rng)
    assert result.difference > 0.1
    assert 0 < result.low < result.difference < result.high
    assert result.p_value < 0.01


def test_interval_covers_the_truth_about_as_often_as_it_says():
    # Spearman of a bivariate normal: rho_s = 6 / pi asin(r / 2).
    r = 0.6
    truth = 6 / np.pi * np.arcsin(r / 2)
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(200)
        y = r * x + np.sqrt(1 - r * r) * rng.standard_normal(200)
        interval = bootstrap_interval(x, y, rng=rng, resamples=200, level=0.9)
        covered += interval.low <= truth <= interval.high
    assert 0.83 <= covered / 200 <= 0.96
