"""Who taught a start, however it was named: a card must list them."""

import json

from consilience.exporters.folder import find_teachers
from consilience.recipes.initial_student import _taught_by


def test_an_export_as_a_start_names_its_student_s_teachers(tmp_path):
    manifest = {
        "kind": "export",
        "schema_version": 1,
        "id": "export-1",
        "student": "student-1",
        "files": {},
        "teachers": {"packaged:all-MiniLM-L6-v2": "Apache-2.0", "text-model": None},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "modules.json").write_text("[]")
    for source in (tmp_path, f"st:{tmp_path}"):
        start = _taught_by(init=source)
        assert start["init"]["student"] == "student-1"
        assert find_teachers({"start": start}) == manifest["teachers"]
