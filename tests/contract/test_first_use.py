"""Somebody's model is found unusable at load in one line, or used rightly: tiny models of every kind, made here."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.core.errors import ConsilienceError, InputError, TeacherError
from consilience.teachers.registry import load_teacher

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

WORDS = [
    "a",
    "the",
    "cat",
    "dog",
    "bird",
    "sat",
    "ran",
    "flew",
    "on",
    "in",
    "under",
    "mat",
    "house",
    "tree",
    "red",
    "blue",
    "big",
    "small",
    "and",
    ".",
]
TEXTS = ["a cat", "the big red dog ran under a tree and in the house .", "bird", "Cat", "a small blue bird flew ."]
LONG = "the cat and the dog ran " * 60
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def write_tokenizer(folder: Path, *, pad=True, limit=None, side="right", fixed=None, more=(), ends=("[CLS]", "[SEP]")):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", *WORDS, "Cat", *more]  # padding 1, as RoBERTa's
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    start, end = ends
    template = " ".join(filter(None, [start, "$A", end]))
    special = [(token, words.index(token)) for token in ends if token]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    if fixed:
        tokenizer.enable_padding(length=fixed, pad_id=1, pad_token="[PAD]")
        tokenizer.enable_truncation(fixed)
    given = {"unk_token": "[UNK]", "eos_token": "[SEP]", **({"pad_token": "[PAD]"} if pad else {})}
    if limit:
        given["model_max_length"] = limit
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side=side, **given)
    fast.save_pretrained(folder)
    if fixed:  # saving drops it
        tokenizer.save(str(folder / "tokenizer.json"))
    return len(words)


def write_st(folder: Path, pooling="mean", more=(), **settings):
    """Make a transformers folder a sentence-transformers one."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), *more]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    modes = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken", "sqrt": "mean_sqrt_len_tokens"}
    chosen = {f"pooling_mode_{name}": key == pooling for key, name in modes.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **chosen}))
    if settings:
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))


def build(folder: Path, kind: str, *, words=None, tokenizer=None, **config):
    size = write_tokenizer(folder, **(tokenizer or {}))
    torch.manual_seed(0)
    made = getattr(transformers, f"{kind}Config")(vocab_size=words or size, **config)
    getattr(transformers, f"{kind}Model")(made).eval().save_pretrained(folder)
    return folder


def bert(folder: Path, **given):
    return build(folder, "Bert", max_position_embeddings=32, **TINY, **given)


def roberta(folder: Path, kind="Camembert", **given):
    return build(folder, kind, max_position_embeddings=34, pad_token_id=1, **TINY, **given)


def gpt2(folder: Path, **given):
    size = {"n_positions": 40, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return build(folder, "GPT2", tokenizer={"pad": False, "ends": (None, "[SEP]")}, **size, **given)


def t5(folder: Path):
    size = write_tokenizer(folder, ends=(None, "[SEP]"))
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=size, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=1,
        pad_token_id=1, eos_token_id=3, n_positions=32,
    )  # fmt: skip
    transformers.T5EncoderModel(config).save_pretrained(folder)
    return folder


def qwen(folder: Path):
    tokenizer = {"side": "left", "ends": (None, "[SEP]")}
    return build(folder, "Qwen2", tokenizer=tokenizer, num_key_value_heads=2, max_position_embeddings=64, **TINY)


def clip(folder: Path):
    size = write_tokenizer(folder, limit=16)
    tiny = {**TINY, "num_hidden_layers": 1}
    text = {"vocab_size": size, "max_position_embeddings": 16, "bos_token_id": 2, "eos_token_id": 3, **tiny}
    config = transformers.CLIPConfig(
        text_config=text, vision_config={"image_size": 8, "patch_size": 4, **tiny}, projection_dim=6
    )
    torch.manual_seed(0)
    transformers.CLIPModel(config).eval().save_pretrained(folder)
    return folder


def rows_alone(folder: Path, texts, **given):
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    if getattr(model.tokenizer, "pad_token", "") is None:
        model.tokenizer.pad_token = model.tokenizer.eos_token
    return np.concatenate([model.encode([text], show_progress_bar=False, **given) for text in texts])


def check_rows(teacher, expected, texts):
    together = teacher.encode(texts)
    alone = np.concatenate([teacher.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(together, expected, atol=1e-5)


ST_KINDS = {
    "no padding token": lambda folder: (gpt2(folder), write_st(folder, "last")),
    "no length limit": lambda folder: (roberta(folder), write_st(folder)),
    "limit of the whole table": lambda folder: (roberta(folder), write_st(folder, max_seq_length=34)),
    "left padding": lambda folder: (bert(folder, tokenizer={"side": "left", "limit": 32}), write_st(folder)),
    "fixed padding": lambda folder: (bert(folder, tokenizer={"fixed": 24}), write_st(folder, "cls")),
    "T5": lambda folder: (t5(folder), write_st(folder)),
    "Qwen2": lambda folder: (qwen(folder), write_st(folder, "last")),
    "lower case": lambda folder: (bert(folder, tokenizer={"limit": 32}), write_st(folder, do_lower_case=True)),
}


@pytest.mark.parametrize("kind", ST_KINDS)
def test_a_row_is_the_librarys_of_its_text_alone(tmp_path, kind, capsys):
    folder = tmp_path / "m"
    ST_KINDS[kind](folder)
    teacher = load_teacher(f"st:{folder}?device=cpu")
    check_rows(teacher, rows_alone(folder, TEXTS), TEXTS)
    assert teacher.fast
    assert "one by one" not in capsys.readouterr().err
    assert np.isfinite(teacher.encode([LONG, "a cat"])).all()
    assert {"no padding token": 40, "no length limit": 32, "limit of the whole table": 32}.get(
        kind, teacher.max_length
    ) == teacher.max_length


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (gpt2, 40), (roberta, 32), (lambda f: roberta(f, "XLMRoberta"), 32), (lambda f: roberta(f, "MPNet"), 32),
        (bert, 32), (qwen, 64),
        (lambda f: build(f, "OPT", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=16,
                         word_embed_proj_dim=16, max_position_embeddings=20, pad_token_id=1), 20),
        (lambda f: build(f, "OpenAIGPT", n_positions=20, n_embd=16, n_layer=1, n_head=2), 20),
        (lambda f: build(f, "XLM", max_position_embeddings=20, emb_dim=16, n_layers=1, n_heads=2, pad_index=1), 20),
        (lambda f: build(f, "DistilBert", max_position_embeddings=20, dim=16, n_layers=1, n_heads=2, hidden_dim=8), 20),
        (lambda f: build(f, "GPTNeoX", max_position_embeddings=48, **TINY), 48),
    ],
    ids=["gpt2", "camembert", "xlm-r", "mpnet", "bert", "qwen2", "opt", "gpt", "xlm", "distilbert", "neox"],
)  # fmt: skip
def test_the_limit_comes_from_the_position_table_whatever_its_name(tmp_path, make, limit):
    teacher = load_teacher(f"hf:{make(tmp_path)}?pool=mean&device=cpu")
    assert teacher.max_length == limit
    mixed = [LONG, *TEXTS, LONG]
    check_rows(teacher, np.concatenate([teacher.encode([text]) for text in mixed]), mixed)


def test_relative_positions_have_no_limit(tmp_path):
    teacher = load_teacher(f"st:{t5(tmp_path)}?device=cpu")
    assert teacher.max_length is None
    assert np.abs(teacher.encode([LONG + "bird"]) - teacher.encode([LONG])).max() > 0


def test_a_length_beyond_a_gpt2_table_is_refused(tmp_path):
    folder = gpt2(tmp_path)
    with pytest.raises(InputError, match=r"at most 40, .* got 41"):
        load_teacher(f"hf:{folder}?pool=last&max_length=41")
    assert load_teacher(f"hf:{folder}?pool=last&max_length=40").encode([LONG]).shape == (1, 16)


def test_a_model_that_ignores_masks_is_run_row_by_row(tmp_path, capsys):
    folder = build(tmp_path, "FNet", max_position_embeddings=32, **{**TINY, "num_hidden_layers": 1})
    teacher = load_teacher(f"hf:{folder}?pool=mean&device=cpu")
    assert "one by one" in capsys.readouterr().err
    check_rows(teacher, np.concatenate([teacher.encode([text]) for text in TEXTS]), TEXTS)


def test_two_towers_give_the_text_towers_projection(tmp_path):
    folder = clip(tmp_path / "clip")
    model = transformers.CLIPModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        features = [model.get_text_features(**tokenizer(text, return_tensors="pt")) for text in TEXTS]
    expected = np.concatenate([getattr(one, "pooler_output", one).numpy() for one in features])
    teacher = load_teacher(f"hf:{folder}?device=cpu")
    check_rows(teacher, expected, TEXTS)
    assert teacher.max_length == 16
    assert teacher.identity()["pooling"] == "projection"
    with pytest.raises(InputError, match="leave pool= out"):
        load_teacher(f"hf:{folder}?pool=mean")
    with pytest.raises(TeacherError, match=f"Try hf:{folder}"):
        load_teacher(f"st:{folder}")


def routed(folder: Path, **given):
    from sentence_transformers.sentence_transformer.modules import Pooling, Router, StaticEmbedding, Transformer
    from tokenizers import Tokenizer

    bert(folder / "bert", tokenizer={"limit": 32})
    torch.manual_seed(1)
    static = StaticEmbedding(Tokenizer.from_file(str(folder / "bert" / "tokenizer.json")), embedding_dim=16)
    body = [Transformer(str(folder / "bert")), Pooling(16, "mean")]
    router = Router({"query": [static], "document": body}, **given)
    model = sentence_transformers.SentenceTransformer(modules=[router], device="cpu")
    model.save_pretrained(str(folder / "router"), create_model_card=False)
    model = sentence_transformers.SentenceTransformer(modules=[static], device="cpu")
    model.save_pretrained(str(folder / "static"), create_model_card=False)
    return folder


def test_a_router_without_a_default_names_its_routes(tmp_path):
    folder = routed(tmp_path, allow_empty_key=False) / "router"
    with pytest.raises(InputError, match=r"routes query, document and no default.*route=query"):
        load_teacher(f"st:{folder}")
    with pytest.raises(InputError, match="no route 'x': its routes are query, document"):
        load_teacher(f"st:{folder}?route=x")
    for route in ("query", "document"):
        teacher = load_teacher(f"st:{folder}?device=cpu&route={route}")
        assert teacher.identity()["route"] == route
        check_rows(teacher, rows_alone(folder, TEXTS, task=route), TEXTS)


def test_a_static_module_honours_a_length(tmp_path):
    folder = routed(tmp_path, allow_empty_key=True) / "static"
    cut = load_teacher(f"st:{folder}?max_length=2&device=cpu")
    plain = load_teacher(f"st:{folder}?device=cpu")
    np.testing.assert_allclose(cut.encode(["a cat dog"]), plain.encode(["a cat"]), atol=1e-6)
    assert (cut.max_length, plain.max_length) == (2, None)


def test_more_tokens_than_rows_are_found_at_load(tmp_path):
    folder = bert(tmp_path, words=25, tokenizer={"more": ["zebra"]})
    for spec in (f"hf:{folder}?pool=mean", f"st:{folder}"):
        with pytest.raises(InputError, match="26 tokens, the model 25 rows"):
            load_teacher(spec)
    model = transformers.AutoModel.from_pretrained(folder)
    model.resize_token_embeddings(26)
    model.save_pretrained(folder)
    assert load_teacher(f"hf:{folder}?pool=mean").encode(["zebra"]).shape == (1, 16)


def test_a_special_token_without_a_row_is_said_unless_texts_get_it(tmp_path, capsys):
    folder = bert(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"bos_token": "<|start|>"})
    tokenizer.save_pretrained(folder)
    for spec in (f"hf:{folder}?pool=mean&device=cpu", f"st:{folder}?device=cpu"):
        teacher = load_teacher(spec)
        assert "a text that contains <|start|> can't be embedded" in capsys.readouterr().err
        check_rows(teacher, rows_alone(folder, TEXTS), TEXTS)
        with pytest.raises(TeacherError, match="can't embed 1 text"):
            teacher.encode(["a <|start|> cat"])
    tokenizer.add_special_tokens({"pad_token": "<|start|>"})
    tokenizer.save_pretrained(folder)
    with pytest.raises(InputError, match="the model 25 rows"):
        load_teacher(f"hf:{folder}?pool=mean")


def test_missing_weights_are_no_random_numbers(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = bert(tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor for name, tensor in weights.items() if "layer.1." not in name}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for spec in (f"hf:{folder}?pool=mean", f"st:{folder}"):
        with pytest.raises(TeacherError, match=r"lack \d+ of the weights .*layer\.1"):
            load_teacher(spec)


def test_a_reranker_is_refused_unless_its_states_are_asked_for(tmp_path):
    size = write_tokenizer(tmp_path)
    config = transformers.BertConfig(vocab_size=size, max_position_embeddings=32, num_labels=1, **TINY)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    for spec in (f"hf:{tmp_path}", f"st:{tmp_path}"):
        with pytest.raises(InputError, match="BertForSequenceClassification is a reranker"):
            load_teacher(spec)
    assert load_teacher(f"hf:{tmp_path}?pool=cls").encode(["a"]).shape == (1, 16)


def test_other_kinds_of_the_library_are_refused(tmp_path):
    folder = bert(tmp_path)
    write_st(folder)
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder"}')
    with pytest.raises(TeacherError, match="SparseEncoder"):
        load_teacher(f"st:{folder}")


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda f: shutil.rmtree(f / "1_Pooling"), "can't load it"),
        (lambda f: (f / "modules.json").write_text("[]"), "can't"),
        (lambda f: (f / "tokenizer.json").unlink(), "can't load it"),
        (lambda f: (f / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "no.such.Kind"}]'),
         "can't load it"),
        (lambda f: (f / "config.json").write_text('{"model_type": "no-such-model"}'), "can't load it"),
    ],
    ids=["pooling", "modules", "tokenizer", "unknown module", "unknown architecture"],
)  # fmt: skip
def test_damaged_folders_are_one_line(tmp_path, damage, match):
    folder = bert(tmp_path / "m")
    write_st(folder)
    damage(folder)
    with pytest.raises(TeacherError, match=match) as caught:
        load_teacher(f"st:{folder}")
    assert "\n" not in str(caught.value)


def test_a_vector_of_nan_is_found_at_load(tmp_path):
    folder = bert(tmp_path)
    model = transformers.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        model.embeddings.LayerNorm.weight.fill_(float("nan"))
    model.save_pretrained(folder)
    for spec in (f"hf:{folder}?pool=mean", f"st:{folder}"):
        with pytest.raises(TeacherError, match="NaN"):
            load_teacher(spec)


def test_an_encoder_decoder_and_an_image_model(tmp_path):
    size = write_tokenizer(tmp_path / "t5", ends=(None, "[SEP]"))
    config = transformers.T5Config(
        vocab_size=size, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=1,
        pad_token_id=1, eos_token_id=3,
    )  # fmt: skip
    transformers.T5Model(config).save_pretrained(tmp_path / "t5")
    with pytest.raises(TeacherError, match="Use st: instead"):
        load_teacher(f"hf:{tmp_path / 't5'}")
    assert load_teacher(f"st:{tmp_path / 't5'}").encode(TEXTS).shape == (5, 16)
    transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **TINY)).save_pretrained(tmp_path / "vit")
    with pytest.raises(TeacherError, match="can't load it"):
        load_teacher(f"hf:{tmp_path / 'vit'}")


def test_a_folders_pooling_and_prompt_are_followed(tmp_path, capsys):
    folder = bert(tmp_path, tokenizer={"limit": 32})
    load_teacher(f"hf:{folder}")
    assert "their mean is taken" in capsys.readouterr().err
    write_st(folder, "cls", do_lower_case=True)
    settings = {"prompts": {"query": "the dog "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    teacher = load_teacher(f"hf:{folder}?device=cpu")
    assert load_teacher(f"hf:{folder}?prompt=").prompt == ""
    assert capsys.readouterr().err == ""
    check_rows(teacher, rows_alone(folder, TEXTS), TEXTS)
    assert teacher.prompt == "the dog "
    write = (folder / "1_Pooling" / "config.json").write_text
    write('{"pooling_mode_mean_sqrt_len_tokens": true}')
    with pytest.raises(InputError, match=r"mean_sqrt_len_tokens.*pool=mean, cls, last or max"):
        load_teacher(f"hf:{folder}")
    write('{"pooling_mode": "lasttoken"}')
    assert load_teacher(f"hf:{folder}").pooling == "last"


def test_modules_after_the_pooling_are_not_left_out_silently(tmp_path):
    folder = bert(tmp_path)
    write_st(folder, more=[("Dense", "2_Dense")])
    with pytest.raises(InputError, match="asks for the modules Dense"):
        load_teacher(f"hf:{folder}")
    assert load_teacher(f"hf:{folder}?pool=mean").pooling == "mean"


def test_a_revision_of_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no revisions"):
        load_teacher(f"hf:{bert(tmp_path)}?revision=main")


def test_an_encoder_of_a_user_that_raises_is_one_line():
    from consilience.teachers.checked import encode_checked

    class Broken:
        name, dimensions, parameters = "mine", 2, None

        def encode(self, texts):
            raise ZeroDivisionError("oh\nno")

    with pytest.raises(TeacherError, match="teacher mine: can't embed 1 texts: ZeroDivisionError: oh"):
        encode_checked(Broken(), ["a"])


@pytest.mark.parametrize("words", ["embed c.txt --teacher st:router --out bank", "evaluate st:router --tasks grammar"])
def test_verbs_end_in_one_line_and_leave_nothing(tmp_path, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    routed(tmp_path, allow_empty_key=False)
    (tmp_path / "c.txt").write_text("\n".join(TEXTS))
    before = set(tmp_path.iterdir())
    result = CliRunner().invoke(app, words.split())
    assert isinstance(result.exception, ConsilienceError), result.output  # main() prints it and exits with 2
    assert "route=query" in str(result.exception)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("make", [gpt2, clip, t5, qwen])
def test_no_start_from_what_is_no_encoder(tmp_path, make):
    from consilience.recipes.warm_start import warm_start

    with pytest.raises(InputError):
        warm_start(make(tmp_path))


def test_no_start_from_more_tokens_than_rows(tmp_path):
    from consilience.recipes.warm_start import warm_start

    with pytest.raises(ConsilienceError, match="26 tokens, the model 25 rows"):
        warm_start(bert(tmp_path, words=25, tokenizer={"more": ["zebra"]}))


def test_a_trunk_without_a_length_limit_has_its_tables(tmp_path):
    from consilience.training.pair_model import open_pair_model

    folder = roberta(tmp_path, "Roberta")
    write_st(folder)
    model = open_pair_model(str(folder))
    assert model.max_length == 32
    assert model.encode_ids(model.tokenize([LONG])).shape == (1, 16)


def test_a_name_of_a_folder_and_of_a_packaged_model_is_refused(tmp_path, monkeypatch):
    from consilience.recipes.encoders import open_encoder

    monkeypatch.chdir(tmp_path)
    bert(tmp_path / "minilm")
    with pytest.raises(InputError, match=r"Write \./minilm or packaged:all-MiniLM-L6-v2"):
        open_encoder("minilm")
    assert open_encoder("./minilm").dimensions == 16
