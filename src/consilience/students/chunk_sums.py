"""Sums of table rows over whole texts, where the tokens between two blanks depend on nothing beyond the blanks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KEPT_CHUNKS = 1 << 16  # assumed: 64 MiB of sums at 256 dimensions; English prose repeats its words long before


def splits_at_blanks(tokenizer: Tokenizer) -> bool:
    """Say whether tokenising a text is tokenising the stretches between its blanks, one by one.

    True for WordPiece behind BERT's normaliser and pre-tokeniser, which look at single characters only, as long as no
    added token holds or swallows a blank.

    Args:
        tokenizer: without special tokens around a text.
    """
    settings = json.loads(tokenizer.to_str())
    kinds = [(settings[part] or {}).get("type") for part in ("model", "pre_tokenizer", "normalizer")]
    plain = all(
        " " not in token["content"] and not (token["lstrip"] or token["rstrip"] or token["single_word"])
        for token in settings["added_tokens"]
    )
    return (
        plain and kinds[:2] == ["WordPiece", "BertPreTokenizer"] and kinds[2] in ("BertNormalizer", "Lowercase", None)
    )


class ChunkSums:
    """Sums of rows by stretch of text; those seen are kept, up to a number, and computed again after it.

    Args:
        tokenizer: for which :func:`splits_at_blanks` holds; it adds, cuts and pads nothing.
        kept: how many stretches are kept between calls.
    """

    def __init__(self, tokenizer: Tokenizer, *, kept: int = KEPT_CHUNKS) -> None:
        self._tokenizer = tokenizer
        self._kept = kept
        self._index: dict[str, int] = {}
        self._sums = torch.empty((0, 0))
        self._counts = np.empty(0, dtype=np.int64)
        self._source: tuple[int, int] | None = None

    def sum_texts(
        self, texts: Sequence[str], table: torch.Tensor, *, version: int = 0
    ) -> tuple[torch.Tensor, NDArray[np.int64]]:
        """Return the sums of the texts' rows, and how many tokens each text has.

        Args:
            texts: at least one.
            table: (V, d), fp32 on the CPU.
            version: changes when the table's values do; what was kept of another table or version is dropped.

        Returns:
            (n, d) and (n,).
        """
        words = [text.split(" ") for text in texts]
        self._learn(set(chain.from_iterable(words)), table, (table.data_ptr(), version))
        lengths = np.fromiter((len(row) for row in words), dtype=np.int64, count=len(words))
        found = np.fromiter(
            map(self._index.__getitem__, chain.from_iterable(words)), dtype=np.int64, count=int(lengths.sum())
        )
        offsets = np.cumsum(lengths) - lengths
        sums = nn.functional.embedding_bag(torch.from_numpy(found), self._sums, torch.from_numpy(offsets), mode="sum")
        return sums, np.add.reduceat(self._counts[found], offsets)

    def _learn(self, chunks: set[str], table: torch.Tensor, source: tuple[int, int]) -> None:
        """Make sure that all these chunks are there."""
        if source != self._source or len(self._index) > self._kept:
            self._index, self._source = {}, source
            self._sums = torch.empty((0, table.shape[1]))
            self._counts = np.empty(0, dtype=np.int64)
        new = sorted(chunks - self._index.keys())
        if not new:
            return
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(new, add_special_tokens=False)]
        counts = np.fromiter((len(row) for row in ids), dtype=np.int64, count=len(ids))
        flat = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(counts.sum()))
        offsets = np.cumsum(counts) - counts
        sums = nn.functional.embedding_bag(torch.from_numpy(flat), table, torch.from_numpy(offsets), mode="sum")
        self._index.update(zip(new, range(len(self._index), len(self._index) + len(new)), strict=True))
        self._sums = torch.cat([self._sums, sums])
        self._counts = np.concatenate([self._counts, counts])
