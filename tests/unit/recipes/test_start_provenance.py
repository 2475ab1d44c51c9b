"""Who taught a start, however it was named: a card must list them."""

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.exporters.folder import find_teachers
from consilience.recipes.initial_student import _taught_by

TEACHERS = {"packaged:all-MiniLM-L6-v2": "Apache-2.0", "text-model": None}


def test_an_export_as_a_start_names_its_student_s_teachers(tmp_path):
    folder = tmp_path / "my model"
    work, _ = begin_artefact(folder, {"job": 1})
    (work / "modules.json").write_text("[]")
    finish_artefact(
        folder, kind="export", manifest={"student": "student-1", "teachers": TEACHERS}, files=["modules.json"]
    )
    for source in (folder, f"st:{tmp_path}/my%20model"):
        start = _taught_by(init=source)
        assert start["init"]["student"] == "student-1"
        assert find_teachers({"start": start}) == TEACHERS
