"""Generalised Procrustes, joint statistics, and the maps that share their statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.core.errors import AlignmentRefusedError, InputError, ShapeError
from consilience.frames.align import fit_map
from consilience.frames.gpa import fit_gpa
from consilience.frames.joint_statistics import JointStatistics
from consilience.frames.procrustes import fit_isotropic, fit_rotation
from consilience.frames.ridge import choose_shrinkage, fit_low_rank, fit_ridge
from consilience.frames.rows import normalise_rows
from consilience.frames.statistics import CrossStatistics


def random_rotation(rng: np.random.Generator, d: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def unit(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return normalise_rows(rng.standard_normal((n, d)) * np.linspace(1.0, 0.2, d) + 0.1, where="test")


def joint(*towers: np.ndarray) -> JointStatistics:
    stats = JointStatistics([tower.shape[1] for tower in towers])
    stats.update(list(towers))
    return stats


def cross(x: np.ndarray, y: np.ndarray) -> CrossStatistics:
    stats = CrossStatistics(x.shape[1], y.shape[1])
    stats.update(x, y)
    return stats


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), cut=st.integers(1, 59))
def test_merged_joint_statistics_equal_the_whole(seed, cut):
    rng = np.random.default_rng(seed)
    towers = [rng.standard_normal((60, d)) for d in (3, 5, 2)]
    whole = joint(*towers)
    left, right = joint(*(t[:cut] for t in towers)), joint(*(t[cut:] for t in towers))
    left.merge(right)
    assert left.n == whole.n
    for i in range(3):
        np.testing.assert_allclose(left.mean(i), whole.mean(i), atol=1e-13)
        for j in range(3):
            np.testing.assert_allclose(left.covariance(i, j), whole.covariance(i, j), atol=1e-12)


def test_pair_equals_statistics_of_two_towers_alone():
    rng = np.random.default_rng(0)
    towers = [unit(rng, 200, d) for d in (4, 6, 3)]
    pair, alone = joint(*towers).pair(2, 0), cross(towers[2], towers[0])
    np.testing.assert_allclose(pair.c_xy, alone.c_xy, atol=1e-15)
    np.testing.assert_allclose(pair.fourth_moment_x(), alone.fourth_moment_x(), rtol=1e-12)
    np.testing.assert_allclose(
        fit_map(pair, shrinkage="ledoit-wolf").matrix, fit_map(alone, shrinkage="ledoit-wolf").matrix, atol=1e-9
    )


def test_planted_rotations_of_one_shape_are_recovered():
    rng = np.random.default_rng(1)
    base = unit(rng, 500, 12)
    fit = fit_gpa(joint(*(base @ random_rotation(rng, 12) for _ in range(4))))
    assert fit.converged
    assert fit.residual < 1e-10
    assert min(fit.alignments) > 1 - 1e-10


def test_unequal_widths_align_and_the_objective_never_falls():
    rng = np.random.default_rng(2)
    latent = rng.standard_normal((2_000, 8))
    towers = [
        normalise_rows(latent @ rng.standard_normal((8, d)) + 0.1 * rng.standard_normal((2_000, d)), where="t")
        for d in (16, 8, 12, 4)
    ]
    fit = fit_gpa(joint(*towers))
    assert fit.dimensions == 16
    assert fit.residuals[-1] < fit.residuals[0]
    assert all(later <= earlier + 1e-9 for earlier, later in zip(fit.residuals, fit.residuals[1:], strict=False))
    assert min(fit.alignments) > 0.6
    shuffled = [tower[rng.permutation(len(tower))] for tower in towers]
    assert max(fit_gpa(joint(*shuffled)).alignments) < 0.6  # unrelated towers don't reach that


def test_a_narrower_frame_and_one_scale_a_tower():
    rng = np.random.default_rng(3)
    base = unit(rng, 400, 10)
    fit = fit_gpa(joint(base, 0.01 * base @ random_rotation(rng, 10)), dimensions=4)
    assert [affine.matrix.shape for affine in fit.maps] == [(10, 4), (10, 4)]
    norms = [np.linalg.norm(affine.matrix) for affine in fit.maps]
    assert norms[1] / norms[0] == pytest.approx(100.0, rel=1e-6)  # the short tower isn't outvoted


def test_gpa_refuses_constant_and_single_towers_and_other_shapes():
    rng = np.random.default_rng(4)
    rows = unit(rng, 50, 3)
    with pytest.raises(AlignmentRefusedError, match="tower 1"):
        fit_gpa(joint(rows, np.ones((50, 2))))
    with pytest.raises(InputError, match="two towers"):
        fit_gpa(joint(rows))
    with pytest.raises(InputError, match="got none"):
        fit_gpa(JointStatistics([2, 2]))
    with pytest.raises(ShapeError, match="same rows"):
        JointStatistics([3, 3]).update([rows, rows[:10]])
    with pytest.raises(ShapeError, match="same towers"):
        JointStatistics([3, 3]).merge(JointStatistics([3, 2]))


def test_rotation_without_centring_is_recovered_to_1e_10():
    rng = np.random.default_rng(5)
    rows, turn = unit(rng, 300, 20), random_rotation(rng, 20)
    assert np.abs(fit_rotation(cross(rows, rows @ turn)) - turn).max() < 1e-10


def test_isotropic_keeps_the_targets_total_variance_where_least_squares_shrinks_it():
    rng = np.random.default_rng(6)
    x = unit(rng, 2_000, 6)
    y = normalise_rows(x + 0.5 * rng.standard_normal(x.shape), where="t")
    stats = cross(x, y)
    wanted = np.trace(stats.c_yy)
    matrix, bias = fit_isotropic(stats)
    assert np.trace(matrix.T @ stats.c_xx @ matrix) == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(stats.mean_x @ matrix + bias, stats.mean_y, atol=1e-12)
    least = fit_map(stats, "orthogonal-scaled").matrix
    assert np.trace(least.T @ stats.c_xx @ least) < 0.9 * wanted


def test_gcv_is_the_closed_form_leave_one_out_with_mean_leverage_and_picks_well():
    rng = np.random.default_rng(7)
    n, d = 120, 30
    x = unit(rng, n, d)
    truth = rng.standard_normal((d, 4))
    y = x @ truth + 2.0 * rng.standard_normal((n, 4))
    chosen = choose_shrinkage(cross(x, y))
    fresh = unit(rng, 4_000, d)

    def error(shrinkage: float) -> float:
        matrix, bias = fit_ridge(cross(x, y), shrinkage=shrinkage)
        return float(np.mean((fresh @ matrix + bias - fresh @ truth) ** 2))

    grid = [10.0**k for k in range(-6, 3)]
    assert error(chosen) < 1.3 * min(map(error, grid))
    assert error(chosen) < 0.5 * error(1e-6)
    matrix, _ = fit_ridge(cross(x, y), shrinkage="gcv")
    np.testing.assert_array_equal(matrix, fit_ridge(cross(x, y), shrinkage=chosen)[0])
    with pytest.raises(InputError, match="gcv"):
        fit_map(cross(x, y), "whitened", shrinkage="gcv", force=True)


def test_low_rank_has_the_rank_asked_for_and_the_full_rank_is_ridge():
    rng = np.random.default_rng(8)
    x, y = unit(rng, 400, 8), unit(rng, 400, 6)
    stats = cross(x, x @ rng.standard_normal((8, 2)) @ rng.standard_normal((2, 6)) + 0.01 * y)
    assert np.linalg.matrix_rank(fit_low_rank(stats, rank=2)[0]) == 2
    assert np.linalg.matrix_rank(fit_low_rank(stats)[0]) == 2  # 99% of the variance
    np.testing.assert_allclose(fit_low_rank(stats, rank=6)[0], fit_ridge(stats)[0], atol=1e-12)
    with pytest.raises(InputError, match="between 1 and 6"):
        fit_low_rank(stats, rank=7)
