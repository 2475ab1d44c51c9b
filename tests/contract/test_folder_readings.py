"""What a sentence-transformers folder asks of its vectors is followed by every backend, or refused with the way out."""

import json

import numpy as np
import pytest

from consilience.core.errors import InputError, TeacherError
from consilience.teachers.registry import load_teacher

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
st = pytest.importorskip("sentence_transformers")
kinds = pytest.importorskip("sentence_transformers.sentence_transformer.modules")

TEXTS = ["a cat", "the big red dog ran in the house . a small blue bird sat on the mat", "bird zebra"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":", *sorted({w for text in TEXTS[:2] for w in text.split()})]


def word_level(ends=True):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if ends:
        special = [("[CLS]", 2), ("[SEP]", 3)]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    return tokenizer


def backbone(folder):
    tokens = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=word_level(), model_max_length=32, **tokens).save_pretrained(
        folder
    )
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, initializer_range=0.5, **size)
    torch.manual_seed(0)
    transformers.BertModel(config).eval().save_pretrained(folder)
    return str(folder)


def save(folder, modules, **settings):
    st.SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder))
    return folder


def text_folder(tmp_path, *more, pooling="mean", **settings):
    modules = [kinds.Transformer(backbone(tmp_path / "base")), kinds.Pooling(16, pooling), *more]
    return save(tmp_path / "folder", modules, **settings)


def static_folder(tmp_path, *more, **settings):
    torch.manual_seed(0)
    return save(
        tmp_path / "folder", [kinds.StaticEmbedding(word_level(ends=False), embedding_dim=16), *more], **settings
    )


def library_rows(folder):
    return st.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False)


def check(spec, folder):
    np.testing.assert_allclose(load_teacher(spec).encode(TEXTS), library_rows(folder), atol=1e-5)


def short(folder):
    """Leave the limit to the file that older releases write alone."""
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 8, "do_lower_case": false}')
    for name, key, value in (("tokenizer_config.json", "model_max_length", 32), ("tokenizer.json", "truncation", None)):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**settings, key: value}))


def moved(folder):
    (folder / "1_Pooling").rename(folder / "pool")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "pool"
    (folder / "modules.json").write_text(json.dumps(modules))


def test_hf_follows_normalisation_the_shorter_limit_and_the_place_of_the_pooling(tmp_path):
    folder = text_folder(tmp_path, kinds.Normalize(), pooling="cls")
    check(f"hf:{folder}?device=cpu", folder)
    short(folder)
    moved(folder)
    check(f"hf:{folder}?device=cpu", folder)
    bare = load_teacher(f"hf:{folder}?device=cpu&pool=cls")
    assert not bare.normalise
    assert not np.allclose(np.linalg.norm(bare.encode(TEXTS), axis=1), 1)


def test_vectors_that_are_cut_and_modules_that_are_not_run_are_refused_with_what_runs_them(tmp_path):
    folder = text_folder(tmp_path, truncate_dim=8)
    with pytest.raises(InputError, match=r"vectors cut to 8 \(truncate_dim\), which only st:"):
        load_teacher(f"hf:{folder}?device=cpu")
    check(f"st:{folder}?device=cpu", folder)
    assert load_teacher(f"hf:{folder}?device=cpu&pool=mean").dimensions == 16


def test_static_follows_normalisation_and_the_prompt(tmp_path):
    folder = static_folder(tmp_path / "norm", kinds.Normalize())
    check(f"static:{folder}", folder)
    prompts = {"prompts": {"d": "query : "}, "default_prompt_name": "d"}
    folder = static_folder(tmp_path / "prompt", **prompts)
    check(f"static:{folder}", folder)
    assert load_teacher(f"static:{folder}?prompt=").prompt == ""


def test_static_refuses_what_it_does_not_run(tmp_path):
    folder = static_folder(tmp_path / "dense", kinds.Dense(16, 4), kinds.Normalize())
    with pytest.raises(InputError, match="the modules Dense, which only st:"):
        load_teacher(f"static:{folder}")
    check(f"st:{folder}?device=cpu", folder)
    folder = static_folder(tmp_path / "cut", truncate_dim=8)
    with pytest.raises(InputError, match="truncate_dim"):
        load_teacher(f"static:{folder}")
    check(f"st:{folder}?device=cpu", folder)


def test_a_length_that_leaves_no_place_for_the_text_is_refused(tmp_path):
    folder = text_folder(tmp_path)
    for spec in (f"hf:{folder}", f"st:{folder}"):
        with pytest.raises(InputError, match="max_length of at least 3, of which 2 are the special tokens"):
            load_teacher(f"{spec}?device=cpu&max_length=2")
        three, whole = (load_teacher(f"{spec}?device=cpu&max_length={length}") for length in (3, 20))
        np.testing.assert_allclose(three.encode(["cat dog bird"]), whole.encode(["cat"]), atol=1e-5)


def test_tokens_of_several_types_are_left_to_st(tmp_path):
    folder = text_folder(tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for piece in tokenizer["post_processor"]["single"]:
        next(iter(piece.values()))["type_id"] = 1
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(TeacherError, match="gives tokens types, which only st: passes"):
        load_teacher(f"hf:{folder}?device=cpu")
    check(f"st:{folder}?device=cpu", folder)
