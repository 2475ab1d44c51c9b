"""The further terms on values computed by hand, by independent NumPy formulas and by the authors' formulas."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.core.errors import ShapeError
from consilience.gauges.effective_rank import fixed_projection, simplex_volumes
from consilience.objectives.bce import bce
from consilience.objectives.cka import cka
from consilience.objectives.element_mse import element_mse
from consilience.objectives.infonce import infonce
from consilience.objectives.mimicry import mimicry
from consilience.objectives.procrustes import best_rotation, procrustes
from consilience.objectives.rkd_angle import rkd_angle
from consilience.objectives.rkd_distance import relative_distances, rkd_distance
from consilience.objectives.siglip import siglip
from consilience.objectives.spread import isotropic_cv, simplex_cv, simplex_rows, spread, spread_projection

EYE = torch.eye(2, dtype=torch.float64)


def rows(n, d, seed, *, unit=True):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return functional.normalize(x, dim=-1) if unit else x


def rotation(d, seed=0):
    return torch.linalg.qr(rows(d, d, seed, unit=False))[0]


# siglip


def test_siglip_by_hand_at_its_initial_values():
    # Own pairs: logits 10 * 1 - 10 = 0, log 2 each. Others: 10 * 0 - 10 = -10, as a negative log(1 + e^-10).
    by_hand = math.log(2) + math.log1p(math.exp(-10))
    assert siglip(EYE, EYE).item() == pytest.approx(by_hand, abs=1e-12)
    # Swapped: own logits -10, others 0.
    assert siglip(EYE, EYE.flip(0)).item() == pytest.approx(math.log1p(math.exp(10)) + math.log(2), abs=1e-12)


def test_siglip_is_the_sum_over_pairs_over_rows():
    s, t = rows(5, 3, 0).numpy(), rows(5, 3, 1).numpy()
    total = 0.0
    for i, j in itertools.product(range(5), range(5)):
        z = 1 if i == j else -1
        total += math.log1p(math.exp(-z * (4.0 * float(s[i] @ t[j]) - 2.0)))
    measured = siglip(torch.from_numpy(s), torch.from_numpy(t), temperature=4.0, bias=-2.0)
    assert measured.item() == pytest.approx(total / 5, rel=1e-12)


def test_siglip_has_gradients_to_temperature_and_bias():
    s, t = rows(4, 3, 2), rows(4, 3, 3)
    scalars = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (3.0, -1.0)]
    assert torch.autograd.gradcheck(lambda a, b: siglip(s, t, temperature=a, bias=b), scalars)


# element-mse


def test_element_mse_is_mimicry_over_the_width():
    s, t = rows(6, 8, 4), rows(6, 8, 5)
    assert element_mse(s, t).item() == pytest.approx(mimicry(s, t).item() / 8, rel=1e-12)
    assert element_mse(EYE, EYE.flip(0)).item() == 1.0


def test_at_the_start_element_mse_is_a_thousand_times_smaller_than_infonce():
    # FT4 document, part IV: "per-element MSE is ~1000x smaller than the contrastive term at initialization".
    s, t = rows(256, 512, 28), rows(256, 512, 29)
    assert 700 < (infonce(s, t) / element_mse(s, t)).item() < 2000


# bce


def test_bce_by_hand():
    # All cosines 0: log 2 whatever b. Perfect at T = .5: own log(1 + e^-2), others log 2, half each.
    zero = torch.zeros(3, 4, dtype=torch.float64)
    assert bce(zero, zero).item() == pytest.approx(math.log(2), abs=1e-12)
    perfect = (math.log1p(math.exp(-2)) + math.log(2)) / 2
    assert bce(EYE, EYE, temperature=0.5).item() == pytest.approx(perfect, abs=1e-12)


def test_bce_balances_own_and_other_pairs():
    s, t = rows(5, 3, 6), rows(5, 3, 7)
    logits = (s @ t.T) / 0.07
    labels = torch.eye(5, dtype=torch.float64)
    weights = labels * (0.5 / 5) + (1 - labels) * (0.5 / 20)
    wanted = functional.binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")
    assert bce(s, t).item() == pytest.approx(wanted.item(), rel=1e-10)
    assert math.isfinite(bce(s[:1], t[:1]).item())


# rkd


def authors_pdist(e):
    squared = e.pow(2).sum(dim=1)
    result = (squared.unsqueeze(1) + squared.unsqueeze(0) - 2 * (e @ e.t())).clamp(min=1e-12).sqrt()
    result[range(len(e)), range(len(e))] = 0
    return result


def authors_angles(e):
    unit = functional.normalize(e.unsqueeze(0) - e.unsqueeze(1), p=2, dim=2)
    return torch.bmm(unit, unit.transpose(1, 2))


def test_rkd_distance_by_hand():
    # Distances 3, 4, 5 and 5, 5, 5; over their means 4 and 5: .75, 1, 1.25 and 1, 1, 1. Each pair counts twice in nine
    # entries, Huber's .25^2 / 2: 2 * (.03125 + 0 + .03125) / 9.
    student = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    target = 5 * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]], dtype=torch.float64)
    assert rkd_distance(student, target).item() == pytest.approx(2 * 0.0625 / 9, abs=1e-12)


def test_rkd_angle_by_hand():
    # Right angle at row 0 against 60 degrees: cosines 0 and .5; at the others 3/5, 4/5 against .5.
    student = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    target = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]], dtype=torch.float64)
    # Each angle is there as (j, k) and (k, j) among 27 entries; cosines of a side with itself are 1 in both.
    wanted = 2 * (0.5**2 + 0.1**2 + 0.3**2) / 2 / 27
    assert rkd_angle(student, target).item() == pytest.approx(wanted, abs=1e-12)


def test_rkd_is_the_authors_formula():
    s, t = rows(7, 4, 8, unit=False), rows(7, 6, 9, unit=False)
    s[3] = s[1]  # rows that coincide have distance about 0 and no angle
    for x in (s, t):
        d = authors_pdist(x)
        torch.testing.assert_close(relative_distances(x), d / d[d > 0].mean())
    wanted = functional.smooth_l1_loss(authors_angles(s), authors_angles(t))
    assert rkd_angle(s, t).item() == pytest.approx(wanted.item(), rel=1e-9)


def test_rkd_angle_reads_the_same_evenly_spaced_rows():
    s, t = rows(200, 5, 10), rows(200, 5, 11)
    chosen = [i * 200 // 64 for i in range(64)]
    assert rkd_angle(s, t).item() == rkd_angle(s[chosen], t[chosen]).item()


@pytest.mark.parametrize("term", [rkd_distance, rkd_angle, cka, procrustes])
def test_relational_terms_survive_degenerate_batches(term):
    same = functional.normalize(torch.ones(4, 3), dim=-1)
    for s in (same, same[:1]):
        s = s.clone().requires_grad_()
        value = term(s, rows(len(s), 3, 12).float())
        value.backward()
        assert math.isfinite(value.item())
        assert torch.isfinite(s.grad).all()


# cka


@pytest.mark.parametrize(("n", "d_s", "d_t"), [(6, 4, 9), (40, 4, 9), (9, 9, 9)])
def test_cka_is_the_hsic_quotient_in_both_shapes(n, d_s, d_t):
    s, t = rows(n, d_s, 13).numpy(), rows(n, d_t, 14).numpy()
    h = np.eye(n) - 1 / n
    k, m = h @ s @ s.T @ h, h @ t @ t.T @ h
    wanted = 1 - np.trace(k @ m) / math.sqrt(np.trace(k @ k) * np.trace(m @ m))
    assert cka(torch.from_numpy(s), torch.from_numpy(t)).item() == pytest.approx(wanted, abs=1e-12)


def test_cka_by_hand_and_its_invariances():
    # Centred one-dimensional data: 1 - correlation^2. (-1, 0, 1) and (0, 2, 1): covariance 1/3, variances 2/3, 2/3.
    s = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    t = torch.tensor([[0.0], [2.0], [1.0]], dtype=torch.float64)
    assert cka(s, t).item() == pytest.approx(1 - 0.25, abs=1e-12)
    x = rows(9, 4, 15)
    assert cka(3 * x @ rotation(4) + 1, x).item() == pytest.approx(0.0, abs=1e-12)


# procrustes


def test_procrustes_by_hand():
    # Any rotation of the target is free of cost; all rows equal against the axes: S'T has singular values sqrt 2, 0.
    t = rows(6, 4, 16)
    assert procrustes(t @ rotation(4), t).item() == pytest.approx(0.0, abs=1e-12)
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert procrustes(same, EYE).item() == pytest.approx((2 + 2 - 2 * math.sqrt(2)) / 2, abs=1e-12)


@pytest.mark.parametrize(("n", "d"), [(12, 4), (3, 8)])
def test_procrustes_is_the_residual_of_the_best_rotation(n, d):
    s, t = rows(n, d, 17), rows(n, d, 18)
    u, _, vh = np.linalg.svd((s.T @ t).numpy())
    wanted = (np.square(s.numpy() @ u @ vh - t.numpy()).sum(axis=1)).mean()
    assert procrustes(s, t).item() == pytest.approx(wanted, abs=1e-10)
    trained = procrustes(s.clone().requires_grad_(), t).item()
    assert trained == pytest.approx(wanted, abs=1e-10)
    for seed in range(5):
        assert mimicry(s @ rotation(d, seed), t).item() >= wanted - 1e-12
    assert mimicry(s @ best_rotation(s, t), t).item() == pytest.approx(wanted, abs=1e-10) or n < d


@pytest.mark.parametrize(("n", "d_s", "d_t"), [(12, 4, 4), (4, 8, 8), (12, 4, 6), (12, 6, 4), (3, 5, 8)])
def test_procrustes_gradient_matches_finite_differences(n, d_s, d_t):
    s, t = rows(n, d_s, 19).requires_grad_(), rows(n, d_t, 20)
    assert torch.autograd.gradcheck(lambda x: procrustes(x, t), (s,))


def test_procrustes_reports_what_is_not_finite():
    s, t = rows(6, 4, 21), rows(6, 4, 22)
    s[0, 0] = math.nan
    assert math.isnan(procrustes(s, t).item())


# spread


@pytest.mark.parametrize("d", [32, 9])
def test_spread_agrees_with_the_gauge_on_the_same_points(d):
    s = rows(40, d, 23)
    chosen = simplex_rows(40, 0, 100)
    projection = fixed_projection(d)
    volumes = simplex_volumes(s.numpy()[chosen.numpy()] @ projection)
    cv = volumes.std() / volumes.mean()
    points = s @ torch.from_numpy(projection)
    assert simplex_cv(points[chosen]).item() == pytest.approx(cv, rel=1e-9)
    term = spread(s, target_cv=0.2, projection=torch.from_numpy(projection), simplices=chosen)
    assert term.item() == pytest.approx((cv - 0.2) ** 2, rel=1e-9)


def test_simplex_cv_by_hand():
    # Regular simplices of edges 1 and 2 in four dimensions: volumes 1 : 16, CV (15/2) / (17/2).
    corners = torch.eye(5, dtype=torch.float64)
    assert simplex_cv(torch.stack([corners, 2 * corners])).item() == pytest.approx(15 / 17, abs=1e-12)
    assert simplex_cv(torch.stack([corners, corners])).item() == 0.0
    assert simplex_cv(torch.zeros(3, 5, 4, dtype=torch.float64)).item() == 0.0


def test_the_default_target_is_the_cv_of_isotropic_rows():
    points = rows(200_000, 16, 24, unit=False).reshape(40_000, 5, 16)
    assert simplex_cv(points).item() == pytest.approx(isotropic_cv(16), rel=0.01)
    assert isotropic_cv(16) == pytest.approx(0.3856, abs=1e-4)


def test_spread_has_exact_gradients_that_scale_does_not_change():
    s = rows(9, 6, 25).requires_grad_()
    chosen = simplex_rows(9, 0, 20)
    assert torch.autograd.gradcheck(lambda x: spread(x, target_cv=0.1, simplices=chosen), (s,))
    assert spread(1e-4 * s).item() == pytest.approx(spread(s).item(), rel=1e-9)


@pytest.mark.parametrize("collapse", [1e-3, 1e-6, 0.0])
def test_spread_gradients_are_finite_near_collapse(collapse):
    s = functional.normalize(torch.ones(16, 32) + collapse * rows(16, 32, 26).float(), dim=-1).requires_grad_()
    spread(s).backward()
    assert torch.isfinite(s.grad).all()


def test_simplices_and_projection_are_functions_of_their_arguments():
    assert torch.equal(simplex_rows(33, 5), simplex_rows(33, 5))
    assert not torch.equal(simplex_rows(33, 5), simplex_rows(33, 6))
    assert all(len(set(row)) == 5 for row in simplex_rows(5, 0).tolist())
    projection = spread_projection(20, 3)
    torch.testing.assert_close(projection.T @ projection, torch.eye(16, dtype=torch.float64))
    assert spread_projection(7).shape == (7, 7)


def test_spread_needs_a_simplex():
    with pytest.raises(ShapeError, match="at least 5 rows in a batch, got 4"):
        spread(rows(4, 8, 27))
    with pytest.raises(ShapeError, match="at least 4 dimensions, got 3"):
        spread(rows(8, 3, 27))
