"""A whole study on the built-in grammar: killed and resumed to the same bytes, a diverged cell, what is run again."""

import json
import os
import signal
import subprocess
import sys

import pytest

from consilience.core.manifests import verify_artefact

pytestmark = [pytest.mark.weights, pytest.mark.slow]

STUDY = """
name = "tiny"
objectives = ["mimicry", "affinity"]
[corpus]
grammar = 2_400
[[teachers]]
spec = "packaged:wordllama"
name = "wordllama"
[[teachers]]
spec = "packaged:glove"
name = "glove"
[align]
fit_rows = 2_000
held_out_rows = 300
[[targets]]
name = "wordllama"
teacher = "wordllama"
[[targets]]
name = "free"
method = "gpa"
dimensions = 40
[[students]]
name = "small"
shape = { layers = 1, hidden = 32, heads = 2, ffn = 64 }
[[students]]
name = "wild"
shape = { layers = 1, hidden = 32, heads = 2, ffn = 64 }
lr = 1e38
[[cells]]
objectives = ["mimicry"]
targets = ["free"]
students = ["small"]
[[cells]]
targets = ["wordllama"]
students = ["small"]
seeds = [0]
[[cells]]
objectives = ["mimicry"]
targets = ["free"]
students = ["wild"]
seeds = [0]
[train]
steps = 8
batch_rows = 32
precision = "fp32"
[evaluate]
tasks = ["grammar"]
resamples = 100
[law]
into = "wordllama"
pairs = 300
held_out = 100
[law.corpus]
grammar = 450
"""
CELLS = 5


def start(folder, *words):
    environment = {name: value for name, value in os.environ.items() if name != "CONSILIENCE_DATA"}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CONSILIENCE_CACHE": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "consilience", "study", "tiny.toml", *words],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(folder, *words):
    process = start(folder, *words)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out, errors


def contents(out):
    """Return the bytes of everything that must not depend on interruptions, by name."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.parent != out and path.name != "timing.json"
    }


def lasting(results):
    """Return the results without wall-clock times and statuses."""
    kept = json.loads(json.dumps(results))
    for stage in kept["stages"]:
        del stage["status"], stage["seconds"]
    for cell in kept["cells"]:
        del cell["training"]["seconds"]
    return kept


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.toml").write_text(STUDY)
    dry, _ = run(folder, "--dry-run", "--out", "out")
    assert not (folder / "out").exists()
    out, _ = run(folder, "--out", "out", "--json")
    return folder, dry, json.loads(out)


def test_the_dry_run_names_every_cell(finished):
    _, dry, _ = finished
    assert sum(line.startswith("distill-") for line in dry.splitlines()) == CELLS


def test_a_diverged_cell_is_a_row_and_the_rest_goes_on(finished):
    folder, _, results = finished
    failed = [cell for cell in results["cells"] if cell["error"] is not None]
    assert [(cell["student"], cell["seed"]) for cell in failed] == [("wild", 0)]
    assert len(results["cells"]) == CELLS
    assert verify_artefact(folder / "out" / failed[0]["folder"], "failure")
    report = (folder / "out" / "report.md").read_text()
    assert "## Failed cells" in report
    assert "mimicry, free, wild, seed 0" in report
    assert not list((folder / "out").glob("*.partial"))


def test_the_report_is_sound_and_names_no_folder_of_this_machine(finished):
    folder, _, results = finished
    out = folder / "out"
    verify_artefact(out, "study")
    texts = [(out / name).read_text() for name in ("report.md", "report.html", "results.json")]
    assert not [text for text in texts if str(folder) in text]
    for heading in ("Gauges", "Frame law", "Set-points", "Anchor dial", "Across seeds", "Targets, before", "Descent"):
        assert f"\n## {heading}" in texts[0]
    assert texts[1].count('src="data:image/svg+xml;base64,') == texts[0].count("](plots/")
    points = {point["condition"]: point for point in results["set_points"]}
    assert points["affinity · wordllama · small"]["own"] == "refused"
    assert len(points["mimicry · free · small"]["own"]) == 2
    laws = {
        cell["target"]: cell["measures"]["law"]
        for cell in results["cells"]
        if cell["objective"] == "mimicry" and cell["measures"]
    }
    assert laws["free"]["before"] == "refused"  # a gpa frame has no axes
    assert laws["wordllama"]["before"]["cosine"] <= 1
    assert results["committees"]["rows"][0]["dimensions"] == 40


def test_killed_and_resumed_it_ends_with_the_same_bytes(finished, tmp_path):
    folder, _, results = finished
    for wanted in ("run: align", "run: measure-mimicry-free-small-s0", "run: distill-mimicry-free-small-s1"):
        process = start(folder, "--out", str(tmp_path / "out"))
        assert any(line.startswith(wanted) for line in process.stderr)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (tmp_path / "out" / "report.md").exists()
    out, errors = run(folder, "--out", str(tmp_path / "out"), "--json")
    assert "skipped: measure-mimicry-free-small-s0" in errors
    assert contents(tmp_path / "out") == contents(folder / "out")
    assert lasting(json.loads(out)) == lasting(results)


def test_the_second_run_makes_nothing_and_a_changed_one_what_it_touches(finished):
    folder, _, results = finished
    out, errors = run(folder, "--out", "out", "--json")
    again = json.loads(out)
    assert {stage["status"] for stage in again["stages"]} == {"skipped"}
    assert "run: " not in errors
    assert lasting(again) == lasting(results)
    dry, _ = run(folder, "--out", "out", "--dry-run", "--set", "law.held_out=90")
    would = [line.split()[0] for line in dry.splitlines() if "would run" in line]
    assert [name for name in would if not name.startswith("measure-")] == ["law"]
    dry, _ = run(folder, "--out", "out", "--dry-run", "--set", "students.1.lr=1e-3")
    would = [line.split()[0] for line in dry.splitlines() if "would run" in line]
    assert would == ["distill-mimicry-free-wild-s0", "measure-mimicry-free-wild-s0"]


def test_a_study_takes_what_another_folder_has(finished):
    folder, *_ = finished
    dry, _ = run(folder, "--out", "other", "--dry-run", "--set", 'banks=["out"]')
    status = {line.split()[0]: " ".join(line.split()[1:-1]) for line in dry.splitlines()[1:]}
    assert [status[name] for name in ("corpus", "embed-glove", "align", "consensus")] == ["done"] * 4
    assert status["target-free"] == "would run"


def test_faults_are_one_line_and_exit_code_two(finished):
    folder, *_ = finished
    process = start(folder, "--out", "nowhere", "--set", 'objectives=["magic"]', "--set", "seeds=[]")
    out, errors = process.communicate()
    assert (process.returncode, out, errors.count("\n")) == (2, "", 1)
    assert "tiny.toml: " in errors
    assert not (folder / "nowhere").exists()
