"""Heads of text students: what they compute, count and store; and the cost of a forward pass."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import InputError
from consilience.students.presets import (
    PRESETS,
    StudentConfig,
    count_from_config,
    non_embedding_flops_per_token,
)
from consilience.students.text import StudentEncoder, build_student, count_parameters, load_student, save_student_files
from consilience.students.tokenizer import train_tokenizer

TINY = StudentConfig(layers=2, hidden=32, heads=4, ffn=64, max_positions=64, max_length=32)
TEXTS = ["a red cube", "a blue sphere on a red cube", "two dogs run", "a dog"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, vocab_size=100)


@pytest.mark.parametrize(("head", "dimensions"), [("mlp", 16), ("linear", 16), ("linear", 32), ("none", 32)])
def test_every_head_counts_as_the_formula_and_comes_back_from_its_files(head, dimensions, tokenizer, tmp_path):
    config = replace(TINY, head=head)
    student = build_student(config, vocab_size=100, dimensions=dimensions, seed=1)
    assert count_parameters(student) == count_from_config(config, vocab_size=100, dimensions=dimensions)
    out = tmp_path / "student"
    work, _ = begin_artefact(out, {"job": 1})
    files = save_student_files(student, tokenizer, work, max_length=32)
    assert ("head.safetensors" in files) == (head != "none")
    manifest = {"dimensions": dimensions, "max_length": 32, "config": config.to_json()}
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    loaded = load_student(out)
    assert loaded.module.head_kind == head
    direct = StudentEncoder(student, tokenizer, name="direct", max_length=32, manifest={})
    np.testing.assert_array_equal(loaded.encode(TEXTS), direct.encode(TEXTS))


def test_a_linear_head_starts_as_identity_or_semi_orthogonal():
    same = build_student(replace(TINY, head="linear"), vocab_size=50, dimensions=32, seed=0)
    assert torch.equal(same.head.weight, torch.eye(32))
    for dimensions in (16, 48):
        weight = build_student(replace(TINY, head="linear"), vocab_size=50, dimensions=dimensions, seed=0).head.weight
        small = weight @ weight.T if dimensions < 32 else weight.T @ weight
        torch.testing.assert_close(small, torch.eye(len(small)), atol=1e-5, rtol=0)


def test_without_a_head_the_embedding_is_the_pooled_state_at_length_one():
    student = build_student(replace(TINY, head="none"), vocab_size=50, dimensions=32, seed=0).eval()
    with torch.no_grad():
        out = student(torch.tensor([[2, 7, 3]]))
    expected = torch.nn.functional.normalize(out.last_hidden_state.mean(dim=1), dim=-1)
    torch.testing.assert_close(out.embedding, expected)
    with pytest.raises(InputError, match="head none needs an embedding as wide as the token states, got 16 and 32"):
        build_student(replace(TINY, head="none"), vocab_size=50, dimensions=16, seed=0)


def test_fields_that_older_manifests_lack_are_left_out_when_they_say_nothing_new():
    assert "head" not in TINY.to_json()
    assert "architecture" not in TINY.to_json()
    assert replace(TINY, head="linear").to_json()["head"] == "linear"
    with pytest.raises(InputError, match="head among mlp, linear, none"):
        replace(TINY, head="conv")
    with pytest.raises(InputError, match="Start from a model of that architecture"):
        build_student(replace(TINY, architecture="mpnet"), vocab_size=50, dimensions=8, seed=0)


def test_flops_by_hand():
    # One layer of width 2 and feed-forward 3: weights 4*4 + 2*6 = 28, twice; attention to 5 tokens: 4*2*5.
    config = StudentConfig(layers=1, hidden=2, heads=1, ffn=3, max_positions=8, max_length=8)
    assert non_embedding_flops_per_token(config) == 56
    assert non_embedding_flops_per_token(config, tokens=5) == 96
    minilm = StudentConfig(layers=6, hidden=384, heads=12, ffn=1536)
    assert non_embedding_flops_per_token(replace(minilm, layers=3)) <= 0.6 * non_embedding_flops_per_token(minilm)
    assert non_embedding_flops_per_token(PRESETS["mini"]) > 0.6 * non_embedding_flops_per_token(minilm)
