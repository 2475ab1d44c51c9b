"""Stages: keys, skipping, continuing, damage."""

import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import BankIntegrityError
from consilience.core.files import read_json
from consilience.core.manifests import partial_path
from consilience.recipes.recipe_file import Recipe
from consilience.recipes.run import corpus_stage, student_content
from consilience.recipes.stages import Stages, path_content, stage_key


def make(text):
    def write(out):
        work, _ = begin_artefact(out, {"text": text})
        (work / "a.txt").write_text(text)
        finish_artefact(out, kind="corpus", manifest={"text": text}, files=["a.txt"])

    return write


def test_a_stage_runs_once_and_is_skipped_after(tmp_path):
    calls = []

    def counted(out):
        calls.append(out)
        make("x")(out)

    first = Stages(tmp_path).stage("corpus", {"n": 1}, counted)
    second = Stages(tmp_path).stage("corpus", {"n": 1}, counted)
    other = Stages(tmp_path).stage("corpus", {"n": 2}, counted)
    assert [first.status, second.status, other.status] == ["ran", "skipped", "ran"]
    assert len(calls) == 2
    assert first.id == second.id
    assert second.seconds == first.seconds  # what it took when it ran, not what skipping took


def test_an_interrupted_stage_continues_and_its_times_add_up(tmp_path):
    def killed(out):
        begin_artefact(out, {"text": "x"})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stages(tmp_path).stage("corpus", {}, killed)
    folder = tmp_path / f"corpus-{stage_key('corpus', {})}"
    assert partial_path(folder).is_dir()
    assert Stages(tmp_path, dry_run=True).stage("corpus", {}, make("x")).status == "would continue"
    assert Stages(tmp_path).stage("corpus", {}, make("x")).status == "continued"
    assert folder.name in read_json(tmp_path / "seconds.json")


def test_a_damaged_output_is_not_skipped_silently(tmp_path):
    done = Stages(tmp_path).stage("corpus", {}, make("x"))
    (done.folder / "a.txt").write_text("y")
    with pytest.raises(BankIntegrityError, match=r"a\.txt"):
        Stages(tmp_path).stage("corpus", {}, make("x"))


def test_a_dry_run_makes_nothing(tmp_path):
    stages = Stages(tmp_path / "out", dry_run=True)
    known = stages.stage("corpus", {"n": 1}, make("x"))
    unknown = stages.stage("align", None, make("x"))
    assert (known.status, unknown.status, unknown.key) == ("would run", "would run", None)
    assert list(tmp_path.iterdir()) == []


def test_path_content_follows_the_content(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("1")
    before = path_content(tmp_path / "a")
    (tmp_path / "a" / "x.txt").write_text("2")
    assert path_content(tmp_path / "a") != before
    assert path_content(tmp_path / "a" / "x.txt") != path_content(tmp_path / "a")


def test_a_local_tokenizer_enters_the_keys_by_content(tmp_path):
    file = tmp_path / "tokenizer.json"
    part = {"name": "x", "corpus": {"grammar": 1}, "teachers": [{"spec": "npy:a"}], "train": {"steps": 1}}
    recipe = Recipe.model_validate({**part, "student": {"tokenizer": str(file)}})
    seen = []
    for content in ("one", "two", "one"):
        file.write_text(content)
        seen.append(student_content(recipe))
    assert seen[0] == seen[2] != seen[1]
    assert str(tmp_path) not in str(seen)
    # Keys that came after the first runs change no key where they aren't set.
    plain = Recipe.model_validate(part)
    assert student_content(plain) == plain.student.model_dump(include={"preset", "shape", "tokenizer", "max_length"})
    assert student_content(Recipe.model_validate({**part, "student": {"head": "none"}}))["head"] == "none"


def test_the_limit_of_a_grammar_corpus_enters_its_key(tmp_path):
    part = {"name": "x", "teachers": [{"spec": "npy:a"}], "train": {"steps": 1}}
    keys = {
        corpus_stage(Recipe.model_validate({**part, "corpus": corpus}), Stages(tmp_path, dry_run=True)).key
        for corpus in ({"grammar": 9}, {"grammar": 9, "limit": 5}, {"grammar": 9, "limit": 6})
    }
    assert len(keys) == 3
