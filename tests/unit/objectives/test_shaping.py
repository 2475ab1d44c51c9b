"""The shaping operator: nothing happens forward, and what happens backward is computed by hand."""

import pytest
import torch
from torch.nn import functional

from consilience.objectives.composition import compose_objective
from consilience.objectives.shaping import shape_gradient, shaping_anchors


def rows(n, d, seed, dtype=torch.float32):
    return functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1)


def bits(x):
    return x.detach().contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_forward_is_bit_identical(dtype):
    x = rows(7, 6, 0).to(dtype)
    x[0, 0], x[1, 1] = -0.0, float("nan")
    anchors = shaping_anchors(6)
    before = bits(x).clone()
    assert torch.equal(bits(shape_gradient(x, anchors)), before)
    assert torch.equal(bits(shape_gradient(x.requires_grad_(), anchors)), before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        shaped = shape_gradient(x, anchors)
        assert shaped.dtype == dtype
        assert torch.equal(bits(shaped), before)
    with torch.inference_mode():
        assert torch.equal(bits(shape_gradient(x, anchors)), before)
    with torch.no_grad():
        assert shape_gradient(x, anchors) is x  # nothing to bend


def backward(student, gradient, anchors, **factors):
    s = torch.tensor(student, dtype=torch.float64, requires_grad=True)
    shape_gradient(s, torch.tensor(anchors, dtype=torch.float64), **factors).backward(
        torch.tensor(gradient, dtype=torch.float64)
    )
    return s.grad[0].tolist()


def test_radial_damping_by_hand():
    # Row e1: its radial part is the first coordinate. The anchor is the row itself: nothing to be separated from.
    assert backward([[1.0, 0.0]], [[3.0, 4.0]], [[1.0, 0.0]], damping=1.0) == [0.0, 4.0]
    assert backward([[1.0, 0.0]], [[3.0, 4.0]], [[1.0, 0.0]], damping=0.5) == [1.5, 4.0]
    # Only the direction counts, not the length of the row.
    assert backward([[5.0, 0.0]], [[3.0, 4.0]], [[1.0, 0.0]], damping=1.0) == [0.0, 4.0]


def test_separation_by_hand():
    # Row e1, anchors (.6, .8, 0) and (0, 0, 1): the first is nearest, the direction towards it is e2.
    anchors = [[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]
    row = [[1.0, 0.0, 0.0]]
    # A step along -g with g = (0, -2, -2) approaches it by 2; towards the farther anchor it may go.
    assert backward(row, [[0.0, -2.0, -2.0]], anchors, separation=1.0) == pytest.approx([0.0, 0.0, -2.0])
    assert backward(row, [[0.0, -2.0, -2.0]], anchors, separation=0.25) == pytest.approx([0.0, -1.5, -2.0])
    # A step away from it passes as it is.
    assert backward(row, [[0.0, 2.0, -2.0]], anchors, separation=1.0) == pytest.approx([0.0, 2.0, -2.0])


def test_both_at_once_and_off():
    anchors = [[0.6, 0.8, 0.0]]
    assert backward([[1.0, 0.0, 0.0]], [[7.0, -2.0, 1.0]], anchors) == pytest.approx([0.0, 0.0, 1.0])
    assert backward([[1.0, 0.0, 0.0]], [[7.0, -2.0, 1.0]], anchors, damping=0.0, separation=0.0) == [7.0, -2.0, 1.0]


def test_no_gradient_grows_and_no_step_approaches_the_nearest_anchor():
    s = rows(50, 8, 1, torch.float64).requires_grad_()
    g = rows(50, 8, 2, torch.float64)
    anchors = shaping_anchors(8).double()
    shape_gradient(s, anchors).backward(g)
    assert (s.grad.norm(dim=1) <= g.norm(dim=1) + 1e-12).all()
    nearest = anchors[(s @ anchors.T).argmax(dim=1)]
    assert ((s.grad * nearest).sum(dim=1) >= -1e-9).all()  # along -g the cosine to it doesn't rise
    assert ((g * nearest).sum(dim=1) < 0).any()
    assert not torch.allclose(s.grad, g)


def test_behind_a_normalisation_the_damping_is_inert():
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    g = rows(9, 6, 4, torch.float64)
    gradients = []
    for damping in (0.0, 1.0):
        leaf = x.clone().requires_grad_()
        shape_gradient(functional.normalize(leaf, dim=-1), shaping_anchors(6), damping=damping).backward(g)
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def test_zero_rows_and_half_precision_gradients_are_finite():
    s = torch.zeros(2, 4, dtype=torch.bfloat16, requires_grad=True)
    shape_gradient(s, shaping_anchors(4)).backward(torch.ones(2, 4, dtype=torch.bfloat16))
    assert s.grad.dtype == torch.bfloat16
    assert torch.equal(s.grad, torch.ones(2, 4, dtype=torch.bfloat16))


def test_the_composition_has_the_composites_value_and_another_gradient():
    t = rows(12, 6, 6)
    results = {}
    for name in ("composite", "composite+shaping"):
        s = rows(12, 6, 5).requires_grad_()
        total, _ = compose_objective(name, dimensions=6)(s, t)
        total.backward()
        results[name] = total.item(), s.grad
    assert results["composite"][0] == results["composite+shaping"][0]
    assert not torch.allclose(results["composite"][1], results["composite+shaping"][1])


def test_anchors_are_unit_rows_of_the_seed():
    anchors = shaping_anchors(32, 1)
    torch.testing.assert_close(anchors.norm(dim=1), torch.ones(64))
    assert torch.equal(anchors, shaping_anchors(32, 1))
    assert not torch.equal(anchors, shaping_anchors(32, 2))
