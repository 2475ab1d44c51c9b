"""Libraries on the models that people hold: our students, their exports, a packaged teacher."""

import numpy as np
import pytest
import torch

from consilience.adapters.adapted_encoder import AdaptedEncoder
from consilience.adapters.attach import attach_amoe, detach_amoe, handle_of
from consilience.adapters.library import save_library
from consilience.adapters.trunk import identify_trunk
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.encoder import Encoder
from consilience.core.errors import InputError, TrunkMismatchError
from consilience.students.presets import StudentConfig
from consilience.students.text import StudentEncoder, build_student, load_student, save_student_files
from consilience.students.tokenizer import train_tokenizer

TEXTS = ["a red cube", "a blue sphere on a red cube", "two dogs run", "one small bird sings in a tall tree"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    tokenizer = train_tokenizer(TEXTS * 3, vocab_size=120)
    shape = StudentConfig(layers=2, hidden=32, heads=4, ffn=64, max_positions=64, max_length=32)
    out = tmp_path_factory.mktemp("students") / "student"
    work, _ = begin_artefact(out, {"job": 1})
    student = build_student(shape, vocab_size=tokenizer.get_vocab_size(), dimensions=16, seed=1)
    files = save_student_files(student, tokenizer, work, max_length=32)
    manifest = {"dimensions": 16, "max_length": 32, "frame": "f", "preset": "custom", "config": shape.to_json()}
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return out


@pytest.fixture
def student(stored) -> StudentEncoder:
    return load_student(stored)


def test_attach_mask_detach_on_a_student(student, make_library, tmp_path):
    bare = student.encode(TEXTS)
    identity = student.identity()
    handle = student.attach_amoe(make_library())
    adapted = student.encode(TEXTS)
    assert not np.array_equal(adapted, bare)
    save_library(handle.library, tmp_path / "library")
    with handle.only("equiv"):
        assert not np.array_equal(student.encode(TEXTS), adapted)
    with handle.mask("equiv", "para"):
        assert student.identity()["adapters"]["mask"]["label"] == "equiv + para (damped)"
    with handle.off():
        assert np.array_equal(student.encode(TEXTS), bare)
        assert student.identity() == identity  # the same vectors, the same identity
    assert student.identity() != identity
    student.detach_amoe()
    assert np.array_equal(student.encode(TEXTS), bare)
    assert student.identity() == identity
    student.attach_amoe(tmp_path / "library")
    assert np.array_equal(student.encode(TEXTS), adapted)
    student.detach_amoe()


def test_a_student_its_files_and_its_export_are_one_trunk(student, stored, make_library, tmp_path):
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    from consilience.exporters.folder import export_student

    export_student(student, tmp_path / "export", formats=("sentence-transformers",))
    exported = SentenceTransformer(str(tmp_path / "export"), device="cpu")
    plain = AutoModel.from_pretrained(str(tmp_path / "export")).eval()
    identity = identify_trunk(student)
    for other in (student.module, load_student(stored), exported, plain, plain.half()):
        assert identify_trunk(other).matches(identity)
    attach_amoe(student, make_library())
    expected = student.encode(TEXTS)
    library = detach_amoe(student)
    handle = attach_amoe(exported, library)
    assert handle.forced is None
    encoder = AdaptedEncoder(exported)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    detach_amoe(exported)


def test_a_training_freezes_the_head_too(student, make_library):
    library = make_library()
    handle = student.attach_amoe(library)
    ids = torch.arange(2, 10).reshape(2, 4)
    library.trainable("equiv")
    with handle.training(), handle.solo("equiv"):
        student.module(ids).embedding[0].sum().backward()
    head = list(student.module.head.parameters())
    assert head
    assert all(parameter.requires_grad and parameter.grad is None for parameter in head)
    assert library.anchor("equiv").block(0).gate.grad is not None
    student.detach_amoe()


def test_rows_of_a_mask_table(student, make_library):
    bare = student.encode(TEXTS)
    with pytest.raises(InputError, match="carries no library"):
        AdaptedEncoder(student)
    handle = student.attach_amoe(make_library())
    with handle.only("equiv") as mask:
        expected = student.encode(TEXTS)
    masks = [handle.make_mask("off"), handle.make_mask("solo", "equiv"), handle.make_mask("some", "equiv"), None]
    rows = [AdaptedEncoder(student, row) for row in masks]
    assert handle.mask_here.label == "all"  # making a mask switches nothing
    assert all(isinstance(row, Encoder) for row in rows)
    labels = ["off", "equiv solo", "equiv only (damped)", "all"]
    assert [row.name for row in rows] == [f"student, {label}" for label in labels]
    assert np.array_equal(rows[0].encode(TEXTS), bare)
    assert np.array_equal(rows[2].encode(TEXTS), expected)
    assert rows[2].mask == mask
    identities = [row.identity() for row in rows]
    assert all(a != b for i, a in enumerate(identities) for b in identities[:i])
    assert identities[2]["adapters"]["mask"]["damped"]
    library, own = handle.library, student.parameters
    one = library.anchor("equiv").parameter_count
    assert [row.parameters for row in rows] == [own, own + one, own + one + 96, own + library.parameter_count]
    table = [mask.label for mask in handle.table_masks()]
    names = ["equiv", "simplify", "para"]
    assert table == ["off", *(f"{n} only (damped)" for n in names), *(f"{n} solo" for n in names), "all"]
    for wrong in (("off", "equiv"), ("solo",), ("solo", "equiv", "para"), ("some", "topical")):
        with pytest.raises(InputError):
            handle.make_mask(*wrong)
    student.detach_amoe()
    with pytest.raises(InputError, match="was detached"):
        rows[3].encode(TEXTS)


def test_a_forced_library_marks_the_names_of_its_rows(student, make_bert, make_library):
    library = make_library()
    other = make_bert(seed=3)
    attach_amoe(other, library)
    detach_amoe(other)
    with pytest.raises(TrunkMismatchError, match=r"student \["):
        student.attach_amoe(library)
    handle = student.attach_amoe(library, force=True)
    encoder = AdaptedEncoder(student)
    assert "forced onto a foreign trunk" in encoder.name
    assert encoder.identity()["adapters"]["forced"] == handle.forced
    student.detach_amoe()


def test_a_static_student_has_no_blocks(make_library):
    from consilience.students.static import StaticEncoder, build_static

    words = train_tokenizer(TEXTS, vocab_size=60)
    static = StaticEncoder(
        build_static(words.get_vocab_size(), 8, seed=0), words, name="static", max_length=32, manifest={}
    )
    with pytest.raises(InputError, match="expected one encoder in a StaticEncoder, found none"):
        static.attach_amoe(make_library())


@pytest.mark.weights
def test_a_teacher_carries_a_library(make_library):
    from sentence_transformers import SentenceTransformer

    from consilience.teachers.packaged import packaged_files
    from consilience.teachers.registry import load_teacher

    folder = packaged_files("all-MiniLM-L6-v2")["config.json"].parent
    model = SentenceTransformer(str(folder), device="cpu")
    bare = model.encode(TEXTS)
    handle = attach_amoe(model, make_library(width=384, blocks=6))
    assert (handle.trunk.model_type, handle.trunk.blocks, handle.trunk.width) == ("bert", 6, 384)
    assert np.abs(model.encode(TEXTS) - bare).max() > 1e-3
    with handle.off():
        assert np.array_equal(model.encode(TEXTS), bare)
    assert AdaptedEncoder(model, handle.make_mask("off")).identity()["trunk"]["fingerprint"] == handle.trunk.fingerprint
    library = detach_amoe(model)
    assert np.array_equal(model.encode(TEXTS), bare)
    half = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.bfloat16})
    assert attach_amoe(half, library).forced is None
    assert handle_of(half) is not None
    teacher = load_teacher("packaged:all-MiniLM-L6-v2")
    with pytest.raises(InputError, match=r"SentenceTransformer\(FOLDER\)"):
        attach_amoe(teacher, library)
    with pytest.raises(InputError, match="packed for inference"):
        attach_amoe(teacher._inner._runner.model, library)
