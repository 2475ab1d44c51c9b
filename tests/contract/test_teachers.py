"""One suite for every teacher backend; the models are tiny and made here."""

import http.server
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from consilience.core.encoder import Encoder
from consilience.core.errors import TeacherError
from consilience.core.hashing import canonical_json
from consilience.teachers.checked import encode_checked
from consilience.teachers.registry import list_packaged, load_teacher

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
TEXTS = [
    "a cat sat on the mat.",
    "the big red dog ran under a tree and in the house.",
    "bird",
    "a cat sat on the mat.",
    "a small blue bird flew.",
    "the dog and the cat and the bird ran in the big house under the tree.",
]


class WordLengths:
    """Hand-computable: the lengths of the first two words, and the number of words."""

    name = "word-lengths"
    dimensions = 3
    parameters = 0

    def identity(self):
        return {"backend": "test", "name": self.name, "prompt": ""}

    def encode(self, texts):
        rows = [[len(word) for word in ([*text.split(), "", ""])[:2]] + [len(text.split())] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), 3)


def vector(text):
    rng = np.random.default_rng(sum(text.encode()))
    return rng.normal(size=8).astype(float).tolist()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        self.server.calls += 1
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.calls == 1:
            self.send_response(429)
            self.send_header("retry-after", "0")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])][::-1]
        answer = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def write_tokenizer(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def make_hf(folder: Path) -> str:
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    tokenizer_file = write_tokenizer(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=24,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), model_max_length=32, **special).save_pretrained(folder)
    return f"hf:{folder}"


def make_st(folder: Path) -> str:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    make_hf(folder / "backbone")
    torch.manual_seed(1)
    backbone = Transformer(str(folder / "backbone"))
    modules = [backbone, Pooling(16, "mean"), Dense(16, 12), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return f"st:{folder / 'model'}"


def make_onnx(folder: Path) -> str:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    write_tokenizer(folder)
    table = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["b", "s"])
    states = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "s", 6])
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    graph = helper.make_graph(nodes, "g", [ids, mask], [states], [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    return f"onnx:{folder / 'model.onnx'}"


def make_static(folder: Path) -> str:
    from safetensors.numpy import save_file

    write_tokenizer(folder)
    table = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float16)
    save_file({"embedding.weight": table}, folder / "table.safetensors")
    return f"static:{folder / 'table.safetensors'}"


def make_model2vec(folder: Path) -> str:
    from safetensors.numpy import save_file

    write_tokenizer(folder)
    rng = np.random.default_rng(0)
    tensors = {
        "embeddings": rng.normal(size=(10, 6)).astype(np.float32),
        "weights": rng.uniform(0.1, 1, size=24).astype(np.float32),
        "mapping": (np.arange(24) % 10).astype(np.int32),
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
    return f"static:{folder}"


def make_vectors(folder: Path) -> str:
    folder.mkdir()
    rng = np.random.default_rng(0)
    lines = [" ".join([word, *(f"{x:.4f}" for x in rng.normal(size=5))]) for word in WORDS]
    (folder / "glove.txt").write_text("\n".join(lines) + "\n")
    return f"vectors:{folder / 'glove.txt'}"


MAKERS = {
    "hf": make_hf,
    "st": make_st,
    "onnx": make_onnx,
    "static": make_static,
    "model2vec": make_model2vec,
    "vectors": make_vectors,
}


@pytest.fixture(scope="module")
def endpoint():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.calls = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/embeddings?model=tiny&batch_rows=4"
    server.shutdown()
    thread.join()
    server.server_close()


PACKAGED = [
    pytest.param(f"packaged:{name}", marks=pytest.mark.weights)
    for name in list_packaged()
    if name != "all-mpnet-base-v2"  # in the extra packaged-large
]


WITH_OPTIONS = [*MAKERS, "http", *PACKAGED]


@pytest.fixture(scope="module", params=["word-lengths", *WITH_OPTIONS])
def made(request, tmp_path_factory):
    """(spec or None, teacher)"""
    if request.param == "word-lengths":
        yield None, WordLengths()
        return
    if request.param.startswith("packaged:"):
        yield request.param, load_teacher(request.param)
        return
    if request.param == "http":
        spec = request.getfixturevalue("endpoint")
    else:
        spec = MAKERS[request.param](tmp_path_factory.mktemp("teacher") / request.param)
    teacher = load_teacher(spec)
    yield spec, teacher
    if request.param == "http":
        teacher.close()


def test_shape_dtype_and_protocol(made):
    _, teacher = made
    vectors = encode_checked(teacher, TEXTS)
    assert isinstance(teacher, Encoder)
    assert vectors.shape == (len(TEXTS), teacher.dimensions)
    assert vectors.dtype == np.float32
    assert teacher.parameters is None or teacher.parameters >= 0
    assert teacher.encode([]).shape == (0, teacher.dimensions)


def test_rows_follow_the_order_of_the_texts(made):
    _, teacher = made
    vectors = teacher.encode(TEXTS)
    backwards = teacher.encode(TEXTS[::-1])[::-1]
    np.testing.assert_allclose(vectors, backwards, atol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-5)  # equal texts
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3  # different texts


def test_rows_do_not_depend_on_their_batch(made):
    _, teacher = made
    together = teacher.encode(TEXTS)
    alone = np.concatenate([teacher.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("made", WITH_OPTIONS, indirect=True)
def test_threads_get_the_bits_of_one_thread(made, thread_safe):
    spec, teacher = made
    other = teacher if spec.startswith("packaged:") else load_teacher(spec)
    thread_safe(teacher, other, WORDS)
    if hasattr(other, "close"):
        other.close()


@pytest.mark.parametrize("made", WITH_OPTIONS, indirect=True)
def test_one_text_a_list_and_anything_else(made, one_rule_for_texts):
    one_rule_for_texts(made[1], "a cat sat on the mat.", "bird")


def test_same_texts_same_bytes(made):
    _, teacher = made
    assert teacher.encode(TEXTS).tobytes() == teacher.encode(TEXTS).tobytes()


def test_identity_is_json_and_names_no_path(made):
    spec, teacher = made
    identity = teacher.identity()
    assert canonical_json(identity)
    if spec is not None and not spec.startswith("http"):
        assert "/" not in str(identity["name"])


@pytest.mark.parametrize("made", WITH_OPTIONS, indirect=True)
def test_options_change_the_identity_and_the_vectors(made):
    spec, teacher = made
    changed = load_teacher(spec + ("&" if "?" in spec else "?") + "prompt=the%20cat%20")
    assert canonical_json(changed.identity()) != canonical_json(teacher.identity())
    assert np.abs(changed.encode(TEXTS) - teacher.encode(TEXTS)).max() > 1e-4
    again = load_teacher(spec)
    assert canonical_json(again.identity()) == canonical_json(teacher.identity())
    for loaded in (changed, again):
        if hasattr(loaded, "close"):
            loaded.close()


@pytest.mark.parametrize("fault", [np.nan, np.inf, 0.0])
def test_bad_rows_are_refused(fault):
    class Bad(WordLengths):
        def encode(self, texts):
            vectors = super().encode(texts)
            vectors[2] = fault
            return vectors

    with pytest.raises(TeacherError, match="text 2"):
        encode_checked(Bad(), TEXTS)


def test_wrong_width_is_refused():
    class Bad(WordLengths):
        dimensions = 4

    with pytest.raises(TeacherError, match=r"\(6, 4\).*\(6, 3\)"):
        encode_checked(Bad(), TEXTS)


@pytest.mark.parametrize("device", ["cpu"])
@pytest.mark.parametrize("batch_tokens", [1, 16, 4096])
def test_identity_ignores_device_and_batch_size(tmp_path, device, batch_tokens):
    spec = make_hf(tmp_path / "m")
    plain, other = load_teacher(spec), load_teacher(f"{spec}?device={device}&batch_tokens={batch_tokens}")
    assert plain.identity() == other.identity()
    np.testing.assert_allclose(plain.encode(TEXTS), other.encode(TEXTS), atol=1e-5)


def test_identity_does_not_depend_on_the_place(tmp_path):
    one, two = make_static(tmp_path / "x" / "m"), make_static(tmp_path / "y" / "m")
    assert load_teacher(one).identity() == load_teacher(two).identity()
