"""Warm starts: the model's own vectors with all layers, chosen layers, foreign architectures, token tables."""

import json

import numpy as np
import pytest
import torch

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import InputError
from consilience.recipes.warm_start import warm_start
from consilience.students.initialise import fit_linear_head, set_token_table
from consilience.students.presets import StudentConfig
from consilience.students.text import StudentEncoder, build_student, load_student, save_student_files
from consilience.students.tokenizer import load_tokenizer, train_tokenizer

TINY = StudentConfig(layers=3, hidden=32, heads=4, ffn=64, max_positions=64, max_length=32)
TEXTS = ["a red cube", "a blue sphere on a red cube", "two dogs run", "a dog", "one small bird sings"]
REAL = ["a cat", "Two children in red coats run across a snowy field.", "word " * 400, "naïve façade, 猫"]


def encoder(started):
    student, tokenizer, config = started
    return StudentEncoder(student, tokenizer, name="warm", max_length=config.max_length, manifest={})


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, vocab_size=100)


@pytest.fixture(scope="module")
def stored(tokenizer, tmp_path_factory):
    student = build_student(TINY, vocab_size=tokenizer.get_vocab_size(), dimensions=16, seed=1)
    out = tmp_path_factory.mktemp("student") / "student"
    work, _ = begin_artefact(out, {"job": 1})
    files = save_student_files(student, tokenizer, work, max_length=20)
    manifest = {"dimensions": 16, "max_length": 20, "config": TINY.to_json()}
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return out


@pytest.mark.weights
def test_all_layers_and_no_head_are_the_teacher_itself():
    from consilience.teachers.registry import load_teacher

    started = warm_start("packaged:all-MiniLM-L6-v2", head="none")
    student, _, config = started
    assert (config.layers, config.hidden, config.max_positions, config.max_length) == (6, 384, 512, 256)
    assert not student.backbone.embeddings.token_type_embeddings.weight.any()
    assert not student.backbone.embeddings.token_type_embeddings.weight.requires_grad
    assert student.backbone.config.hidden_dropout_prob == 0.0
    expected = load_teacher("packaged:all-MiniLM-L6-v2?device=cpu").encode(REAL)
    np.testing.assert_allclose(encoder(started).encode(REAL), expected, atol=1e-5)


@pytest.mark.weights
def test_chosen_layers_are_the_teacher_s_in_that_order():
    from transformers import AutoModel

    from consilience.teachers.packaged import packaged_files

    student, tokenizer, config = warm_start("minilm", layers=(0, 2, 5), head="linear", dimensions=64, max_length=99)
    assert (config.layers, config.max_length, config.head, student.dimensions) == (3, 99, "linear", 64)
    folder = packaged_files("all-MiniLM-L6-v2")["config.json"].parent
    teacher = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    teacher.encoder.layer = torch.nn.ModuleList(teacher.encoder.layer[i] for i in (0, 2, 5))
    ids = torch.tensor([tokenizer.encode(REAL[1]).ids])
    with torch.no_grad():
        expected = teacher(input_ids=ids).last_hidden_state
        torch.testing.assert_close(student(ids).last_hidden_state, expected, atol=1e-5, rtol=0)


@pytest.mark.weights
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("packaged:wordllama", "a token table.*packaged:all-MiniLM-L6-v2 or packaged:paraphrase-MiniLM-L3-v2 or"),
        ("glove", "word vectors"),
        ("st:org/some-model", "folder on this machine"),
        ("packaged:all-MiniLM-L6-v2?prompt=x", "takes no options, got prompt"),
        ("nowhere", "no such folder"),
    ],
)
def test_sources_without_layers_are_refused_with_those_that_have_some(source, message):
    with pytest.raises(InputError, match=message):
        warm_start(source, head="none")


def write_foreign(folder, kind, tokenizer_vocabulary, **sizes):
    """Store a small Hugging Face model with random weights as other people's folders look."""
    import transformers
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(3)
    vocabulary = {token: i for i, token in enumerate(tokenizer_vocabulary)}
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(vocabulary), **sizes)
    model = transformers.AutoModel.from_config(config).eval()
    folder.mkdir()
    settings = {**config.to_diff_dict(), "model_type": kind, "_name_or_path": "/secret/place"}
    settings.pop("dtype", None)
    (folder / "config.json").write_text(json.dumps(settings))
    prefix = "" if kind == "mpnet" else f"{kind}."  # task models' checkpoints have one
    save_file({prefix + name: t.contiguous() for name, t in model.state_dict().items()}, folder / "model.safetensors")
    words = Tokenizer(models.WordPiece(vocabulary, unk_token=tokenizer_vocabulary[3]))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    first, last = tokenizer_vocabulary[0], tokenizer_vocabulary[2]
    words.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])]
    )
    words.save(str(folder / "tokenizer.json"))
    return model


FOREIGN = {
    "mpnet": (["<s>", "<pad>", "</s>", "<unk>"], {"max_position_embeddings": 42, "intermediate_size": 64}),
    "roberta": (
        ["<s>", "<pad>", "</s>", "<unk>"],
        {"max_position_embeddings": 42, "intermediate_size": 64, "type_vocab_size": 1, "pad_token_id": 1},
    ),
    "distilbert": (["[CLS]", "[PAD]", "[SEP]", "[UNK]"], {"max_position_embeddings": 40, "pad_token_id": 1}),
    "bert": (["[CLS]", "[PAD]", "[SEP]", "[UNK]"], {"max_position_embeddings": 40, "intermediate_size": 64}),
}
WORDS = ["a", "red", "blue", "cube", "dog", "runs"]


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_architectures_start_exactly_and_keep_chosen_layers(kind, tmp_path):
    specials, sizes = FOREIGN[kind]
    layout = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64} if kind == "distilbert" else {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    }  # fmt: skip
    model = write_foreign(tmp_path / kind, kind, [*specials, *WORDS], **sizes, **layout)
    started = warm_start(tmp_path / kind, head="none")
    student, words, config = started
    assert (config.architecture, config.layers, config.max_positions) == (kind, 3, 40)
    assert (config.hidden, config.heads, config.ffn) == (32, 4, 64)
    assert "_name_or_path" not in json.dumps(student.backbone.config.to_diff_dict())
    texts = ["a red cube", "a dog runs a red cube a blue dog", "dog"]
    with torch.no_grad():
        states = [model(input_ids=torch.tensor([words.encode(t).ids])).last_hidden_state.mean(dim=1) for t in texts]
    expected = torch.nn.functional.normalize(torch.cat(states), dim=-1).numpy()
    np.testing.assert_allclose(encoder(started).encode(texts), expected, atol=1e-5)
    pruned, _, small = warm_start(tmp_path / kind, layers=[2], head="mlp", dimensions=8, max_positions=16)
    assert (small.layers, small.max_positions, small.max_length) == (1, 16, 16)
    last = {n.split(".2.", 1)[1]: t for n, t in model.state_dict().items() if ".layer.2." in n}
    kept = {n.split(".0.", 1)[1]: t for n, t in pruned.backbone.state_dict().items() if ".layer.0." in n}
    assert last.keys() == kept.keys()
    assert all(torch.equal(last[name], kept[name]) for name in last)
    assert len(encoder((pruned, words, small)).encode(["a dog " * 30])) == 1  # cut to the positions that are left


@pytest.fixture
def tensorflows(tmp_path):
    """A folder as bert-base-uncased's own: gamma, beta, a prefix, a pooler, a task's head; and the vectors of it."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoModel

    specials, sizes = FOREIGN["bert"]
    layout = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    folder = tmp_path / "bert"
    model = write_foreign(folder, "bert", [*specials, *WORDS], **sizes, **layout)
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        # Random LayerNorms start as ones and zeros, which would hide a name that isn't found.
        changed = tensor + torch.randn_like(tensor) * 0.1 if "LayerNorm" in name else tensor
        tensors[name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = (
            changed
        )
    tensors["cls.predictions.transform.LayerNorm.gamma"] = torch.ones(32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = AutoModel.from_pretrained(folder).eval()
    words = load_tokenizer(folder)
    texts = ["a red cube", "a dog runs a red cube a blue dog", "dog"]
    with torch.no_grad():
        states = [model(input_ids=torch.tensor([words.encode(t).ids])).last_hidden_state.mean(dim=1) for t in texts]
    return folder, tensors, texts, torch.nn.functional.normalize(torch.cat(states), dim=-1).numpy()


def shard(folder, tensors):
    from safetensors.torch import save_file

    names = sorted(tensors)
    places = {name: f"model-{1 + (i % 3)}-of-3.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize("sharded", [False, True])
def test_norms_called_gamma_and_beta_and_shards_are_what_transformers_reads(tensorflows, sharded):
    folder, tensors, texts, expected = tensorflows
    if sharded:
        shard(folder, tensors)
    np.testing.assert_allclose(encoder(warm_start(folder, head="none")).encode(texts), expected, atol=1e-5)


def test_shards_outside_their_folder_or_missing_are_refused(tensorflows):
    folder, tensors, *_ = tensorflows
    shard(folder, tensors)
    index = folder / "model.safetensors.index.json"
    good = json.loads(index.read_text())
    (folder.parent / "out.safetensors").write_bytes((folder / "model-1-of-3.safetensors").read_bytes())
    for place in (
        "../out.safetensors",
        str(folder.parent / "out.safetensors"),
        "..\\out.safetensors",
        "model.bin",
        "..",
    ):
        index.write_text(json.dumps({"weight_map": {**good["weight_map"], "x": place}}))
        with pytest.raises(InputError, match="isn't a safetensors file of its folder"):
            warm_start(folder)
    index.write_text(json.dumps(good))
    (folder / "model-2-of-3.safetensors").unlink()
    with pytest.raises(InputError, match=r"its shard model-2-of-3.safetensors is missing"):
        warm_start(folder)
    index.write_text("[]")
    with pytest.raises(InputError, match="expected weight_map"):
        warm_start(folder)


def test_weights_of_torch_alone_are_refused_with_a_line_that_mends_it(tensorflows):
    from safetensors.torch import load_file

    folder, _, texts, expected = tensorflows
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="Convert them once") as caught:
        warm_start(folder, head="none")
    import transformers  # noqa: F401 - what the line names

    exec(str(caught.value).split("Convert them once: ")[1])
    np.testing.assert_allclose(encoder(warm_start(folder, head="none")).encode(texts), expected, atol=1e-5)


def test_a_student_of_ours_gives_its_layers_and_its_head(stored):
    own = load_student(stored)
    started = warm_start(stored)
    assert started[2].max_length == 20
    np.testing.assert_array_equal(encoder(started).encode(TEXTS), own.encode(TEXTS))
    other, _, config = warm_start(stored, layers=(0, 2), dimensions=12, seed=5)
    assert (config.layers, other.dimensions) == (2, 12)
    again = warm_start(stored, layers=(0, 2), dimensions=12, seed=5)[0]
    assert torch.equal(other.head[0].weight, again.head[0].weight)
    assert not torch.equal(other.head[0].weight, own.module.head[0].weight)
    wanted = own.module.backbone.encoder.layer[2].output.dense.weight
    assert torch.equal(other.backbone.encoder.layer[1].output.dense.weight, wanted)


@pytest.mark.parametrize("layers", [(), (2, 0), (0, 0), (0, 3), (-1, 0), "02", (0.0, 1.0)])
def test_layers_that_are_not_there_are_refused(stored, layers):
    with pytest.raises(InputError, match="ascending numbers of its 3 layers, 0 to 2"):
        warm_start(stored, layers=layers)


def test_folders_that_a_student_can_not_start_from(stored, tokenizer, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(InputError, match=r"no config\.json"):
        warm_start(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(InputError, match=r"'gpt2'.*bert, distilbert, mpnet, roberta"):
        warm_start(folder)
    (folder / "config.json").write_bytes((stored / "config.json").read_bytes())
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(InputError, match="safetensors expected"):
        warm_start(folder)
    (folder / "model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(InputError, match="isn't a safetensors file"):
        warm_start(folder)
    (folder / "model.safetensors").write_bytes((stored / "model.safetensors").read_bytes())
    assert warm_start(folder)[2].layers == 3
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "intermediate_size": 60}))
    with pytest.raises(InputError, match="don't fit"):
        warm_start(folder)
    (folder / "config.json").write_text(json.dumps(settings))
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Dense", "type": "sentence_transformers.models.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    with pytest.raises(InputError, match="Dense behind the pooling"):
        warm_start(folder)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    with pytest.raises(InputError, match="doesn't pool by the mean"):
        warm_start(folder)


@pytest.mark.parametrize("width", [12, 48])
def test_a_token_table_is_projected_scaled_and_matched_by_token(tokenizer, width):
    other = train_tokenizer(["a red dog runs", "a blue cube"] * 3, vocab_size=80)
    student = build_student(TINY, vocab_size=tokenizer.get_vocab_size(), dimensions=8, seed=0)
    before = student.backbone.embeddings.word_embeddings.weight.detach().clone()
    generator = torch.Generator().manual_seed(0)
    table = torch.randn((other.get_vocab_size(), width), generator=generator) * 7 + 3
    shared = {token for token in tokenizer.get_vocab() if token in other.get_vocab() and token != "[PAD]"}
    assert set_token_table(student, table, other, tokenizer) == len(shared)
    after = student.backbone.embeddings.word_embeddings.weight.detach()
    ours = torch.tensor([tokenizer.token_to_id(token) for token in sorted(shared)])
    theirs = torch.tensor([other.token_to_id(token) for token in sorted(shared)])
    rows = table[theirs].double()
    rows = rows - rows.mean(dim=0)
    gram, found = rows @ rows.T, after[ours].double()
    # Inner products are the table's up to one factor, exactly when nothing is projected away.
    correlation = torch.corrcoef(torch.stack([gram.flatten(), (found @ found.T).flatten()]))[0, 1]
    assert correlation > (0.999999 if width <= 32 else 0.95)
    assert found.std().item() == pytest.approx(before[ours].std().item(), rel=1e-4)
    missing = torch.tensor([i for token, i in tokenizer.get_vocab().items() if token not in shared])
    assert torch.equal(after[missing], before[missing])
    assert not after[tokenizer.token_to_id("[PAD]")].any()


def test_a_token_table_of_another_vocabulary_is_refused(tokenizer):
    other = train_tokenizer(["ξένη γλώσσα"] * 3, vocab_size=40)
    student = build_student(TINY, vocab_size=tokenizer.get_vocab_size(), dimensions=8, seed=0)
    with pytest.raises(InputError, match="at least 32 expected"):
        set_token_table(student, torch.randn((40, 64)), other, tokenizer)


def test_a_linear_head_is_fitted_to_a_planted_map():
    config = StudentConfig(layers=1, hidden=16, heads=2, ffn=32, max_positions=16, max_length=16, head="linear")
    student = build_student(config, vocab_size=60, dimensions=8, seed=0).eval()
    rng = np.random.default_rng(0)
    ids = [rng.integers(5, 60, size=rng.integers(3, 9)) for _ in range(200)]
    with torch.no_grad():
        planted = torch.randn((8, 16), generator=torch.Generator().manual_seed(1))
        states = [student.backbone(input_ids=torch.from_numpy(row)[None]).last_hidden_state.mean(dim=1) for row in ids]
        targets = torch.nn.functional.normalize(torch.nn.functional.normalize(torch.cat(states)) @ planted.T).numpy()
    cosine = fit_linear_head(student, ids, targets, pad=0)
    assert cosine > 0.98
    with torch.no_grad():
        found = np.concatenate([student(torch.from_numpy(row)[None]).embedding.numpy() for row in ids])
    assert (found * targets).sum(axis=1).mean() == pytest.approx(cosine, abs=1e-4)
    with pytest.raises(InputError, match="n >= 16 texts"):
        fit_linear_head(student, ids[:9], targets[:9], pad=0)
