"""Exports of every head, of other architectures, of nested widths, and in int8."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import InputError
from consilience.core.manifests import verify_artefact

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from consilience.exporters.folder import export_student  # noqa: E402
from consilience.exporters.int8 import INT8_FILE, embed_with_int8, quantise_rows  # noqa: E402
from consilience.exporters.onnx import embed_with_onnx  # noqa: E402
from consilience.exporters.parity import PROBE, ParityError, compare_cosines  # noqa: E402
from consilience.exporters.student_parts import student_parts  # noqa: E402
from consilience.recipes.encoders import open_encoder  # noqa: E402
from consilience.recipes.export import export  # noqa: E402
from consilience.students.backbones import make_backbone  # noqa: E402
from consilience.students.presets import StudentConfig  # noqa: E402
from consilience.students.text import (  # noqa: E402
    StudentEncoder,
    TextStudent,
    build_student,
    load_student,
    save_student_files,
)
from consilience.students.tokenizer import train_tokenizer  # noqa: E402

CONFIG = StudentConfig(layers=1, hidden=32, heads=4, ffn=64, max_positions=64, max_length=48)
WIDTHS = [8, 16, 24]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([*PROBE, "a cat sleeps", "a kitten is asleep"] * 3, vocab_size=400)


@pytest.fixture(scope="module")
def nested(tokenizer, tmp_path_factory):
    """A stored student with a linear head that says it was trained at three widths."""
    config = replace(CONFIG, head="linear")
    module = build_student(config, vocab_size=tokenizer.get_vocab_size(), dimensions=24, seed=7)
    out = tmp_path_factory.mktemp("student") / "nested"
    work, _ = begin_artefact(out, {"job": "test"})
    files = save_student_files(module, tokenizer, work, max_length=48)
    manifest = {
        "dimensions": 24, "max_length": 48, "frame": "f", "config": config.to_json(), "matryoshka": WIDTHS,
    }  # fmt: skip
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return load_student(out)


@pytest.fixture(scope="module")
def exported(nested, tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "nested"
    export_student(nested, out, teachers={}, quantize="int8")
    return out


def prefix(vectors, width):
    cut = vectors[:, :width]
    return cut / np.linalg.norm(cut, axis=1, keepdims=True)


def run_snippet(card, section, folder):
    """Run a card's snippet in this process; the clean process is the other test file's business."""
    code = re.search(rf"### {section}\n.*?```python\n(.*?)```", card, re.DOTALL).group(1)
    scope = {}
    exec(code.replace("path/to/this/folder", str(folder)), scope)
    return np.asarray(scope["embeddings"])


def test_a_linear_head_is_one_dense_without_bias(exported, nested, capsys):
    modules = [module["type"].rsplit(".", 1)[-1] for module in json.loads((exported / "modules.json").read_text())]
    assert modules == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert json.loads((exported / "2_Dense" / "config.json").read_text())["bias"] is False
    manifest = verify_artefact(exported)
    assert max(manifest["parity"]["max_abs_difference"].values()) <= 1e-5
    card = (exported / "README.md").read_text()
    found = run_snippet(card, "transformers", exported)
    np.testing.assert_allclose(found, nested.encode(["a cat sleeps", "a kitten is asleep"]), atol=1e-5)
    assert 'first["linear.weight"])' in card
    assert "second" not in card.split("### transformers")[1].split("```")[1]


def test_stock_sentence_transformers_cuts_to_a_trained_width(exported, nested, capsys):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(exported), truncate_dim=16, device="cpu", local_files_only=True)
    texts = list(PROBE[:5])
    found = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(found, prefix(nested.encode(texts), 16), atol=1e-5)
    card = (exported / "README.md").read_text()
    assert "trained at the widths 8, 16, 24 together" in card
    shown = run_snippet(card, "Fewer dimensions", exported)
    np.testing.assert_allclose(shown, prefix(nested.encode(["a cat sleeps", "a kitten is asleep"]), 16), atol=1e-5)
    assert verify_artefact(exported)["matryoshka"] == WIDTHS


def test_a_width_is_baked_into_every_form(nested, tmp_path):
    out = tmp_path / "narrow"
    manifest = export(nested.name, out=out, truncate_dim=16)
    assert manifest["dimensions"] == 16
    assert max(manifest["parity"]["max_abs_difference"].values()) <= 1e-5
    expected = prefix(nested.encode(PROBE), 16)
    np.testing.assert_allclose(embed_with_onnx(out, PROBE), expected, atol=1e-5)
    opened = open_encoder(out)
    assert opened.dimensions == 16
    np.testing.assert_allclose(opened.encode(PROBE), expected, atol=1e-5)
    assert "--truncate-dim 16" in (out / "README.md").read_text()
    assert manifest["matryoshka"] == [8, 16]
    assert manifest["parameters"] == nested.parameters - 8 * 32


@pytest.mark.parametrize("width", [0, 12, 25])
def test_a_width_it_was_not_trained_at_is_refused(nested, width, tmp_path):
    with pytest.raises(InputError, match="trained at 8, 16, 24"):
        export(nested.name, out=tmp_path / "x", truncate_dim=width)
    assert not list(tmp_path.iterdir())


def test_a_student_of_one_width_is_not_cut_unless_its_axes_are_ordered(nested):
    plain = StudentEncoder(nested.module, nested.tokenizer, name="p", max_length=48, manifest={})
    with pytest.raises(InputError, match="at no smaller width"):
        student_parts(plain, truncate_dim=16)
    plain.manifest = {"files": {"axes.safetensors": "x"}}
    assert student_parts(plain, truncate_dim=5).dimensions == 5
    with pytest.raises(InputError, match="a rotation and a width exclude each other"):
        student_parts(nested, np.eye(24, dtype=np.float32), 16)


def test_int8_is_smaller_measured_and_opens_as_a_model(exported, nested):
    import onnx

    parity = verify_artefact(exported)["parity"]["int8"]
    assert 0.95 <= parity["min_cosine"] <= parity["mean_cosine"] <= 1
    found = embed_with_int8(exported, PROBE)
    cosines = (found * nested.encode(PROBE)).sum(axis=1)
    assert cosines.min() == pytest.approx(parity["min_cosine"], abs=1e-6)
    assert cosines.min() < 0.9999999  # it is rounded, not the fp32 graph under another name
    graph = onnx.load(exported / INT8_FILE).graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("MatMulInteger") == 6  # one layer: query, key, value, output, two of the feed-forward; no head
    floats = [t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2]
    assert max(t.dims[0] for t in floats if t.dims[1] > 1) <= 64  # no table of floats is left
    opened = open_encoder(exported / INT8_FILE)
    assert opened.dimensions == 24
    assert (opened.encode(PROBE) * nested.encode(PROBE)).sum(axis=1).min() > 0.95
    card = (exported / "README.md").read_text()
    assert "model_int8.onnx" in card
    assert f"{parity['min_cosine']:.4f} at least" in card


def test_int8_needs_onnx_and_a_known_name(nested, tmp_path):
    with pytest.raises(InputError, match="Add onnx to --format"):
        export(nested.name, out=tmp_path / "x", formats=("sentence-transformers",), quantize="int8")
    with pytest.raises(InputError, match="int8 expected, got 'int4'"):
        export(nested.name, out=tmp_path / "x", quantize="int4")


def test_a_broken_int8_file_is_refused():
    rows = np.eye(2, dtype=np.float32)
    assert compare_cosines("x", rows, rows)["min_cosine"] == 1.0
    with pytest.raises(ParityError, match=r"cosine 0\.0000 .* leave --quantize out"):
        compare_cosines("x", rows, rows[::-1])
    with pytest.raises(ParityError):
        compare_cosines("x", rows, rows * np.nan)
    with pytest.raises(ParityError, match="shape"):
        compare_cosines("x", rows, rows[:1])


def test_quantised_rows_are_within_half_a_scale():
    table = np.random.default_rng(0).standard_normal((50, 9)).astype(np.float32) * np.logspace(-3, 3, 50)[:, None]
    table[7] = 0
    rows, scales = quantise_rows(table.astype(np.float32))
    assert rows.dtype == np.int8
    assert np.all(np.abs(rows * scales - table) <= scales * 0.5001)
    assert not rows[7].any()


@pytest.mark.parametrize(("kind", "formats"), [
    ("mpnet", ("sentence-transformers", "onnx")),
    ("distilbert", ("sentence-transformers",)),
    ("roberta", ("sentence-transformers",)),
])  # fmt: skip
def test_other_architectures_are_exported_too(kind, formats, tmp_path, capsys):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "cat", "dog", "the", "word"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    sizes = {"dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 64, "pad_token_id": 1} if kind == "distilbert" else {
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64, "pad_token_id": 1,
    }  # fmt: skip
    torch.manual_seed(0)
    settings = {"model_type": kind, "vocab_size": len(words), "max_position_embeddings": 52, **sizes}
    module = TextStudent(make_backbone(settings), 32, "none")
    student = StudentEncoder(module, tokenizer, name="x", max_length=50, manifest={})
    out = tmp_path / kind
    manifest = export_student(student, out, formats=formats, teachers={})
    assert max(manifest["parity"]["max_abs_difference"].values()) <= 1e-5
    shown = capsys.readouterr().err
    assert "MISSING" not in shown  # an empty pooler is there where the class has one,
    assert "UNEXPECTED" not in shown  # and none where it has none
    assert [m["type"].rsplit(".", 1)[-1] for m in json.loads((out / "modules.json").read_text())] == [
        "Transformer", "Pooling", "Normalize",
    ]  # fmt: skip
    found = run_snippet((out / "README.md").read_text(), "transformers", out)
    np.testing.assert_allclose(found, student.encode(["a cat sleeps", "a kitten is asleep"]), atol=1e-5)
