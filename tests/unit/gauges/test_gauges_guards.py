"""Gauges measure what they say and refuse what would mislead."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.core.errors import InputError, ShapeError
from consilience.gauges.agreement import agreement, agreement_matrix, paired_cosine
from consilience.gauges.effective_rank import RankGauge, effective_rank
from consilience.gauges.isotropy import self_cosine
from consilience.gauges.neighbours import gallery_curve, hubness_skew, require_falling, retrieval_at_1
from consilience.gauges.variation import report_variation, require_variation


def noisy_pairs(n=500, d=16, noise=0.8):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    return x, x + noise * rng.standard_normal((n, d))


def test_retrieval_equals_brute_force_whatever_the_chunk():
    x, y = noisy_pairs()
    u, v = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, y))
    expected = np.mean((u @ v.T).argmax(1) == np.arange(len(x)))
    assert 0.2 < expected < 1
    for chunk in (7, 100, 10_000):
        assert retrieval_at_1(x, y, chunk_rows=chunk) == pytest.approx(expected)


def test_a_collapsed_gallery_scores_chance():
    x, _ = noisy_pairs(n=50)
    assert retrieval_at_1(x, np.ones_like(x)) == pytest.approx(1 / 50)
    assert retrieval_at_1(np.ones_like(x), np.ones_like(x)) == pytest.approx(1 / 50)


def test_retrieval_falls_as_the_gallery_grows_and_a_flat_score_is_refused():
    x, y = noisy_pairs()
    curve = gallery_curve(x, y, rng=np.random.default_rng(0))
    assert curve.sizes == (20, 100, 500)
    assert list(curve.scores) == sorted(curve.scores, reverse=True)
    require_falling(curve)
    same = gallery_curve(x, x, rng=np.random.default_rng(0))  # two views of one forward pass
    with pytest.raises(InputError, match="two views of one forward pass"):
        require_falling(same)
    with pytest.raises(InputError, match="at least two sizes"):
        gallery_curve(x, y, sizes=[10], rng=np.random.default_rng(0))


def test_shapes_are_refused():
    with pytest.raises(ShapeError):
        retrieval_at_1(np.ones((3, 2)), np.ones((2, 2)))
    with pytest.raises(ShapeError):
        paired_cosine(np.ones((3, 2)), np.ones((3, 4)))
    with pytest.raises(ShapeError):
        agreement_matrix([np.ones((3, 2)), np.ones((3, 3))])
    with pytest.raises(ShapeError):
        effective_rank(np.ones((3, 2)))
    with pytest.raises(ShapeError):
        self_cosine(np.ones((1, 2)))
    with pytest.raises(InputError, match="NaN"):
        effective_rank(np.full((9, 2), np.nan))


def test_rank_and_spread_come_together_and_collapse_is_seen():
    gauge = effective_rank(np.random.default_rng(0).standard_normal((3000, 24)))
    assert isinstance(gauge, RankGauge)
    assert set(gauge.to_json()) == {"participation", "entropy", "spread_cv"}
    assert 22 < gauge.participation <= gauge.entropy <= 24
    assert effective_rank(np.ones((20, 4))).to_json() == {"participation": 0.0, "entropy": 0.0, "spread_cv": 0.0}


def test_hubs_are_seen():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((600, 3))
    cone = rng.standard_normal((600, 64))
    cone[:, 0] += 4  # a cone in many dimensions has hubs near its axis
    assert hubness_skew(cone) > hubness_skew(x) + 1


def test_agreement_is_labelled_and_symmetric():
    x, y = noisy_pairs()
    gauge = agreement(x, y, frame="deployment")
    assert gauge.frame == "deployment"
    assert gauge.p01 < gauge.p50 <= 1
    matrix = agreement_matrix([x, y, x])
    np.testing.assert_allclose(matrix, matrix.T)
    assert matrix[0, 2] == pytest.approx(1)
    assert matrix[0, 1] == pytest.approx(gauge.mean)


def test_self_cosine_of_a_sample_is_near_the_whole():
    x = np.random.default_rng(0).standard_normal((3000, 8)) + 1
    assert self_cosine(x, np.random.default_rng(1), rows=1000) == pytest.approx(self_cosine(x), abs=0.03)


def test_a_query_set_that_does_not_vary_is_refused():
    rng = np.random.default_rng(0)
    texts = [f"a query of {'long ' * (i % 30)}length {i}" for i in range(200)]
    report = report_variation(texts, rng.standard_normal((200, 16)))
    assert report.varies
    assert sum(count for _, count in report.lengths) == 200
    require_variation(report)
    same = report_variation(["the same"] * 200, np.ones((200, 16)) + 1e-3 * rng.standard_normal((200, 16)))
    with pytest.raises(InputError, match=r"1 of 200 queries are distinct.*pairwise cosine"):
        require_variation(same)
    with pytest.raises(ShapeError):
        report_variation(texts, np.ones((3, 2)))
