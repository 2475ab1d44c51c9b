"""What makes training on pairs fast must not change what is trained: cuts, attention kernel, precision."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from consilience.adapters.attach import attach_amoe
from consilience.adapters.library import AnchorLibrary
from consilience.core.errors import InputError
from consilience.core.files import read_json
from consilience.corpora.caption_grammar import generate_pairs
from consilience.corpora.pairs import open_pairs
from consilience.training import pair_loop, pair_model
from consilience.training.attention import LONGEST_PLAIN, training_attention
from consilience.training.pair_loop import PairSettings, train_on_pairs
from consilience.training.pair_model import cut_by_length
from consilience.training.pair_tokens import tokenize_pairs
from consilience.training.precision import FILE

PAIRS = [(p.sentence1, p.sentence2) for p in generate_pairs(300, seed=1) if p.score >= 3.5]
CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(pair_model):
    return pair_model


def padded(lengths, cuts):
    return sum(int(lengths[start]) * (stop - start) for start, stop in cuts)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=300))
def test_cuts_cover_all_rows_and_pad_no_more_than_equal_shares(lengths):
    falling = np.sort(np.array(lengths))[::-1]
    cuts = cut_by_length(falling)
    assert [row for start, stop in cuts for row in range(start, stop)] == list(range(len(falling)))
    assert all(stop - start == 1 or falling[start] * (stop - start) <= pair_model.CHUNK_TOKENS for start, stop in cuts)

    filled, start = [], 0
    while start < len(falling):  # the plain way: as full as a pass may be
        filled.append((start, min(start + max(pair_model.CHUNK_TOKENS // int(falling[start]), 1), len(falling))))
        start = filled[-1][1]
    cost = pair_model._PASS_TOKENS
    assert padded(falling, cuts) + cost * len(cuts) <= padded(falling, filled) + cost * len(filled)


def test_no_rows_need_no_pass():
    assert cut_by_length(np.array([], dtype=np.int64)) == []


@pytest.mark.parametrize("half", [False, True])
def test_the_plain_kernel_is_taken_for_short_rows(half):
    def is_plain(tokens):
        with torch.autocast("cpu", torch.bfloat16, enabled=half), training_attention(tokens, CPU) as taken:
            return taken is not None

    longest = LONGEST_PLAIN[half]
    assert is_plain(longest)
    assert not is_plain(longest + 1)
    with torch.no_grad():  # a pass of the gradient cache that is repeated with gradients
        assert is_plain(longest)


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_it_is_torchs_plain_kernel_bit_by_bit(half, mask):
    random = torch.Generator().manual_seed(0)
    inputs = [torch.randn(3, 2, 7, 8, generator=random) for _ in range(3)]
    keep = torch.ones(3, 1, 7, 7, dtype=torch.bool)
    keep[:, :, :, 5:] = False
    given = {"none": None, "bool": keep, "float": torch.zeros(keep.shape).masked_fill(~keep, -1e30)}[mask]
    results = []
    for context in (sdpa_kernel(SDPBackend.MATH), training_attention(7, CPU)):
        leaves = [x.clone().requires_grad_() for x in inputs]
        with torch.autocast("cpu", torch.bfloat16, enabled=half), context:
            output = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=given, scale=0.3)
        output.float().square().sum().backward()
        results.append((output, *(leaf.grad for leaf in leaves)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_other_threads_keep_their_kernel():
    inside, seen = threading.Event(), []

    def other():
        inside.wait(10)
        seen.append((torch.backends.cuda.flash_sdp_enabled(), torch.overrides._get_current_function_mode()))

    thread = threading.Thread(target=other)
    thread.start()
    with training_attention(8, CPU):
        inside.set()
        thread.join(10)
    assert seen == [(True, None)]


def test_neither_kernel_nor_cut_changes_embedding_and_gradient(model, monkeypatch):
    library = AnchorLibrary(32, 2)
    anchor = library.add("equiv", seed=0)
    for index in range(2):
        random = torch.Generator().manual_seed(index)
        torch.nn.init.normal_(anchor.block(index).output.weight, std=0.1, generator=random)
    handle = attach_amoe(model.model, library)
    library.trainable("equiv")
    ids = model.tokenize([text for pair in PAIRS[:40] for text in pair])

    def run():
        with handle.training(), handle.solo("equiv"):
            embedding = model.embed(ids)
            embedding[:, 0].sum().backward()
        gradient = anchor.block(0).project.weight.grad.clone()
        anchor.zero_grad()
        return embedding.detach(), gradient

    fast = run()
    monkeypatch.setitem(LONGEST_PLAIN, False, 0)
    monkeypatch.setattr(pair_model, "_PASS_TOKENS", 10**9)
    slow = run()
    for one, other in zip(fast, slow, strict=True):
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    handle.detach()


@pytest.mark.parametrize(("steps", "asked", "expected"), [(9, "auto", "fp32"), (3, "bf16", "bf16"), (10, "auto", None)])
def test_precision_of_a_training(model, tmp_path, monkeypatch, steps, asked, expected):
    monkeypatch.setattr(pair_loop, "_STEPS_WORTH_MEASURING", 10)
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
    library = AnchorLibrary(32, 2)
    anchor = library.add("equiv", seed=0)
    handle = attach_amoe(model.model, library)
    library.trainable("equiv")
    domain = tokenize_pairs(model, open_pairs(PAIRS), name="equiv", seed=0)
    settings = PairSettings(steps=steps, batch_rows=8, gauge_readings=1, precision=asked)
    work = tmp_path / "work"
    work.mkdir()
    with handle.training(), handle.solo("equiv"):
        summary = train_on_pairs(model, [domain], dict(anchor.named_parameters()), settings, work)
    measured = work / FILE
    assert measured.is_file() == (expected is None)
    assert summary.precision == (expected or read_json(measured)["precision"])
    assert all(parameter.dtype == torch.float32 for parameter in anchor.parameters())
    handle.detach()


def test_measuring_leaves_the_training_as_it_was(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pair_loop, "_STEPS_WORTH_MEASURING", 10)
    monkeypatch.setattr("consilience.training.precision.REQUIRED_SPEEDUP", 1e9)  # measured, and fp32 it is
    trained = []
    for asked in ("fp32", "auto"):
        library = AnchorLibrary(32, 2)
        anchor = library.add("equiv", seed=0)
        handle = attach_amoe(model.model, library)
        library.trainable("equiv")
        domain = tokenize_pairs(model, open_pairs(PAIRS), name="equiv", seed=0)
        settings = PairSettings(steps=10, batch_rows=8, gauge_readings=1, precision=asked)
        work = tmp_path / asked
        work.mkdir()
        with handle.training(), handle.solo("equiv"):
            train_on_pairs(model, [domain], dict(anchor.named_parameters()), settings, work)
        trained.append({name: value.detach().clone() for name, value in anchor.named_parameters()})
        handle.detach()
    for name, value in trained[0].items():
        assert torch.equal(value, trained[1][name]), name


def test_an_unknown_precision_is_refused():
    with pytest.raises(InputError, match="fp8"):
        PairSettings(precision="fp8")
