"""Trainings that don't start from random weights: static students, layers of a model, students, token tables."""

import json

import numpy as np
import pytest

import consilience
from consilience.banks.reader import open_bank
from consilience.corpora.caption_grammar import generate_captions
from consilience.exporters.folder import find_teachers
from consilience.students.presets import StudentConfig

ROWS, DIMENSIONS = 900, 24
TINY = StudentConfig(layers=2, hidden=48, heads=4, ffn=96, max_positions=64, max_length=48)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def captions():
    return list(generate_captions(ROWS, seed=5))


@pytest.fixture(scope="module")
def bank(captions, tmp_path_factory, word_sum_bank):
    return word_sum_bank(tmp_path_factory.mktemp("bank") / "bank", captions, captions, DIMENSIONS, dtype="fp32")


@pytest.fixture(scope="module")
def static(captions, bank, tmp_path_factory):
    out = tmp_path_factory.mktemp("static") / "static"
    options = {"tokenizer": "train", "vocab_size": 400, "batch_rows": 32, "lr": 0.1, "precision": "fp32"}
    return out, consilience.distill(captions, target=bank, out=out, student="static", epochs=15, **options)


def cosines(student, captions, bank):
    targets = np.array(open_bank(bank)[:ROWS], dtype=np.float32)
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    return float((student.encode(captions) * targets).sum(axis=1).mean())


def test_a_static_student_learns_a_target_of_word_sums(static, captions, bank):
    folder, student = static
    # The target is a sum of word vectors; 400 pieces of words express it nearly.
    assert cosines(student, captions, bank) > 0.75
    manifest = student.manifest
    assert manifest["config"]["architecture"] == "static"
    assert manifest["training"]["sparse_embeddings"] is True
    assert manifest["frame"] == open_bank(bank).frame
    np.testing.assert_allclose(consilience.load(folder).encode(captions[:9]), student.encode(captions[:9]), atol=1e-6)


def test_a_static_student_is_refined_from_its_table(static, captions, bank, tmp_path):
    again = consilience.distill(
        captions, target=bank, out=tmp_path / "s", student="static", init=static[0], steps=1, lr=1e-6, batch_rows=32
    )
    np.testing.assert_allclose(again.encode(captions[:20]), static[1].encode(captions[:20]), atol=1e-3)
    assert again.manifest["training"]["steps_done"] == 1


def test_a_token_table_helps_a_student_of_layers(static, captions, bank, tmp_path):
    options = {"tokenizer": static[0], "student": TINY, "steps": 25, "lr": 1e-3, "batch_rows": 32, "precision": "fp32"}
    plain = consilience.distill(captions, target=bank, out=tmp_path / "plain", **options)
    helped = consilience.distill(captions, target=bank, out=tmp_path / "helped", token_table=static[0], **options)
    assert plain.manifest["job"] != helped.manifest["job"]
    assert cosines(helped, captions, bank) > cosines(plain, captions, bank) + 0.005


def test_a_student_continues_from_a_student(captions, bank, tmp_path):
    options = {"target": bank, "batch_rows": 32, "precision": "fp32", "lr": 3e-3}
    first = consilience.distill(
        captions, out=tmp_path / "a", student=TINY, tokenizer="train", vocab_size=400, epochs=3, **options
    )
    second = consilience.distill(captions, out=tmp_path / "b", init=tmp_path / "a", steps=1, **{**options, "lr": 1e-7})
    np.testing.assert_allclose(second.encode(captions[:20]), first.encode(captions[:20]), atol=1e-4)
    # Another start is another job, even in a folder of the same name.
    pruned = consilience.distill(
        captions, out=tmp_path / "c", init=f"st:{tmp_path / 'a'}", layers=[0], steps=1, **options
    )
    assert pruned.manifest["config"]["layers"] == 1
    assert pruned.manifest["start"]["init"]["student"] == first.manifest["id"]
    assert pruned.parameters < first.parameters


@pytest.mark.weights
def test_layers_of_a_packaged_model_with_a_fitted_head(captions, bank, tmp_path):
    out = tmp_path / "s"
    student = consilience.distill(
        captions,
        target=bank,
        out=out,
        init="packaged:all-MiniLM-L6-v2",
        layers=[0, 5],
        steps=2,
        lr=1e-5,
        batch_rows=32,
        precision="fp32",
    )
    first = json.loads((out / "log.jsonl").read_text().splitlines()[0])["gauges"]
    # The least-squares head, before any step, on rows that it wasn't fitted to; 810 rows for 384 dimensions are few.
    assert first["target_cosine"] > 0.45
    assert student.manifest["config"]["head"] == "linear"
    assert (student.manifest["preset"], student.manifest["config"]["layers"]) == ("warm", 2)
    # Whose weights they were is in the manifest, so that the card lists its licence.
    assert student.manifest["start"] == {"init": {"backend": "packaged", "name": "all-MiniLM-L6-v2"}}
    assert find_teachers(student.manifest)["packaged:all-MiniLM-L6-v2"] == "Apache-2.0"
