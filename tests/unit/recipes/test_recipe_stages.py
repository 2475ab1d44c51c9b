"""Stages: keys, skipping, continuing, damage."""

import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact, partial_path
from consilience.core.errors import BankIntegrityError
from consilience.core.files import read_json
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
