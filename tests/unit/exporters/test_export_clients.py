"""What clients make of an export, by rules and by the parts of them that are at hand.

``make clients`` runs the clients themselves, in environments of their own.
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import InputError

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from consilience.cli.main import app  # noqa: E402
from consilience.exporters.clients import CLIENTS, cannot_serve, check_clients, vocabulary_hash  # noqa: E402
from consilience.exporters.folder import export_student  # noqa: E402
from consilience.exporters.onnx import embed_with_onnx  # noqa: E402
from consilience.exporters.parity import PROBE  # noqa: E402
from consilience.exporters.static_folder import StaticParts  # noqa: E402
from consilience.exporters.student_parts import student_parts  # noqa: E402
from consilience.recipes.encoders import open_encoder  # noqa: E402
from consilience.students.presets import StudentConfig  # noqa: E402
from consilience.students.text import build_student, load_student, save_student_files  # noqa: E402
from consilience.students.tokenizer import load_tokenizer, train_tokenizer  # noqa: E402

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "benchmarks" / "clients"), str(ROOT / "benchmarks")]
from tei_rules import read_as_tei  # noqa: E402

import client_table  # noqa: E402

CONFIG = StudentConfig(layers=1, hidden=32, heads=4, ffn=64, max_positions=64, max_length=48)
HEADS = ("none", "linear", "mlp")
SERVES, BARE = "serves it", "serves bare mean-pooled states"


def store(out, head, tokenizer, dimensions):
    config = replace(CONFIG, head=head)
    module = build_student(config, vocab_size=tokenizer.get_vocab_size(), dimensions=dimensions, seed=7)
    work, _ = begin_artefact(out, {"job": head})
    files = save_student_files(module, tokenizer, work, max_length=48)
    manifest = {"dimensions": dimensions, "max_length": 48, "frame": "f", "config": config.to_json()}
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return load_student(out)


@pytest.fixture(scope="module")
def students(tmp_path_factory):
    tokenizer = train_tokenizer([*PROBE, "a cat sleeps"] * 3, vocab_size=400)
    root = tmp_path_factory.mktemp("students")
    return {head: store(root / head, head, tokenizer, 32 if head == "none" else 24) for head in HEADS}


@pytest.fixture(scope="module")
def exports(students, tmp_path_factory):
    root = tmp_path_factory.mktemp("exports")
    for head, student in students.items():
        export_student(student, root / head, teachers={})
    return {head: root / head for head in HEADS}


@pytest.mark.parametrize("head", HEADS)
def test_the_graph_s_token_states_lead_through_the_folder_s_modules_to_the_vectors(head, exports, students):
    """As in sentence-transformers' ONNX backend, which can't be installed beside this transformers."""
    import onnxruntime
    from sentence_transformers import SentenceTransformer

    folder = exports[head]
    assert json.loads((folder / "sentence_bert_config.json").read_text()) == {
        "max_seq_length": 48, "do_lower_case": False,
    }  # fmt: skip  # a model_args here would reach a class that doesn't take it
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    given = dict(model.tokenize(list(PROBE[:6])))
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    feed = {name: given[name].numpy() for name in ("input_ids", "attention_mask")}
    features = {"token_embeddings": torch.from_numpy(session.run(["last_hidden_state"], feed)[0])}
    features["attention_mask"] = given["attention_mask"]
    for module in list(model)[1:]:
        features = module(features)
    np.testing.assert_allclose(features["sentence_embedding"].detach(), students[head].encode(PROBE[:6]), atol=1e-5)
    first = session.run(None, feed)[0]  # fastembed and others take the first output, whatever its name
    np.testing.assert_allclose(first, students[head].encode(PROBE[:6]), atol=1e-5)


@pytest.mark.parametrize(("head", "candle"), [("none", SERVES), ("linear", SERVES), ("mlp", BARE)])
def test_text_embeddings_inference_reads_it_by_its_rules(head, candle, exports, students):
    assert read_as_tei(exports[head]) == {"onnx": SERVES, "candle": candle}
    refused = cannot_serve("text-embeddings-inference", student_parts(students[head]))
    assert (refused is None) == (candle == SERVES)


def test_what_text_embeddings_inference_can_t_read_is_told(exports, tmp_path):
    import shutil

    import onnx

    folder = tmp_path / "old"
    shutil.copytree(exports["none"], folder)
    path = folder / "onnx" / "model.onnx"
    write_old_graph(path)
    assert read_as_tei(folder)["onnx"].startswith("fails on every text: outputs ['embedding']")
    assert [output.name for output in onnx.load(path).graph.output] == ["embedding"]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "layer_norm_eps": None}))
    assert "config.json without layer_norm_eps" in read_as_tei(folder)["candle"]


def write_old_graph(path):
    """Give the one output that exports had before: the embedding, by another name."""
    import onnx

    model = onnx.load(path)
    names = {"embedding": "lookup", "sentence_embedding": "embedding"}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    del model.graph.value_info[:]
    del model.graph.output[1:]
    model.graph.output[0].name = "embedding"
    onnx.save(model, path)


def test_the_graph_of_an_older_export_is_still_read(exports, students, tmp_path):
    import shutil

    folder = tmp_path / "old"
    shutil.copytree(exports["mlp"], folder)
    (folder / "manifest.json").unlink()
    write_old_graph(folder / "onnx" / "model.onnx")
    expected = students["mlp"].encode(PROBE)
    np.testing.assert_allclose(embed_with_onnx(folder, PROBE), expected, atol=1e-5)
    np.testing.assert_allclose(open_encoder(folder / "onnx" / "model.onnx").encode(PROBE), expected, atol=1e-5)
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 48, "do_lower_case": False, "model_args": {"add_pooling_layer": False}})
    )
    np.testing.assert_allclose(open_encoder(f"st:{folder}").encode(PROBE), expected, atol=1e-5)


@pytest.mark.parametrize(("head", "client", "message"), [
    ("mlp", "llama.cpp", "no layer behind the pooling and would leave the head out. Distil with --head none"),
    ("linear", "llama.cpp", "Distil with --head none and export without --rotation and --truncate-dim, or leave"),
    ("none", "llama.cpp", "this one isn't bert-base-uncased's. Distil with --init packaged:all-MiniLM-L6-v2, or leave"),
    ("mlp", "text-embeddings-inference", "LayerNorm and no GELU .* Distil with --head none or linear, or leave"),
    ("none", "model2vec", r"has no layers, and this student has. Make a static one \(consilience static\)"),
    ("none", "ollama", "a client among sentence-transformers, .* expected, got 'ollama'. Fix --for"),
])  # fmt: skip
def test_a_client_that_would_serve_something_else_is_refused_before_the_work(head, client, message, students, tmp_path):
    with pytest.raises(InputError, match=message):
        export_student(students[head], tmp_path / "out", teachers={}, clients=[client])
    assert not list(tmp_path.iterdir())


def test_clients_are_named_on_the_command_line_and_the_fix_of_a_refusal_works(students, tmp_path):
    out = tmp_path / "out"
    command = ["export", str(students["linear"].name), "--out", str(out), "--for", "fastembed, llama.cpp"]
    with pytest.raises(InputError, match=r"llama\.cpp has no layer"):
        app(command, standalone_mode=False)
    assert not out.exists()
    with pytest.raises(InputError, match=r"reads the format onnx too\. Add it to --format, or leave it out"):
        check_clients(["fastembed"], student_parts(students["linear"]), ["sentence-transformers"])
    assert not app([*command[:-1], "fastembed,text-embeddings-inference"], standalone_mode=False)
    assert read_as_tei(out)["candle"] == SERVES


@pytest.mark.weights
def test_llama_cpp_takes_a_student_with_bert_s_own_vocabulary(tmp_path):
    from consilience.recipes.warm_start import locate_start

    tokenizer = load_tokenizer(locate_start("packaged:all-MiniLM-L6-v2"))
    for head, width in (("none", 32), ("linear", 24)):
        parts = student_parts(store(tmp_path / head, head, tokenizer, width))
        assert (cannot_serve("llama.cpp", parts) is None) == (head == "none")
    turned = student_parts(load_student(tmp_path / "none"), np.eye(32, dtype=np.float32)[::-1].copy())
    assert "export without --rotation" in cannot_serve("llama.cpp", turned)


def test_model2vec_takes_a_table_whose_unknown_token_counts_next_to_nothing(students):
    tokenizer = students["none"].tokenizer
    table = np.random.default_rng(0).standard_normal((tokenizer.get_vocab_size(), 8)).astype(np.float32)
    parts = StaticParts(table, tokenizer, 48, ordered=False)
    assert "this student's row for [UNK] counts. Make one with consilience static" in cannot_serve("model2vec", parts)
    table[tokenizer.token_to_id("[UNK]")] *= 1e-3  # as consilience static makes it
    assert cannot_serve("model2vec", parts) is None
    assert "is a token table. Distil one with layers" in cannot_serve("infinity", parts)
    assert cannot_serve("fastembed", parts) is None


def test_the_card_names_the_clients_that_serve_it_and_those_that_don_t(exports):
    sections = {
        head: (folder / "README.md").read_text().split("### Other clients")[1].split("## Teachers")[0]
        for head, folder in exports.items()
    }
    for head, text in sections.items():
        assert set(re.findall(r"^- ([\w.-]+)", text, re.MULTILINE)) == set(CLIENTS)
        served, refused = text.split("These can't:")
        assert "- fastembed: a custom model" in served
        assert ("- text-embeddings-inference" in refused) == (head == "mlp")
        assert "- llama.cpp" in refused
    assert "has no layer behind the pooling and would leave the head out" in sections["mlp"]


def test_two_vocabularies_differ_in_their_hash():
    one, other = (train_tokenizer(["a cat sat"] * 3 + [more], vocab_size=40) for more in ("", "dogs"))
    assert vocabulary_hash(one) != vocabulary_hash(other)


def test_the_page_has_the_table_of_the_stored_measurement_and_every_client_gives_the_vectors():
    results = json.loads((ROOT / "docs" / "clients.json").read_text())
    page = (ROOT / "docs" / "export.md").read_text()
    shown = page.split(client_table.BEGIN)[1].split(client_table.END)[0]
    assert shown.strip() == client_table.render(results).strip()
    assert {row["client"] for row in results.values()} == set(CLIENTS)
    cells = [(name, column, cell) for name, row in results.items() for column, cell in row["cells"].items()]
    assert not [cell for cell in cells if "error" in cell[2]]
    measured = [cell for _, column, cell in cells if "within" in cell and not column.startswith("int8")]
    assert len(measured) > 40
    assert min(cell["within"] for cell in measured) >= client_table.LEAST


def test_a_client_s_other_vectors_fail_the_table(capsys):
    cell = {"within": 0.98, "longer": None}
    row = {"client": "fastembed", "versions": {"fastembed": "1"}, "cells": {"none": cell, "mlp": {"not": "no head. x"}}}
    text = client_table.render({"fastembed": row})
    assert "| fastembed | 0.98000, longer texts refused | n/a (1) |" in text.replace(" not measured |", "")
    assert client_table.wrong_cells({"fastembed": row}) == ["fastembed, none"]
    row["cells"] = {"none": {"within": 1.0, "longer": 0.9}, "int8, none": cell, "mlp": {"error": "x"}}
    assert client_table.wrong_cells({"fastembed": row}) == ["fastembed, mlp"]
