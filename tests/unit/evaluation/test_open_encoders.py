import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.encoder import Encoder
from consilience.core.errors import ConsilienceError, InputError
from consilience.recipes.encoders import open_encoder
from consilience.teachers.packaged import packaged_files


def test_unknown_things_list_what_is_accepted(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for model in (tmp_path / "model.bin", tmp_path / "empty", tmp_path / "absent", "no-such-model"):
        with pytest.raises(InputError, match="a student folder, an exported or sentence-transformers folder"):
            open_encoder(model)


def test_another_artefact_is_named(tmp_path):
    begin_artefact(tmp_path / "b", {})
    finish_artefact(tmp_path / "b", kind="bank", manifest={}, files=[])
    with pytest.raises(InputError, match="a bank isn't a model"):
        open_encoder(tmp_path / "b")


def test_unknown_backend():
    with pytest.raises(ConsilienceError):
        open_encoder("nonsense:thing")


@pytest.mark.weights
@pytest.mark.parametrize(("settings", "limit"), [("[1]", 128), ('{"model_max_length": 64}', 64)])
def test_onnx_file_with_a_tokenizer_one_folder_up(tmp_path, settings, limit):
    pytest.importorskip("onnxruntime")
    files = packaged_files("paraphrase-MiniLM-L3-v2")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").symlink_to(files["model"])
    (tmp_path / "tokenizer.json").symlink_to(files["tokenizer"])
    (tmp_path / "tokenizer_config.json").write_text(settings, encoding="utf-8")
    # Two outputs without a name that says what they are: the person does.
    with pytest.raises(InputError, match="Choose output=461 or"):
        open_encoder(tmp_path / "onnx" / "model.onnx")
    encoder = open_encoder(f"onnx:{tmp_path}/onnx/model.onnx?output=461")
    assert (encoder.dimensions, encoder.max_length) == (384, limit)


@pytest.mark.weights
def test_packaged_teacher_by_spec_and_by_bare_name():
    pytest.importorskip("sentence_transformers")
    for name in ("packaged:all-MiniLM-L6-v2", "all-MiniLM-L6-v2"):
        encoder = open_encoder(name)
        assert isinstance(encoder, Encoder)
        assert encoder.dimensions == 384


@pytest.mark.weights
def test_packaged_teacher_by_alias_without_a_backend():
    assert open_encoder("wordllama").dimensions == 256
