"""Pairs as token ids: what is trained on, what is only measured, and the batches in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.seeds import rng_from_name
from consilience.corpora.contamination import exact_key
from consilience.corpora.pairs import PairCorpus
from consilience.training.pair_model import Ids, PairModel

SMALLEST_HELD_OUT = 4  # two sizes of gallery
HELD_OUT_PAIRS = 512  # assumed: a standard error of R@1 of .02, at a few seconds a reading


@dataclass(frozen=True)
class PairTokens:
    """One domain's pairs.

    Attributes:
        name: of the domain, usually its anchor's.
        left: ids of the first texts.
        right: ids of the second texts.
        groups: (n, 2), numbers of the texts: equal texts have equal numbers.
        training: rows that are trained on.
        held_out: rows that are only measured; no text of theirs is in a training row.
    """

    name: str
    left: list[Ids]
    right: list[Ids]
    groups: NDArray[np.int64]
    training: NDArray[np.int64]
    held_out: NDArray[np.int64]


def tokenize_pairs(model: PairModel, pairs: PairCorpus, *, name: str, seed: int) -> PairTokens:
    """Tokenise pairs and hold a tenth out, at most 512.

    Rows that share a text with a held-out one are neither trained on nor measured.

    Args:
        model: whose tokenizer.
        pairs: the corpus.
        name: of the domain.
        seed: of the draw.

    Raises:
        InputError: too few pairs with texts of their own are left.
    """
    numbers: dict[str, int] = {}
    groups = np.array(
        [
            [numbers.setdefault(exact_key(t), len(numbers)) for t in pair]
            for pair in zip(pairs.left, pairs.right, strict=True)
        ],
        dtype=np.int64,
    )
    order = rng_from_name(f"held-out pairs/{name}", seed).permutation(len(pairs)).astype(np.int64)
    wanted = min(HELD_OUT_PAIRS, max(len(pairs) // 10, SMALLEST_HELD_OUT))
    taken: set[int] = set()
    chosen: list[int] = []
    for row in order:  # distinct texts, so that a retrieval has one right answer
        one, other = int(groups[row, 0]), int(groups[row, 1])
        if one not in taken and other not in taken:
            taken |= {one, other}
            chosen.append(int(row))
            if len(chosen) == wanted:
                break
    held_out = np.sort(np.asarray(chosen, dtype=np.int64))
    shared = np.isin(groups, groups[held_out]).any(axis=1)
    training = np.flatnonzero(~shared).astype(np.int64)
    if (
        len(held_out) < SMALLEST_HELD_OUT
        or len(training) < 2
        or any(len(set(groups[training, side])) < 2 for side in (0, 1))
    ):
        raise InputError(
            f"{pairs.name}: expected pairs of different texts, got {len(training)} to train on beside {len(held_out)} "
            "held out, which share no text. Give more, or more varied, pairs"
        )
    return PairTokens(name, model.tokenize(pairs.left), model.tokenize(pairs.right), groups, training, held_out)


class PairBatches:
    """The batches of a training: one domain a batch, in turn, so that no domain starves another.

    Args:
        domains: at least one.
        rows: pairs a batch, at most; a smaller domain's batches hold all of its pairs.
        seed: of the order.
    """

    def __init__(self, domains: Sequence[PairTokens], *, rows: int, seed: int) -> None:
        if not domains:
            raise InputError("pairs: expected at least one domain, got none. Name pairs")
        self.domains = list(domains)
        self._rows, self._seed = rows, seed
        self._kept: dict[int, tuple[int, NDArray[np.int64]]] = {}

    def at(self, step: int) -> tuple[PairTokens, NDArray[np.int64]]:
        """Return the domain and the rows of a step; a function of the step alone, so a resumed run draws the same."""
        place, turn = step % len(self.domains), step // len(self.domains)
        domain = self.domains[place]
        size = min(self._rows, len(domain.training))
        epoch, batch = divmod(turn, len(domain.training) // size)
        kept = self._kept.get(place)
        if kept is None or kept[0] != epoch:
            rng = rng_from_name(f"pairs/{domain.name}/{epoch}", self._seed)
            kept = self._kept[place] = (epoch, rng.permutation(domain.training))
        return domain, kept[1][batch * size : (batch + 1) * size]
