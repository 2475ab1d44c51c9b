"""distill on a learnable toy: it learns, refuses what it must, and returns what is done already."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import consilience
from consilience.core.errors import ConsilienceError, FrameMismatchError, InputError, ResumeError
from consilience.corpora.caption_grammar import generate_captions
from consilience.objectives.composition import TERMS
from consilience.students.presets import StudentConfig

ROWS, DIMENSIONS = 1500, 16
TINY = StudentConfig(layers=1, hidden=48, heads=4, ffn=96, max_positions=64, max_length=48)
OPTIONS = {"student": TINY, "tokenizer": "train", "vocab_size": 400, "batch_rows": 32}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def captions():
    return list(generate_captions(ROWS, seed=3))


@pytest.fixture(scope="module")
def bank(captions, tmp_path_factory, word_sum_bank):
    return word_sum_bank(tmp_path_factory.mktemp("bank") / "bank", captions, captions, DIMENSIONS)


@pytest.fixture(scope="module")
def learned(captions, bank, tmp_path_factory):
    out = tmp_path_factory.mktemp("student") / "student"
    return out, consilience.distill(captions, target=bank, out=out, epochs=4, lr=3e-3, **OPTIONS)


def test_loss_falls_and_target_cosine_rises(learned):
    out, student = learned
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    readings = [line["gauges"] for line in lines if "gauges" in line]
    assert np.mean(losses[-3:]) < 0.6 * losses[0]
    assert abs(readings[0]["target_cosine"]) < 0.5
    assert readings[-1]["target_cosine"] > readings[0]["target_cosine"] + 0.3
    assert readings[-1]["retrieval_at_1_of_150"] > 0.1
    assert readings[-1]["retrieval_at_1_of_37"] > readings[-1]["retrieval_at_1_of_150"]
    assert set(lines[1]["terms"]) == set(TERMS)  # those of weight 0 too
    manifest = student.manifest
    assert manifest["training"]["padding"] < 0.05
    assert manifest["gauges"] == readings[-1]
    assert manifest["training"]["rows_seen"] == 4 * (ROWS - ROWS // 10)


def test_the_student_names_its_targets_frame(learned, bank):
    from consilience.banks.reader import open_bank

    assert learned[1].manifest["frame"] == open_bank(bank).frame
    assert learned[1].encode(["a dog"]).shape == (1, DIMENSIONS)


def test_a_finished_job_is_returned_at_once(learned, captions, bank):
    out, student = learned
    began = time.monotonic()
    again = consilience.distill(captions, target=bank, out=out, epochs=4, lr=3e-3, **OPTIONS)
    assert again.manifest == student.manifest
    assert time.monotonic() - began < 20


def test_a_finished_student_never_continues_into_another_corpus(learned, captions, bank):
    with pytest.raises(FrameMismatchError, match="1500 rows"):
        consilience.distill(captions[:-1], target=bank, out=learned[0], epochs=4, lr=3e-3, **OPTIONS)
    with pytest.raises(ResumeError, match="already exists"):
        consilience.distill(captions, target=bank, out=learned[0], epochs=5, lr=3e-3, **OPTIONS)


def test_divergence_is_one_clear_error(captions, bank, tmp_path):
    with pytest.raises(ConsilienceError, match="loss became nan"):
        consilience.distill(captions, target=bank, out=tmp_path / "s", steps=40, lr=1e30, **OPTIONS)
    assert not (tmp_path / "s").exists()


def test_a_killed_attempt_is_counted(captions, bank, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_, **__):
        raise Killed

    out = tmp_path / "s"
    monkeypatch.setattr("consilience.training.loop.train", die)
    with pytest.raises(Killed):
        consilience.distill(captions, target=bank, out=out, steps=1, precision="fp32", **OPTIONS)
    monkeypatch.undo()
    consilience.distill(captions, target=bank, out=out, steps=1, precision="fp32", **OPTIONS)
    seconds = [attempt["seconds"] for attempt in json.loads((out / "timing.json").read_text())["attempts"]]
    assert seconds[0] is None
    assert seconds[1] > 0


def test_minutes_end_in_time(captions, bank, tmp_path):
    began = time.monotonic()
    student = consilience.distill(captions, target=bank, out=tmp_path / "s", minutes=0.15, **OPTIONS)
    assert time.monotonic() - began < 2 * 9
    assert student.manifest["training"]["steps_done"] > 10


def test_bfloat16_trains_too(captions, bank, tmp_path):
    student = consilience.distill(captions, target=bank, out=tmp_path / "s", steps=3, precision="bf16", **OPTIONS)
    assert student.manifest["training"]["precision"] == "bf16"
    assert all(p.dtype == torch.float32 for p in student.module.parameters())


def test_dropout_depends_on_the_seed_alone(captions, bank, tmp_path):
    options = {**OPTIONS, "student": replace(TINY, dropout=0.3), "steps": 2, "precision": "fp32"}
    weights = []
    for state in (1, 2):
        torch.manual_seed(state)
        student = consilience.distill(captions, target=bank, out=tmp_path / f"s{state}", **options)
        drawn = torch.rand(1)
        torch.manual_seed(state)
        assert torch.equal(torch.rand(1), drawn)  # the caller's draws go on as if nothing had been drawn
        weights.append(student.manifest["files"]["model.safetensors"])
    assert weights[0] == weights[1]


def test_tensorboard_is_written_beside_the_student(captions, bank, tmp_path):
    consilience.distill(captions, target=bank, out=tmp_path / "s", steps=2, tensorboard=True, **OPTIONS)
    assert list((tmp_path / "s.tensorboard").glob("events*"))


def test_refusals_before_anything_is_written(captions, bank, tmp_path):
    for change, message in [
        ({"steps": None}, "exactly one"),
        ({"student": "maxi"}, "no such preset"),
        ({"objective": "none"}, "no such composition"),
        ({"max_length": 65}, "64 positions"),
        ({"tokenizer": str(tmp_path / "tokenizer.json")}, "no such tokenizer"),
    ]:
        with pytest.raises(InputError, match=message):
            consilience.distill(captions, target=bank, out=tmp_path / "s", **{**OPTIONS, "steps": 2, **change})
    assert not list(tmp_path.iterdir())


def test_a_batch_larger_than_its_pieces_trains_alike(captions, bank, tmp_path):
    options = {**OPTIONS, "steps": 6, "batch_rows": 128, "precision": "fp32", "lr": 1e-3}
    cached = consilience.distill(captions, target=bank, out=tmp_path / "c", cache_rows=16, **options)
    finer = consilience.distill(captions, target=bank, out=tmp_path / "f", cache_rows=48, **options)
    # The batches are the same, the pieces aren't: only rounding differs, which Adam's first steps amplify a little.
    np.testing.assert_allclose(cached.encode(captions[:50]), finer.encode(captions[:50]), atol=2e-2)
    assert cached.manifest["training"]["padding"] < finer.manifest["training"]["padding"] < 0.3
    assert cached.manifest["training"]["cache_rows"] == 16


def test_nested_widths_are_trained_and_the_frame_is_turned(captions, bank, tmp_path):
    from consilience.banks.reader import open_bank
    from consilience.committee.frame_law import student_frame

    options = {**OPTIONS, "epochs": 4, "lr": 3e-3}
    student = consilience.distill(captions, target=bank, out=tmp_path / "s", matryoshka=(8,), **options)
    manifest = student.manifest
    assert manifest["matryoshka"] == [8, 16]
    assert manifest["gauges"]["target_cosine@8"] > 0.4
    assert manifest["frame"].startswith("principal:")
    assert manifest["frame"] != open_bank(bank).frame
    assert student_frame(manifest).frame_free
    terms = [json.loads(line) for line in (tmp_path / "s" / "log.jsonl").read_text().splitlines()][1]["terms"]
    assert {"infonce@8", "mimicry@8", "infonce", "mimicry"} <= set(terms)


def test_a_start_and_a_size_exclude_each_other(captions, bank, tmp_path):
    for change, message in [
        ({"init": "packaged:all-MiniLM-L6-v2"}, "exclude each other"),
        ({"layers": (0,)}, "--layers picks a trained model's layers"),
        ({"student": "static", "head": "mlp"}, "static student has no --head"),
        ({"matryoshka": (64,)}, "below the embedding's 16"),
        ({"cache_rows": 0}, "--cache-rows"),
        ({"sparse_embeddings": True, "objective": "verbatim"}, "sparse gradients"),
    ]:
        with pytest.raises(InputError, match=message):
            consilience.distill(captions, target=bank, out=tmp_path / "s", **{**OPTIONS, "steps": 2, **change})
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_a_compiled_student_trains_alike(captions, bank, tmp_path):
    options = {**OPTIONS, "steps": 2, "precision": "fp32"}
    plain = consilience.distill(captions, target=bank, out=tmp_path / "p", **options)
    compiled = consilience.distill(captions, target=bank, out=tmp_path / "c", compile=True, **options)
    np.testing.assert_allclose(compiled.encode(captions[:50]), plain.encode(captions[:50]), atol=1e-4)
    assert compiled.manifest["training"]["compile"] is True
    assert compiled.manifest["job"] != plain.manifest["job"]
