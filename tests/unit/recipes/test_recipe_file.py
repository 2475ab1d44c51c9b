"""Recipe files: every fault at once, paths, defaults."""

from pathlib import Path

import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import InputError, RecipeError, ResumeError
from consilience.recipes.recipe_file import load_recipe
from consilience.recipes.run import run

ROOT = Path(__file__).parents[3]
GOOD = """
name = "small"
[corpus]
path = "captions.txt"
[[teachers]]
spec = "npy:a.npy"
name = "a"
[[teachers]]
spec = "npy:b.npy"
name = "b"
[train]
steps = 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "captions.txt").write_text("a cat\na dog\n")
    (tmp_path / "a.npy").write_bytes(b"x")
    (tmp_path / "b.npy").write_bytes(b"x")
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "sts12.tsv").write_text("sentence1\tsentence2\tscore\n")
    return tmp_path


def load(folder, text, **options):
    path = folder / "recipe.toml"
    path.write_text(text)
    return load_recipe(path, **options)


def faults_of(folder, text, **options):
    with pytest.raises(RecipeError) as caught:
        load(folder, text, **options)
    assert "\n" not in str(caught.value)
    return caught.value.faults


def test_a_good_recipe_gets_its_defaults_and_absolute_paths(folder):
    recipe = load(folder, GOOD)
    assert recipe.align.reference == "a"
    assert recipe.corpus.path == str((folder / "captions.txt").resolve())
    assert recipe.teachers[1].spec == f"npy:{(folder / 'b.npy').resolve()}"
    assert (recipe.align.fit_rows, recipe.train.steps, recipe.seed) == (24_000, 3, 0)


def test_three_faults_are_listed_at_once(folder):
    text = GOOD.replace("steps = 3", "steps = 3\nminutes = 2.0\nbatch_row = 5").replace("captions.txt", "none.txt")
    faults = faults_of(folder, text)
    assert len(faults) == 3
    assert faults[0] == "train.batch_row: unknown key; did you mean batch_rows?"
    assert "none.txt" in faults[1]


def test_two_budgets_are_a_fault_and_so_is_none(folder):
    (both,) = faults_of(folder, GOOD.replace("steps = 3", "steps = 3\nminutes = 2.0"))
    assert both.endswith("got steps = 3 and minutes = 2.0")
    (none,) = faults_of(folder, GOOD.replace("steps = 3", ""))
    assert none.endswith("got none")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("steps = 3", 'steps = "many"', "train.steps: expected an integer, got 'many'"),
        ("steps = 3", "steps = true", "train.steps: expected an integer, got True"),
        ("steps = 3", "steps = 0", "train.steps: input should be greater than or equal to 1, got 0"),
        ('name = "small"', 'name = "../x"', "name: string should match pattern"),
        ('name = "small"', "", "name: required and missing"),
        ("[train]", "[trian]", "trian: unknown key; did you mean train?"),
        ("[train]", '[align]\nreference = "c"\n[train]', "align.reference: unknown teacher 'c'; known: a, b"),
        ("[train]", '[align]\nmethod = "whiten"\n[train]', "unknown value 'whiten'; did you mean whitened?"),
        ("[train]", "[consensus]\nweights = { aa = 1.0 }\n[train]", "consensus.weights.aa: unknown teacher"),
        ("[train]", '[consensus]\nleave_out = ["a", "b"]\n[train]', "leave no teacher"),
        ("[train]", '[consensus]\nleave_out = ["a"]\nweights = { b = 0.0 }\n[train]', "leave no teacher"),
        ("[train]", "[consensus]\nweights = { b = -1.0 }\n[train]", "consensus.weights.b: input should be greater"),
        ("[train]", "[consensus]\nweights = { b = inf }\n[train]", "consensus.weights.b: input should be a finite"),
        ("[train]", "[align]\nshrinkage = nan\n[train]", "align.shrinkage"),
        ("[train]", '[student]\npreset = "mini"\nmax_length = 513\n[train]', "student.max_length: expected 3 to 512"),
        ("[train]", '[student]\ntokenizer = "none.json"\n[train]', "student.tokenizer: none.json: no such file"),
        ("[train]", "[export]\nformats = []\n[train]", "export.formats: expected at least one"),
        ("[train]", '[evaluate]\ntasks = ["sts"]\ndata = "some"\n[train]', "lacks stsb-test.tsv, sick-r.tsv, sts13"),
        ("npy:b.npy", "npy:a.npy", "is also teachers[0]; use consensus.weights"),
        ("npy:b.npy", 'https://h/v1/embeddings?model=m"\nmax_length = 5 #', "unknown option 'max_length'"),
        ('name = "b"', 'name = "../b"', "teachers[1].name: string should match pattern"),
        (
            "[train]",
            '[student]\npreset = "minni"\n[train]',
            "student.preset: unknown value 'minni'; did you mean mini?",
        ),
        ("[train]", '[export]\nformats = ["onnnx"]\n[train]', "export.formats[0]: unknown value 'onnnx'"),
        ("[train]", '[evaluate]\ntasks = ["stts"]\ndata = "x"\n[train]', "evaluate.tasks[0]: unknown task 'stts'"),
        ("[train]", '[evaluate]\ntasks = ["sts"]\n[train]', "evaluate.data: required for the STS tasks and missing"),
        ("steps = 3", 'steps = 3\nobjective = "mimicri"', "did you mean mimicry?"),
        ('name = "b"', 'name = "a"', "a is also teachers[0]"),
        ("npy:b.npy", "npy:c.npy", "no such file"),
        ("npy:b.npy", "packagd:glove", "teachers[1].spec: "),
        ("npy:b.npy", "packaged:glov", "teachers[1].spec: "),
        ('path = "captions.txt"', 'path = "captions.txt"\ngrammar = 5', "exactly one of path and grammar"),
        ('path = "captions.txt"', 'path = "-"', "save standard input to a file"),
        ('path = "captions.txt"', 'path = "${NOWHERE_SET}/x"', "NOWHERE_SET is not set"),
        ("[train]", "[student]\nshape = { layers = 1, hidden = 10, heads = 3, ffn = 8 }\n[train]", "divide hidden"),
    ],
)
def test_each_fault_names_its_key_and_the_fix(folder, monkeypatch, old, new, expected):
    monkeypatch.delenv("NOWHERE_SET", raising=False)
    faults = faults_of(folder, GOOD.replace(old, new, 1))
    assert any(expected in fault for fault in faults), faults


def test_a_wrong_column_is_a_fault(folder):
    (folder / "captions.csv").write_text("caption,source\na cat,x\n")
    text = GOOD.replace('path = "captions.txt"', 'path = "captions.csv"\ncolumn = "captoin"')
    (fault,) = faults_of(folder, text)
    assert "captoin" in fault
    assert "caption" in fault.replace("captoin", "")


def test_settings_are_checked_like_the_file(folder):
    assert load(folder, GOOD, settings=["train.minutes=0.5"]).train.minutes == 0.5
    faults = faults_of(folder, GOOD, settings=["train.minuts=5", "nonsense", "teachers.7.name=x"])
    assert len(faults) == 3


def test_a_run_into_another_artefacts_folder_is_refused(folder):
    (folder / "recipe.toml").write_text(GOOD)
    bank = folder / "bank"
    bank.mkdir()
    (bank / "manifest.json").write_text('{"kind": "run"}')  # somebody else's
    for dry in (True, False):
        with pytest.raises(ResumeError, match="isn't a run's folder"):
            run(folder / "recipe.toml", out=bank, dry_run=dry)
    assert (bank / "manifest.json").read_text() == '{"kind": "run"}'
    begin_artefact(folder / "other", {"job": 1})
    finish_artefact(folder / "other", kind="bank", manifest={}, files=[])
    with pytest.raises(ResumeError, match="found a bank"):
        run(folder / "recipe.toml", out=folder / "other")


def test_a_missing_recipe_and_broken_toml_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="no such recipe"):
        load_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(InputError, match="isn't valid TOML"):
        load_recipe(tmp_path / "bad.toml")
    with pytest.raises(InputError, match="is a folder"):
        load_recipe(tmp_path)


@pytest.mark.weights
def test_the_quickstart_recipe_is_sound_without_any_data(monkeypatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    recipe = load_recipe(ROOT / "recipes" / "quickstart.toml")
    assert [teacher.name for teacher in recipe.teachers] == ["minilm", "paraphrase", "wordllama", "glove"]
    from consilience.recipes.measure import tasks_to_run

    assert tasks_to_run(recipe) == ["grammar"]


def test_a_gpa_recipe_has_no_reference(folder):
    recipe = load(folder, GOOD + '[align]\nmethod = "gpa"\ndimensions = 8\n')
    assert (recipe.align.reference, recipe.align.dimensions) == ("", 8)
    faults = faults_of(folder, GOOD + '[align]\nmethod = "gpa"\nreference = "a"\nrank = 3\n')
    assert [fault.split(":")[0] for fault in faults] == ["align.reference", "align.rank"]


def test_names_of_the_report_and_batches_of_one_are_faults(folder):
    faults = faults_of(folder, GOOD.replace('"a"', '"student"').replace("steps = 3", "steps = 3\nbatch_rows = 1"))
    assert any("train.batch_rows" in fault for fault in faults)
    assert any("student is what the report calls the run's own" in fault for fault in faults)


def test_a_faulty_value_hides_no_other_fault_of_its_table(folder):
    text = GOOD.replace("steps = 3", 'steps = 3\nminutes = 1.0\nbatch_rows = 1\nobjective = "zz"')
    faults = faults_of(folder, text + '[align]\nshrinkage = "gcv"\n')
    assert [fault.split(":")[0] for fault in faults] == [
        "train.batch_rows",
        "align.shrinkage",
        "train",
        "train.objective",
    ]


def test_a_run_keeps_out_of_folders_that_are_not_a_runs(folder):
    (folder / "recipe.toml").write_text(GOOD)
    with pytest.raises(ResumeError, match="aren't a run's"):
        run(folder / "recipe.toml", out=folder / "some", dry_run=True)
    with pytest.raises(ResumeError, match="is a file"):
        run(folder / "recipe.toml", out=folder / "a.npy", dry_run=True)


def test_where_checkpoints_are_written_changes_no_stage(folder):
    recipe = load(folder, GOOD.replace("steps = 3", 'steps = 3\nprecision = "fp32"\ncheckpoint_seconds = 5.0'))
    assert (recipe.train.precision, recipe.train.checkpoint_seconds) == ("fp32", 5.0)
