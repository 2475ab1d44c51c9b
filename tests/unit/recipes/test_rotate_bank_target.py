"""A rotated bank that can't be written is refused before a rotation is fitted."""

from __future__ import annotations

import json

import pytest

from consilience.core.errors import InputError
from consilience.core.hashing import content_id
from consilience.recipes.rotate import require_bank_target


def artefact(folder, kind):
    folder.mkdir()
    body = {"kind": kind, "schema_version": 1, "files": {}}
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
