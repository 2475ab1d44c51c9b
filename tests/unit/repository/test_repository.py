"""The repository as a whole: nothing of one machine in it, documentation that doesn't drift."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BINARY = {".safetensors", ".npy", ".parquet", ".onnx", ".png"}


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY]


def test_no_file_names_a_place_on_one_machine():
    # Written in pieces, so that this file doesn't name them either.
    places = ["/" + "work/", "/" + "home/", "/" + "Users/", "/" + "root/", "/" + "tmp/", "C:" + "\\Users"]
    pattern = re.compile("|".join(rf"(?<![\w.}}]){re.escape(place)}" for place in places))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_no_file_but_that_of_continuous_integration_knows_what_lies_beside_the_checkout():
    beside = re.compile(r"\.\./" + "shared|[\"']" + "shared[\"'] */")
    found = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path != ROOT / ".ci" / "run" and beside.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_forbidden_constructs_in_the_source():
    patterns = {
        "pickle": r"^\s*(import|from) pickle",
        "TODO": r"\bTODO\b|\bFIXME\b|NotImplementedError",
        "bare except": r"except\s*:",
        "unsafe torch.load": r"torch\.load\((?!.*weights_only=True)",
        "assert": r"^\s*assert ",
    }
    found = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name, pattern in patterns.items()
        if re.search(pattern, line)
    ]
    assert found == []


def test_modules_stay_short_and_well_named():
    modules = list((ROOT / "src").rglob("*.py"))
    # A word list is data, however long.
    long = [path.name for path in modules if len(path.read_text().splitlines()) > 450 and "words" not in path.name]
    vague = [path.name for path in modules if path.stem in ("utils", "helpers", "common", "manager", "misc")]
    assert (long, vague) == ([], [])


def test_the_recipes_page_names_every_key():
    from pydantic import BaseModel

    from consilience.recipes import recipe_file

    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    models = [value for value in vars(recipe_file).values() if isinstance(value, type) and issubclass(value, BaseModel)]
    keys = {key for model in models for key in model.model_fields}
    assert {"fit_rows", "minutes"} <= keys
    assert sorted(key for key in keys if f"`{key}`" not in page and f"[{key}]" not in page) == []


def test_every_page_is_in_the_navigation_and_every_local_link_leads_somewhere():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert [page.name for page in pages if page.name not in navigation] == []
    broken = [
        f"{page.name}: {target}"
        for page in [*pages, ROOT / "README.md"]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_continuous_integration_and_extras():
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert "set -euo pipefail" in (ROOT / ".ci" / "run").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # Every extra that an error can name exists.
    naming = re.compile(r"(?:require|MissingExtraError)\([^)]*extra=\"([a-z-]+)\"")
    named = {
        match for path in (ROOT / "src").rglob("*.py") for match in naming.findall(path.read_text(encoding="utf-8"))
    }
    assert named <= set(project["optional-dependencies"])
    assert project["requires-python"] == ">=3.11"
