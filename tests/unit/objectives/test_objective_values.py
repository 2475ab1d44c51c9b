"""Terms on values computed by hand, their gradients, and compositions."""

import math

import pytest
import torch

from consilience.core.errors import InputError, ShapeError
from consilience.objectives.affinity import affinity
from consilience.objectives.composition import COMPOSITIONS, TERMS, compose_objective
from consilience.objectives.cosine import cosine
from consilience.objectives.infonce import infonce
from consilience.objectives.mimicry import mimicry

EYE = torch.eye(2, dtype=torch.float64)
SWAPPED = EYE.flip(0)


def unit_rows(rows, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, d, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1)


def test_infonce_by_hand():
    # Logits are 1/T on the diagonal and 0 off it: -log(e^(1/T) / (e^(1/T) + 1)) = log(1 + e^(-1/T)).
    assert infonce(EYE, EYE, temperature=0.5).item() == pytest.approx(math.log1p(math.exp(-2)), abs=1e-12)
    assert infonce(EYE, SWAPPED, temperature=0.5).item() == pytest.approx(2 + math.log1p(math.exp(-2)), abs=1e-12)
    same = torch.ones(4, 1, dtype=torch.float64)
    assert infonce(same, same).item() == pytest.approx(math.log(4), abs=1e-12)


def test_infonce_is_the_mean_of_both_directions():
    s, t = unit_rows(5, 3, 0), unit_rows(5, 3, 1)
    logits = (s @ t.T) / 0.07
    rows = -torch.log_softmax(logits, dim=1).diagonal().mean()
    columns = -torch.log_softmax(logits, dim=0).diagonal().mean()
    assert rows.item() != pytest.approx(columns.item(), rel=1e-3)
    assert infonce(s, t).item() == pytest.approx((rows + columns).item() / 2, rel=1e-12)


def test_mimicry_sums_over_dimensions_and_averages_over_rows():
    s = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    t = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert mimicry(s, t).item() == pytest.approx(1.0)  # (0 + 2) / 2; per element it would be 1/3
    assert cosine(s, t).item() == pytest.approx(0.5)


def test_mimicry_is_twice_cosine_on_unit_rows():
    s, t = unit_rows(6, 4, 2), unit_rows(6, 4, 3)
    assert mimicry(s, t).item() == pytest.approx(2 * cosine(s, t).item(), rel=1e-12)


def test_affinity_by_hand_and_under_rotation():
    # Both softmaxes are (p, 1 - p) with p = e^(1/tau) / (e^(1/tau) + 1): the value is that distribution's entropy.
    p = math.e / (math.e + 1)
    entropy = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert affinity(EYE, EYE, temperature=1.0).item() == pytest.approx(entropy, abs=1e-12)
    s, t = unit_rows(6, 4, 4), unit_rows(6, 5, 5)
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    assert affinity(s @ rotation, t).item() == pytest.approx(affinity(s, t).item(), rel=1e-10)


@pytest.mark.parametrize("name", sorted(TERMS))
def test_gradients_match_finite_differences(name):
    s, t = unit_rows(6, 5, 6).requires_grad_(), unit_rows(6, 5, 7)
    assert torch.autograd.gradcheck(lambda x: TERMS[name](x, t), (s,))


def test_composite_is_infonce_plus_mimicry():
    s, t = unit_rows(5, 3, 8).requires_grad_(), unit_rows(5, 3, 9)
    total, terms = compose_objective("composite")(s, t)
    assert total.item() == pytest.approx((infonce(s, t) + mimicry(s, t)).item(), rel=1e-12)
    assert set(terms) == {"infonce", "mimicry"}
    assert total.requires_grad


def test_terms_of_weight_zero_are_logged_and_change_no_gradient():
    t = unit_rows(6, 5, 9)
    gradients = []
    for every_term in (False, True):
        s = unit_rows(6, 5, 8).requires_grad_()
        total, terms = compose_objective("mimicry")(s, t, every_term=every_term)
        total.backward()
        gradients.append(s.grad)
    assert set(terms) == set(TERMS)
    assert terms["infonce"].item() == pytest.approx(infonce(s, t).item())
    assert torch.equal(*gradients)


def test_every_composition_names_known_terms():
    for name, composition in COMPOSITIONS.items():
        assert name == composition.name
        assert set(composition.weights) <= set(TERMS), name


def test_refusals():
    with pytest.raises(InputError, match=r"no such composition\. Choose .*composite"):
        compose_objective("compost")
    with pytest.raises(ShapeError, match="one shape"):
        compose_objective("composite")(torch.ones(2, 3), torch.ones(2, 4))
