"""``consilience evaluate`` and ``export`` as a person calls them: one JSON object, one-line errors, exit codes."""

import json
import os
import subprocess
import sys

import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact

torch = pytest.importorskip("torch")

from consilience.students.presets import StudentConfig  # noqa: E402
from consilience.students.text import build_student, save_student_files  # noqa: E402
from consilience.students.tokenizer import train_tokenizer  # noqa: E402


def consilience(*arguments, cwd, **environment):
    clean = {key: value for key, value in os.environ.items() if key != "CONSILIENCE_DATA"}
    return subprocess.run(
        [sys.executable, "-m", "consilience", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, timeout=600, check=False,
        env={**clean, "HF_HUB_OFFLINE": "1", **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with a tiny student and an STS folder of one task."""
    root = tmp_path_factory.mktemp("evaluate")
    from consilience.corpora.caption_grammar import generate_captions

    tokenizer = train_tokenizer(generate_captions(500), vocab_size=600)
    config = StudentConfig(layers=1, hidden=32, heads=4, ffn=64, max_positions=64, max_length=48)
    module = build_student(config, vocab_size=tokenizer.get_vocab_size(), dimensions=16, seed=7)
    work, _ = begin_artefact(root / "student", {"job": "test"})
    files = save_student_files(module.eval(), tokenizer, work, max_length=48)
    manifest = {"dimensions": 16, "max_length": 48, "frame": "teacher:abc"}
    finish_artefact(root / "student", kind="student", manifest=manifest, files=files)
    (root / "data" / "sts").mkdir(parents=True)
    rows = [f"a red cat {i}\ta {'blue dog' if i % 3 else 'red cat'} {i + i % 2}\t{i % 4}\tx" for i in range(40)]
    text = "sentence1\tsentence2\tscore\tsubset\n" + "\n".join(rows) + "\n"
    (root / "data" / "sts" / "sts12.tsv").write_text(text, encoding="utf-8")
    return root


def test_json_is_one_object_and_names_what_made_it(folder):
    done = consilience("evaluate", "student", "--tasks", "grammar", "--resamples", "200", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    model = found["models"][0]
    assert model["model"] == "student"
    assert model["tasks"]["grammar"]["pairs"] == 1_500
    assert model["tasks"]["grammar"]["low"] < model["tasks"]["grammar"]["score"] < model["tasks"]["grammar"]["high"]
    assert model["geometry"]["sample"].startswith("grammar")
    assert found["comparisons"] == []
    assert found["command"].startswith("consilience evaluate student")


def test_exported_forms_score_as_the_student(folder):
    exported = consilience("export", "student", "--out", "exported", cwd=folder)
    assert exported.returncode == 0, exported.stderr
    assert "onnx-batch-7: differs from the student by at most" in exported.stdout
    arguments = ("student", "exported", "--tasks", "sts12", "--data", "data", "--resamples", "200")
    done = consilience("evaluate", *arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    first, second = found["models"]
    assert first["tasks"]["sts12"]["score"] == pytest.approx(second["tasks"]["sts12"]["score"], abs=1e-2)
    assert {pair["task"] for pair in found["comparisons"]} == {"sts12", "mean"}
    again = consilience("export", "student", "--out", "exported", cwd=folder)
    assert again.returncode == 0
    assert "already done" in again.stderr
    another = consilience("export", "student", "--out", "exported", "--format", "onnx", cwd=folder)
    assert another.returncode == 2
    assert "already exists" in another.stderr


def test_table(folder):
    done = consilience(
        "evaluate", "student", "--tasks", "sts12", "--resamples", "100", cwd=folder, CONSILIENCE_DATA="data"
    )
    assert done.returncode == 0, done.stderr
    for expected in ("sts12", "mean of 1", "effective rank", "sentences/s"):
        assert expected in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("evaluate", "absent-model", "--tasks", "grammar"), "absent-model: no such file, folder or model. Accepted:"),
        (("evaluate", "data", "--tasks", "grammar"), "so no model. Accepted:"),
        (("evaluate", "student", "--tasks", "sts99"), "task 'sts99': unknown. Choose from sts"),
        (("evaluate", "student", "--tasks", "stsb-dev"), "reported apart"),
        (("evaluate", "student", "--tasks", "sts", "--data", "data"), "stsb-test.tsv, sick-r.tsv"),
        (("evaluate", "student", "--tasks", "sts", "--data", "nowhere"), "nowhere: no such folder"),
        (("evaluate", "student", "student", "--tasks", "grammar"), "student is given twice"),
        (("export", "nowhere", "--out", "x"), "nowhere: no such file or folder"),
        (("export", "data", "--out", "x"), "not a Consilience artefact"),
        (("export", "student", "--out", "x", "--format", "gguf"), "got gguf"),
        (("export", "student", "--out", "x", "--results", "none.json"), "none.json: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, arguments, expected):
    done = consilience(*arguments, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert expected in lines[0]
    assert not (folder / "x").exists()


def test_neither_data_nor_hub_names_the_remedy(folder):
    pytest.importorskip("mteb")
    done = consilience(
        "evaluate", "student", "--tasks", "sts", cwd=folder, HF_HUB_OFFLINE="0", HF_ENDPOINT="https://hub.invalid"
    )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "--data" in last
    assert "CONSILIENCE_DATA" in last
