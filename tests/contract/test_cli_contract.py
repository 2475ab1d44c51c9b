"""What other programs rely on of the command line: verbs, help, start-up, exit codes, the generated page."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERBS = (
    "corpus", "grammar", "embed", "align", "consensus", "static", "distill", "rotate", "migrate", "evaluate", "export",
    "run", "study", "inspect", "adapt", "frames",
)  # fmt: skip
HEAVY = ("torch", "transformers", "pydantic", "numpy", "pyarrow", "scipy", "sentence_transformers", "onnxruntime")


def consilience(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "consilience", *words], capture_output=True, text=True, check=False, **options
    )


def test_help_lists_every_verb_and_imports_nothing_heavy():
    probe = (
        "import sys; sys.argv = ['consilience', '--help']\n"
        "from consilience.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"sys.stderr.write(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [verb for verb in VERBS if f"\n  {verb} " not in done.stdout] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_options(verb):
    from typer.testing import CliRunner

    from consilience.cli.main import app

    result = CliRunner().invoke(app, [verb, "--help"])
    assert result.exit_code == 0
    assert f"Usage: consilience {verb}" in result.output.replace("root", "consilience")
    assert "Options:" in result.output


def test_the_package_imports_nothing_heavy():
    probe = f"import sys, consilience; sys.exit(' '.join(n for n in {HEAVY!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_version_and_unknown_verb():
    from consilience import __version__

    assert consilience("--version").stdout == f"consilience {__version__}\n"
    assert consilience("destil").returncode == 2


def test_a_missing_recipe_is_one_line_and_exit_code_2(tmp_path):
    done = consilience("run", str(tmp_path / "none.toml"), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"consilience: error: {tmp_path}/none.toml: no such recipe. Check the path\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("embed",), "corpus"),
        (("destil",), "destil"),
        (("inspect", "x", "--nope"), "--nope"),
        (("grammar", "abc", "--out", "x.txt"), "'N'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(words, expected):
    done = consilience(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("consilience: error: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr
    assert "--help" in done.stderr


def test_a_refusal_of_the_operating_system_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "file").write_text("")
    done = consilience("run", str(tmp_path / "file" / "recipe.toml"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"consilience: error: {tmp_path}/file/recipe.toml: Not a directory. ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_says_how_to_continue(tmp_path, number, code, word):
    fifo = tmp_path / "corpus.txt"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "consilience", "corpus", str(fifo)]
    # A test run in the background of a shell inherits ignored interrupts.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    with fifo.open("w"):  # opens when the command opens its end, then keeps it waiting
        process.send_signal(number)
        _, said = process.communicate(timeout=600)
    assert process.returncode == code
    assert said == f"consilience: {word}; run the same command again to continue\n"


def test_names_outside_the_terminals_encoding_are_printed_escaped(tmp_path):
    path = tmp_path / "café.npy"
    path.write_bytes(
        b"\x93NUMPY\x01\x00F\x00{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2), }".ljust(80) + b"\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = consilience("inspect", str(path), "--json", env=environment)
    assert json.loads(done.stdout)["path"] == str(path)
    assert "caf\\xe9" in consilience("inspect", str(path), env=environment).stdout


def test_the_command_lines_page_is_current():
    script = ROOT / "docs" / "generate_cli.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def without_a_reader(*words, both=False, unbuffered=False):
    """Run with a standard output that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    flags = ["-u"] if unbuffered else []
    with open(writer, "wb") as gone:  # noqa: PTH123 - a descriptor
        return subprocess.run(
            [sys.executable, *flags, "-m", "consilience", *words],
            stdout=gone,
            stderr=gone if both else subprocess.PIPE,
            text=True,
            check=False,
        )


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "words", [("corpus", "TEXTS"), ("corpus", "TEXTS", "--json"), ("evaluate", "--help"), ("--version",)]
)
def test_a_reader_that_leaves_is_no_error(tmp_path, words, unbuffered):
    texts = tmp_path / "texts.txt"
    texts.write_text("a cat\na dog\n")
    done = without_a_reader(*(str(texts) if word == "TEXTS" else word for word in words), unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_log_without_a_reader_stops_no_work(tmp_path):
    done = without_a_reader("grammar", "5", "--out", str(tmp_path / "captions.txt"), both=True)
    assert done.returncode == 0
    assert len((tmp_path / "captions.txt").read_text().splitlines()) == 5
    assert without_a_reader("corpus", str(tmp_path / "none.txt"), both=True).returncode == 2


def test_a_refusal_stays_one_without_a_reader(tmp_path):
    done = without_a_reader("corpus", str(tmp_path / "none.txt"))
    assert done.returncode == 2
    assert done.stderr.startswith("consilience: error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_results_on_a_full_disk_are_an_error(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a cat\n")
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "consilience", "corpus", str(texts)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("consilience: error: No space left on device")
    assert done.stderr.count("\n") == 1
