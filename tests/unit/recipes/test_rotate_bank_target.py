"""A rotated bank that can't be written is refused before a rotation is fitted."""

from __future__ import annotations

import json

import pytest

from consilience.core.errors import ConsilienceError, InputError, ResumeError
from consilience.core.hashing import content_id
from consilience.recipes.rotate import require_bank_target


def artefact(folder, kind, **extra):
    folder.mkdir()
    body = {**extra, "kind": kind, "schema_version": 1, "files": {}}
    (folder / "manifest.json").write_text(json.dumps({**body, "id": content_id(body, prefix=f"{kind}-")}))
    return folder


def test_only_a_bank_can_be_written_rotated(tmp_path):
    student, bank = artefact(tmp_path / "student", "student"), artefact(tmp_path / "bank", "bank")
    places = {"into": "packaged:nobody", "rotation": tmp_path / "rotation", "out": tmp_path / "rotated"}
    require_bank_target(bank, **places)
    for source in (student, "packaged:nobody"):
        with pytest.raises(InputError, match="isn't a bank, so there are no rows to write"):
            require_bank_target(source, **places)


@pytest.mark.parametrize("out", ["rotation", "rotation/rotated", "bank", "bank/rotated", "target"])
def test_a_rotated_bank_keeps_apart_from_what_is_read_and_from_the_rotation(tmp_path, out):
    bank, target = artefact(tmp_path / "bank", "bank"), artefact(tmp_path / "target", "bank")
    with pytest.raises(InputError):
        require_bank_target(bank, into=target, rotation=tmp_path / "rotation", out=tmp_path / out)


def somebodys(out):
    out.mkdir()
    (out / "notes.txt").write_text("mine")


def working(out):
    somebodys(out.with_name(f"{out.name}.partial"))


def another_bank(out):
    artefact(out, "bank", extra={"bank": "bank-another"})


@pytest.mark.parametrize(
    "occupy", [somebodys, working, another_bank, lambda out: artefact(out, "frames"), lambda out: out.symlink_to("x")]
)
def test_a_place_that_is_taken_is_refused_before_a_rotation_is_fitted(tmp_path, occupy):
    bank, target = artefact(tmp_path / "bank", "bank"), artefact(tmp_path / "target", "bank")
    occupy(tmp_path / "rotated")
    with pytest.raises(ConsilienceError, match="rotated"):
        require_bank_target(bank, into=target, rotation=tmp_path / "rotation", out=tmp_path / "rotated")


def test_overwrite_replaces_an_artefact_but_no_folder_of_somebody(tmp_path):
    bank, target = artefact(tmp_path / "bank", "bank"), artefact(tmp_path / "target", "bank")
    places = {"into": target, "rotation": tmp_path / "rotation", "overwrite": True}
    another_bank(tmp_path / "rotated")
    require_bank_target(bank, out=tmp_path / "rotated", **places)
    somebodys(tmp_path / "notes")
    with pytest.raises(ResumeError, match="isn't a Consilience artefact"):
        require_bank_target(bank, out=tmp_path / "notes", **places)


def test_the_bank_that_an_equal_call_wrote_is_let_through(tmp_path):
    bank, target = artefact(tmp_path / "bank", "bank"), artefact(tmp_path / "target", "bank")
    artefact(tmp_path / "rotated", "bank", extra={"bank": json.loads((bank / "manifest.json").read_text())["id"]})
    require_bank_target(bank, into=target, rotation=tmp_path / "rotation", out=tmp_path / "rotated")
