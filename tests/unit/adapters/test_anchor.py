import numpy as np
import pytest
import torch

from consilience.adapters import anchor as anchor_module
from consilience.adapters.anchor import Anchor, AnchorBlock, AnchorConfig, count_block_parameters, mix
from consilience.adapters.library import AnchorLibrary
from consilience.core.errors import InputError


def test_the_counts_of_the_design():
    assert sum(p.numel() for p in AnchorBlock(512, AnchorConfig()).parameters()) == 136_599
    assert Anchor(512, 12).parameter_count == 1_639_188
    assert count_block_parameters(512, AnchorConfig(hidden=74)) == 76_383
    library = AnchorLibrary(512, 12)
    for name in ("equiv", "simplify", "paraphrase"):
        library.add(name)
    assert library.keys.numel() == 1_536
    assert 58_308_864 + library.parameter_count == 63_227_964


def test_a_block_that_misses_a_cited_count_is_refused(monkeypatch):
    monkeypatch.setitem(anchor_module.CITED_BLOCK_PARAMETERS, (512, 178), 136_600)
    with pytest.raises(InputError, match="expected 136,600 parameters"):
        AnchorBlock(512, AnchorConfig())


def test_a_block_is_the_formula():
    """The design's lines in NumPy, in fp64, one token."""
    config = AnchorConfig(slots=3, slot_width=2, atoms=5, temperature=0.3, hidden=7, gate=-3.0)
    block = Anchor(6, 1, config, seed=4, random_output=True).block(0).double()
    x = np.array([0.3, -1.2, 0.7, 2.0, -0.4, 0.1])
    p = {name: value.detach().numpy() for name, value in block.named_parameters()}
    atoms = p["atoms"] / np.linalg.norm(p["atoms"], axis=1, keepdims=True)
    reads = []
    for slot in (p["project.weight"] @ x).reshape(3, 2):
        u = atoms @ (slot / np.linalg.norm(slot)) / 0.3
        reads.append((np.sinh(u) @ atoms) / np.cosh(u).sum())
    hidden = np.maximum(p["expand.weight"] @ np.concatenate(reads) + p["expand.bias"], 0) ** 2
    hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + block.norm.eps) * p["norm.weight"] + p["norm.bias"]
    expected = x + (p["output.weight"] @ hidden + p["output.bias"]) / (1 + np.exp(3.0))
    got = block(torch.from_numpy(x)[None, None]).detach().numpy()[0, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_it_starts_as_the_identity_with_its_gate_at_minus_three():
    block = Anchor(32, 1).block(0)
    x = torch.randn(2, 3, 32)
    assert torch.equal(block(x), x)
    assert block.gate.item() == -3.0
    weight = block.project.weight.detach()
    torch.testing.assert_close(weight.T @ weight, torch.eye(32), atol=1e-5, rtol=0)  # orthogonal
    torch.testing.assert_close(block.atoms.detach().norm(dim=1), torch.ones(64))
    assert torch.equal(block.atoms_init, block.atoms)
    assert "atoms_init" in block.state_dict()
    assert not torch.equal(Anchor(32, 1, random_output=True).block(0)(x), x)


def test_a_seed_decides_the_weights_and_touches_no_global_state():
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    one, same, other = (Anchor(16, 2, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["blocks.0.atoms"], other["blocks.0.atoms"])
    assert not torch.equal(one["blocks.0.atoms"], one["blocks.1.atoms"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_large_states_stay_finite_in_half_precision_and_under_autocast(dtype):
    anchor = Anchor(32, 1, AnchorConfig(gate=0.0), seed=1, random_output=True)
    block = anchor.block(0)
    x = 300 * torch.randn(4, 5, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        block.expand.weight.mul_(200)  # squares above fp16's largest number
        exact = block(x) - x
        with torch.autocast("cpu", dtype=dtype):
            automatic = (block(x) - x).float()
        half = mix([block.to(dtype)], x.to(dtype)).float()
    for got in (automatic, half):
        assert got.isfinite().all()
        assert (got - exact).norm() <= 0.1 * exact.norm()


def test_amplitudes_scale_the_outputs():
    one, two = (Anchor(16, 1, seed=seed, random_output=True).block(0).double() for seed in (1, 2))
    x = torch.randn(3, 4, 16, dtype=torch.float64)
    a, b = torch.rand(2, 3, 4, dtype=torch.float64)
    expected = a[..., None] * (one(x) - x) + b[..., None] * (two(x) - x)
    torch.testing.assert_close(mix([one, two], x, [a, b]), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bad", [{"slots": 0}, {"hidden": 0}, {"temperature": 0.0}, {"temperature": float("nan")}])
def test_shapes_that_make_no_sense(bad):
    with pytest.raises(InputError, match="Change the anchor's configuration"):
        AnchorConfig(**bad)


def test_an_anchor_needs_blocks():
    with pytest.raises(InputError, match="width and blocks of at least 1"):
        Anchor(16, 0)
