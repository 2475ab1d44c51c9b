"""The loss and gradient of one batch: in one piece or with gradient caching, on one process or on several.

Every process embeds its own rows, gathers the others' embeddings as negatives, and computes the loss of the whole
batch; its gradient flows through its own rows only, and DistributedDataParallel averages them.

With gradient caching a batch may be larger than memory: its embeddings are computed without a graph, piece by piece;
the loss gives the gradient with respect to the embeddings; then each piece is embedded again, with a graph, and that
gradient is passed on. The result is the whole batch's gradient up to rounding, for one more forward pass.

Source: Gao et al. 2021 (GradCache), arXiv:2101.06983.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from consilience.training.attention import training_attention
from consilience.training.batching import Rows
from consilience.training.token_store import TokenStore


class BatchLoss(NamedTuple):
    """What a batch cost.

    Attributes:
        value: the loss.
        terms: its unweighted terms.
        tokens: tokens of the batch, all processes' together.
        places: tokens and padding.
    """

    value: float
    terms: dict[str, torch.Tensor]
    tokens: int
    places: int


def draws_numbers(module: nn.Module) -> bool:
    """Tell whether a module in training draws random numbers: some dropout isn't 0."""
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in module.modules())


class GradientOfBatch:
    """Computes a batch's loss and adds its gradient to the parameters.

    Args:
        accelerator: accelerate's: device, precision, processes.
        module: the student, wrapped for several processes or compiled where that's asked for.
        objective: maps student and target rows to a loss; may have learned scalars.
        store: the corpus's tokens.
        cache_rows: rows that a process embeds with a graph at a time; None embeds its share of a batch in one piece.
    """

    def __init__(
        self,
        accelerator: Any,  # noqa: ANN401 - accelerate is untyped
        module: nn.Module,
        objective: nn.Module,
        store: TokenStore,
        *,
        cache_rows: int | None = None,
    ) -> None:
        self.accelerator, self.module, self.objective, self.store = accelerator, module, objective, store
        self.cache_rows, self.draws = cache_rows, draws_numbers(module)
        self.processes, self.rank = int(accelerator.num_processes), int(accelerator.process_index)

    def __call__(self, rows: Rows, target: torch.Tensor, *, every_term: bool) -> BatchLoss:
        """Add a batch's gradient.

        Args:
            rows: row numbers of the whole batch.
            target: (b, d), their targets, L2-normalised.
            every_term: compute the terms of weight 0 too.

        Returns:
            The loss, which may be infinite or NaN: no gradient was added then.
        """
        pieces = self._pieces(rows, self.rank)
        tokens, places = self._size(rows)
        own = rows[self.rank :: self.processes]
        if len(pieces) == 1:
            embedding = self._embed(own)
            loss, terms = self.objective(self._gather(embedding), target, every_term=every_term)
            value = float(loss.detach())
            if np.isfinite(value):
                # Every process has the loss of the whole batch but the gradient of its own rows; DDP averages them.
                self.accelerator.backward(loss * self.processes if self.processes > 1 else loss)
                self._share_learned_scalars()
            return BatchLoss(value, terms, tokens, places)
        value, terms = self._backward_in_pieces(own, pieces, target, every_term)
        return BatchLoss(value, terms, tokens, places)

    def _backward_in_pieces(
        self, own: Rows, pieces: list[NDArray[np.intp]], target: torch.Tensor, every_term: bool
    ) -> tuple[float, dict[str, torch.Tensor]]:
        states, parts = [], []
        with torch.no_grad():
            for piece in pieces:
                states.append(_random_state() if self.draws else None)
                parts.append(self._embed(own[piece]))
        after = _random_state() if self.draws else None
        order = torch.from_numpy(np.argsort(np.concatenate(pieces), kind="stable")).to(parts[0].device)
        leaf = torch.cat(parts)[order].requires_grad_()
        loss, terms = self.objective(self._gather(leaf), target, every_term=every_term)
        value = float(loss.detach())
        if not np.isfinite(value):
            return value, terms
        (loss * self.processes).backward()
        gradient = leaf.grad
        if gradient is None:
            raise RuntimeError("the objective doesn't depend on the student")
        for number, (piece, state) in enumerate(zip(pieces, states, strict=True)):
            if state is not None:
                _set_random_state(state)  # dropout draws what it drew the first time
            last = number == len(pieces) - 1
            with nullcontext() if last else self._without_sync():
                self._embed(own[piece]).backward(gradient[torch.from_numpy(piece).to(gradient.device)])
        if after is not None:
            _set_random_state(after)
        self._share_learned_scalars()
        return value, terms

    def _embed(self, rows: Rows) -> torch.Tensor:
        ids, mask = self.store.gather(rows)
        device = self.accelerator.device
        with self.accelerator.autocast(), training_attention(ids.shape[1], device):
            embedding: torch.Tensor = self.module(
                torch.from_numpy(ids).to(device), None if mask is None else torch.from_numpy(mask).to(device)
            ).embedding
        return embedding

    def _gather(self, own: torch.Tensor) -> torch.Tensor:
        """Return the whole batch's embeddings: the own ones with gradient, the other processes' without."""
        if self.processes == 1:
            return own
        shares = list(self.accelerator.gather(own.detach()).split(len(own)))
        shares[self.rank] = own
        # Row i is in process i mod n: interleave the shares again.
        return torch.stack(shares, dim=1).reshape(-1, own.shape[1])

    def _share_learned_scalars(self) -> None:
        """Undo, for the objective's own scalars, the factor that DDP's mean undoes for the student."""
        if self.processes == 1:
            return
        for parameter in self.objective.parameters():
            if parameter.grad is not None:
                parameter.grad = self.accelerator.reduce(parameter.grad, "mean") / self.processes

    def _without_sync(self) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = self.accelerator.no_sync(self.module)
        return context

    def _pieces(self, rows: Rows, rank: int) -> list[NDArray[np.intp]]:
        """Return the pieces of one process's share, as places in the share, rows of about one length together."""
        share = rows[rank :: self.processes]
        if self.cache_rows is None:
            return [np.arange(len(share))]
        order = np.argsort(self.store.lengths[share], kind="stable")
        # As many on every process: shares are of one size, so that all take part in the same exchanges.
        return np.array_split(order, -(-len(share) // self.cache_rows))

    def _size(self, rows: Rows) -> tuple[int, int]:
        """Return tokens and places of the whole batch, whoever embeds them."""
        tokens = places = 0
        for rank in range(self.processes):
            share = rows[rank :: self.processes]
            for piece in self._pieces(rows, rank):
                lengths = self.store.lengths[share[piece]]
                tokens += int(lengths.sum())
                places += len(lengths) * int(lengths.max())
        return tokens, places


def _random_state() -> tuple[torch.Tensor, torch.Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None


def _set_random_state(state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])
