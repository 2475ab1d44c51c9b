"""A run's or study's folder is written in place: what in it isn't ours stays as it is."""

import json

import pytest

from consilience.core.artefacts import PLAN, begin_artefact
from consilience.core.errors import ConsilienceError, InputError, ResumeError
from consilience.core.files import atomic_write
from consilience.core.manifests import MANIFEST
from consilience.recipes.staged_folder import begin_staged, require_staged_folder, write_staged_report


def report(out, *, word="first", plots=("a",)):
    results = {"name": "tiny", "recipe": {}, "stages": [], "word": word}
    images = {name: f"<svg xmlns='http://www.w3.org/2000/svg'><title>{word}</title></svg>" for name in plots}
    write_staged_report(out, results, kind="run", document="recipe", markdown=f"# {word}\n", plots=images)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_report_replaces_its_own_files_and_drops_plots_that_it_no_longer_has(tmp_path):
    out = tmp_path / "run"
    for word, plots in (("first", ("a", "b")), ("second", ("a",)), ("third", ("a", "b"))):
        require_staged_folder(out, "run")
        begin_staged(out, "run")
        report(out, word=word, plots=plots)
        assert (out / "report.md").read_text() == f"# {word}\n"
        listed = json.loads((out / MANIFEST).read_text())["files"]
        assert names(out) == sorted([MANIFEST, *listed])
    assert "plots/b.svg" in listed


@pytest.mark.parametrize(
    "theirs", ["report.md", "report.html", "results.json", "plots/a.svg", "model", "manifest.json", "model/thesis.txt"]
)
@pytest.mark.parametrize("finished", [False, True])
def test_a_file_of_somebody_in_the_folder_is_never_replaced(tmp_path, theirs, finished):
    out = tmp_path / "run"
    begin_staged(out, "run")
    if finished:
        report(out)
    (out / theirs).parent.mkdir(exist_ok=True)
    (out / theirs).write_text("mine")
    early = False
    try:
        require_staged_folder(out, "run")
    except ResumeError as error:
        early = "Move it away" in str(error) or "Choose another --out" in str(error)
    if not early:  # a plot's name is only known when it's drawn
        assert (theirs, finished) == ("plots/a.svg", False)
        with pytest.raises(ResumeError, match=r"plots/a\.svg: isn't the report that was written there\. Move it away"):
            report(out)
    assert (out / theirs).read_text() == "mine"


@pytest.mark.parametrize("theirs", ["corpus-2020/talk.txt", "seconds.json", "manifest.json", "plan.json"])
def test_a_folder_of_somebody_is_no_run(tmp_path, theirs):
    out = tmp_path / "mine"
    (out / theirs).parent.mkdir(parents=True)
    (out / theirs).write_text('{"kind": "run"}')
    with pytest.raises(ResumeError):
        require_staged_folder(out, "run")
    begin_artefact(tmp_path / "bank", {"kind": "bank"})
    with pytest.raises(ResumeError, match="aren't a run's"):
        require_staged_folder(tmp_path / "bank.partial", "run")


def test_an_interrupted_run_is_continued_and_another_kind_refused(tmp_path):
    begin_staged(tmp_path / "run", "run")
    (tmp_path / "run" / "embed-1.partial").mkdir()
    require_staged_folder(tmp_path / "run", "run")
    with pytest.raises(ResumeError, match="aren't a study's"):
        require_staged_folder(tmp_path / "run", "study")


def test_a_report_that_was_killed_while_it_was_written_is_written_again(tmp_path, monkeypatch):
    out = tmp_path / "run"
    begin_staged(out, "run")
    report(out)

    def killed(path, mode="wb"):
        if path.name == "report.html":
            raise KeyboardInterrupt
        return atomic_write(path, mode)

    monkeypatch.setattr("consilience.recipes.staged_folder.atomic_write", killed)
    with pytest.raises(KeyboardInterrupt):
        report(out, word="second", plots=("a", "c"))
    monkeypatch.undo()
    assert (out / PLAN).is_file()
    require_staged_folder(out, "run")
    report(out, word="third", plots=("c",))
    assert names(out) == sorted(["plots/c.svg", MANIFEST, "report.md", "report.html", "results.json"])


def test_a_link_to_a_folder_will_do_and_one_to_nothing_will_not(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    require_staged_folder(tmp_path / "run", "run")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a link"):
        require_staged_folder(tmp_path / "gone", "run")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConsilienceError):
        require_staged_folder(tmp_path / "file", "run")
