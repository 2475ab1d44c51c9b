"""What would make the last rename fail is found before the work, and no output takes the place of something else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from consilience.core.artefacts import (
    begin_artefact,
    discard_work,
    finish_artefact,
    is_finished,
    output_path,
    settle_artefact,
)
from consilience.core.errors import ConsilienceError, InputError, ResumeError, StorageError
from consilience.core.files import atomic_write, place
from consilience.core.manifests import MANIFEST, TIMING, partial_path
from consilience.core.placing import is_mount, require_place


def make(out, job=1, *, overwrite=False, content=b"payload"):
    if is_finished(out, kind="bank", job=job, overwrite=overwrite):
        return out
    work, _ = begin_artefact(out, {"job": job}, overwrite=overwrite)
    (work / "checkpoints").mkdir(exist_ok=True)
    (work / "checkpoints" / "a").write_bytes(b"not listed")
    (work / "data.bin").write_bytes(content)
    finish_artefact(out, kind="bank", manifest={"job": job}, files=["data.bin"])
    return out


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# -- the place --------------------------------------------------------------------------------------------------------


def test_a_link_is_no_place_and_the_named_fix_is(tmp_path):
    (tmp_path / "folder").mkdir()
    for target in ("disk/bank", "folder"):  # to nothing, and to a folder
        link = tmp_path / "out"
        link.symlink_to(tmp_path / target)
        for overwrite in (False, True):
            with pytest.raises(ConsilienceError) as caught:
                output_path(link, overwrite=overwrite)
            assert link.is_symlink()
        named = str(caught.value).rpartition("--out ")[2]
        assert named == str(tmp_path / target)
        make(Path(named), overwrite=True)
        link.unlink()
    assert tree(tmp_path / "disk" / "bank") == tree(tmp_path / "folder") == tree(make(tmp_path / "whole"))


def test_a_finished_artefact_behind_a_link_is_done(tmp_path):
    make(tmp_path / "disk" / "bank")
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "bank")
    assert output_path(tmp_path / "out") == tmp_path / "out"
    assert is_finished(tmp_path / "out", kind="bank", job=1)
    with pytest.raises(InputError, match="is a link"):
        is_finished(tmp_path / "out", kind="bank", job=1, overwrite=True)


def test_a_name_that_is_too_long_with_its_suffix_is_found_and_shortening_it_helps(tmp_path):
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    with pytest.raises(InputError, match=r"too long, with \.replaced behind it"):
        output_path(tmp_path / ("n" * (longest - 8)))
    make(tmp_path / ("n" * (longest - 9)))
    require_place(tmp_path / ("n" * longest))  # a plain file has no suffix
    with atomic_write(tmp_path / ("n" * longest), "x") as stream:
        stream.write("whole")
    with pytest.raises(InputError, match="too long"):
        output_path(tmp_path / ("n" * (longest + 1)) / "deep")


def test_a_link_to_nothing_or_a_file_above_the_place_is_found(tmp_path):
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    for above in ("gone", "file"):
        with pytest.raises(InputError, match="nothing can be written below it"):
            output_path(tmp_path / above / "deep" / "bank")
    assert not (tmp_path / "nowhere").exists()


def in_mounts(script, *arguments):
    """Run a Python script where it may mount; skip where that isn't permitted."""
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("mounting a tmpfs isn't permitted")
    command = ["unshare", "-m", sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


MOUNTED = """
import subprocess, sys
from pathlib import Path
from consilience.core.artefacts import (begin_artefact, finish_artefact, is_finished, output_path)
from consilience.core.errors import ConsilienceError
from consilience.core.files import atomic_write
from consilience.core.placing import require_place
here = Path(sys.argv[1])

def mount(*words):
    if subprocess.run(["mount", *words], capture_output=True).returncode:
        print("mounting a tmpfs isn't permitted")
        sys.exit(0)

def refusal(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ConsilienceError as error:
        return str(error)
    return "accepted"

for name in ("volume", "same disk", "source", "ro", "taken.partial"):
    (here / name).mkdir()
(here / "file.txt").write_text("a")
(here / "over.txt").write_text("b")
mount("-t", "tmpfs", "none", str(here / "volume"))
mount("--bind", str(here / "source"), str(here / "same disk"))
mount("--bind", str(here / "over.txt"), str(here / "file.txt"))
mount("-t", "tmpfs", "none", str(here / "taken.partial"))
mount("-t", "tmpfs", "-o", "ro", "none", str(here / "ro"))
for name in ("volume", "same disk"):
    for overwrite in (False, True):
        print(refusal(output_path, here / name, overwrite=overwrite))
    print(refusal(output_path, here / name / "NAME"))
print(refusal(require_place, here / "file.txt"))
print(refusal(output_path, here / "ro" / "deep" / "bank"))
print(refusal(output_path, here / "taken"))
work, _ = begin_artefact(here / "volume" / "NAME", {"job": 1})
(work / "data").write_text("x")
finish_artefact(here / "volume" / "NAME", kind="bank", manifest={"job": 1}, files=["data"])
print(is_finished(here / "volume" / "NAME", kind="bank", job=1))
"""


def test_mounts_and_read_only_file_systems_are_found_before_the_work(tmp_path):
    ran = in_mounts(MOUNTED, tmp_path)
    if "isn't permitted" in ran.stdout:
        pytest.skip("mounting a tmpfs isn't permitted")
    lines = ran.stdout.splitlines()
    assert ran.stderr == ""
    for at, name in ((0, "volume"), (3, "same disk")):
        assert "already exists" in lines[at] or "is a mount point" in lines[at]
        fix = f"Name something inside it: --out {tmp_path}/{name}/NAME"
        assert lines[at + 1].endswith(f"is a mount point, which can't take a finished output's name. {fix}")
        assert lines[at + 2] == "accepted"
    assert "is a mount point" in lines[6]
    assert f"can't write: {tmp_path}/ro is read-only or not permitted. Choose another --out" in lines[7]
    assert "taken.partial: would be the working folder, and isn't one of Consilience" in lines[8]
    assert lines[9] == "True"


def test_an_ordinary_folder_is_no_mount(tmp_path):
    assert not is_mount(tmp_path)
    assert is_mount(Path("/"))


# -- what is there is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "theirs",
    [
        {"out/thesis.txt": "x"},
        {"out/manifest.json": '{"name": "a web app"}'},
        {"out/manifest.json": '{"kind": "bank", "files": {}, "schema_version": 1, "id": "bank-1"}'},
        {"out/manifest.json": "{"},
        {"out.partial/thesis.txt": "x"},
        {"out.partial/plan.json": '{"weekend": "hills"}'},
        {"out.partial/plan.json": "{"},
        {"out.partial/manifest.json": "{}", "out.partial/thesis.txt": "x"},
        {"out.partial": "a file"},
        {"out": "a file"},
    ],
)
def test_what_is_not_ours_is_never_touched(tmp_path, theirs, overwrite):
    for name, text in theirs.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = tree(tmp_path)
    for attempt in (
        lambda: output_path(tmp_path / "out", overwrite=overwrite),
        lambda: begin_artefact(tmp_path / "out", {"job": 1}, overwrite=overwrite),
        lambda: make(tmp_path / "out", overwrite=overwrite),
        lambda: settle_artefact(tmp_path / "out", overwrite=overwrite) or begin_artefact(tmp_path / "out", {"job": 1}),
        lambda: discard_work(partial_path(tmp_path / "out")) or begin_artefact(tmp_path / "out", {"job": 1}),
    ):
        if theirs.keys() == {"out/manifest.json"} and attempt.__code__.co_names[0] == "output_path" and not overwrite:
            attempt()  # it may be the finished result, which only the job's identity tells
            continue
        with pytest.raises(ConsilienceError):
            attempt()
        assert tree(tmp_path) == before


def test_overwrite_keeps_an_artefact_that_a_file_was_put_into(tmp_path):
    out = make(tmp_path / "out")
    (out / "deep").mkdir()
    (out / "deep" / "notes.txt").write_text("mine")
    with pytest.raises(ResumeError, match=r"holds deep/notes\.txt, which isn't part of the artefact"):
        make(out, 2, overwrite=True)
    (out / "deep" / "notes.txt").rename(tmp_path / "notes.txt")
    make(out, 2, overwrite=True, content=b"new")
    assert (out / "data.bin").read_bytes() == b"new"
    assert names(tmp_path) == ["notes.txt", "out"]


def test_overwrite_keeps_an_artefact_one_of_whose_files_was_edited(tmp_path):
    out = make(tmp_path / "out")
    (out / "data.bin").write_bytes(b"payload, and my own words")
    with pytest.raises(ResumeError, match=r"holds data\.bin, which was changed since it was written"):
        make(out, 2, overwrite=True)
    (out / "data.bin").rename(tmp_path / "mine.bin")
    make(out, 2, overwrite=True, content=b"new")
    assert (out / "data.bin").read_bytes() == b"new"


def test_what_somebody_put_into_the_working_folder_is_moved_beside_the_result(tmp_path, capsys):
    work, _ = begin_artefact(tmp_path / "out", {"job": 1})
    (work / "mine").mkdir()
    for name in ("notes.txt", "mine/thesis.txt", "log.jsonl", f".{'a' * 16}.tmp"):
        (work / name).write_text(name)
    make(tmp_path / "out")
    assert names(tmp_path) == ["out", "out.kept"]
    assert tree(tmp_path / "out.kept") == {"notes.txt": b"notes.txt", "mine/thesis.txt": b"mine/thesis.txt"}
    assert f"notes.txt: isn't of this job: moved to {tmp_path}/out.kept/notes.txt" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".partial", ".replaced"])
def test_an_output_may_not_be_called_as_working_folders_are(tmp_path, ending):
    with pytest.raises(InputError, match="kept for folders of jobs at work"):
        output_path(tmp_path / f"out{ending}")


def test_a_folder_called_replaced_is_in_the_way_before_the_work(tmp_path):
    out = make(tmp_path / "out")
    make(tmp_path / "other").rename(tmp_path / "out.replaced")  # an artefact, even, but not what this run moved there
    for call in (output_path, lambda *a, **o: begin_artefact(*a, {"job": 2}, **o)):
        with pytest.raises(ResumeError, match=r"out\.replaced: is in the way"):
            call(out, overwrite=True)
    (tmp_path / "out.replaced").rename(tmp_path / "elsewhere")
    make(out, 2, overwrite=True)


def test_a_complete_leftover_takes_no_place_from_another_job_or_folder(tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr("consilience.core.artefacts.place", refused)
    with pytest.raises(StorageError):
        make(out)
    monkeypatch.undo()
    left = tree(tmp_path)
    assert set(left) == {"out.partial/data.bin", f"out.partial/{MANIFEST}", "out.partial/plan.json"}
    with pytest.raises(ResumeError, match="an interrupted run of another job"):  # nothing is at out
        make(out, 2)
    assert tree(tmp_path) == left
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    for job in (1, 2):
        for overwrite in (False, True):
            with pytest.raises(ResumeError):
                make(out, job, overwrite=overwrite)
    assert tree(tmp_path) == left | {"out/thesis.txt": b"years of work"}
    out.rename(tmp_path / "moved")
    make(out, content=b"another payload")  # the same job: finished, not made again
    assert (out / "data.bin").read_bytes() == b"payload"
    assert names(tmp_path) == ["moved", "out"]


def refused(temporary, out):
    raise StorageError(f"{out}: can't write")


def test_a_note_in_a_complete_leftover_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("consilience.core.artefacts.place", refused)
    with pytest.raises(StorageError):
        make(tmp_path / "out")
    monkeypatch.undo()
    (tmp_path / "out.partial" / "notes.txt").write_text("mine")
    make(tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("theirs", ["folder", "file", "link", "artefact"])
def test_what_appears_while_the_job_runs_is_kept(tmp_path, theirs, overwrite):
    out = tmp_path / "out"
    if overwrite:
        make(out)
    work, _ = begin_artefact(out, {"job": 2}, overwrite=overwrite)
    (work / "data.bin").write_bytes(b"new")
    if overwrite:
        out.rename(tmp_path / "old")
    if theirs == "folder":
        out.mkdir()
        (out / "thesis.txt").write_text("x")
    elif theirs == "file":
        out.write_text("x")
    elif theirs == "link":
        out.symlink_to(tmp_path / "nowhere")
    else:
        make(tmp_path / "another", 3).rename(out)
    before = tree(tmp_path)
    with pytest.raises(ResumeError, match="was made while this job ran"):
        finish_artefact(out, kind="bank", manifest={"job": 2}, files=["data.bin"])
    assert before.items() <= {**tree(tmp_path), "out.partial/plan.json": before["out.partial/plan.json"]}.items()
    assert os.path.lexists(out)
    out.rename(tmp_path / "moved")  # as the message says
    make(out, 2, overwrite=overwrite)
    assert (out / "data.bin").read_bytes() == b"new"


def test_a_file_is_placed_beside_nothing_and_over_nothing(tmp_path, monkeypatch):
    for links in (True, False):
        if not links:
            monkeypatch.setattr(os, "link", no_links)
        fresh, out = tmp_path / "fresh", tmp_path / f"out-{links}"
        fresh.write_text("new")
        place(fresh, out)
        assert out.read_text() == "new"
        assert not fresh.exists()
        fresh.write_text("newer")
        with pytest.raises(ResumeError, match="was made while this job ran"):
            place(fresh, out)
        assert (out.read_text(), fresh.read_text()) == ("new", "newer")


def no_links(source, target):
    raise PermissionError(1, "Operation not permitted")


# -- killed at any point ----------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def kill_at(monkeypatch, moment):
    """Let so many changes of the file system through and none after them; return how many were tried."""
    count = [0]

    def counted(real):
        def call(*arguments, **options):
            count[0] += 1
            if count[0] > moment:
                raise Killed
            return real(*arguments, **options)

        return call

    for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    monkeypatch.setattr("shutil.rmtree", counted(__import__("shutil").rmtree))
    return count


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_kill_at_any_point_is_recovered_from_exactly(tmp_path, monkeypatch, overwrite):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power cut here
    whole = tree(make(tmp_path / "whole", 2, content=b"new"))
    moment = 0
    while True:
        folder = tmp_path / str(moment)
        out = folder / "out"
        folder.mkdir()
        if overwrite:
            make(out)
        with monkeypatch.context() as patch:
            count = kill_at(patch, moment)
            try:
                make(out, 2, overwrite=overwrite, content=b"new")
                break
            except Killed:
                pass
        make(out, 2, overwrite=overwrite, content=b"new")
        assert tree(out) == whole, moment
        assert names(folder) == ["out"], moment
        moment += 1
    assert moment > 8
    assert count[0] == moment


def test_another_job_after_a_kill_in_the_swap_gets_the_old_artefact_back(tmp_path, monkeypatch):
    out = make(tmp_path / "out")
    old = tree(out)
    place_really, calls = place, []

    def killed_at_the_second(temporary, target):
        calls.append(target)
        if len(calls) == 2:
            raise Killed
        place_really(temporary, target)

    monkeypatch.setattr("consilience.core.artefacts.place", killed_at_the_second)
    with pytest.raises(Killed):
        make(out, 2, overwrite=True)
    monkeypatch.undo()
    assert names(tmp_path) == ["out.partial", "out.replaced"]
    assert tree(tmp_path / "out.replaced") == old
    with pytest.raises(ResumeError, match="another job"):
        make(out, 3)
    make(out, 3, overwrite=True, content=b"third")
    assert (out / "data.bin").read_bytes() == b"third"
    assert names(tmp_path) == ["out"]


def test_what_was_put_into_the_replaced_artefact_meanwhile_stays(tmp_path, monkeypatch):
    out = make(tmp_path / "out")
    (out / TIMING).write_text("{}")
    moved = []

    def note(temporary, target):
        place(temporary, target)
        if target.name == "out":
            (tmp_path / "out.replaced" / "notes.txt").write_text("mine")
        moved.append(target.name)

    monkeypatch.setattr("consilience.core.artefacts.place", note)
    make(out, 2, overwrite=True, content=b"new")
    assert moved == ["out.replaced", "out"]
    assert (tmp_path / "out.replaced" / "notes.txt").read_text() == "mine"
    assert (out / "data.bin").read_bytes() == b"new"


def test_a_tilde_that_no_shell_expanded_is_refused():
    with pytest.raises(InputError, match="Write \\$HOME"):
        require_place(Path("~/models/out"))
