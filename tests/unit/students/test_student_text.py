"""Students: parameter counts, determinism, pooling, files, encoding."""

import numpy as np
import pytest
import torch

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.encoder import Encoder
from consilience.core.errors import BankIntegrityError, InputError
from consilience.students.presets import PRESETS, StudentConfig, count_from_config, resolve_config
from consilience.students.text import (
    StudentEncoder,
    build_student,
    count_parameters,
    encode_ids,
    load_student,
    pad_rows,
    save_student_files,
)
from consilience.students.tokenizer import load_tokenizer, tokenizer_hash, train_tokenizer

TINY = StudentConfig(layers=2, hidden=32, heads=4, ffn=64, max_positions=64, max_length=32)
TEXTS = ["a red cube", "a blue sphere on a red cube", "two dogs run", "a dog", "one small bird sings in a tall tree"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, vocab_size=120)


@pytest.fixture
def student(tokenizer):
    return build_student(TINY, vocab_size=tokenizer.get_vocab_size(), dimensions=16, seed=1)


@pytest.fixture
def stored(student, tokenizer, tmp_path):
    out = tmp_path / "student"
    work, _ = begin_artefact(out, {"job": 1})
    files = save_student_files(student, tokenizer, work, max_length=32)
    finish_artefact(out, kind="student", manifest={"dimensions": 16, "max_length": 32, "frame": "f"}, files=files)
    return out


@pytest.mark.slow
def test_captionbert_has_exactly_the_documents_parameters():
    # Source: design, section 4. Built for real: 58 million weights.
    built = build_student("captionbert-8192", vocab_size=30_522, dimensions=768, seed=0)
    assert count_parameters(built) == 58_308_864
    assert sum(p.numel() for p in built.parameters() if p.requires_grad) == 58_308_864


def test_formula_counts_the_documents_parameters():
    assert count_from_config(PRESETS["captionbert-8192"], vocab_size=30_522, dimensions=768) == 58_308_864


def test_token_types_are_zero_and_not_trained(student):
    table = student.backbone.embeddings.token_type_embeddings.weight
    assert not table.requires_grad
    assert not table.any()


def test_same_seed_same_weights_and_global_state_untouched():
    state = torch.get_rng_state()
    first, second, other = (build_student(TINY, vocab_size=50, dimensions=8, seed=s) for s in (3, 3, 4))
    assert torch.equal(state, torch.get_rng_state())
    weights = [model.head[0].weight for model in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(
        first.backbone.embeddings.word_embeddings.weight, second.backbone.embeddings.word_embeddings.weight
    )


def test_padding_changes_nothing(student):
    student.eval()
    ids = torch.tensor([[2, 7, 8, 3]])
    padded = torch.tensor([[2, 7, 8, 3, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    with torch.no_grad():
        bare, masked = student(ids), student(padded, mask)
    torch.testing.assert_close(bare.embedding, masked.embedding, atol=1e-6, rtol=0)
    assert bare.last_hidden_state.shape == (1, 4, 32)
    assert torch.equal(bare.pooler_output, bare.embedding)
    assert bare.embedding.norm().item() == pytest.approx(1.0, abs=1e-6)


def test_pooling_is_the_mean_of_token_states(student):
    student.eval()
    with torch.no_grad():
        out = student(torch.tensor([[2, 7, 3]]))
        expected = torch.nn.functional.normalize(student.head(out.last_hidden_state.mean(dim=1)), dim=-1)
    torch.testing.assert_close(out.embedding, expected)


def test_stored_student_is_an_encoder_with_the_same_vectors(stored, student, tokenizer):
    loaded = load_student(stored)
    assert isinstance(loaded, Encoder)
    assert loaded.dimensions == 16
    assert loaded.parameters == count_parameters(student)
    direct = StudentEncoder(student, tokenizer, name="direct", max_length=32, manifest={})
    np.testing.assert_array_equal(loaded.encode(TEXTS), direct.encode(TEXTS))
    assert loaded.identity()["frame"] == "f"


def test_rows_come_back_in_order_whatever_the_batches(stored):
    loaded = load_student(stored)
    together = loaded.encode(TEXTS)
    alone = np.concatenate([loaded.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    ids = [np.array(loaded.tokenizer.encode(text).ids) for text in TEXTS]
    np.testing.assert_allclose(encode_ids(loaded.module, ids, pad=0, batch_tokens=12), alone, atol=1e-6)


def test_long_texts_are_cut(stored):
    loaded = load_student(stored)
    rows = loaded.encode(["a dog " * 100, "a dog " * 200])
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)


def test_backbone_loads_with_automodel(stored, tokenizer):
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(stored, add_pooling_layer=False).eval()
    words = AutoTokenizer.from_pretrained(stored)
    inputs = words(TEXTS[0], return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == tokenizer.encode(TEXTS[0]).ids
    with torch.no_grad():
        theirs = model(input_ids=inputs["input_ids"]).last_hidden_state
        ours = load_student(stored).module(inputs["input_ids"]).last_hidden_state
    torch.testing.assert_close(theirs, ours)


def test_a_flipped_byte_is_found(stored):
    path = stored / "head.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(BankIntegrityError, match=r"head\.safetensors"):
        load_student(stored)


def test_trained_tokenizer_is_deterministic_and_survives_its_file(tokenizer, tmp_path):
    again = train_tokenizer(TEXTS * 3, vocab_size=120)
    assert tokenizer_hash(again) == tokenizer_hash(tokenizer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert tokenizer_hash(load_tokenizer(tmp_path)) == tokenizer_hash(tokenizer)
    assert tokenizer.encode("a dog").tokens == ["[CLS]", "a", "dog", "[SEP]"]


def test_pad_rows_needs_no_mask_for_equal_lengths():
    assert pad_rows([np.array([1, 2]), np.array([3, 4])], 0)[1] is None
    ids, mask = pad_rows([np.array([1]), np.array([3, 4])], 9)
    assert ids.tolist() == [[1, 9], [3, 4]]
    assert mask.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 5}, "divide hidden"),
        ({"layers": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout"),
        ({"max_length": 99}, "max_positions"),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    fields = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "max_positions": 64, "max_length": 32}
    with pytest.raises(InputError, match=message):
        StudentConfig(**{**fields, **change})


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InputError, match="Choose captionbert-8192, micro, mini"):
        resolve_config("maxi")
    with pytest.raises(InputError, match="no such tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="isn't a tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")
