import math

import pytest
import torch

from consilience.adapters import atoms
from consilience.adapters.atoms import read_atoms, read_atoms_plain


def _pair(shape, count, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()
    table = torch.randn(count, shape[-1], generator=generator, dtype=dtype).requires_grad_()
    return slots, table


def _gradients(read, slots, table, temperature):
    weights = torch.linspace(-1, 2, slots.numel(), dtype=slots.dtype).reshape(slots.shape)
    value = read(slots, table, temperature)
    return value.detach(), *torch.autograd.grad((value * weights).sum(), (slots, table))


def test_a_read_by_hand():
    slot, table = torch.tensor([[5.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    for read in (read_atoms, read_atoms_plain):
        got = read(slot, table, 0.5)
        assert got[0, 0].item() == pytest.approx(math.sinh(2) / (math.cosh(2) + 1), rel=1e-6)
        assert got[0, 1].item() == 0.0


@pytest.mark.parametrize("temperature", [0.1, 0.5, 0.02, 0.001])
def test_fused_equals_autograd_to_fp64_rounding(temperature, monkeypatch):
    monkeypatch.setattr(atoms, "_CHUNK_ELEMENTS", 64 * 7)  # several chunks, the last one shorter
    slots, table = _pair((3, 16, 4), 64)
    for got, expected in zip(
        _gradients(read_atoms, slots, table, temperature),
        _gradients(read_atoms_plain, slots, table, temperature),
        strict=True,
    ):
        assert (got - expected).abs().max() <= 1e-12 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("width", "count"), [(4, 9), (3, 5), (1, 2)])
def test_gradcheck(width, count):
    slots, table = _pair((5, width), count)
    assert torch.autograd.gradcheck(lambda s, a: read_atoms(s, a, 0.3), (slots, table))


def test_a_missing_term_of_the_gradient_would_be_seen(monkeypatch):
    slots, table = _pair((6, 4), 8)
    expected = _gradients(read_atoms_plain, slots, table, 0.1)[2]
    monkeypatch.setattr(atoms, "_atoms_gradient", lambda d, a, g, along, inverse: torch.zeros_like(a))
    assert not torch.allclose(_gradients(read_atoms, slots, table, 0.1)[2], expected)


def test_each_gradient_alone():
    slots, table = _pair((6, 4), 8)
    _, both_slots, both_table = _gradients(read_atoms, slots, table, 0.1)
    weights = torch.linspace(-1, 2, slots.numel(), dtype=slots.dtype).reshape(slots.shape)
    (only,) = torch.autograd.grad((read_atoms(slots, table.detach(), 0.1) * weights).sum(), slots)
    torch.testing.assert_close(only, both_slots, rtol=1e-12, atol=1e-14)
    (only,) = torch.autograd.grad((read_atoms(slots.detach(), table, 0.1) * weights).sum(), table)
    torch.testing.assert_close(only, both_table, rtol=1e-12, atol=1e-14)


def test_without_gradients_the_values_are_the_same():
    slots, table = _pair((6, 4), 8)
    with torch.inference_mode():
        bare = read_atoms(slots, table, 0.1)
    torch.testing.assert_close(bare.clone(), read_atoms(slots, table, 0.1).detach(), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("read", [read_atoms, read_atoms_plain])
def test_a_zero_slot_reads_zero_and_passes_no_gradient(read):
    slots, table = _pair((3, 4), 8)
    with torch.no_grad():
        slots[1] = 0
    value, slots_gradient, table_gradient = _gradients(read, slots, table, 0.1)
    assert value[1].abs().max() <= 1e-15
    assert not slots_gradient[1].any()
    assert table_gradient.isfinite().all()


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.02, 1e-3])
def test_fp32_is_safe_at_every_temperature(temperature):
    slots, table = _pair((200, 4), 64, dtype=torch.float32)
    single = _gradients(read_atoms, slots, table, temperature)
    double = _gradients(read_atoms_plain, slots.double(), table.double(), temperature)
    for got, expected in zip(single, double, strict=True):
        assert got.isfinite().all()
        assert (got - expected).abs().max() <= 2e-4 / min(temperature, 0.1) * 0.1 * max(1.0, expected.abs().max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_fp32(dtype):
    slots, table = _pair((50, 4), 64, dtype=torch.float32)
    half = read_atoms(slots.to(dtype), table, 0.1)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, read_atoms(slots.to(dtype).float(), table, 0.1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(read_atoms(slots.to(dtype), table, 0.1), half)


def test_no_rows():
    assert read_atoms(torch.empty(0, 16, 4), torch.randn(64, 4), 0.1).shape == (0, 16, 4)
