"""Gradient caching gives the whole batch's gradient, and the dropout of both passes is the same."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.nn import functional

from consilience.core.hashing import RowHasher
from consilience.objectives.composition import compose_objective
from consilience.students.presets import StudentConfig
from consilience.students.text import build_student
from consilience.students.tokenizer import pad_id, train_tokenizer
from consilience.training.gradients import GradientOfBatch
from consilience.training.token_store import build_token_store

NOUNS = ["cat", "dog", "cow", "hen", "fox", "owl"]
TEXTS = [" ".join(NOUNS[: 1 + i % 6]) + f" {NOUNS[i % 5]}" for i in range(24)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    hasher = RowHasher()
    for text in TEXTS:
        hasher.update(text)
    tokenizer = train_tokenizer(TEXTS, vocab_size=80)
    built = build_token_store(
        [TEXTS],
        tmp_path_factory.mktemp("store") / "tokens",
        tokenizer=tokenizer,
        tokenizer_sha256="t",
        pad=pad_id(tokenizer),
        max_length=16,
        corpus_fingerprint=hasher.hexdigest(),
        rows=len(TEXTS),
    )
    return tokenizer, built


def student_of(tokenizer, dropout=0.0):
    shape = StudentConfig(layers=1, hidden=16, heads=2, ffn=32, dropout=dropout, max_positions=32, max_length=16)
    return build_student(shape, vocab_size=tokenizer.get_vocab_size(), dimensions=8, seed=1).train()


def gradients(student, store, objective, target, cache_rows):
    student.zero_grad(set_to_none=True)
    objective.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    compute = GradientOfBatch(Accelerator(cpu=True), student, objective, store, cache_rows=cache_rows)
    loss = compute(np.arange(len(store)), target, every_term=True)
    named = [*student.named_parameters(), *objective.named_parameters()]
    return loss, {name: value.grad.clone() for name, value in named if value.grad is not None}


def random_targets():
    return functional.normalize(torch.randn(len(TEXTS), 8, generator=torch.Generator().manual_seed(3)), dim=-1)


@pytest.mark.parametrize("name", ["composite", "affinity", "siglip"])
@pytest.mark.parametrize("cache_rows", [1, 5, 24])
def test_cached_gradient_is_the_whole_batchs(store, name, cache_rows):
    tokenizer, tokens = store
    student, objective = student_of(tokenizer), compose_objective(name, dimensions=8)
    whole, expected = gradients(student, tokens, objective, random_targets(), None)
    cached, found = gradients(student, tokens, objective, random_targets(), cache_rows)
    assert cached.value == pytest.approx(whole.value, rel=1e-5)
    assert cached.tokens == whole.tokens
    assert cached.places <= whole.places
    assert found.keys() == expected.keys()
    for parameter, gradient in expected.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-4, atol=2e-5 * max(scale, 1e-3))


def test_both_passes_drop_the_same_units(store, monkeypatch):
    tokenizer, tokens = store
    student, objective = student_of(tokenizer, dropout=0.3), compose_objective("mimicry")
    compute = GradientOfBatch(Accelerator(cpu=True), student, objective, tokens, cache_rows=5)
    seen = []
    embed = compute._embed
    monkeypatch.setattr(compute, "_embed", lambda rows: (seen.append((rows, embed(rows))), seen[-1][1])[1])
    torch.manual_seed(0)
    compute(np.arange(len(tokens)), random_targets(), every_term=False)
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert len(first) == len(second) == 5
    for (rows, once), (again, twice) in zip(first, second, strict=True):
        assert rows.tolist() == again.tolist()
        torch.testing.assert_close(once, twice.detach(), rtol=0, atol=0)
    # The masks differ between pieces: the same ones everywhere would mean that the state was never advanced.
    assert not torch.equal(student(torch.tensor([[2, 3]])).embedding, student(torch.tensor([[2, 3]])).embedding)
