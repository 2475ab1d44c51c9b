"""A student with its library as one Hugging Face folder and as ONNX."""

import json

import numpy as np
import pytest
import torch

from consilience.adapters.anchor import Anchor, AnchorConfig
from consilience.adapters.attach import attach_amoe, handle_of
from consilience.adapters.library import AnchorLibrary
from consilience.core.errors import InputError, ResumeError
from consilience.exporters.adapted_folder import export_adapted
from consilience.exporters.adapted_onnx import embed_with_adapted_onnx
from consilience.exporters.parity import ParityError
from consilience.students.presets import StudentConfig
from consilience.students.text import StudentEncoder, build_student
from consilience.students.tokenizer import train_tokenizer

TEXTS = ["a red cube", "a blue sphere on a red cube", "two dogs run", "one small bird sings in a tall tree"]


@pytest.fixture
def student():
    words = train_tokenizer(TEXTS * 3, vocab_size=120)
    shape = StudentConfig(layers=2, hidden=32, heads=4, ffn=64, max_positions=64, max_length=32)
    module = build_student(shape, vocab_size=words.get_vocab_size(), dimensions=16, seed=1)
    return StudentEncoder(module, words, name="tiny", max_length=32, manifest={"id": "student-1"})


@pytest.fixture
def library():
    made = AnchorLibrary(32, 2)
    for number, name in enumerate(("equiv", "para")):
        config = AnchorConfig(hidden=24, gate=0.0)
        made.add(name, Anchor(32, 2, config, seed=number, random_output=True))
    return made


def test_the_folder_loads_bit_identically_with_remote_code_and_bare_without(student, library, tmp_path):
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    bare = student.encode(TEXTS)
    manifest = export_adapted(student, library, tmp_path / "out", formats=["huggingface"])
    assert handle_of(student) is None
    assert manifest["parity"]["huggingface"]["bit_identical"] == [
        "off", "equiv only (damped)", "para only (damped)", "all", "without remote code",
    ]  # fmt: skip
    handle = attach_amoe(student, library)
    adapted = student.encode(TEXTS)
    assert np.abs(adapted - bare).max() > 1e-3
    folder = str(tmp_path / "out")
    remote = SentenceTransformer(folder, device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(remote.encode(TEXTS), adapted, atol=1e-5)
    plain = SentenceTransformer(folder, device="cpu")
    np.testing.assert_allclose(plain.encode(TEXTS), bare, atol=1e-5)
    assert type(AutoModel.from_pretrained(folder)).__name__ == "BertModel"
    model = AutoModel.from_pretrained(folder, trust_remote_code=True)
    with pytest.raises(ValueError, match="expected names among equiv, para"):
        model.set_anchors("other")
    own = [p.numel() for name, p in model.named_parameters() if not name.startswith("pooler.")]
    assert sum(own) == sum(p.numel() for p in student.module.backbone.parameters())
    handle.detach()


def test_the_code_in_the_folder_refuses_another_trunk(student, library, tmp_path):
    from safetensors.torch import load_file, save_file
    from transformers import AutoModel

    export_adapted(student, library, tmp_path / "out", formats=["huggingface"])
    weights = load_file(tmp_path / "out" / "model.safetensors")
    first = next(iter(weights))
    save_file({**weights, first: weights[first] + 1}, tmp_path / "out" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="another trunk"):
        AutoModel.from_pretrained(str(tmp_path / "out"), trust_remote_code=True)


@pytest.mark.parametrize("mask", ["input", "para", "off"])
def test_onnx(student, library, tmp_path, mask):
    pytest.importorskip("onnxscript")
    manifest = export_adapted(student, library, tmp_path / "out", formats=["onnx"], mask=mask)
    found = manifest["parity"]["onnx"]
    assert max(found.values()) <= 1e-4
    if mask == "input":
        assert list(found) == ["off", "equiv only (damped)", "para only (damped)", "all"]
        off, both = (embed_with_adapted_onnx(tmp_path / "out", TEXTS, anchors) for anchors in ([0, 0], [1, 1]))
        np.testing.assert_allclose(off, student.encode(TEXTS), atol=1e-4)
        assert np.abs(off - both).max() > 1e-3
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert all(not block._forward_hooks for block in student.module.backbone.encoder.layer)


def test_what_cannot_be_exported_is_refused(student, library, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="expected formats"):
        export_adapted(student, library, tmp_path / "out", formats=["tf"])
    with pytest.raises(InputError, match="expected names"):
        export_adapted(student, library, tmp_path / "out", mask="other")
    from consilience.exporters import adapted_folder

    monkeypatch.setattr(adapted_folder, "hub_settings", lambda *a: {**HUB(*a), "temperature": 0.2})
    with pytest.raises(ParityError, match="the same bits expected"):
        export_adapted(student, library, tmp_path / "out", formats=["huggingface"])
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    export_adapted(student, library, tmp_path / "out", formats=["huggingface"])
    assert json.loads((tmp_path / "out" / "config.json").read_text())["consilience_adapters"]["forced"] is None
    export_adapted(student, library, tmp_path / "out", formats=["huggingface"])  # already done
    with torch.no_grad():
        library.keys.mul_(-1)
    with pytest.raises(ResumeError):
        export_adapted(student, library, tmp_path / "out", formats=["huggingface"])


from consilience.exporters.adapted_folder import hub_settings as HUB  # noqa: E402, N812


@pytest.fixture
def folder(student, library, tmp_path):
    export_adapted(student, library, tmp_path / "out", formats=["huggingface"])
    return tmp_path / "out"


def load_adapted(folder, **options):
    from transformers import AutoModel

    return AutoModel.from_pretrained(str(folder), trust_remote_code=True, **options).eval()


def states(model):
    ids = torch.arange(1, 13).reshape(2, 6)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state


def test_the_code_in_the_folder_refuses_adapters_that_were_not_exported_with_it(folder):
    path = folder / "adapters.safetensors"
    whole = path.read_bytes()
    for changed in (whole[:-4] + b"\xff" * 4, whole[:-99]):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="isn't the file that was exported with this config"):
            load_adapted(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_trunk_in_half_precision_is_recognised_and_another_one_refused(folder, dtype):
    from safetensors.torch import load_file, save_file

    assert torch.isfinite(states(load_adapted(folder, dtype=dtype)).float()).all()
    weights = load_file(folder / "model.safetensors")
    first = next(iter(weights))
    save_file({**weights, first: weights[first] + 1}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="another trunk"):
        load_adapted(folder, dtype=dtype)


def test_a_copy_of_the_loaded_model_has_a_mask_of_its_own(folder):
    import copy

    model = load_adapted(folder)
    all_on = states(model)
    other = copy.deepcopy(model)
    other.set_anchors()
    assert torch.equal(states(model), all_on)
    model.set_anchors()
    assert torch.equal(states(other), states(model))
    assert not torch.equal(states(other), all_on)


def test_the_loaded_model_saves_a_folder_that_loads_again(folder, tmp_path):
    model = load_adapted(folder)
    model.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "adapters.safetensors").read_bytes() == (folder / "adapters.safetensors").read_bytes()
    assert torch.equal(states(load_adapted(tmp_path / "again")), states(model))


def test_a_model_that_brought_its_anchors_is_not_adapted_twice(folder, library):
    model = load_adapted(folder)
    with pytest.raises(InputError, match="exported folder loaded with remote code"):
        attach_amoe(model, library)
