"""The graded dispatch: how much of each anchor a token gets.

    u_k = x . C_k / (|x| |C_k| T),  a_k = sinh(u_k) / sum over all anchors j of cosh(u_j)

Since |sinh| < cosh, the amplitudes of a token always sum to less than 1: anchors share a fixed budget. A mask takes
anchors out of the sum over outputs and never out of the denominator, so a masked collective is a damped one.

Source: design, section 7.
"""

from __future__ import annotations

import torch

from consilience.core.errors import InputError
from consilience.core.progress import log

DEFAULT_TEMPERATURE = 0.1  # cited: design, section 7
SMALLEST_TEMPERATURE = 1e-6  # assumed: far below any use, and far above where 1 / T overflows


def require_temperature(temperature: float) -> float:
    """Check a routing temperature, and say on standard error when it is sharper than the default.

    Args:
        temperature: T of the dispatch.

    Returns:
        The same.

    Raises:
        InputError: it isn't a number of at least 1e-6.

    Source: design, section 11 ("sharper routing is worse").
    """
    if not SMALLEST_TEMPERATURE <= temperature < float("inf"):
        raise InputError(
            f"dispatch: expected a temperature above 0 ({SMALLEST_TEMPERATURE:g} or more), got {temperature}. The "
            "default is .1"
        )
    if temperature < DEFAULT_TEMPERATURE:
        log(
            f"dispatch: temperature {temperature:g} is below the default {DEFAULT_TEMPERATURE:g}, and sharper routing "
            "has measured worse. Measure it on your trunk first: consilience adapt sweep --temperature .10 .05 .02"
        )
    return temperature


def amplitudes(x: torch.Tensor, keys: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return every anchor's amplitude for every token.

    Args:
        x: (..., d), token states, not normalised; a zero state has amplitudes of zero.
        keys: C, (A, d), normalised here.
        temperature: T, above 0.

    Returns:
        (..., A) in fp32 or fp64; the absolute values sum to less than 1.

    Source: design, section 7.

    Example:
        >>> amplitudes(torch.tensor([[3.0, 0.0]]), torch.eye(2), 1.0)[0].tolist()  # sinh(1) / (cosh(1) + cosh(0))
        [0.46211..., 0.0]
    """
    with torch.autocast(x.device.type, enabled=False):
        precision = torch.promote_types(torch.promote_types(x.dtype, keys.dtype), torch.float32)
        states = x.to(precision)
        directions = torch.nn.functional.normalize(keys.to(precision), dim=-1)
        # Dividing the few products by |x| spares a normalised copy of x.
        norms = torch.linalg.vector_norm(states, dim=-1, keepdim=True).clamp_min(1e-12)
        u = torch.nn.functional.linear(states, directions) / (norms * temperature)
        largest = u.abs().amax(dim=-1, keepdim=True)  # cancels, and keeps exp in range at any temperature
        up, down = torch.exp(u - largest), torch.exp(-u - largest)
        return (up - down) / (up + down).sum(dim=-1, keepdim=True)
