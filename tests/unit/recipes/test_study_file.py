"""Study files: every fault at once, the grid that they mean, what goes to each training."""

import pytest

from consilience.core.errors import InputError, RecipeError, ResumeError
from consilience.recipes.study import study
from consilience.recipes.study_cells import Cell, grid_cells
from consilience.recipes.study_file import load_study
from consilience.recipes.study_starts import options_content

GOOD = """
name = "small"
objectives = ["composite", "mimicry"]
[corpus]
path = "captions.txt"
[[teachers]]
spec = "npy:a.npy"
name = "a"
[[teachers]]
spec = "npy:b.npy"
name = "b"
[[targets]]
name = "a"
teacher = "a"
[[targets]]
name = "both"
weights = { a = 2.0 }
[[students]]
name = "tiny"
shape = { layers = 1, hidden = 32, heads = 2, ffn = 64 }
[[students]]
preset = "micro"
lr = 1e-4
epochs = 2.0
cache_rows = 32
[train]
steps = 3
lr = 1e-3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "captions.txt").write_text("a cat\na dog\n")
    (tmp_path / "a.npy").write_bytes(b"x")
    (tmp_path / "b.npy").write_bytes(b"x")
    return tmp_path


def write(folder, text=GOOD):
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def faults_of(folder, text=GOOD, settings=()):
    with pytest.raises(RecipeError) as caught:
        load_study(write(folder, text), settings=settings)
    return caught.value.faults


def test_a_good_study_is_the_whole_grid_seed_by_seed(folder):
    checked = load_study(write(folder))
    cells = grid_cells(checked)
    assert len(cells) == 2 * 2 * 2 * 2
    assert [cell.seed for cell in cells] == [0] * 8 + [1] * 8
    assert cells[0] == Cell("composite", "a", "tiny", 0)
    assert checked.corpus.path == str(folder / "captions.txt")
    assert checked.teachers[0].spec == f"npy:{folder / 'a.npy'}"
    assert [part.name for part in checked.students] == ["tiny", "micro"]
    assert [part.is_consensus for part in checked.targets] == [False, True]


def test_cells_select_parts_and_overlaps_count_once(folder):
    text = GOOD + '[[cells]]\nobjectives = ["mimicry"]\ntargets = ["a"]\n[[cells]]\ntargets = ["a"]\nseeds = [0]\n'
    cells = grid_cells(load_study(write(folder, text)))
    assert len(cells) == len(set(cells)) == 4 + 4 - 2
    assert {(cell.objective, cell.seed) for cell in cells} == {("mimicry", 0), ("mimicry", 1), ("composite", 0)}


def test_a_students_options_replace_those_of_all_and_one_budget_the_other(folder):
    checked = load_study(write(folder))
    tiny, micro = (checked.options_of(part) for part in checked.students)
    assert tiny == {"steps": 3, "lr": 1e-3}
    assert micro == {"epochs": 2.0, "lr": 1e-4, "cache_rows": 32}


def test_a_gpa_target_drops_the_reference_that_the_others_have(folder):
    text = GOOD + '[align]\nreference = "b"\nshrinkage = 0.5\n[[targets]]\nname = "free"\nmethod = "gpa"\n'
    checked = load_study(write(folder, text))
    both, free = (checked.align_of(part) for part in checked.targets[1:])
    assert (both.method, both.reference, both.shrinkage) == ("whitened", "b", 0.5)
    assert (free.method, free.reference) == ("gpa", "")


def test_every_fault_is_listed_at_once(folder):
    text = (
        GOOD.replace('objectives = ["composite", "mimicry"]', 'objectives = ["composite", "mimicri"]')
        .replace('teacher = "a"', 'teacher = "c"')
        .replace("weights = { a = 2.0 }", 'leave_out = ["a", "b"]')
        .replace("cache_rows = 32", 'cach_rows = 32\nobjective = "mimicry"\ncolumn = "text"')
        .replace("steps = 3", "steps = 3\nminutes = 1.0")
    ) + '[[cells]]\ntargets = ["all"]\n[law]\ninto = "a"\n[law.corpus]\npath = "none.txt"\n'
    found = faults_of(folder, text)
    for wanted in (
        "objective 'mimicri': no such composition",
        "targets[0].teacher: unknown teacher 'c'",
        "targets[1]: leave_out and weights of 0 leave no teacher",
        "students[1].cach_rows: unknown key; did you mean cache_rows?",
        "students[1].objective: the grid decides it",
        "students[1].column: [corpus] decides it",
        "train: expected exactly one budget of steps, epochs, minutes, got steps and minutes",
        "cells[0].targets: unknown target 'all'",
        "law.corpus: ",
        "law.into: a is embeddings that exist",
    ):
        assert [fault for fault in found if wanted in fault], (wanted, found)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (("[train]", "[trains]"), "trains: unknown key; did you mean train?"),
        (("weights =", "weight ="), "targets[1].weight: unknown key; did you mean weights?"),
        (("steps = 3", 'steps = "3"'), "train.steps: expected an integer, got '3'"),
        (('name = "small"', 'name = "a/b"'), "name: "),
        (("hidden = 32", "hiden = 32"), "students[0].shape.hiden: unknown key; did you mean hidden?"),
    ],
)
def test_shape_faults_name_the_key(folder, change, wanted):
    assert any(wanted in fault for fault in faults_of(folder, GOOD.replace(*change)))


def test_settings_override_and_their_faults_are_listed(folder):
    path = write(folder)
    assert load_study(path, settings=["train.steps=9", "seeds=[3]"]).seeds == [3]
    with pytest.raises(RecipeError, match="--set oops"):
        load_study(path, settings=["oops"])


def test_nothing_starts_with_a_missing_file_or_in_a_strange_folder(folder):
    with pytest.raises(InputError, match="no such study"):
        study(folder / "none.toml")
    (folder / "out").mkdir()
    (folder / "out" / "photo.jpg").write_text("x")
    with pytest.raises(ResumeError, match="aren't a study's"):
        study(write(folder), out=folder / "out")


def test_files_count_by_their_content_and_telemetry_not_at_all(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
    contents = [
        options_content({"tokenizer": str(tmp_path / name), "lr": 1e-3, "checkpoint_seconds": seconds})
        for name, seconds in (("one", 5.0), ("two", 9.0))
    ]
    assert contents[0] == contents[1]
    assert contents[0] != options_content({"tokenizer": "packaged:glove", "lr": 1e-3})


def test_a_slug_is_a_folders_name():
    assert Cell("infonce=1,mimicry=0.5", "a b/c", "micro", 2).slug == "infonce-1-mimicry-0.5-a-b-c-micro-s2"
