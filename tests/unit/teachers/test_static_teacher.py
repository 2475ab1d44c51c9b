"""Static tables: model2vec's rules by hand, and the types that tables are stored in."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from consilience.core.errors import TeacherError
from consilience.recipes.encoders import open_encoder
from consilience.teachers.registry import load_teacher

WORDS = ["cat", "dog", "a", "on", "mat"]


def tokenizer_of(kind):
    if kind == "Unigram":
        # The unknown token is the third, and named by its place alone.
        pieces = [("[PAD]", -9.0), ("▁", -2.0), ("<unk>", -9.0), *(("▁" + word, -1.0) for word in WORDS)]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        return tokenizer
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    if kind == "BPE":
        letters = {letter: i for i, letter in enumerate(["[PAD]", "<unk>", *sorted(set("".join(WORDS)))])}
        tokenizer = Tokenizer(models.BPE(letters, [], unk_token="<unk>"))
    elif kind == "WordPiece":
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    else:
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def write(folder, tokenizer, tensors, config=None):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(tensors, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return f"static:{folder}"


def table_of(tokenizer, width=6):
    return torch.randn(tokenizer.get_vocab_size(), width, generator=torch.Generator().manual_seed(0))


def mean_without(table, tokenizer, text, unknown, cut=None):
    """model2vec 0.10, StaticModel._encode_batch and tokenize, by hand."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:cut]
    return table.numpy()[[i for i in ids if i != unknown]].mean(axis=0)


@pytest.mark.parametrize(
    ("kind", "unknown"), [("Unigram", "<unk>"), ("WordPiece", "[UNK]"), ("BPE", "<unk>"), ("WordLevel", "[UNK]")]
)
def test_the_unknown_token_is_left_out_of_model2vec_folders_alone(kind, unknown, tmp_path):
    tokenizer = tokenizer_of(kind)
    table, number = table_of(tokenizer), tokenizer.token_to_id(unknown)
    text = "a cat 猫 on ☂ mat"
    assert number in tokenizer.encode(text).ids
    theirs = load_teacher(write(tmp_path / "m2v", tokenizer, {"embeddings": table}, {"model_type": "model2vec"}))
    np.testing.assert_allclose(theirs.encode(text), mean_without(table, tokenizer, text, number), atol=1e-6)
    plain = load_teacher(write(tmp_path / "plain", tokenizer, {"embedding.weight": table}))
    np.testing.assert_allclose(plain.encode(text), mean_without(table, tokenizer, text, None), atol=1e-6)
    if kind != "Unigram":  # whose blanks are tokens
        with pytest.raises(TeacherError, match=r"text 1 .* all zero"):
            theirs.encode(["a cat", "☂☂"])


def test_a_unigram_without_an_unknown_token_keeps_all(tmp_path):
    pieces = [("[PAD]", -9.0), *((letter, -1.0) for letter in "▁acdemnot")]
    tokenizer = Tokenizer(models.Unigram(pieces, None))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    table = table_of(tokenizer)
    teacher = load_teacher(write(tmp_path / "m", tokenizer, {"embeddings": table}, {"normalize": False}))
    np.testing.assert_allclose(teacher.encode("a cat"), mean_without(table, tokenizer, "a cat", None), atol=1e-6)


@pytest.mark.parametrize(("config", "cut"), [({}, 512), ({"max_length": 3}, 3), ({"max_length": None}, None)])
def test_a_text_is_cut_where_model2vec_cuts_it(config, cut, tmp_path):
    tokenizer = tokenizer_of("WordLevel")
    table = table_of(tokenizer)
    teacher = load_teacher(write(tmp_path / "m", tokenizer, {"embeddings": table}, {"normalize": False, **config}))
    assert teacher.max_length == cut
    text = "mat " * 2 + "cat dog a on " * 400
    median = int(np.median([len(word) for word in tokenizer.get_vocab()]))
    shown = text if cut is None else text[: cut * median]
    np.testing.assert_allclose(teacher.encode(text), mean_without(table, tokenizer, shown, 1, cut), atol=1e-6)
    spec = f"static:{tmp_path / 'm'}?max_length=2"
    np.testing.assert_allclose(
        load_teacher(spec).encode(text), mean_without(table, tokenizer, text[: 2 * median], 1, 2), atol=1e-6
    )
    bad = write(tmp_path / "bad", tokenizer, {"embeddings": table}, {"max_length": "512"})
    with pytest.raises(TeacherError, match=r"expected a whole number or null as max_length.*Pass max_length=TOKENS"):
        load_teacher(bad)
    assert load_teacher(bad + "?max_length=5").max_length == 5  # what the message says mends it


@pytest.mark.parametrize(
    "kind", [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8]
)
@pytest.mark.parametrize("name", ["embeddings", "embedding.weight"])
def test_tables_of_every_type_are_read(kind, name, tmp_path):
    tokenizer = tokenizer_of("WordPiece")
    table = (table_of(tokenizer) * 30).round().clamp(-127, 127).to(kind)
    teacher = load_teacher(write(tmp_path / "m", tokenizer, {name: table}, {"normalize": True}))
    unknown = 1 if name == "embeddings" else None
    expected = mean_without(table.float(), tokenizer, "a cat on 猫", unknown)
    if name == "embeddings":
        expected = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(teacher.encode("a cat on 猫"), expected, rtol=1e-5)


def test_quantised_vocabularies_in_int8_have_tokens_weights(tmp_path):
    tokenizer = tokenizer_of("WordLevel")
    groups = torch.tensor([[100, 0], [0, 100], [-50, 7]], dtype=torch.int8)
    mapping, weights = torch.tensor([0, 1, 2, 0, 1, 2, 0]), torch.linspace(0.5, 2.0, 7, dtype=torch.float64)
    tensors = {"embeddings": groups, "mapping": mapping, "weights": weights}
    teacher = load_teacher(write(tmp_path / "m", tokenizer, tensors, {"normalize": False}))
    rows = groups.double()[mapping] * weights[:, None]
    np.testing.assert_allclose(teacher.encode("dog on mat"), rows[[3, 5, 6]].mean(dim=0).float().numpy(), rtol=1e-5)


def test_a_table_with_scales_is_refused_and_shards_are_read(tmp_path):
    tokenizer = tokenizer_of("WordPiece")
    table = table_of(tokenizer)
    scaled = {"embedding.weight": (table * 50).to(torch.int8), "embedding.scale": torch.ones(len(table), 1)}
    with pytest.raises(TeacherError, match=r"embedding\.scale.*Store the table as floats"):
        load_teacher(write(tmp_path / "scaled", tokenizer, scaled) + "?tensor=embedding.weight")
    whole = load_teacher(write(tmp_path / "whole", tokenizer, {"embedding.weight": table}))
    split = tmp_path / "split"
    write(split, tokenizer, {"embedding.weight": table})
    (split / "model.safetensors").rename(split / "model-1.safetensors")
    index = {"weight_map": {"embedding.weight": "model-1.safetensors"}}
    (split / "model.safetensors.index.json").write_text(json.dumps(index))
    assert np.array_equal(load_teacher(f"static:{split}").encode("a cat"), whole.encode("a cat"))
    (split / "model-1.safetensors").unlink()
    with pytest.raises(TeacherError, match=r"its shard model-1.safetensors is missing"):
        load_teacher(f"static:{split}")


@pytest.mark.parametrize("config", [{}, None])
def test_weights_and_mapping_count_whatever_the_config_says(config, tmp_path):
    tokenizer = tokenizer_of("WordLevel")
    table = table_of(tokenizer)
    count = len(table)
    mapping, weights = torch.arange(count).flip(0), torch.linspace(1, 2, count, dtype=torch.float64)
    spec = write(tmp_path, tokenizer, {"embeddings": table, "mapping": mapping, "weights": weights}, config)
    ids = [i for i in tokenizer.encode("a cat on zebra").ids if i != 1]
    expected = np.mean([table[mapping[i]].numpy() * weights[i].item() for i in ids], axis=0)
    np.testing.assert_allclose(load_teacher(spec).encode(["a cat on zebra"])[0], expected, atol=1e-6)


def test_a_model2vec_folder_opens_as_model2vec_reads_it(tmp_path, capsys):
    tokenizer = tokenizer_of("WordLevel")
    write(tmp_path, tokenizer, {"embeddings": table_of(tokenizer)}, {"normalize": True})
    module = {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    opened, named = open_encoder(tmp_path), load_teacher(f"static:{tmp_path}")
    np.testing.assert_array_equal(opened.encode(["a zebra"]), named.encode(["a zebra"]))
    load_teacher(f"st:{tmp_path}?device=cpu")
    assert f"whose own vectors static:{tmp_path} gives" in capsys.readouterr().err
    (tmp_path / "modules.json").unlink()
    np.testing.assert_array_equal(open_encoder(tmp_path).encode(["a zebra"]), named.encode(["a zebra"]))
    with pytest.raises(TeacherError, match=f"Try static:{tmp_path}"):
        load_teacher(f"st:{tmp_path}?device=cpu")


def test_a_tokenizer_that_fails_at_a_text_is_named(tmp_path):
    words = Tokenizer(models.WordPiece({"cat": 0, "dog": 1}, unk_token="[UNK]"))
    spec = write(tmp_path, words, {"embeddings": table_of(words)})
    with pytest.raises(TeacherError, match=r"can't split 1 texts into tokens: .*Pass another tokenizer=PATH"):
        load_teacher(spec).encode(["zebra"])
