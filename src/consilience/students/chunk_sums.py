"""Sums of table rows over whole texts, where the tokens between two blanks depend on nothing beyond the blanks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

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


class _Kept(NamedTuple):
    """What is known of one table. Entries are only ever added; a fresh table or a full store begins another."""

    source: tuple[int, int]
    places: dict[str, int]
    sums: torch.Tensor
    counts: NDArray[np.int64]


class ChunkSums:
    """Sums of rows by stretch of text; those seen are kept, up to a number, and computed again after it.

    Threads share what is kept: one learns at a time, and each reads the state that its own chunks are in.

    Args:
        tokenizer: for which :func:`splits_at_blanks` holds; it adds, cuts and pads nothing.
        kept: how many stretches are kept between calls.
    """

    def __init__(self, tokenizer: Tokenizer, *, kept: int = KEPT_CHUNKS) -> None:
        self._tokenizer = tokenizer
        self._kept = kept
        self._known: _Kept | None = None
        self._learning = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[Tokenizer], ChunkSums], tuple[Tokenizer]]:
        # Locks don't travel to other processes; a copy starts with nothing kept.
        return partial(ChunkSums, kept=self._kept), (self._tokenizer,)

    def sum_texts(
        self, texts: Sequence[str], table: torch.Tensor, *, source: tuple[int, int] = (0, 0)
    ) -> tuple[torch.Tensor, NDArray[np.int64]]:
        """Return the sums of the texts' rows, and how many tokens each text has.

        Args:
            texts: at least one.
            table: (V, d), fp32 on the CPU.
            source: changes when the table's values do; what was kept of another one is dropped.

        Returns:
            (n, d) and (n,).
        """
        words = [text.split(" ") for text in texts]
        known = self._learn(set(chain.from_iterable(words)), table, source)
        lengths = np.fromiter((len(row) for row in words), dtype=np.int64, count=len(words))
        found = np.fromiter(
            map(known.places.__getitem__, chain.from_iterable(words)), dtype=np.int64, count=int(lengths.sum())
        )
        offsets = np.cumsum(lengths) - lengths
        sums = nn.functional.embedding_bag(torch.from_numpy(found), known.sums, torch.from_numpy(offsets), mode="sum")
        return sums, np.add.reduceat(known.counts[found], offsets)

    def _learn(self, chunks: set[str], table: torch.Tensor, source: tuple[int, int]) -> _Kept:
        """Return a state that has all these chunks."""
        with self._learning:
            known = self._known
            if known is None or source != known.source or len(known.places) > self._kept:
                known = _Kept(source, {}, torch.empty((0, table.shape[1])), np.empty(0, dtype=np.int64))
            new = sorted(chunks - known.places.keys())
            if new:
                sums, counts = self._sum_chunks(new, table)
                numbers = range(len(known.counts), len(known.counts) + len(new))
                known = known._replace(
                    sums=torch.cat([known.sums, sums]), counts=np.concatenate([known.counts, counts])
                )
                self._known = known
                # Last: whatever interrupts this leaves no entry without its sum.
                known.places.update(zip(new, numbers, strict=True))
        return known

    def _sum_chunks(self, new: list[str], table: torch.Tensor) -> tuple[torch.Tensor, NDArray[np.int64]]:
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(new, add_special_tokens=False)]
        counts = np.fromiter((len(row) for row in ids), dtype=np.int64, count=len(ids))
        flat = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(counts.sum()))
        offsets = np.cumsum(counts) - counts
        sums = nn.functional.embedding_bag(torch.from_numpy(flat), table, torch.from_numpy(offsets), mode="sum")
        return sums, counts
