"""Maps refuse what they can't fit, and reports refuse maps that are no better than chance."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.committee.map_scoring import score_map
from consilience.core.errors import AlignmentRefusedError, InputError, ShapeError
from consilience.frames.align import AffineMap, fit_map, identity_map, require_rows
from consilience.frames.identity import frame_id
from consilience.frames.rows import normalise_rows
from consilience.frames.sampling import plan_sizes
from consilience.frames.statistics import CrossStatistics
from consilience.frames.whitening import fit_whitening


def paired(n, d, *, noise, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((n, d))
    mixing = np.random.default_rng(99).standard_normal((d, d))
    return normalise_rows(latent), normalise_rows(latent @ mixing + noise * rng.standard_normal((n, d)))


def fitted(x, y, **options):
    stats = CrossStatistics(x.shape[1], y.shape[1])
    stats.update(x, y)
    return fit_map(stats, **options), stats


def test_too_few_rows_name_both_numbers():
    with pytest.raises(AlignmentRefusedError, match=r"at least 4 rows per dimension \(3072 for 768\), got 1000"):
        require_rows(1000, 768)
    x, y = paired(30, 8, noise=0.1)
    with pytest.raises(AlignmentRefusedError, match=r"\(32 for 8\), got 30"):
        fitted(x, y)
    assert fitted(x, y, force=True)[0].d_y == 8


def test_unknown_method_and_shrinkage_are_refused():
    x, y = paired(100, 4, noise=0.1)
    with pytest.raises(InputError, match="whitened, orthogonal, orthogonal-scaled, isotropic, ridge, low-rank"):
        fitted(x, y, method="magic")
    with pytest.raises(InputError, match="shrinkage"):
        fitted(x, y, shrinkage=-1.0)
    assert fitted(x, y, shrinkage="ledoit-wolf")[0].matrix.shape == (4, 4)


def test_a_constant_teacher_is_refused():
    x, _ = paired(100, 4, noise=0.1)
    constant = np.ones_like(x) / 2
    with pytest.raises(AlignmentRefusedError, match="one vector for every text"):
        fitted(constant, x)
    with pytest.raises(AlignmentRefusedError, match="cross-covariance of zero"):
        fitted(constant, x, method="orthogonal")


def test_a_singular_covariance_without_shrinkage_is_refused():
    with pytest.raises(AlignmentRefusedError, match="full rank 2"):
        fit_whitening(np.diag([1.0, 0.0]), 0.0)


def test_zero_rows_and_wrong_widths_are_named():
    affine = identity_map(3)
    with pytest.raises(InputError, match="row 1"):
        affine.apply(np.array([[1.0, 0, 0], [0, 0, 0]]))
    with pytest.raises(InputError, match="row 0"):
        affine.apply(np.array([[np.nan, 0, 0]]))
    with pytest.raises(ShapeError, match=r"\(n, 3\), got \(1, 2\)"):
        affine.apply(np.ones((1, 2)))
    with pytest.raises(ShapeError, match="Rebuild the frames"):
        AffineMap(np.eye(2), np.zeros(3))


def score(x, y, held_x, held_y, method="whitened"):
    affine, stats = fitted(x, y, method=method)
    part = len(held_x)
    return score_map(affine, stats, fit=(x[:part], y[:part]), held_out=(held_x, held_y), method=method)


def test_a_real_map_is_ok_and_falls_with_the_gallery():
    x, y = paired(2400, 24, noise=6.0)
    report = score(x[:1800], y[:1800], x[1800:], y[1800:])
    assert report.verdict == "ok"
    m = report.measurements
    assert m.rows_per_dimension == 75
    assert m.gallery == 600
    assert m.chance_multiple == m.out_of_sample_recall * 600
    assert m.null_recall < 0.01
    assert m.null_cosine < 0.1 < m.out_of_sample_cosine
    assert m.gallery_curve[0][1] > m.gallery_curve[-1][1]
    assert report.to_json()["reasons"] == []


@pytest.mark.parametrize("method", ["whitened", "orthogonal", "ridge"])
@pytest.mark.parametrize("seed", range(3))
def test_shuffled_pairs_are_refused(method, seed):
    x, y = paired(2400, 24, noise=0.1, seed=seed)
    y = y[np.random.default_rng(seed + 50).permutation(len(y))]
    report = score(x[:1800], y[:1800], x[1800:], y[1800:], method)
    assert report.verdict == "refused"
    assert any("multiple of chance" in reason for reason in report.reasons)


def test_a_low_rank_source_is_refused():
    rng = np.random.default_rng(0)
    y = normalise_rows(rng.standard_normal((2000, 32)))
    x = normalise_rows(y[:, :3] @ rng.standard_normal((3, 32)) + 1e-6 * rng.standard_normal((2000, 32)))
    report = score(x[:1500], y[:1500], x[1500:], y[1500:])
    assert report.verdict == "refused"
    assert any("effective rank of the source" in reason for reason in report.reasons)


def test_few_rows_per_dimension_are_weak_where_held_out_rows_find_their_partners_and_refused_elsewhere():
    # A corpus of 2,000 texts has 4.2 fit rows a dimension of MiniLM's; its maps keep 95% of R@1 on held-out rows.
    x, y = paired(700, 100, noise=0.01)
    report = score(x[:490], y[:490], x[490:], y[490:])
    assert report.verdict == "weak"
    assert report.reasons[0] == "fit rows per dimension 4.9 is below 20"
    x, y = paired(700, 100, noise=40.0)
    report = score(x[:490], y[:490], x[490:], y[490:])
    assert report.measurements.retention < 0.8
    assert report.verdict == "refused"
    assert report.reasons[0] == "fit rows per dimension 4.9 is below 5"


def test_frame_ids_depend_on_everything_that_defines_the_frame():
    base = {
        "reference_teacher": "a",
        "corpus_fingerprint": "c",
        "fit_rows": np.arange(5),
        "method": "whitened",
        "shrinkage": 1e-3,
        "maps": {"b": identity_map(2)},
    }
    changes = [
        {"reference_teacher": "z"},
        {"corpus_fingerprint": "d"},
        {"fit_rows": np.arange(1, 6)},
        {"method": "ridge"},
        {"shrinkage": 1e-2},
        {"maps": {"b": AffineMap(np.eye(2) * 1.001, np.zeros(2))}},
        {"maps": {"b": AffineMap(np.eye(2), np.full(2, 1e-3))}},
        {"maps": {"c": identity_map(2)}},
    ]
    ids = {frame_id(**{**base, **change}) for change in [{}, *changes]}
    assert len(ids) == 1 + len(changes)
    assert frame_id(**base) == frame_id(**base)


def test_small_corpora_hold_out_what_they_can():
    assert plan_sizes(29_000, 24_000, 5_000) == (24_000, 5_000)
    assert plan_sizes(28_999, 24_000, 5_000) == (23_999, 5_000)
    assert plan_sizes(9_000, 24_000, 5_000) == (7_000, 2_000)
    assert plan_sizes(3_000, 24_000, 5_000) == (2_400, 600)
    with pytest.raises(AlignmentRefusedError, match="need at least 100 rows"):
        plan_sizes(60, 24_000, 5_000)
    with pytest.raises(InputError, match="at least 1"):
        plan_sizes(60, 0, 5)
