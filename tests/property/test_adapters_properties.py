"""Laws of the dispatch and the address read, over random shapes, scales and temperatures."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.adapters.anchor import Anchor, AnchorConfig, mix
from consilience.adapters.atoms import read_atoms, read_atoms_plain
from consilience.adapters.dispatch import amplitudes

_seeds = st.integers(0, 2**32 - 1)
_temperatures = st.floats(1e-3, 10.0)


def _normal(seed, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]


@settings(deadline=None, max_examples=60)
@given(_seeds, st.integers(1, 6), st.integers(1, 9), _temperatures, st.floats(1e-3, 1e3))
def test_the_budget_is_conserved(seed, anchors, width, temperature, scale):
    x, keys = _normal(seed, (7, width), (anchors, width))
    shares = amplitudes(scale * x, keys, temperature)
    assert shares.isfinite().all()
    assert (shares.abs().sum(dim=-1) <= 1 + 1e-12).all()
    torch.testing.assert_close(shares, amplitudes(x, keys, temperature), rtol=1e-6, atol=1e-9)  # direction decides
    torch.testing.assert_close(-shares, amplitudes(-x, keys, temperature), rtol=1e-6, atol=1e-9)  # odd
    # One more anchor never makes another one louder.
    more = amplitudes(scale * x, torch.cat([keys, _normal(seed + 1, (1, width))[0]]), temperature)[..., :anchors]
    assert (more.abs() <= shares.abs() + 1e-12).all()


@settings(deadline=None, max_examples=60)
@given(_seeds, st.integers(1, 5), st.integers(1, 40), _temperatures, st.integers(0, 30))
def test_the_fused_read_is_the_plain_read(seed, width, count, temperature, rows):
    slots, table, weights = _normal(seed, (rows, width), (count, width), (rows, width))
    results = []
    for read in (read_atoms, read_atoms_plain):
        s, a = slots.clone().requires_grad_(), table.clone().requires_grad_()
        value = read(s, a, temperature)
        gradients = torch.autograd.grad((value * weights).sum(), (s, a))
        results.append([value.detach(), *gradients])
    for got, expected in zip(*results, strict=True):
        size = 1.0 if not expected.numel() else max(1.0, float(expected.abs().max()))
        assert expected.numel() == 0 or (got - expected).abs().max() <= 1e-10 * size / min(temperature, 1.0)


@settings(deadline=None, max_examples=60)
@given(_seeds, st.integers(1, 5), st.integers(1, 20), _temperatures)
def test_a_read_lies_in_the_hull_of_the_atoms(seed, width, count, temperature):
    slots, table, directions = _normal(seed, (9, width), (count, width), (50, width))
    value = read_atoms(slots, table, temperature)
    unit = torch.nn.functional.normalize(table, dim=-1)
    reach = (directions @ unit.T).abs().amax(dim=-1)  # of atoms and their negatives, in each direction
    assert ((directions @ value.T).abs() <= reach[:, None] + 1e-9).all()
    assert (value.norm(dim=-1) <= 1 + 1e-9).all()


@settings(deadline=None, max_examples=25)
@given(_seeds, st.lists(st.booleans(), min_size=3, max_size=3))
def test_a_masked_sum_and_its_complement_are_the_whole(seed, enabled):
    config = AnchorConfig(slots=2, atoms=6, hidden=5, gate=0.0)
    blocks = [Anchor(6, 1, config, seed=seed + k, random_output=True).block(0).double() for k in range(3)]
    x, keys = _normal(seed, (4, 6), (3, 6))
    shares = list(amplitudes(x, keys, 0.1).unbind(-1))
    whole = mix(blocks, x, shares)
    parts = []
    for wanted in (True, False):
        rows = [k for k in range(3) if enabled[k] == wanted]
        if rows:
            parts.append(mix([blocks[k] for k in rows], x, [shares[k] for k in rows]))
    torch.testing.assert_close(sum(parts), whole, rtol=1e-9, atol=1e-12)
