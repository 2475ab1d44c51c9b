"""The adapter examples of README and docs/adapters.md, run as written on a tiny student and a tiny library."""

import doctest
import re
from pathlib import Path

import pytest

from consilience.adapters.anchor import Anchor, AnchorConfig
from consilience.adapters.attach import attach_amoe
from consilience.adapters.library import AnchorLibrary, save_library
from consilience.students.text import load_student

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def place(tmp_path, make_student, monkeypatch):
    """A folder with ``student`` and ``library``, whose anchors do something: it's the working folder."""
    make_student(tmp_path / "student", 1)
    student = load_student(tmp_path / "student")
    library = AnchorLibrary(32, 2)
    for seed, name in enumerate(("equiv", "para")):
        library.add(name, Anchor(32, 2, AnchorConfig(hidden=8, gate=0.0), seed=seed, random_output=True))
    attach_amoe(student, library).detach()
    save_library(library, tmp_path / "library")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_runs_as_written_in_ten_lines(place):
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Adapters\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```pycon\n(.*?)```", section, flags=re.DOTALL)
    assert len(block.splitlines()) <= 10
    for word in ("attach_amoe", "only", "detach_amoe"):
        assert word in block
    said = []
    parsed = doctest.DocTestParser().get_doctest(block, {}, "README.md", "README.md", 0)
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(parsed, out=said.append)
    assert (found.failed, said) == (0, [])
    assert found.attempted == len(re.findall(r"^>>> ", block, flags=re.MULTILINE)) > 5


def test_the_page_s_first_example_runs_as_written(place):
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    assert "assert " in block
    exec(compile(block, "adapters.md", "exec"), {})
