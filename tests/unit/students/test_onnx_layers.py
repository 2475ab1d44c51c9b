"""Layers read back from an ONNX graph: the real one's vectors stay, other graphs and false rebuilds are refused."""

import numpy as np
import onnx
import pytest

from consilience.core.errors import InputError
from consilience.recipes.onnx_start import unfold_onnx
from consilience.recipes.warm_start import warm_start
from consilience.students.onnx_layers import read_bert
from consilience.students.text import StudentEncoder

NAME = "paraphrase-MiniLM-L3-v2"
TEXTS = ["a cat", "Two children in red coats run across a snowy field.", "word " * 400, "naïve façade, 猫"]


@pytest.fixture
def files():
    from consilience.teachers.packaged import packaged_files

    return packaged_files(NAME)


@pytest.mark.weights
def test_all_layers_and_no_head_are_the_graph_itself(tmp_path, monkeypatch):
    from consilience.teachers.registry import load_teacher

    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path))
    student, tokenizer, config = warm_start(f"packaged:{NAME}", head="none")
    assert (config.layers, config.hidden, config.heads, config.ffn, config.max_length) == (3, 384, 12, 1536, 128)
    ours = StudentEncoder(student, tokenizer, name="warm", max_length=config.max_length, manifest={}).encode(TEXTS)
    theirs = load_teacher(f"packaged:{NAME}").encode(TEXTS)
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    (folder,) = tmp_path.iterdir()  # nothing half-written is left beside it
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    weights = folder / "model.safetensors"
    pruned, _, _ = warm_start(NAME, layers=(0, 2), head="none")
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert len(pruned.backbone.encoder.layer) == 2

    # A damaged or half-written cache is made again, never trusted.
    good = weights.read_bytes()
    weights.write_bytes(good[:-4000] + bytes(4000))
    warm_start(NAME, head="none")
    assert weights.read_bytes() == good
    weights.unlink()
    warm_start(NAME, head="none")
    assert weights.read_bytes() == good
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.weights
def test_a_rebuilt_model_that_computes_something_else_is_refused(files, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
    model = onnx.load(str(files["model"]))
    for item in model.graph.initializer:
        # Named as a linear layer's bias, so it's read, but the graph doesn't compute with it as BERT does.
        if item.name.endswith("layer.1.attention.self.query.bias"):
            item.name = item.name.replace("query", "unused")
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            if name.endswith("layer.1.attention.self.query.bias"):
                node.input[position] = name.replace("query", "unused")
    renamed = tmp_path / "renamed.onnx"
    onnx.save(model, str(renamed))
    with pytest.raises(InputError, match="weights don't fit its config"):
        unfold_onnx(renamed, files["tokenizer"], name="renamed", max_length=128)

    model = onnx.load(str(files["model"]))
    for node in model.graph.node:  # attention scaled by 1/4 in one layer: the same weights, another function
        if node.name.endswith("layer.1/attention/self/Constant_12"):
            node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.array(4, dtype=np.float32)))
    twisted = tmp_path / "twisted.onnx"
    onnx.save(model, str(twisted))
    with pytest.raises(InputError, match="its vectors differ by"):
        unfold_onnx(twisted, files["tokenizer"], name="twisted", max_length=128)
    assert not list((tmp_path / "cache").iterdir())


def test_other_graphs_are_refused(tmp_path):
    shape = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [shape], [shape])
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "other.onnx"))
    with pytest.raises(InputError, match="isn't a BERT's with GELU"):
        read_bert(tmp_path / "other.onnx", where="other")
    (tmp_path / "text.onnx").write_text("not a graph")
    with pytest.raises(InputError, match=r"isn't (an ONNX graph|a BERT's)"):
        read_bert(tmp_path / "text.onnx", where="text")
