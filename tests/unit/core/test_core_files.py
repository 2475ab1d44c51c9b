"""Files and artefacts are complete or absent, and what was changed is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact, settle_artefact
from consilience.core.errors import BankIntegrityError, InputError, ResumeError
from consilience.core.files import atomic_write, read_json, write_json
from consilience.core.manifests import MANIFEST, TIMING, partial_path, read_manifest, verify_artefact
from consilience.core.placing import require_apart


def make_artefact(out, content=b"payload"):
    work, _ = begin_artefact(out, {"job": 1})
    (work / "data.bin").write_bytes(content)
    (work / "log.jsonl").write_bytes(b"not listed")
    (work / TIMING).write_text("{}")
    return finish_artefact(out, kind="bank", manifest={"rows": 3}, files=["data.bin"])


def test_atomic_write_leaves_the_old_file_when_the_block_fails(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_write(target, "w") as stream:  # noqa: PT012
        stream.write("new")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("made", ["folder", "file"])
def test_overwrite_never_deletes_what_is_no_artefact(tmp_path, made):
    out = tmp_path / "precious"
    if made == "file":
        out.write_text("thesis")
    else:
        out.mkdir()
        (out / "thesis.txt").write_text("thesis")
    with pytest.raises(ResumeError, match="isn't a Consilience artefact"):
        begin_artefact(out, {"job": 1}, overwrite=True)
    assert (out if made == "file" else out / "thesis.txt").read_text() == "thesis"


def test_overwrite_replaces_an_artefact_and_an_empty_folder_when_the_new_one_is_complete(tmp_path):
    make_artefact(tmp_path / "bank")
    (tmp_path / "empty").mkdir()
    for name in ("bank", "empty"):
        out = tmp_path / name
        before = sorted(path.name for path in out.iterdir())
        work, resumed = begin_artefact(out, {"job": 2}, overwrite=True)
        assert not resumed
        assert sorted(path.name for path in out.iterdir()) == before  # whoever reads it still can
        assert begin_artefact(out, {"job": 2}, overwrite=True) == (work, True)  # after a kill: continued
        (work / "new.bin").write_bytes(b"new")
        finish_artefact(out, kind="bank", manifest={"rows": 9}, files=["new.bin"])
        assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "new.bin"]
        assert verify_artefact(out)["rows"] == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank", "empty"]


def test_an_output_that_is_an_input_is_refused(tmp_path):
    bank = tmp_path / "runs" / "bank"
    make_artefact(bank)
    for out in (bank, tmp_path / "runs", bank / "inside", tmp_path / "runs" / ".." / "runs" / "bank"):
        with pytest.raises(InputError, match="which this job reads"):
            require_apart(out, "packaged:glove", None, bank)
    require_apart(tmp_path / "runs" / "other", bank, "x" * 5_000, ["rows"])


def test_a_kill_between_the_renames_of_an_overwrite_is_settled(tmp_path, monkeypatch):
    out = tmp_path / "bank"
    make_artefact(out)
    work, _ = begin_artefact(out, {"job": 2}, overwrite=True)
    (work / "new.bin").write_bytes(b"new")
    rename = Path.rename

    def killed(self, target):
        if self == work:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        finish_artefact(out, kind="bank", manifest={"rows": 9}, files=["new.bin"])
    monkeypatch.undo()
    assert not out.exists()
    settle_artefact(out)
    assert verify_artefact(out)["rows"] == 9
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]


def test_an_artefact_that_appeared_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "bank"
    work, _ = begin_artefact(out, {"job": 1})
    (work / "data.bin").write_bytes(b"x")
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(ResumeError, match="while this job ran"):
        finish_artefact(out, kind="bank", manifest={}, files=["data.bin"])
    assert (out / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("out", [".", "..", "/"])
def test_a_folder_that_always_exists_is_no_output(out):
    with pytest.raises(InputError, match="--out"):
        begin_artefact(Path(out), {"job": 1}, overwrite=True)


def test_an_output_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file isn't a folder, so nothing can be written below it"):
        begin_artefact(tmp_path / "file" / "bank", {"job": 1})


def test_equal_values_are_equal_bytes(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "é"})
    write_json(tmp_path / "b.json", {"a": "é", "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_invalid_json_is_named(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad\.json"):
        read_json(tmp_path / "bad.json")


def test_finish_drops_unlisted_files_and_the_plan_but_keeps_timing(tmp_path):
    out = tmp_path / "bank"
    manifest = make_artefact(out)
    assert sorted(p.name for p in out.iterdir()) == sorted(["data.bin", MANIFEST, TIMING])
    assert not partial_path(out).exists()
    assert verify_artefact(out) == manifest


def test_same_job_same_id_and_other_content_other_id(tmp_path):
    first, second = make_artefact(tmp_path / "one"), make_artefact(tmp_path / "two")
    third = make_artefact(tmp_path / "three", b"other")
    assert first["id"] == second["id"] != third["id"]


def test_an_equal_plan_continues_and_another_is_refused(tmp_path):
    out = tmp_path / "bank"
    work, resumed = begin_artefact(out, {"teacher": "a", "rows": 3})
    assert not resumed
    (work / "shard").write_bytes(b"done")
    work, resumed = begin_artefact(out, {"teacher": "a", "rows": 3})
    assert resumed
    assert (work / "shard").read_bytes() == b"done"
    with pytest.raises(ResumeError, match="differs in teacher"):
        begin_artefact(out, {"teacher": "b", "rows": 3})
    work, resumed = begin_artefact(out, {"teacher": "b", "rows": 3}, overwrite=True)
    assert not resumed
    assert not (work / "shard").exists()


def test_a_finished_artefact_is_not_overwritten_unasked(tmp_path):
    make_artefact(tmp_path / "bank")
    with pytest.raises(ResumeError, match="already exists"):
        begin_artefact(tmp_path / "bank", {"job": 1})


@pytest.mark.parametrize("position", [0, 3, 6])
def test_a_flipped_bit_is_found(tmp_path, position):
    out = tmp_path / "bank"
    make_artefact(out)
    data = bytearray((out / "data.bin").read_bytes())
    data[position] ^= 1
    (out / "data.bin").write_bytes(data)
    with pytest.raises(BankIntegrityError, match=r"data\.bin: checksum"):
        verify_artefact(out)


def test_an_edited_manifest_is_found(tmp_path):
    out = tmp_path / "bank"
    make_artefact(out)
    manifest = json.loads((out / MANIFEST).read_text())
    manifest["rows"] = 4
    (out / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BankIntegrityError, match="edited"):
        read_manifest(out)


def test_a_manifest_that_leaves_its_folder_is_refused(tmp_path):
    from consilience.core.hashing import content_id

    out = tmp_path / "bank"
    make_artefact(out)
    manifest = json.loads((out / MANIFEST).read_text())
    manifest["files"] = {"../outside": "0" * 64}
    body = {k: v for k, v in manifest.items() if k != "id"}
    manifest["id"] = content_id(body, prefix="bank-")
    (out / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BankIntegrityError, match="leaves the folder"):
        verify_artefact(out)


def test_a_missing_artefact_says_when_an_interrupted_run_is_there(tmp_path):
    begin_artefact(tmp_path / "bank", {"job": 1})
    with pytest.raises(InputError, match="interrupted run"):
        read_manifest(tmp_path / "bank")


@pytest.mark.parametrize(("name", "overwrite"), [("out.partial", False), ("out.partial", True), ("out.replaced", True)])
def test_a_folder_of_somebody_else_with_our_working_name_is_never_deleted(tmp_path, name, overwrite):
    theirs = tmp_path / name / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("years of work")
    with pytest.raises(ResumeError, match="Move it away"):
        begin_artefact(tmp_path / "out", {"job": 1}, overwrite=overwrite)
    assert theirs.read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_a_kill_before_the_plan_leaves_is_no_obstacle(tmp_path):
    work = partial_path(tmp_path / "out")
    work.mkdir()
    (work / ".0123456789abcdef.tmp").write_text("{")
    assert begin_artefact(tmp_path / "out", {"job": 1}) == (work, False)


def test_overwrite_is_only_advised_where_it_would_be_done(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(ResumeError) as caught:
        begin_artefact(tmp_path / "out", {"job": 1})
    assert "--overwrite" not in str(caught.value)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_kill_while_a_working_folder_is_deleted_is_no_obstacle(tmp_path, monkeypatch, overwrite):
    out = tmp_path / "out"
    work, _ = begin_artefact(out, {"job": 1})
    (work / "checkpoints").mkdir()
    (work / "checkpoints" / "step-1").write_text("x")

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        begin_artefact(out, {"job": 2}, overwrite=True)
    monkeypatch.undo()
    assert (work / "checkpoints" / "step-1").exists()
    assert begin_artefact(out, {"job": 1}, overwrite=overwrite) == (work, False)  # the half-deleted one isn't continued
    assert not (work / "checkpoints").exists()


def test_threads_that_write_one_file_leave_one_of_their_contents(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    contents = [bytes([65 + i]) * 200_000 for i in range(8)]

    def write(content):
        with atomic_write(tmp_path / "x") as stream:
            for start in range(0, len(content), 10_000):
                stream.write(content[start : start + 10_000])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, contents * 3))
    assert (tmp_path / "x").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
