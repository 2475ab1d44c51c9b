"""Optimisers: sparse tables, objectives' own settings, state that a checkpoint carries."""

import pytest
import torch

from consilience.core.errors import InputError
from consilience.objectives.composition import compose_objective
from consilience.training.checkpoint import Position, load_checkpoint, save_checkpoint
from consilience.training.optimizers import Optimizers, make_tables_sparse


class Bag(torch.nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.table = torch.nn.Embedding(20, 4)
        self.position_embeddings = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, ids):
        return self.head((self.table(ids) + self.position_embeddings(torch.arange(ids.shape[1]))).mean(dim=1))


BATCHES = [torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[7, 8, 9], [1, 2, 2]]), torch.tensor([[3, 3, 9]])] * 2


def train(bag, optimizers, batches):
    for ids in batches:
        bag(ids).square().sum().backward()
        optimizers.step()
        optimizers.zero_grad()


def test_only_token_tables_become_sparse():
    bag = Bag()
    assert make_tables_sparse(bag) == ["table.weight"]
    assert bag.table.sparse
    assert not bag.position_embeddings.sparse


def test_sparse_adam_leaves_rows_alone_that_no_batch_touched():
    bag = Bag()
    optimizers = Optimizers(dict(bag.named_parameters()), sparse=make_tables_sparse(bag), lr=0.1)
    before = bag.table.weight.detach().clone()
    train(bag, optimizers, BATCHES[:1])
    moved = (bag.table.weight != before).any(dim=1).nonzero().flatten().tolist()
    assert moved == [1, 2, 3, 4, 5, 6]
    # The first step of Adam is lr times the gradient's sign, sparse or not.
    torch.testing.assert_close((bag.table.weight - before)[1:7].abs(), torch.full((6, 4), 0.1), rtol=1e-3, atol=1e-4)


def test_sparse_training_continues_bit_for_bit(tmp_path):
    bag = Bag()
    optimizers = Optimizers(dict(bag.named_parameters()), sparse=make_tables_sparse(bag), lr=0.1)
    train(bag, optimizers, BATCHES[:3])
    save_checkpoint(tmp_path, Position(step=3), optimizers)
    train(bag, optimizers, BATCHES[3:])
    other = Bag(seed=9)
    restored = Optimizers(dict(other.named_parameters()), sparse=make_tables_sparse(other), lr=0.1)
    assert load_checkpoint(tmp_path, restored) == Position(step=3)
    train(other, restored, BATCHES[3:])
    for ours, theirs in zip(bag.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_verbatim_brings_its_own_optimiser():
    settings = compose_objective("verbatim", dimensions=32).optimizer
    assert (settings.kind, settings.weight_decay, settings.warmup_steps, settings.clip_norm) == (
        "adamw",
        0.01,
        1000,
        1.0,
    )
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizers = Optimizers({"weight": weight}, settings=settings, lr=0.1)
    weight.grad = torch.tensor([30.0, 40.0])
    optimizers.step()
    torch.testing.assert_close(weight.grad, torch.tensor([0.6, 0.8]), rtol=1e-4, atol=0)  # clipped to length 1
    torch.testing.assert_close(weight.detach(), torch.tensor([3.0, 4.0]) * (1 - 0.1 * 0.01) - 0.1, rtol=1e-5, atol=0)
    with pytest.raises(InputError, match="sparse gradients"):
        Optimizers({"weight": weight}, sparse=["weight"], settings=settings)
