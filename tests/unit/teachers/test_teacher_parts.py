import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError, MissingExtraError, TeacherError
from consilience.teachers import packaged
from consilience.teachers.batching import plan_batches
from consilience.teachers.joined_zip import extract_joined
from consilience.teachers.pooling import pool_numpy, pool_torch
from consilience.teachers.registry import load_teacher
from consilience.teachers.spec import TeacherSpec


@given(st.lists(st.integers(1, 60), max_size=60), st.integers(1, 300))
def test_batches_partition_the_rows_within_the_budget(lengths, budget):
    batches = [batch.tolist() for batch in plan_batches(lengths, budget)]
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert lengths[batch[-1]] == longest
        assert len(batch) == 1 or len(batch) * longest <= budget


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max"])
def test_pooling_by_hand(pooling):
    import torch

    states = np.array([[[1.0], [3.0], [99.0]], [[-4.0], [-2.0], [-3.0]]], dtype=np.float32)
    expected = {"mean": [2, -3], "cls": [1, -4], "last": [3, -3], "max": [3, -2]}[pooling]
    lengths = np.array([2, 3])
    assert pool_numpy(states, lengths, pooling).ravel().tolist() == expected
    assert pool_torch(torch.from_numpy(states), torch.from_numpy(lengths), pooling).ravel().tolist() == expected


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
def test_packed_linears_compute_the_same(activation):
    import torch
    from transformers import BertConfig, BertModel

    from consilience.teachers.packed_linear import can_pack, pack_linears

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        hidden_act=activation,
    )
    model = BertModel(config).eval()
    if not can_pack(model):
        pytest.skip("this torch has no packed kernels")
    ids = torch.arange(20).reshape(2, 10)
    with torch.inference_mode():
        expected = model(ids).last_hidden_state
        undo = pack_linears(model)
        packed_states = model(ids).last_hidden_state
        undo()
        restored = model(ids).last_hidden_state
    torch.testing.assert_close(packed_states, expected, atol=1e-5, rtol=0)
    assert torch.equal(restored, expected)


def write_words(folder):
    np.save(folder / "words.npy", np.array([[1, 0], [0, 1], [0, 3]], dtype=np.float32))
    (folder / "words.txt").write_text("cat\ndog\n,\n")
    return str(folder / "words.npy")


def test_word_vectors_by_hand(tmp_path):
    teacher = load_teacher(TeacherSpec("vectors", write_words(tmp_path)))
    vectors = teacher.encode(["A Cat, a dog!", "cat cat dog zebra", "zebra"])
    np.testing.assert_allclose(vectors, [[0.5, 0.5], [2 / 3, 1 / 3], [1 / 3, 4 / 3]], rtol=1e-6)
    marks = load_teacher(TeacherSpec("vectors", write_words(tmp_path), {"tokens": "bert"}))
    np.testing.assert_allclose(marks.encode(["Cat, dog"]), [[1 / 3, 4 / 3]], rtol=1e-6)
    with pytest.raises(TeacherError, match="text 1"):
        load_teacher(TeacherSpec("vectors", write_words(tmp_path), {"unknown": "refuse"})).encode(["cat", "zebra"])
    zero = load_teacher(TeacherSpec("vectors", write_words(tmp_path), {"unknown": "zero"}))
    assert zero.encode(["zebra"]).tolist() == [[0, 0]]


def test_word_vector_text_forms_agree(tmp_path):
    (tmp_path / "glove.txt").write_text("cat 1 0\ndog 0 1\n")
    (tmp_path / "w2v.txt").write_text("2 2\ncat 1 0\ndog 0 1\n")
    glove = load_teacher(f"vectors:{tmp_path}/glove.txt").encode(["dog cat cat"])
    assert glove.tobytes() == load_teacher(f"vectors:{tmp_path}/w2v.txt").encode(["dog cat cat"]).tobytes()
    (tmp_path / "bad.txt").write_text("cat 1 0\ndog 0 x\n")
    with pytest.raises(TeacherError, match="line 2"):
        load_teacher(f"vectors:{tmp_path}/bad.txt")


@pytest.mark.parametrize("words", ["cat\r\ndog\r\n", "\ufeffcat\ndog\n", "cat 10\ndog 5\n", "cat\ndog\n\n"])
def test_a_vocabulary_of_any_usual_form_is_read(tmp_path, words):
    np.save(tmp_path / "v.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "v.txt").write_bytes(words.encode())
    vectors = load_teacher(f"vectors:{tmp_path}/v.npy").encode(["cat", "dog", "dog cat"])
    assert vectors.tolist() == [[1, 0], [0, 1], [0.5, 0.5]]
    (tmp_path / "glove.txt").write_bytes(b"\xef\xbb\xbfcat 1 0\r\ndog 0 1\r\n")
    assert load_teacher(f"vectors:{tmp_path}/glove.txt").encode(["cat", "dog"]).tolist() == [[1, 0], [0, 1]]


def test_a_table_with_capitals_keeps_the_texts_capitals(tmp_path, capsys):
    (tmp_path / "cased.txt").write_text("Cat 1 0\nDog 0 1\n")
    assert load_teacher(f"vectors:{tmp_path}/cased.txt").encode(["Cat", "Dog"]).tolist() == [[1, 0], [0, 1]]
    assert "its words have capitals, so texts keep theirs" in capsys.readouterr().err
    lowered = load_teacher(f"vectors:{tmp_path}/cased.txt?lowercase=true&unknown=zero")
    assert lowered.encode(["Cat"]).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"v.txt": b"cat 1 0\ndog 1\n"}, "line 2: expected a word and 2 numbers"),
        ({"v.npy": b"", "v.txt": b"cat\n"}, "isn't a .npy matrix"),
        ({"v.npy": b"PK\x05\x06" + bytes(18), "v.txt": b"cat\n"}, "npz archive"),
        ({"v.npy": b"", "v.parquet": b"junk"}, "v.parquet isn't a parquet file"),
    ],
)
def test_damaged_word_vectors_are_named(tmp_path, content, match):
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(TeacherError, match=match):
        load_teacher(f"vectors:{tmp_path / next(iter(content))}")


def write_transformer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import RobertaConfig, RobertaModel

    config = RobertaConfig(
        vocab_size=2, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=12, pad_token_id=1, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = '{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}'
    (folder / "tokenizer_config.json").write_text(settings)


@pytest.mark.parametrize("backend", ["st", "hf"])
def test_a_length_beyond_the_learned_positions_is_refused(tmp_path, backend):
    pytest.importorskip("sentence_transformers")
    write_transformer(tmp_path)
    with pytest.raises(InputError, match=r"at most 10, .* got 11"):
        load_teacher(f"{backend}:{tmp_path}?max_length=11&device=cpu")
    assert load_teacher(f"{backend}:{tmp_path}?max_length=10&device=cpu").encode(["cat " * 99]).shape == (1, 8)


@pytest.mark.parametrize("backend", ["st", "hf"])
def test_damaged_weights_are_one_line(tmp_path, backend):
    pytest.importorskip("sentence_transformers")
    write_transformer(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(TeacherError, match=f"{backend}:.*can't load it: SafetensorError"):
        load_teacher(f"{backend}:{tmp_path}")


def test_unknown_packaged_model_lists_the_known():
    with pytest.raises(TeacherError, match="all-MiniLM-L6-v2"):
        packaged.packaged_files("nope")


def test_missing_package_names_the_extra(monkeypatch):
    missing = packaged.PackagedModel(
        name="x",
        backend="static",
        licence="MIT",
        extra="packaged-large",
        files={"model": packaged.PackagedFile("no-such-distribution-here", "m", "0")},
    )
    monkeypatch.setattr(packaged, "_MODELS", (missing,))
    with pytest.raises(MissingExtraError, match=r"consilience\[packaged-large\]"):
        packaged.packaged_files("x")


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/a.txt", "alpha" * 1000)
        archive.writestr("m/other.txt", "not wanted")
        archive.writestr("../evil.txt", "evil")
    data = whole.read_bytes()
    paths = []
    for number, start in enumerate(range(0, len(data), 97)):
        paths.append(tmp_path / f"part{number:03d}")
        paths[-1].write_bytes(data[start : start + 97])
    return paths


def sha(text):
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def test_pieces_are_joined_and_only_wanted_members_written(pieces, tmp_path):
    folder = extract_joined(pieces, "m", {"m/a.txt": sha("alpha" * 1000)})
    assert [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()] == ["m/a.txt"]
    assert (folder / "m/a.txt").read_text() == "alpha" * 1000
    assert extract_joined([], "m", {"m/a.txt": sha("alpha" * 1000)}) == folder  # from the cache
    (folder / "m/a.txt").write_text("damaged")
    assert extract_joined(pieces, "m", {"m/a.txt": sha("alpha" * 1000)}) == folder  # unpacked again
    assert (folder / "m/a.txt").read_text() == "alpha" * 1000


@pytest.mark.parametrize(
    ("wanted", "match"),
    [({"m/a.txt": "0" * 64}, "sha256"), ({"m/none": "0"}, "no 'm/none'"), ({"../evil.txt": sha("evil")}, "leaves")],
)
def test_bad_members_leave_nothing_behind(pieces, tmp_path, wanted, match):
    with pytest.raises(TeacherError, match=match):
        extract_joined(pieces, "m", wanted)
    assert not list((tmp_path / "cache").iterdir())
    assert not (tmp_path / "evil.txt").exists()


@pytest.mark.weights
def test_fast_path_is_used_and_agrees_with_the_library():
    from sentence_transformers import SentenceTransformer

    files = packaged.packaged_files("all-MiniLM-L6-v2")
    folder = str(files["modules.json"].parent)
    teacher = load_teacher(f"st:{folder}?device=cpu")
    texts = ["a cat", "Two dogs run.", "word " * 600, "", "ünïcödé  spaces\tand tabs", "a cat"]
    assert teacher.fast
    library = SentenceTransformer(folder, device="cpu").encode(texts)
    np.testing.assert_allclose(teacher.encode(texts), library, atol=1e-5)


@pytest.mark.weights
def test_damaged_packaged_file_is_refused(monkeypatch):
    model = packaged.find_packaged("wordllama")
    wrong = {role: packaged.PackagedFile(f.distribution, f.path, "0" * 64) for role, f in model.files.items()}
    damaged = packaged.PackagedModel(model.name, model.backend, model.licence, wrong)
    monkeypatch.setattr(packaged, "_MODELS", (damaged,))
    monkeypatch.setattr(packaged, "_verified", set())
    with pytest.raises(TeacherError, match="sha256"):
        packaged.packaged_files("wordllama")
