"""Two views of a pair have to come from two inputs: from one, a contrastive loss learns nothing and looks perfect.

Source: design, section 11 ("two views from one forward pass").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError


def same_texts(left: Sequence[str], right: Sequence[str]) -> list[int]:
    """Return the rows whose two texts are equal but for case and blanks: pairs that teach nothing.

    Raises:
        ShapeError: the sides have different lengths.

    Example:
        >>> same_texts(["A cat.", "a dog"], ["a  cat.", "a hound"])
        [0]
    """
    if len(left) != len(right):
        raise ShapeError(
            f"pairs: expected as many texts on both sides, got {len(left)} and {len(right)}. Check the pairs"
        )
    return [row for row, (one, other) in enumerate(zip(left, right, strict=True)) if _plain(one) == _plain(other)]


def require_two_views(left: torch.Tensor, right: torch.Tensor, *, where: str = "pairs") -> None:
    """Refuse a batch whose two sides are one: the same memory, or the same values in every row.

    Args:
        left: (b, ...), token ids or embeddings of the first texts.
        right: the second texts'.
        where: what is checked, for the message.

    Raises:
        ShapeError: the sides have different numbers of rows, or none.
        InputError: they are one view.

    Example:
        >>> require_two_views(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    """
    if len(left) != len(right) or not len(left):
        raise ShapeError(f"{where}: expected as many rows on both sides, at least 1, got {len(left)} and {len(right)}")
    if left.shape == right.shape and torch.equal(left.detach(), right.detach()):
        shared = left.data_ptr() == right.data_ptr()
        cause = "share their memory" if shared else "are equal in every row"
        raise InputError(
            f"{where}: the two views {cause}, so they come from one input and a contrastive loss on them is "
            "underdetermined. Embed the second text of each pair on its own"
        )


def require_two_inputs(left: Sequence[NDArray[np.int64]], right: Sequence[NDArray[np.int64]], *, where: str) -> None:
    """Refuse a batch whose two sides are the same token ids in every row.

    Rows that are padded differently come out a rounding apart, so embeddings alone don't show that they're one input.

    Args:
        left: ids of the first texts.
        right: ids of the second texts, as many.
        where: what is checked, for the message.

    Raises:
        InputError: they are one input.

    Example:
        >>> require_two_inputs([np.array([1, 2])], [np.array([1, 3])], where="pairs")
    """
    if all(np.array_equal(one, other) for one, other in zip(left, right, strict=True)):
        raise InputError(
            f"{where}: the two views have the same token ids in every row, so they come from one input and a "
            "contrastive loss on them is underdetermined. Give pairs of two texts"
        )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
