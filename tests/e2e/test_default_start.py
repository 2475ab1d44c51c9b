"""What distill does when nothing is said of the start: a teacher's layers, else a table; and how it ends: a verdict."""

import json

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import consilience
from consilience.core.errors import InputError
from consilience.corpora.caption_grammar import generate_captions
from consilience.recipes.default_start import layer_influence, target_teachers
from consilience.recipes.initial_student import WARM_LR
from consilience.students.tokenizer import train_tokenizer

ROWS = 400

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def captions():
    return list(generate_captions(ROWS, seed=11))


def save_teacher(folder, captions, seed, layers=4):
    words = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(captions, vocab_size=300),
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
        model_max_length=48,
    )
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=48, **shape))
    with torch.no_grad():  # a block that does nothing, which the rest can do without
        for name, weight in model.encoder.layer[1].named_parameters():
            if name.endswith("output.dense.weight") or name.endswith("output.dense.bias"):
                weight.zero_()
    model.save_pretrained(folder)
    words.save_pretrained(folder)


@pytest.fixture(scope="module")
def place(captions, tmp_path_factory):
    """Two teachers, their banks, and the consensus in the frame of the first."""
    folder = tmp_path_factory.mktemp("default")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, name in enumerate(("first", "second")):
            save_teacher(folder / name, captions, seed)
            consilience.embed(captions, teacher=f"hf:{name}", out=folder / f"bank-{name}")
        banks = [folder / "bank-first", folder / "bank-second"]
        options = {"fit_rows": 300, "held_out_rows": 60, "force": True}
        frames = consilience.align(banks, reference=banks[0], out=folder / "frames", **options)
        consilience.consensus(banks, frames=frames, out=folder / "target")
        shared = consilience.align(banks, method="gpa", out=folder / "shared", **options)
        consilience.consensus(banks, frames=shared, out=folder / "target-of-nobody")
    return folder


def distil(captions, out, target, **options):
    return consilience.distill(captions, target=target, out=out, steps=8, precision="fp32", **options)


@pytest.mark.parametrize("target", ["target", "bank-first"])
def test_the_start_is_the_reference_teachers_most_influential_layers(
    captions, place, tmp_path, monkeypatch, capsys, target
):
    monkeypatch.chdir(place)
    student = distil(captions, tmp_path / "s", place / target)
    manifest = student.manifest
    assert (manifest["preset"], manifest["config"]["head"]) == ("warm", "none")
    assert manifest["config"]["layers"] == 3  # two thirds of four
    assert manifest["start"]["init"] == {"backend": "st", "name": "first"}
    assert (manifest["training"]["lr"], manifest["training"]["objective"]) == (WARM_LR, "mimicry")
    said = capsys.readouterr().err
    assert "starts from 3 of 4 layers of hf:first (0, 2, 3)" in said
    verdict = manifest["verdict"]
    assert verdict["neighbours_kept"] > verdict["static_neighbours_kept"] > 10 / 40 / 2
    assert f"keeps {verdict['neighbours_kept']:.0%} of its target's ten nearest neighbours" in said
    assert distil(captions, tmp_path / "s", place / target).manifest["id"] == manifest["id"]


def test_the_layer_that_does_nothing_has_no_influence(captions, place, monkeypatch):
    monkeypatch.chdir(place)
    from consilience.corpora.text import open_corpus

    influence = layer_influence("hf:first", open_corpus(captions))
    assert influence.argmin() == 1
    assert influence[1] < 1e-6


def test_a_frame_of_nobodys_starts_with_a_fitted_head(captions, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    student = distil(captions, tmp_path / "s", place / "target-of-nobody")
    assert student.manifest["config"]["head"] == "linear"
    first = json.loads((tmp_path / "s" / "log.jsonl").read_text().splitlines()[0])["gauges"]
    assert first["target_cosine"] > 0.5


def test_a_folder_of_that_name_with_other_weights_is_not_the_teacher(captions, place, tmp_path, monkeypatch):
    from consilience.banks.reader import open_bank

    save_teacher(tmp_path / "first", captions, seed=7)
    bank = open_bank(place / "bank-first")
    monkeypatch.chdir(tmp_path)
    assert target_teachers(bank) == []
    monkeypatch.chdir(place)
    assert target_teachers(bank) == [("hf:first", True)]
    # What a recipe knows of its teachers comes first.
    assert target_teachers(bank, ["hf:elsewhere"])[0] == ("hf:elsewhere", True)


def test_where_no_teacher_has_layers_the_start_is_a_fitted_table(captions, tmp_path, word_sum_bank, capsys):
    bank = word_sum_bank(tmp_path / "bank", captions, captions, 24)
    student = distil(captions, tmp_path / "s", bank, tokenizer=None)
    assert student.manifest["preset"] == "static"
    assert "a static table, fitted to the target" in capsys.readouterr().err
    first = json.loads((tmp_path / "s" / "log.jsonl").read_text().splitlines()[0])["gauges"]
    assert first["target_cosine"] > 0.5  # of 360 texts; a random table's is near 0
    verdict = student.manifest["verdict"]
    assert abs(verdict["neighbours_kept"] - verdict["static_neighbours_kept"]) < 0.1


def test_a_student_that_is_worse_than_a_table_says_so(captions, tmp_path, word_sum_bank, capsys):
    bank = word_sum_bank(tmp_path / "bank", captions, captions, 24)
    student = distil(captions, tmp_path / "s", bank, student="micro", head="linear", lr=1e-6)
    assert student.manifest["verdict"]["verdict"] == "below static"
    said = capsys.readouterr().err
    assert "NOT WORTH USING" in said
    assert "leave out --student" in said
    # The command that mends it does.
    mended = distil(captions, tmp_path / "s", bank, overwrite=True)
    assert mended.manifest["verdict"]["verdict"] == "ok"


def test_a_tokenizer_needs_a_shape_of_its_own(captions, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises(InputError, match="Name their shape with --student"):
        distil(captions, tmp_path / "s", place / "target", tokenizer="train")


def test_minutes_are_spent_though_the_machine_was_busy_at_first(captions, place, tmp_path, monkeypatch):
    """The first steps are slow, the others aren't: the number of steps follows what is measured later."""
    import time

    from consilience.training.gradients import GradientOfBatch

    monkeypatch.chdir(place)
    plain = GradientOfBatch.__call__
    taken = []

    def slow_at_first(self, *arguments, **options):
        taken.append(None)
        if len(taken) <= 6:
            time.sleep(0.3)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(GradientOfBatch, "__call__", slow_at_first)
    began = time.monotonic()
    student = consilience.distill(
        captions, target=place / "target", out=tmp_path / "s", minutes=0.2, batch_rows=16, precision="fp32"
    )
    assert time.monotonic() - began < 18.0  # of 12, on a machine that runs other tests
    entries = [json.loads(line) for line in (tmp_path / "s" / "log.jsonl").read_text().splitlines()]
    totals = [entry["total"] for entry in entries if "total" in entry]
    assert totals[-1] == student.manifest["training"]["steps_done"]
    assert totals[-1] > 2 * totals[0]
    assert np.isfinite(student.manifest["gauges"]["target_cosine"])


def test_a_resumed_training_takes_the_decisions_that_were_made(captions, place, tmp_path, monkeypatch):
    from consilience.training.gradients import GradientOfBatch

    monkeypatch.chdir(place)
    options = {"target": place / "target", "out": tmp_path / "s", "minutes": 0.25, "batch_rows": 16}
    plain = GradientOfBatch.__call__
    kept = tmp_path / "s.partial" / "decisions.json"

    def stops(self, *arguments, **kinds):
        if kept.is_file() and len(json.loads(kept.read_text())) > 1:
            raise KeyboardInterrupt
        return plain(self, *arguments, **kinds)

    with monkeypatch.context() as patch:
        patch.setattr(GradientOfBatch, "__call__", stops)
        with pytest.raises(KeyboardInterrupt):
            consilience.distill(captions, precision="fp32", checkpoint_seconds=1e-3, **options)
    decided = json.loads(kept.read_text())
    student = consilience.distill(captions, precision="fp32", **options)
    entries = [json.loads(line) for line in (tmp_path / "s" / "log.jsonl").read_text().splitlines()]
    totals = {entry["step"]: entry["total"] for entry in entries if "total" in entry}
    assert {entry["step"]: entry["total"] for entry in decided}.items() <= totals.items()
    assert student.manifest["training"]["steps_done"] == list(totals.values())[-1]
