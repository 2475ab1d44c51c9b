"""The recipes and studies that the repository ships: sound where their data is, clear where it isn't."""

import os
import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import RecipeError
from consilience.evaluation.sts import REPORTED_TASKS
from consilience.recipes.measure import tasks_to_run
from consilience.recipes.recipe_file import load_recipe
from consilience.recipes.study_cells import grid_cells
from consilience.recipes.study_file import load_study

ROOT = Path(__file__).parents[3]
CELLS = {"nine-objectives": 18, "committees": 22, "two-transformers": 8}
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
VARIABLES = ("CONSILIENCE_DATA", "CONSILIENCE_MIXED", "CONSILIENCE_STATIC")


def load(path):
    return (load_recipe if path.parent.name == "recipes" else load_study)(path)


@pytest.fixture
def unset(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Give every variable a small file of the real one's form."""
    (tmp_path / "captions").mkdir()
    (tmp_path / "sts").mkdir()
    rows = [(f"a cat on mat {i}", source, str(i)) for i in range(3) for source in ("flickr30k", "coco-val2017")]
    table = pa.table(dict(zip(("text", "source", "image_id"), zip(*rows, strict=True), strict=True)))
    pq.write_table(table, tmp_path / "captions" / "captions.parquet")
    pq.write_table(table, tmp_path / "mixed.parquet")
    for name in REPORTED_TASKS:
        (tmp_path / "sts" / f"{name}.tsv").write_text("sentence1\tsentence2\tscore\n")
    for name, value in zip(VARIABLES, (tmp_path, tmp_path / "mixed.parquet", tmp_path / "static384"), strict=True):
        monkeypatch.setenv(name, str(value))


def test_every_shipped_study_is_counted():
    assert {path.stem for path in STUDIES} == set(CELLS)


@pytest.mark.weights
@pytest.mark.parametrize("path", [*RECIPES, *STUDIES], ids=lambda path: path.stem)
def test_a_shipped_file_is_sound_with_data_of_the_real_ones_form(path, made):
    loaded = load(path)
    if path in STUDIES:
        assert len(grid_cells(loaded)) == CELLS[path.stem]
    else:
        assert tasks_to_run(loaded) == loaded.evaluate.tasks


@pytest.mark.data("captions", "sts")
@pytest.mark.weights
@pytest.mark.parametrize("path", [ROOT / "recipes" / "flickr.toml", *STUDIES], ids=lambda path: path.stem)
def test_a_shipped_file_is_sound_with_the_real_data(path):
    assert load(path).corpus.path == str(Path(os.environ["CONSILIENCE_DATA"], "captions", "captions.parquet").resolve())


@pytest.mark.weights
@pytest.mark.parametrize("path", [*RECIPES, *STUDIES], ids=lambda path: path.stem)
def test_a_shipped_file_without_its_data_names_the_variables_and_nothing_else(path, unset):
    wanted = [name for name in VARIABLES if f"${{{name}}}" in path.read_text(encoding="utf-8")]
    if not wanted:
        assert tasks_to_run(load(path)) == ["grammar"]
        return
    with pytest.raises(RecipeError) as caught:
        load(path)
    said = [re.search(r": environment variable (\w+) is not set\. Set it", fault) for fault in caught.value.faults]
    assert sorted(found and found[1] for found in said) == sorted(wanted)


def test_the_quickstart_needs_no_data():
    assert "${CONSILIENCE_DATA:-}" in (ROOT / "recipes" / "quickstart.toml").read_text(encoding="utf-8")


@pytest.mark.weights
def test_the_quickstart_takes_no_file_of_the_working_folder_for_data(unset, tmp_path, monkeypatch):
    (tmp_path / "sts12.tsv").write_text("sentence1\tsentence2\tscore\n")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(ROOT / "recipes" / "quickstart.toml")
    assert (recipe.evaluate.data, tasks_to_run(recipe)) == (None, ["grammar"])


def _strings(value):
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("path", [*RECIPES, *STUDIES], ids=lambda path: path.stem)
def test_a_shipped_file_names_no_folder_outside_the_repository(path):
    texts = _strings(tomllib.loads(path.read_text(encoding="utf-8")))
    # What a variable stands for is the person's; what it falls back to is the file's own.
    named = [re.sub(r"\$\{\w+(?::-([^}]*))?\}", lambda found: found[1] or "", text) for text in texts]
    outside = [text for text in named if ".." in text and not (path.parent / text).resolve().is_relative_to(ROOT)]
    assert outside == []
