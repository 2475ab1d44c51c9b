import math

import pytest
import torch

from consilience.adapters.dispatch import amplitudes, require_temperature
from consilience.adapters.library import AnchorLibrary
from consilience.core.errors import InputError


def test_amplitudes_by_hand():
    x = torch.tensor([[3.0, 4.0]])
    keys = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    u = [0.6 / 0.5, 0.8 / 0.5, -0.6 / 0.5]
    z = sum(map(math.cosh, u))
    assert amplitudes(x, keys, 0.5)[0].tolist() == pytest.approx([math.sinh(v) / z for v in u], rel=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.02, 1e-4])
def test_the_budget_is_never_exceeded(temperature):
    generator = torch.Generator().manual_seed(0)
    x, keys = torch.randn(50, 8, generator=generator), torch.randn(4, 8, generator=generator)
    keys[3] = x[0]  # a state right on a key
    shares = amplitudes(x, keys, temperature)
    assert shares.isfinite().all()
    # Strictly below 1 in exact numbers; the last bit of fp32 may round to it.
    assert shares.abs().sum(dim=-1).max() <= 1.0 + 1e-6


def test_a_zero_state_asks_nobody():
    assert not amplitudes(torch.zeros(1, 8), torch.randn(3, 8), 0.1).any()


def test_the_length_of_states_and_keys_has_no_effect():
    x, keys = torch.randn(5, 8, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(amplitudes(7 * x, 0.1 * keys, 0.1), amplitudes(x, keys, 0.1))


def test_it_has_a_gradient_to_states_and_keys():
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: amplitudes(a, b, 0.2), (x, keys))


def test_autocast_doesn_t_round_it():
    x, keys = torch.randn(5, 8), torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = amplitudes(x, keys, 0.1)
    assert torch.equal(inside, amplitudes(x, keys, 0.1))


def test_sharper_routing_warns_and_points_at_the_sweep(capsys):
    assert require_temperature(0.1) == 0.1
    assert capsys.readouterr().err == ""
    library = AnchorLibrary(8, 1, temperature=0.05)
    said = capsys.readouterr().err
    assert "temperature 0.05 is below the default 0.1" in said
    assert "consilience adapt sweep" in said
    library.temperature = 0.02
    assert "0.02" in capsys.readouterr().err
    assert library.temperature == 0.02


@pytest.mark.parametrize("bad", [0.0, -0.1, float("nan"), float("inf")])
def test_temperatures_that_make_no_sense(bad):
    with pytest.raises(InputError, match="temperature above 0"):
        AnchorLibrary(8, 1, temperature=bad)
