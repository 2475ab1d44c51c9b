"""The attention kernel that trains fastest on a CPU.

torch's fused kernel is written for long rows. Its backward pass takes twice the plain one's time on rows as short as
captions, and up to eight times under bf16; measured on 12 heads of 32, a crossing lies near these lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

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
    return _PlainAttention()


class _PlainAttention(TorchFunctionMode):
    """Scaled dot-product attention by products and a softmax, in this thread only.

    ``torch.nn.attention.sdpa_kernel`` switches the whole process: other threads would change kernels between two passes
    that have to agree bit by bit, and two trainings that end in another order than they began would leave it off.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever a torch function returns
        if func is functional.scaled_dot_product_attention:
            return _plain_attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _plain_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *more: Any,  # noqa: ANN401 - scaled_dot_product_attention's own options
    **options: Any,  # noqa: ANN401
) -> torch.Tensor:
    # What the public function does before this kernel: autocast knows its name only, half precision is computed in
    # full, and a mask of booleans would be added as zeros and ones.
    wanted = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    full = torch.promote_types(wanted, torch.float32)
    query, key, value = (x.to(wanted).to(full) for x in (query, key, value))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=full).masked_fill(~attn_mask, -torch.inf)
        attn_mask = attn_mask.to(wanted).to(full)
    with torch.autocast("cpu", enabled=False):
        output: torch.Tensor = torch.ops.aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, *more, **options
        )[0]
    return output.to(wanted)
