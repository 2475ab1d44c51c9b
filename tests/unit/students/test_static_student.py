"""The static student: its arithmetic, its files, and that the fast path is the plain one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import BankIntegrityError, InputError, TeacherError
from consilience.corpora.caption_grammar import generate_captions
from consilience.exporters.parity import PROBE
from consilience.students.chunk_sums import ChunkSums, splits_at_blanks
from consilience.students.static import (
    StaticEncoder,
    StaticStudent,
    build_static,
    load_table,
    plain_tokenizer,
)
from consilience.students.text import encode_ids, load_student, save_student_files
from consilience.students.tokenizer import pad_id, train_tokenizer


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(list(generate_captions(400)), vocab_size=500)


def encoder_of(words: Tokenizer, *, max_length: int = 64, dimensions: int = 8) -> StaticEncoder:
    student = build_static(words.get_vocab_size(), dimensions, seed=1)
    return StaticEncoder(student, words, name="static", max_length=max_length, manifest={})


def store(student: StaticStudent, words: Tokenizer, out: Path, *, max_length: int = 64) -> Path:
    work, _ = begin_artefact(out, {"kind": "student"})
    files = save_student_files(student, words, work, max_length=max_length)
    manifest = {
        "config": {"architecture": "static"},
        "dimensions": student.dimensions,
        "max_length": max_length,
        "frame": "test",
        "axes": "principal",
    }
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return out


def test_mean_of_rows_at_length_one() -> None:
    student = StaticStudent(torch.tensor([[9.0, 9.0], [3.0, 0.0], [0.0, 4.0]]))
    ids = torch.tensor([[1, 2, 0], [2, 0, 0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    out = student(ids, mask)
    torch.testing.assert_close(out.embedding, torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
    assert out.last_hidden_state.shape == (2, 3, 2)
    torch.testing.assert_close(student(ids[:1, :2]).embedding, out.embedding[:1])


@pytest.mark.parametrize("sparse", [False, True])
def test_gradient_reaches_the_seen_rows_only(sparse: bool) -> None:
    table = torch.nn.Embedding(4, 2, sparse=sparse)
    student = StaticStudent(table)
    student(torch.tensor([[1, 2]])).embedding[0, 0].backward()
    gradient = table.weight.grad
    assert gradient is not None
    assert gradient.is_sparse == sparse
    touched = gradient.to_dense().abs().sum(dim=1) > 0
    assert touched.tolist() == [False, True, True, False]


def test_random_rows_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (build_static(5, 3, seed=s).embedding.weight for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(InputError, match="at least 1"):
        build_static(0, 3, seed=0)


def test_stored_and_loaded(words: Tokenizer, tmp_path: Path) -> None:
    student = build_static(words.get_vocab_size(), 8, seed=1)
    loaded = load_student(store(student, words, tmp_path / "s"))
    assert isinstance(loaded, StaticEncoder)
    texts = list(generate_captions(20, seed=3))
    assert np.array_equal(loaded.encode(texts), encoder_of(words).encode(texts))
    assert loaded.parameters == words.get_vocab_size() * 8
    assert loaded.tokenizer.encode("a cat").tokens[0] != "[CLS]"
    table, tokenizer = load_table(tmp_path / "s")
    assert torch.equal(table, student.embedding.weight.detach())
    assert tokenizer.encode("a cat").ids == loaded.tokenizer.encode("a cat").ids
    content = bytearray((tmp_path / "s" / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "s" / "model.safetensors").write_bytes(bytes(content))
    with pytest.raises(BankIntegrityError, match=r"model\.safetensors"):
        load_table(tmp_path / "s")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_a_table_that_is_no_table_is_not_stored(words: Tokenizer, tmp_path: Path, value: float) -> None:
    student = build_static(words.get_vocab_size(), 8, seed=1)
    with torch.no_grad():
        (student.embedding.weight if value == 0 else student.embedding.weight[3:5, 2]).fill_(value)
    with pytest.raises(InputError, match="all of it is zero" if value == 0 else "2 of .* rows have NaN or infinity"):
        save_student_files(student, words, tmp_path, max_length=8)
    assert not list(tmp_path.iterdir())


def test_table_of_a_student_with_layers_is_refused(tmp_path: Path) -> None:
    work, _ = begin_artefact(tmp_path / "s", {})
    finish_artefact(tmp_path / "s", kind="student", manifest={"config": {"layers": 2}}, files=[])
    assert not work.exists()
    with pytest.raises(InputError, match="expected a static student"):
        load_table(tmp_path / "s")


@pytest.mark.parametrize("max_length", [1, 3, 64, 10_000])
def test_fast_path_is_the_plain_one(words: Tokenizer, max_length: int) -> None:
    texts = [
        *PROBE,
        *generate_captions(50),
        "a  b",
        " a ",
        "a\tb c\n d",
        "[MASK] a[SEP]b",
        "e\u0301 \u0301a",
        "a\x1cb c",
    ]
    atol = 2e-6 if max_length <= 64 else 1e-4  # fp32 sums of 3,000 words; 1e-4 is what an export promises
    fast = encoder_of(words, max_length=max_length)
    assert fast._chunks is not None
    plain = encoder_of(words, max_length=max_length)
    plain._chunks = None
    np.testing.assert_allclose(fast.encode(texts), plain.encode(texts), atol=atol)
    # Texts that were seen, in another order and company.
    np.testing.assert_allclose(fast.encode(texts[::-1])[::-1], plain.encode(texts), atol=atol)
    # And as a training sees them.
    cutter = plain_tokenizer(words)
    cutter.enable_truncation(max_length)
    ids = [np.array(cutter.encode(text).ids) for text in texts]
    slow = encode_ids(fast.module, ids, pad=pad_id(words))
    np.testing.assert_allclose(fast.encode(texts), slow, atol=atol)


def test_kept_sums_follow_the_table_and_stay_few(words: Tokenizer) -> None:
    encoder = encoder_of(words)
    before = encoder.encode(["a cat"])
    with torch.no_grad():
        encoder.module.embedding.weight.mul_(torch.arange(1.0, 9.0))
    after = encoder.encode(["a cat"])
    assert np.abs(before - after).max() > 1e-3
    encoder._chunks = None
    np.testing.assert_allclose(after, encoder.encode(["a cat"]), atol=1e-6)

    table = encoder.module.embedding.weight.detach()
    sums = ChunkSums(plain_tokenizer(words), kept=5)
    texts = list(generate_captions(30))
    whole, tokens = ChunkSums(plain_tokenizer(words)).sum_texts(texts, table)
    for i, text in enumerate(texts):
        one, count = sums.sum_texts([text], table)
        torch.testing.assert_close(one[0], whole[i])
        assert count[0] == tokens[i]
        assert len(sums._known.places) < 5 + len(text.split(" ")) + 1


def test_which_tokenizers_split_at_blanks(words: Tokenizer) -> None:
    assert splits_at_blanks(plain_tokenizer(words))
    pieces = Tokenizer(models.BPE({"a": 0, "▁": 1, "[PAD]": 2}, []))
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces.decoder = decoders.Metaspace()
    assert not splits_at_blanks(pieces)
    phrase = plain_tokenizer(words)
    phrase.add_tokens(["new york"])
    assert not splits_at_blanks(phrase)
    encoder = StaticEncoder(
        build_static(pieces.get_vocab_size(), 4, seed=0), pieces, name="p", max_length=8, manifest={}
    )
    assert encoder._chunks is None
    assert encoder.encode(["a a", "a"]).shape == (2, 4)


def test_text_without_a_token_has_no_vector(words: Tokenizer) -> None:
    with pytest.raises(TeacherError, match="row 1 has no token"):
        encoder_of(words).encode(["a cat", " "])
    assert encoder_of(words).encode([]).shape == (0, 8)
    encoder = encoder_of(words)
    with torch.no_grad():
        encoder.module.embedding.weight.fill_(float("nan"))
    with pytest.raises(TeacherError, match="isn't finite"):
        encoder.encode(["a cat"])


def test_it_carries_no_library_whether_or_not_adapters_were_ever_used(words: Tokenizer) -> None:
    from consilience.adapters.attach import attach_amoe, handle_of  # from here on the tier is there to be asked

    encoder = encoder_of(words)
    assert handle_of(encoder) is None
    assert "adapters" not in encoder.identity()
    with pytest.raises(InputError, match=r"expected one encoder|nowhere"):
        attach_amoe(encoder, "nowhere")
