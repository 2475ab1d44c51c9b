"""Matryoshka: nested losses, principal axes, widths."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.core.errors import InputError
from consilience.objectives.composition import compose_objective
from consilience.training.gauges import prefix_cosines
from consilience.training.nested import NestedObjective, check_widths, principal_axes


def unit_rows(seed, n=6, d=16):
    return functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_nested_loss_is_the_mean_over_renormalised_prefixes():
    s, t = unit_rows(0), unit_rows(1)
    nested = NestedObjective(lambda width: compose_objective("mimicry", dimensions=width), (8, 16))
    loss = nested(s, t)
    prefix = (functional.normalize(s[:, :8], dim=-1) - functional.normalize(t[:, :8], dim=-1)).square().sum(-1).mean()
    whole = (s - t).square().sum(-1).mean()
    torch.testing.assert_close(loss.total, (prefix + whole) / 2)
    torch.testing.assert_close(loss.terms["mimicry@8"], prefix)
    torch.testing.assert_close(loss.terms["mimicry"], whole)
    assert "infonce@8" not in nested(s, t, every_term=True).terms  # the whole width's terms only
    assert "infonce" in nested(s, t, every_term=True).terms


def test_prefixes_of_principal_axes_keep_more_than_any_slice():
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    rows = (rng.standard_normal((500, 12)) * np.geomspace(3, 0.05, 12)) @ turn
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    axes = principal_axes(rows.T @ rows / len(rows))
    np.testing.assert_allclose(axes.T @ axes, np.eye(12), atol=1e-6)
    turned = rows @ axes
    np.testing.assert_allclose(turned @ turned.T, rows @ rows.T, atol=1e-6)  # cosines stay
    kept = np.cumsum((turned**2).mean(axis=0))
    assert (kept >= np.cumsum((rows**2).mean(axis=0)) - 1e-6).all()
    assert kept[3] > 0.85
    assert (np.diff((turned**2).mean(axis=0)) <= 1e-9).all()


def test_widths_are_checked():
    assert check_widths((64, 32), 128) == (32, 64, 128)
    for wrong in ((4,), (256,), (128,)):
        with pytest.raises(InputError, match="matryoshka"):
            check_widths(wrong, 128)


def test_prefix_cosine_by_hand():
    s = np.array([[0.6, 0.8, 0.0], [1.0, 0.0, 0.0]])
    t = np.array([[0.8, 0.6, 0.0], [0.0, 1.0, 0.0]])
    assert prefix_cosines(s, t, (2,)) == {"target_cosine@2": 0.48}
    assert prefix_cosines(s, t, ()) == {}
