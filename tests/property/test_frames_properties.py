"""Laws of statistics and maps, over random shapes and splits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.core.errors import InputError
from consilience.frames.align import METHODS, fit_map
from consilience.frames.rows import normalise_rows
from consilience.frames.sampling import RowSplit, plan_sizes, split_rows, stratified_rows
from consilience.frames.statistics import CrossStatistics

FEW = settings(max_examples=25, deadline=None)


def orthogonal(d, rng):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def statistics(x, y):
    stats = CrossStatistics(x.shape[1], y.shape[1])
    stats.update(x, y)
    return stats


@FEW
@given(
    d_x=st.integers(1, 8),
    d_y=st.integers(1, 8),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    offset=st.floats(-5, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_merged_statistics_equal_whole_ones(d_x, d_y, cuts, offset, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((60, d_x)) + offset
    y = x @ rng.standard_normal((d_x, d_y)) + rng.standard_normal((60, d_y))
    bounds = sorted({0, 60, *cuts})
    parts = [statistics(x[a:b], y[a:b]) for a, b in itertools.pairwise(bounds)]
    merged = CrossStatistics(d_x, d_y)
    for part in rng.permutation(np.arange(len(parts))):
        merged.merge(parts[part])
    assert merged.n == 60
    centred_x, centred_y = x - x.mean(0), y - y.mean(0)
    scale = 1 + abs(offset)
    np.testing.assert_allclose(merged.mean_x, x.mean(0), atol=1e-12 * scale)
    np.testing.assert_allclose(merged.c_xx, centred_x.T @ centred_x / 60, atol=1e-11 * scale**2)
    np.testing.assert_allclose(merged.c_yy, centred_y.T @ centred_y / 60, atol=1e-10 * scale**2)
    np.testing.assert_allclose(merged.c_xy, centred_x.T @ centred_y / 60, atol=1e-10 * scale**2)
    fourth = np.mean(np.sum(centred_x**2, axis=1) ** 2)
    np.testing.assert_allclose(merged.fourth_moment_x(), fourth, rtol=1e-8, atol=1e-9 * scale**4)
    turned = merged.transposed()
    np.testing.assert_array_equal(turned.c_xy, merged.c_xy.T)
    assert turned.fourth_moment_y() == merged.fourth_moment_x()


@FEW
@given(d=st.integers(2, 12), seed=st.integers(0, 2**32 - 1))
def test_planted_rotation_is_recovered(d, seed):
    rng = np.random.default_rng(seed)
    x = normalise_rows(rng.standard_normal((40 * d, d)))
    rotation = orthogonal(d, rng)
    stats = statistics(x, x @ rotation)
    for method in ("orthogonal", "orthogonal-scaled", "whitened"):
        np.testing.assert_allclose(fit_map(stats, method).matrix, rotation, atol=1e-10)
    np.testing.assert_allclose(fit_map(stats, "ridge", shrinkage=0.0).matrix, rotation, atol=1e-10)


@FEW
@given(d_x=st.integers(2, 9), d_y=st.integers(2, 9), method=st.sampled_from(METHODS), seed=st.integers(0, 2**32 - 1))
def test_widths_may_differ(d_x, d_y, method, seed):
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((200, 3))
    x = normalise_rows(latent @ rng.standard_normal((3, d_x)) + 0.1 * rng.standard_normal((200, d_x)))
    y = normalise_rows(latent @ rng.standard_normal((3, d_y)) + 0.1 * rng.standard_normal((200, d_y)))
    affine = fit_map(statistics(x, y), method)
    mapped = affine.apply(x)
    assert mapped.shape == (200, d_y)
    assert mapped.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(affine.apply(7 * x), mapped, atol=1e-5)  # rows are normalised on the way in
    if method == "orthogonal":
        small = min(d_x, d_y)
        gram = affine.matrix @ affine.matrix.T if d_x <= d_y else affine.matrix.T @ affine.matrix
        np.testing.assert_allclose(gram, np.eye(small), atol=1e-10)


@FEW
@given(d=st.integers(2, 8), seed=st.integers(0, 2**32 - 1))
def test_whitened_map_ignores_an_invertible_change_of_the_source(d, seed):
    # W C W' is the identity whatever linear change the source went through, so the mapped rows are the same.
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((50 * d, d))
    y = x @ rng.standard_normal((d, d)) + 0.3 * rng.standard_normal((50 * d, d))
    change = orthogonal(d, rng) @ np.diag(rng.uniform(0.5, 2.0, d)) @ orthogonal(d, rng)
    direct = fit_map(statistics(x, y), shrinkage=0.0)
    changed = fit_map(statistics(x @ change, y), shrinkage=0.0)
    np.testing.assert_allclose(x @ direct.matrix + direct.bias, x @ change @ changed.matrix + changed.bias, atol=1e-7)


@FEW
@given(d=st.integers(2, 8), seed=st.integers(0, 2**32 - 1))
def test_whitened_map_carries_the_mean_and_covariance_over(d, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((60 * d, d)) @ rng.standard_normal((d, d)) + 1
    y = x @ rng.standard_normal((d, d)) + rng.standard_normal((60 * d, d)) + 2
    stats = statistics(x, y)
    affine = fit_map(stats, shrinkage=0.0)
    np.testing.assert_allclose(stats.mean_x @ affine.matrix + affine.bias, stats.mean_y, atol=1e-8)
    carried = affine.matrix.T @ stats.c_xx @ affine.matrix
    np.testing.assert_allclose(carried, stats.c_yy, atol=1e-7 * np.abs(stats.c_yy).max())


@FEW
@given(
    rows=st.integers(100, 100_000),
    fit=st.integers(1, 5000),
    held=st.integers(1, 5000),
    seed=st.integers(0, 2**31),
)
def test_fit_and_held_out_rows_are_disjoint_sorted_and_as_many_as_planned(rows, fit, held, seed):
    split = split_rows(rows, fit, held, seed=seed)
    assert (len(split.fit), len(split.held_out)) == plan_sizes(rows, fit, held)
    assert len(split.fit) <= fit
    assert len(split.held_out) <= held
    union = np.concatenate([split.fit, split.held_out])
    assert len(np.unique(union)) == len(union)
    assert union.min() >= 0
    assert union.max() < rows
    assert (np.diff(split.fit) > 0).all()
    assert (np.diff(split.held_out) > 0).all()
    again = split_rows(rows, fit, held, seed=seed)
    np.testing.assert_array_equal(again.fit, split.fit)


@FEW
@given(rows=st.integers(1, 5000), share=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_strata_keep_the_shares_of_sources(rows, share, seed):
    count = int(rows * share)
    drawn = stratified_rows(rows, count, np.random.default_rng(seed))
    assert len(np.unique(drawn)) == count
    first_half = np.sum(drawn < rows // 2)
    assert abs(first_half - count * (rows // 2) / rows) <= 2 + rows / 256


def test_a_shared_row_is_refused():
    with pytest.raises(InputError, match="never scored on rows it was fit to"):
        RowSplit(np.array([1, 2, 3]), np.array([3, 4]))
