"""The attention kernel that trains fastest on a CPU.

torch's fused kernel is written for long rows. Its backward pass takes twice the plain one's time on rows as short as
captions, and up to eight times under bf16; measured on 12 heads of 32, a crossing lies near these lengths.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

LONGEST_PLAIN = {False: 64, True: 256}  # measured: tokens, by whether bf16 autocast is on; 2 cores with AVX-512 bf16


def training_attention(tokens: int, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a forward pass, and with it its backward pass, takes the faster kernel.

    A pass without gradients takes the same kernel, so that one that is repeated with gradients has the same bits.

    Args:
        tokens: a row's length, padding included.
        device: elsewhere than on a CPU torch chooses.
    """
    if device.type != "cpu" or tokens > LONGEST_PLAIN[torch.is_autocast_enabled("cpu")]:
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen: AbstractContextManager[object] = sdpa_kernel(SDPBackend.MATH)
    return chosen
