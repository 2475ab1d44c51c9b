"""The tests' conftest: what lacks its data is skipped with the reason; where everything is at hand, a skip fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"
TESTS = """
import pytest

@pytest.mark.data("sts")
def test_of_the_real_corpora(): pass

@pytest.mark.skipif("MOUNT" == "MOUNT", reason="mounting a tmpfs isn't permitted: no right")
def test_of_a_mount(): pass

def test_plain(): pass
"""


@pytest.mark.parametrize(
    ("every", "data", "reasons"),
    [
        (True, None, ("CONSILIENCE_DATA isn't set", "could not import 'a_module_that_is_not_there'")),
        (True, ".", ("no sts in CONSILIENCE_DATA",)),
        (True, "data", ()),
        (False, None, ()),
    ],
)
@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-p", "xdist", "-n", "2")], ids=["in one process", "in two"])
def test_a_skip_fails_only_where_everything_is_at_hand(tmp_path, every, data, reasons, workers):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  data: real corpora\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    if data is None:
        (tmp_path / "test_whole.py").write_text("import pytest\npytest.importorskip('a_module_that_is_not_there')\n")
    (tmp_path / "data" / "sts").mkdir(parents=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("CONSILIENCE_", "PYTEST_"))
    }
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment |= {"CONSILIENCE_EVERY_TEST": "1"} if every else {}
    environment |= {} if data is None else {"CONSILIENCE_DATA": data}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == bool(reasons), done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("skipped, though")]
    assert len(said) == bool(reasons)
    assert all(reason in said[0] for reason in reasons)
