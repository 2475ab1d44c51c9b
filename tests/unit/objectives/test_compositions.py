"""Named compositions and terms with weights: what they are, which frame they leave the student in, what they refuse."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.core.errors import InputError, ShapeError
from consilience.objectives.composition import COMPOSITIONS, RELATIONAL, TERMS, compose_objective
from consilience.objectives.names import (
    TERM_ENTRIES,
    OptimizerSettings,
    is_relational,
    objective_names,
    require_objective,
)

DESIGN_TABLE = (
    "mimicry",
    "infonce",
    "affinity",
    "siglip",
    "composite",
    "composite+spread",
    "composite+shaping",
    "verbatim",
    "consensus-mse",
)


def rows(n, d, seed, dtype=torch.float64):
    return functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1)


def test_the_nine_rows_of_the_design_come_first():
    assert objective_names()[:9] == DESIGN_TABLE
    assert {"procrustes", "bce", "cosine", "rkd", "cka"} < set(objective_names())
    assert list(TERMS) == list(TERM_ENTRIES)


@pytest.mark.parametrize("name", objective_names())
def test_relational_compositions_and_no_others_are_blind_to_rotations(name):
    s, t = rows(24, 8, 0), rows(24, 8, 1)
    turned = s @ torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))[0]
    objective = compose_objective(name, dimensions=8)
    before, after = objective(s, t).total.item(), objective(turned, t).total.item()
    assert objective.relational == (name in RELATIONAL) == is_relational(name)
    assert (abs(before - after) < 1e-9) == objective.relational, (before, after)


def test_spread_beside_relational_terms_leaves_the_frame_free():
    assert is_relational("affinity=1,spread=0.1")
    assert not is_relational("affinity=1,cosine=0.001")


@pytest.mark.parametrize("name", objective_names())
def test_every_composition_trains_a_student_towards_its_target(name):
    t = rows(16, 6, 3, torch.float32)
    student = torch.nn.Parameter(rows(16, 6, 4, torch.float32))
    objective = compose_objective(name, dimensions=6)
    optimizer = torch.optim.Adam([student, *objective.parameters()], lr=0.05)
    losses = []
    before = (student.detach() * t).sum(dim=1).mean()
    for _ in range(40):
        total = objective(functional.normalize(student, dim=-1), t).total
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    assert losses[-1] < losses[0]
    trained = functional.normalize(student.detach(), dim=-1)
    if not objective.relational:
        assert (trained * t).sum(dim=1).mean() > before + 0.3


def test_the_total_is_the_weighted_sum_of_the_logged_terms():
    s, t = rows(10, 6, 5), rows(10, 6, 6)
    for name, composition in COMPOSITIONS.items():
        total, terms = compose_objective(name, dimensions=6)(s, t, every_term=True)
        wanted = sum(weight * terms[term].item() for term, weight in composition.weights.items())
        assert total.item() == pytest.approx(wanted, rel=1e-10), name
        assert list(terms) == list(TERMS)


def test_what_is_logged_is_what_another_run_would_train_on():
    s, t = rows(10, 6, 5, torch.float32).requires_grad_(), rows(10, 6, 6, torch.float32)
    logged = compose_objective("mimicry", seed=4)(s, t, every_term=True).terms
    for term in TERMS:
        other = compose_objective(f"mimicry=1e-9,{term}=1" if term != "mimicry" else term, dimensions=6, seed=4)
        trained = other(s, t).terms[term]
        assert logged[term].item() == pytest.approx(trained.item(), rel=1e-4, abs=1e-6), term
        assert not logged[term].requires_grad


@pytest.mark.parametrize("term", ["mimicry", "cosine", "element-mse"])
def test_row_wise_terms_are_the_mean_of_equal_parts(term):
    s, t = rows(12, 6, 7), rows(12, 6, 8)
    parts = [TERMS[term](s[i : i + 4], t[i : i + 4]).item() for i in (0, 4, 8)]
    assert TERMS[term](s, t).item() == pytest.approx(np.mean(parts), rel=1e-12)


@pytest.mark.parametrize("term", ["infonce", "siglip", "affinity", "bce", "rkd-distance", "cka", "procrustes"])
def test_batch_coupled_terms_are_not_but_take_rows_in_any_order(term):
    s, t = rows(12, 6, 7), rows(12, 6, 8)
    whole = TERMS[term](s, t).item()
    assert whole != pytest.approx(
        np.mean([TERMS[term](s[i : i + 4], t[i : i + 4]).item() for i in (0, 4, 8)]), rel=1e-6
    )
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    assert TERMS[term](s[order], t[order]).item() == pytest.approx(whole, rel=1e-10)


def test_terms_with_weights():
    composition = require_objective(" mimicry=.5 , infonce=1 ")
    assert composition.name == "infonce=1,mimicry=0.5"
    assert dict(composition.weights) == {"infonce": 1.0, "mimicry": 0.5}
    assert not composition.shaping
    assert composition.optimizer == OptimizerSettings()
    assert require_objective("rkd-angle=2,mimicry=1e-05").name == "mimicry=1e-05,rkd-angle=2"
    shaped = require_objective("infonce=1+shaping")
    assert shaped.shaping
    assert require_objective(shaped.name) == shaped
    assert require_objective("verbatim+shaping").optimizer == require_objective("verbatim").optimizer
    for name in objective_names():
        assert require_objective(name) is COMPOSITIONS[name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compost", r"no such composition\. Choose .*composite.*The terms are .*cka"),
        ("infonce=1,nonce=2", r"no term 'nonce'\. Choose among"),
        ("infonce=1,infonce=2", "given twice"),
        ("infonce=one", r"a number above 0 as the weight of infonce, got 'one'"),
        ("infonce=0", "Leave a term out"),
        ("infonce=-1", "above 0"),
        ("infonce=nan", "above 0"),
        ("infonce=inf", "above 0"),
        ("infonce=1,", "no term ''"),
        ("spread=1", "no term reads the target"),
        ("composite+shaping+shaping", "no such composition"),
        ("", "no such composition"),
    ],
)
def test_what_is_no_objective_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        require_objective(text)


def test_verbatim_brings_its_optimizer_and_the_others_plain_adam():
    assert compose_objective("verbatim", dimensions=8).optimizer == OptimizerSettings("adamw", 0.01, 1000, 1.0)
    assert compose_objective("composite").optimizer == OptimizerSettings("adam", 0.0, None, None)


def test_siglip_learns_two_scalars_and_nothing_else_has_parameters():
    objective = compose_objective("siglip")
    assert {name: value.item() for name, value in objective.named_parameters()} == {
        "siglip_log_temperature": pytest.approx(np.log(10)),
        "siglip_bias": -10.0,
    }
    s, t = rows(6, 4, 9, torch.float32).requires_grad_(), rows(6, 4, 10, torch.float32)
    objective(s, t).total.backward()
    assert all(parameter.grad.abs() > 0 for parameter in objective.parameters())
    assert not list(compose_objective("composite").parameters())


def test_what_is_drawn_is_a_buffer_of_the_seed():
    one, same, other = (compose_objective("composite+spread", dimensions=20, seed=seed) for seed in (1, 1, 2))
    assert set(one.state_dict()) == {"projection"}
    assert torch.equal(one.projection, same.projection)
    assert not torch.equal(one.projection, other.projection)
    assert set(compose_objective("composite+shaping", dimensions=20).state_dict()) == {"anchors"}
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.projection, other.projection)


@pytest.mark.parametrize("name", ["composite+spread", "composite+shaping", "verbatim", "infonce=1,spread=1"])
def test_compositions_that_draw_need_the_width(name):
    with pytest.raises(InputError, match=r"needs the embedding's width\. Pass dimensions="):
        compose_objective(name)


@pytest.mark.parametrize("name", ["composite+spread", "composite+shaping", "siglip"])
def test_nested_widths_work_with_one_objective(name):
    s, t = rows(8, 12, 11, torch.float32).requires_grad_(), rows(8, 12, 12, torch.float32)
    objective = compose_objective(name, dimensions=12)
    total = sum(objective(functional.normalize(s[:, :w], dim=-1), t[:, :w].contiguous()).total for w in (6, 12))
    total.backward()
    assert torch.isfinite(s.grad).all()


def test_relational_objectives_take_another_width_and_leave_anchored_terms_out_of_the_log():
    s, t = rows(8, 5, 13).requires_grad_(), rows(8, 9, 14)
    total, terms = compose_objective("cka")(s, t, every_term=True)
    total.backward()
    assert set(terms) == {"affinity", "spread", "procrustes", "rkd-distance", "rkd-angle", "cka"}
    with pytest.raises(ShapeError, match="one shape"):
        compose_objective("composite")(s, t)


def test_a_batch_too_small_for_a_simplex_is_logged_without_spread():
    s, t = rows(4, 6, 15), rows(4, 6, 16)
    assert set(TERMS) - set(compose_objective("composite")(s, t, every_term=True).terms) == {"spread"}
    with pytest.raises(ShapeError, match="at least 5 rows"):
        compose_objective("composite+spread", dimensions=6)(s, t)


def test_losses_are_computed_in_fp32_whatever_the_student_is_in():
    s, t = rows(8, 6, 17, torch.float32), rows(8, 6, 18, torch.float32)
    half = s.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = compose_objective("composite")(half, t).total
    assert total.dtype == torch.float32
    assert total.item() == compose_objective("composite")(half.float(), t).total.item()


@pytest.mark.parametrize("name", ["composite", "affinity", "siglip"])
def test_two_views_from_one_forward_pass_are_refused(name):
    objective = compose_objective(name)
    s = rows(6, 4, 19)
    other = rows(6, 4, 20)
    with pytest.raises(InputError, match=r"are one tensor's memory: two views from one forward pass"):
        objective(s, s)
    both = torch.cat([s, other])
    with pytest.raises(InputError, match="one tensor's memory"):
        objective(both[:6], both[6:])
    with pytest.raises(InputError, match="the same values, bit for bit"):
        objective(s.clone().requires_grad_(), s)
    with pytest.raises(InputError, match="the target has a gradient"):
        objective(s, other.clone().requires_grad_())
    assert torch.isfinite(objective(s, other).total)


def test_names_are_readable_without_torch():
    code = (
        "import sys, consilience.objectives.names, consilience.objectives.catalogue; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
