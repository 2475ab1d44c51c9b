"""A whole run on the built-in grammar with two real static teachers: report, skipping, changing, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from consilience.core.manifests import verify_artefact

pytestmark = pytest.mark.weights

RECIPE = """
name = "tiny"
[corpus]
grammar = 2_000
[[teachers]]
spec = "packaged:wordllama"
name = "wordllama"
[[teachers]]
spec = "packaged:glove"
name = "glove"
[align]
fit_rows = 1_600
held_out_rows = 300
[student]
shape = { layers = 1, hidden = 64, heads = 2, ffn = 128 }
[train]
steps = 30
batch_rows = 64
[evaluate]
tasks = ["grammar", "sts"]
missing_data = "skip"
"""
STAGES = ["corpus", "embed-wordllama", "embed-glove", "align", "consensus", "distill", "static", "evaluate", "export"]


def consilience(folder, *words):
    environment = {name: value for name, value in os.environ.items() if name != "CONSILIENCE_DATA"}
    environment |= {"OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "consilience", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.toml").write_text(RECIPE)
    dry = consilience(folder, "run", "tiny.toml", "--dry-run")
    left = sorted(path.name for path in folder.iterdir())
    first = consilience(folder, "run", "tiny.toml")
    assert first.returncode == 0, first.stderr
    return folder, dry, left, first


def test_a_dry_run_lists_the_stages_and_makes_nothing(finished):
    _, dry, left, _ = finished
    assert dry.returncode == 0, dry.stderr
    rows = [line.split() for line in dry.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == STAGES
    assert {" ".join(row[1:3]) for row in rows} == {"would run"}
    assert left == ["tiny.toml"]


def test_the_run_prints_where_things_are_and_they_are_there(finished):
    folder, _, _, first = finished
    assert "report  runs/tiny/report.html" in first.stdout
    assert "from sentence_transformers import SentenceTransformer" in first.stdout
    out = folder / "runs" / "tiny"
    for path in [out, *sorted(out.glob("*-*/"))]:
        assert verify_artefact(path)
    assert (out / "model" / "modules.json").is_file()
    assert (out / "model" / "onnx" / "model.onnx").is_file()


def test_the_report_holds_the_tables_and_the_pictures(finished):
    folder, *_ = finished
    out = folder / "runs" / "tiny"
    report = (out / "report.md").read_text()
    for heading in ("Capability", "Geometry", "Teachers", "Alignment", "Consensus", "Training", "Corpus", "Export"):
        assert f"\n## {heading}" in report
    assert "| padding fraction |" in report
    assert "Not measured, because their data isn't here: sts" in report
    assert "consilience run tiny.toml" in report
    page = (out / "report.html").read_text()
    assert page.count('src="data:image/svg+xml;base64,') == 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert str(folder) not in report + page + (out / "results.json").read_text()


def test_the_results_are_the_reports_numbers(finished):
    folder, *_ = finished
    out = folder / "runs" / "tiny"
    results = json.loads((out / "results.json").read_text())
    assert [stage["stage"] for stage in results["stages"]] == STAGES
    assert results["corpus"]["rows"] == 2_000
    models = {model["model"]: model for model in results["evaluation"]["models"]}
    assert set(models) == {"student", "static", "wordllama", "glove"}
    grammar = models["student"]["tasks"]["grammar"]
    assert grammar["low"] < grammar["score"] < grammar["high"]
    assert f"{grammar['score']:.4f}" in (out / "report.md").read_text()
    # wordllama's map is the identity; only the other teacher has a fit to judge.
    assert [fit["teacher"] for fit in results["frames"]["fits"]] == ["glove"]
    assert max(results["export"]["parity"]["max_abs_difference"].values()) <= 1e-4
    spectra = results["spectra"]["eigenvalues"]
    assert set(spectra) == {"wordllama", "glove", "consensus", "student"}
    assert sum(spectra["student"]) == pytest.approx(1, abs=1e-4)


def test_the_second_run_skips_everything_and_says_the_same(finished):
    folder, *_ = finished
    out = folder / "runs" / "tiny"
    before = json.loads((out / "results.json").read_text())
    again = consilience(folder, "run", "tiny.toml", "--json")
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("skipped: ") == len(STAGES)
    after = json.loads(again.stdout)
    assert {stage["status"] for stage in after["stages"]} == {"skipped"}
    for results in (before, after):
        for stage in results["stages"]:
            del stage["status"]
    assert after == before


def test_the_same_recipe_elsewhere_gives_the_same_ids_and_bytes(finished, tmp_path):
    folder, *_ = finished
    (tmp_path / "tiny.toml").write_text(RECIPE)
    again = consilience(tmp_path, "run", "tiny.toml", "--out", str(tmp_path / "deep" / "again"))
    assert again.returncode == 0, again.stderr
    first, second = folder / "runs" / "tiny", tmp_path / "deep" / "again"
    stages = [json.loads((out / "results.json").read_text())["stages"] for out in (first, second)]
    assert [(s["folder"], s["id"]) for s in stages[0]] == [(s["folder"], s["id"]) for s in stages[1]]
    for name in (stage["folder"] for stage in stages[0]):
        for file in verify_artefact(first / name)["files"]:
            assert (first / name / file).read_bytes() == (second / name / file).read_bytes(), (name, file)
    evaluation = next(stage["folder"] for stage in stages[0] if stage["stage"] == "evaluate")
    assert "sentences_per_second" not in (first / evaluation / "evaluation.json").read_text()
    assert str(tmp_path) not in (second / evaluation / "evaluation.json").read_text()
    speeds = json.loads((first / evaluation / "timing.json").read_text())["sentences_per_second"]
    assert set(speeds) == {"student", "static", "wordllama", "glove"}
    assert all(0 < speed["low"] <= speed["median"] <= speed["high"] for speed in speeds.values())
    row = next(line for line in (first / "report.md").read_text().splitlines() if line.startswith("| sentences/s"))
    assert f"{speeds['glove']['median']:,.0f} [{speeds['glove']['low']:,.0f}, {speeds['glove']['high']:,.0f}]" in row


def test_a_changed_setting_runs_only_what_it_touches(finished):
    folder, *_ = finished
    dry = consilience(folder, "run", "tiny.toml", "--dry-run", "--set", "train.steps=31")
    status = {line.split()[0]: " ".join(line.split()[1:3]) for line in dry.stdout.splitlines()[1:]}
    assert [name for name, text in status.items() if text == "would run"] == ["distill", "evaluate", "export"]


def test_a_recipe_with_three_faults_lists_them_on_one_line(finished):
    folder, *_ = finished
    bad = RECIPE.replace("packaged:glove", "packaged:gloves").replace("steps = 30", "steps = 30\nminuts = 1")
    (folder / "bad.toml").write_text(bad)
    done = consilience(folder, "run", "bad.toml", "--set", "align.method=magic", "--out", "nowhere")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "bad.toml: 3 faults: (1) " in done.stderr
    assert "did you mean minutes?" in done.stderr
    assert not (folder / "nowhere").exists()


def test_the_model_loads_without_consilience(finished):
    folder, *_ = finished
    probe = (
        "import sys; sys.modules['consilience'] = None\n"
        "from sentence_transformers import SentenceTransformer as S\n"
        "print(S(sys.argv[1], device='cpu').encode(['a cat']).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(folder / "runs" / "tiny" / "model")],
        capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(1, 256)"


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    script = Path(__file__).parents[2] / "examples" / "distil_in_python.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "example")],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "packaged:paraphrase-MiniLM-L3-v2: " in done.stdout
    assert (tmp_path / "example" / "model" / "modules.json").is_file()
