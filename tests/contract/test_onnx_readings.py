"""Which output of an ONNX graph is read, how it is pooled, and what a graph can't take is found at load."""

import json
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import InputError, TeacherError
from consilience.teachers.registry import load_teacher

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "dog", "ran", "the", "Cat"]
TEXTS = ["a cat", "the dog ran", "Cat", "a a a a a dog"]
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), 4)).astype(np.float32)


def token_rows(text, words=WORDS):
    ids = [words.index(word) if word in words else 1 for word in text.split()]
    return TABLE[[2, *ids, 3]]


READINGS = {
    "mean": lambda states: states.mean(axis=0),
    "cls": lambda states: states[0],
    "max": lambda states: states.max(axis=0),
    "last": lambda states: states[-1],
    "pooler": lambda states: np.tanh(states[0]),
    "sentence": lambda states: states[0] * 2,
}


def expected(reading, texts=TEXTS):
    return np.stack([READINGS[reading](token_rows(text)) for text in texts])


def write(folder: Path, outputs, *, axes=("b", "s"), ids="INT64", rows=10, mask=True, extra=None) -> str:
    """A graph whose token states are rows of a table: "states"; "pooler" and "sentence" are functions of them."""
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = ["input_ids", *(["attention_mask"] if mask else []), *([extra] if extra else [])]
    kind = getattr(TensorProto, ids)
    inputs = [helper.make_tensor_value_info(name, kind, list(axes)) for name in names]
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "input_ids"], ["states"]),
        node("Gather", ["states", "zero"], ["first"], axis=1),
        node("Tanh", ["first"], ["pooler"]),
        node("Mul", ["first", "two"], ["sentence"]),
    ]
    given, made = [], []
    for name, source in outputs.items():
        shape = [axes[0], axes[1], 4] if source == "states" else [axes[0], 4]
        nodes.append(node("Identity", [source], [name]))
        made.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    given = [
        numpy_helper.from_array(TABLE[:rows], "table"),
        numpy_helper.from_array(np.array(0), "zero"),
        numpy_helper.from_array(np.array(2, dtype=np.float32), "two"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, made, given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    return f"onnx:{folder}"


BOTH = {"last_hidden_state": "states", "pooler_output": "pooler"}
NAMED = {"token_embeddings": "states", "sentence_embedding": "sentence"}


@pytest.mark.parametrize(
    ("outputs", "options", "reading"),
    [
        (BOTH, "", "mean"),
        (BOTH, "?pool=mean", "mean"),
        (BOTH, "?pool=cls", "cls"),
        (BOTH, "?pool=last", "last"),
        (BOTH, "?pool=max", "max"),
        (BOTH, "?output=pooler_output", "pooler"),
        (BOTH, "?output=last_hidden_state&pool=cls", "cls"),
        (NAMED, "", "sentence"),
        (NAMED, "?pool=mean", "mean"),
        ({"pooler_output": "pooler", "sentence_embedding": "sentence"}, "", "sentence"),
        ({"embedding": "sentence"}, "", "sentence"),
        ({"pooler_output": "pooler"}, "", "pooler"),
        ({"anything": "states"}, "", "mean"),
    ],
)
def test_the_reading_is_the_one_asked_for_or_the_convention(tmp_path, outputs, options, reading):
    teacher = load_teacher(write(tmp_path, outputs) + options)
    np.testing.assert_allclose(teacher.encode(TEXTS), expected(reading), atol=1e-6)
    finished = reading in ("pooler", "sentence")
    assert teacher.identity()["pooling"] == (None if finished else reading)


@pytest.mark.parametrize(
    ("outputs", "options", "match", "fix"),
    [
        ({"last_hidden_state": "states", "text_embeds": "sentence"}, "",
         "several readings. Choose output=text_embeds or output=last_hidden_state&pool=mean", "output=text_embeds"),
        ({"one": "sentence", "two_": "pooler"}, "", "Choose output=one or output=two_", "output=two_"),
        ({"one": "states", "two_": "states"}, "?pool=mean", "output=one&pool=mean", "output=one&pool=mean"),
        (BOTH, "?output=nope", "no output 'nope'.*output=pooler_output", "output=pooler_output"),
        (NAMED, "?output=sentence_embedding&pool=mean", "output=token_embeddings", "output=token_embeddings&pool=mean"),
        ({"embedding": "sentence"}, "?pool=mean", "Leave pool= out", ""),
    ],
)  # fmt: skip
def test_several_readings_are_refused_with_the_choices(tmp_path, outputs, options, match, fix):
    spec = write(tmp_path, outputs)
    with pytest.raises(InputError, match=match):
        load_teacher(spec + options)
    assert load_teacher(f"{spec}?{fix}").encode(TEXTS).shape == (4, 4)


def test_the_pooling_beside_the_graph_is_followed(tmp_path, capsys):
    spec = write(tmp_path, BOTH)
    load_teacher(spec)
    assert "their mean is taken" in capsys.readouterr().err
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    np.testing.assert_allclose(load_teacher(spec).encode(TEXTS), expected("cls"), atol=1e-6)
    assert capsys.readouterr().err == ""
    modules = [{"idx": 0, "type": "sentence_transformers.models.Dense", "path": "2_Dense"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="asks for the modules Dense"):
        load_teacher(spec)


def test_prompt_and_case_of_the_folder_are_followed(tmp_path):
    spec = write(tmp_path, BOTH)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 6, "do_lower_case": true}')
    settings = {"prompts": {"p": "the "}, "default_prompt_name": "p"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    teacher = load_teacher(spec)
    np.testing.assert_allclose(teacher.encode(["Cat"]), expected("mean", ["the cat"]), atol=1e-6)
    np.testing.assert_allclose(teacher.encode(["a dog ran the cat"]), expected("mean", ["the a dog ran"]), atol=1e-6)


@pytest.mark.parametrize("axes", [(1, "s"), ("b", 12), (3, 12)])
@pytest.mark.parametrize("ids", ["INT64", "INT32"])
def test_fixed_axes_are_filled_up(tmp_path, axes, ids):
    teacher = load_teacher(write(tmp_path, BOTH, axes=axes, ids=ids))
    texts = [*TEXTS, "a cat " * 30]
    together = teacher.encode(texts)
    np.testing.assert_allclose(together[:4], expected("mean"), atol=1e-6)
    np.testing.assert_allclose(together, np.concatenate([teacher.encode([text]) for text in texts]), atol=1e-6)
    if axes[1] == 12:
        assert teacher.max_length == 12
        with pytest.raises(InputError, match="takes 12 tokens"):
            load_teacher(f"onnx:{tmp_path}?max_length=13")


def test_what_the_graph_cannot_take_is_found_at_load(tmp_path):
    with pytest.raises(TeacherError, match=r"last token, 9: .*tokenizer="):
        load_teacher(write(tmp_path / "rows", BOTH, rows=9))
    with pytest.raises(TeacherError, match="graph input 'pixel_values'"):
        load_teacher(write(tmp_path / "image", BOTH, extra="pixel_values"))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "model.onnx").write_text("no graph")
    (tmp_path / "text" / "tokenizer.json").write_bytes((tmp_path / "rows" / "tokenizer.json").read_bytes())
    with pytest.raises(TeacherError, match="can't load it"):
        load_teacher(f"onnx:{tmp_path / 'text'}")


def test_a_graph_without_a_mask_is_run_row_by_row_only_if_it_has_to(tmp_path, capsys):
    spec = write(tmp_path, BOTH, mask=False)
    np.testing.assert_allclose(load_teacher(f"{spec}?pool=mean").encode(TEXTS), expected("mean"), atol=1e-6)
    assert "one by one" not in capsys.readouterr().err
    model = onnx.load(str(tmp_path / "model.onnx"))
    mean = onnx.helper.make_node("ReduceMean", ["states"], ["middle"], axes=[1], keepdims=0)
    model.graph.node.insert(1, mean)
    model.graph.node[-1].input[0] = "middle"  # pooler_output: the mean of a row's states, padding counted
    onnx.save(model, str(tmp_path / "model.onnx"))
    teacher = load_teacher(f"{spec}?output=pooler_output")
    assert "one by one" in capsys.readouterr().err
    np.testing.assert_allclose(teacher.encode(TEXTS), expected("mean"), atol=1e-6)


@pytest.mark.parametrize("beside", [False, True])
def test_the_folder_of_the_graph_says_how_its_states_are_pooled_and_cut(beside, tmp_path):
    graph = write(tmp_path / "onnx", {"last_hidden_state": "states"})
    if not beside:
        (tmp_path / "onnx" / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "config.json").write_text('{"pooling_mode": "max"}')
    kinds = [("Transformer", ""), ("Pooling", "pool"), ("Normalize", "2_Normalize")]
    modules = [{"idx": i, "name": str(i), "type": f"x.{kind}", "path": path} for i, (kind, path) in enumerate(kinds)]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    prompts = {"prompts": {"q": "the "}, "default_prompt_name": "q"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    rows = [READINGS["max"](TABLE[[2, 8, {"a": 4, "t": 8, "C": 9}[text[0]], 3]]) for text in TEXTS]
    for spec in (graph, f"onnx:{tmp_path}"):
        np.testing.assert_allclose(
            load_teacher(spec).encode(TEXTS), rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-6
        )


def test_a_length_that_leaves_no_place_for_the_text_is_refused(tmp_path):
    graph = write(tmp_path, {"last_hidden_state": "states"})
    with pytest.raises(InputError, match="max_length of at least 3"):
        load_teacher(f"{graph}?max_length=2")


def test_a_huge_number_is_no_limit(tmp_path):
    graph = write(tmp_path, {"last_hidden_state": "states"})
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 10**30}))
    assert load_teacher(graph).max_length == 512
