"""Values by hand, by brute force, or by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from consilience.frames.statistics import CrossStatistics
from consilience.frames.whitening import ledoit_wolf_intensity
from consilience.gauges.effective_rank import (
    effective_rank,
    entropy_rank,
    participation_ratio,
    simplex_volumes,
    spectrum,
    spread_cv,
)
from consilience.gauges.isotropy import alignment, self_cosine, uniformity
from consilience.stats.bootstrap import bootstrap_interval, paired_bootstrap, resampled_spearman
from consilience.stats.correlation import spearman
from consilience.stats.permutation import sign_flip_test


def test_effective_rank_by_hand():
    # Centred covariance diag(9, 1) / 2: shares .9 and .1; participation 1 / (.81 + .01), entropy e^.3251.
    x = np.array([[3.0, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]])
    shares = spectrum(x)
    np.testing.assert_allclose(shares, [0.9, 0.1, 0.0], atol=1e-15)
    assert participation_ratio(shares) == pytest.approx(1 / 0.82)
    assert entropy_rank(shares) == pytest.approx(np.exp(-0.9 * np.log(0.9) - 0.1 * np.log(0.1)))


def test_effective_rank_of_fewer_rows_than_dimensions_is_the_same():
    x = np.random.default_rng(0).standard_normal((6, 40))
    centred = x - x.mean(0)
    values = np.linalg.eigvalsh(centred.T @ centred)
    assert effective_rank(x).participation == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_cayley_menger_volumes_by_hand():
    # The regular unit 4-simplex has volume sqrt(5) / 96; the corner of a unit 4-cube 1 / 24; a flat one 0.
    regular = np.eye(5) / np.sqrt(2)
    corner = np.vstack([np.zeros(4), np.eye(4)])
    np.testing.assert_allclose(simplex_volumes(regular[None]), [np.sqrt(5) / 96], rtol=1e-12)
    np.testing.assert_allclose(simplex_volumes(corner[None]), [1 / 24], rtol=1e-12)
    flat = np.vstack([np.zeros(4), np.eye(4)[:3], [[1 / 3, 1 / 3, 1 / 3, 0]]])
    np.testing.assert_allclose(simplex_volumes(flat[None]), [0], atol=1e-9)


def test_cayley_menger_equals_the_determinant_of_the_edges():
    points = np.random.default_rng(1).standard_normal((20, 5, 4))
    edges = points[:, 1:] - points[:, :1]
    np.testing.assert_allclose(simplex_volumes(points), np.abs(np.linalg.det(edges)) / 24, rtol=1e-8)


def test_spread_cv_ignores_scale_and_offset_and_sees_clusters():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((500, 32))
    assert spread_cv(x) == pytest.approx(spread_cv(3 * x + 1), rel=1e-6)
    clustered = x * 0.05 + 3 * rng.standard_normal((4, 32))[rng.integers(0, 4, 500)]
    assert spread_cv(clustered) > spread_cv(x) + 0.2


def test_isotropy_by_hand():
    x = np.array([[1.0, 0], [0, 1], [-1, 0]])
    assert self_cosine(x) == pytest.approx((0 - 1 + 0) / 3)
    expected = np.log((2 * np.exp(-2 * 2) + np.exp(-2 * 4)) / 3)
    assert uniformity(x) == pytest.approx(expected)
    assert alignment(x, x[[1, 0, 2]]) == pytest.approx(4 / 3)


@pytest.mark.parametrize("levels", [3, 6, 1000])
def test_spearman_with_ties_equals_scipy(levels):
    rng = np.random.default_rng(levels)
    x = rng.integers(0, levels, 200).astype(float)
    y = x + rng.integers(0, levels, 200)
    assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-14)


@pytest.mark.parametrize("levels", [4, 100_000])
def test_weighted_ranks_equal_ranking_each_resample(levels):
    rng = np.random.default_rng(5)
    gold = rng.integers(0, 6, 90).astype(float)
    x1 = gold + rng.integers(0, levels, 90) / levels * 5
    x2 = rng.integers(0, levels, 90).astype(float)
    fast = resampled_spearman([x1, x2], gold, resamples=40, rng=np.random.default_rng(7))
    drawn = np.random.default_rng(7).integers(0, 90, size=(40, 90), dtype=np.int64)
    brute = [[spearmanr(x[rows], gold[rows]).statistic for x in (x1, x2)] for rows in drawn]
    np.testing.assert_allclose(fast, brute, atol=1e-12)


def test_bootstrap_equals_brute_force_and_repeats():
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 6, 60).astype(float)
    x1, x2 = gold + rng.standard_normal(60), gold + 2 * rng.standard_normal(60)
    drawn = np.random.default_rng(11).integers(0, 60, size=(300, 60), dtype=np.int64)
    brute = np.array([[spearmanr(x[rows], gold[rows]).statistic for x in (x1, x2)] for rows in drawn])
    interval = bootstrap_interval(x1, gold, rng=np.random.default_rng(11), resamples=300)
    np.testing.assert_allclose([interval.low, interval.high], np.percentile(brute[:, 0], [2.5, 97.5]), atol=1e-12)
    result = paired_bootstrap(x1, x2, gold, rng=np.random.default_rng(11), resamples=300)
    delta = brute[:, 0] - brute[:, 1]
    np.testing.assert_allclose([result.low, result.high], np.percentile(delta, [2.5, 97.5]), atol=1e-12)
    tails = min((delta <= 0).sum(), (delta >= 0).sum())
    assert result.p_value == pytest.approx(min(1, 2 * (1 + tails) / 301))
    assert result == paired_bootstrap(x1, x2, gold, rng=np.random.default_rng(11), resamples=300)


def test_exact_sign_flip_by_hand():
    # Of the 8 patterns of (1, 2, 4), only +++ and --- reach |sum| 7.
    assert sign_flip_test(np.array([1.0, 2.0, 4.0]), rng=np.random.default_rng(0)) == 0.25
    assert sign_flip_test(np.array([1.0, -1.0]), rng=np.random.default_rng(0)) == 1.0


def test_ledoit_wolf_intensity_equals_its_definition():
    # Definition of Ledoit and Wolf 2004: mean squared Frobenius distance of each x x' to S, over d n, against S - mu I.
    x = np.random.default_rng(4).standard_normal((50, 6)) @ np.diag([3, 2, 1, 1, 0.5, 0.1]) + 2
    stats = CrossStatistics(6, 1)
    stats.update(x, x[:, :1])
    c = x - x.mean(0)
    s = c.T @ c / 50
    b = np.mean([np.sum((np.outer(r, r) - s) ** 2) for r in c]) / 50
    d = np.sum((s - np.trace(s) / 6 * np.eye(6)) ** 2)
    assert ledoit_wolf_intensity(stats.c_xx, stats.fourth_moment_x(), 50) == pytest.approx(min(b / d, 1), rel=1e-9)
