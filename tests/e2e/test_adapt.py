"""adapt, as commands on a tiny student and the built-in grammar's pairs; killed and continued to the same bytes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience.adapters.attach import attach_amoe
from consilience.adapters.library import load_library, save_library
from consilience.cli.adapt import app
from consilience.core.errors import CorpusError, InputError, ResumeError, TrunkMismatchError
from consilience.corpora.caption_grammar import generate_pairs
from consilience.recipes.adapt import adapt_align, adapt_fit
from consilience.recipes.adapt_table import CONTROL, adapt_control, adapt_table
from consilience.students.text import load_student

QUICK = {"steps": 12, "batch_rows": 12, "held_out": [], "hidden": 8}


pytestmark = pytest.mark.usefixtures("one_thread")


def write_pairs(path, seed):
    pairs = [(p.sentence1, p.sentence2) for p in generate_pairs(400, seed=seed) if p.score >= 3]
    path.write_text("".join(json.dumps({"sentence1": a, "sentence2": b}) + "\n" for a, b in pairs))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory, make_student):
    folder = tmp_path_factory.mktemp("adapt")
    make_student(folder / "student", 1)
    make_student(folder / "other", 2)
    for seed, name in enumerate(("equiv", "para")):
        write_pairs(folder / f"{name}.jsonl", seed + 5)
        adapt_fit(folder / "student", pairs=folder / f"{name}.jsonl", name=name, out=folder / name, **QUICK)
    pairs = {name: folder / f"{name}.jsonl" for name in ("equiv", "para")}
    options = {key: QUICK[key] for key in ("steps", "batch_rows", "held_out")}
    adapt_align(folder / "student", [folder / "equiv", folder / "para"], pairs=pairs, out=folder / "library", **options)
    return folder


def test_the_library_attaches_and_its_report_has_the_reads(place):
    student = load_student(place / "student")
    bare = student.encode(["a cat"])
    handle = attach_amoe(student, place / "library")
    assert not np.array_equal(student.encode(["a cat"]), bare)
    handle.detach()
    report = json.loads((place / "library" / "report.json").read_text())
    reads = report["reads"]
    assert set(reads["own"]) == {"equiv", "para"}
    assert all(0 < read["share_sum"] < 1 for read in reads["own"].values())
    assert set(reads["ratios"]) == {"equiv", "para"}
    assert "equiv/retrieval_at_1_of_" in " ".join(report["gauges"]["after"])
    for name in ("equiv", "para"):  # the input was inspected, and the queries of a retrieval number were
        seen = report["pairs"][name]
        assert seen["rows"] == seen["kept"] + seen["repeated"]
        assert 0 < seen["characters"]["p99"] <= seen["characters"]["max"]
        assert report["retrieval"][name]["variation"]["queries"] >= 5
    library = load_library(place / "library")
    assert library.provenance["keys"]["pairs"]["equiv"]["fingerprint"]
    assert library.provenance["equiv"]["recipe"] == "adapt fit"
    assert library.keys_trunk is not None


def test_the_same_call_is_done_and_another_is_refused(place):
    before = (place / "equiv" / "manifest.json").read_bytes()
    adapt_fit(place / "student", pairs=place / "equiv.jsonl", name="equiv", out=place / "equiv", **QUICK)
    assert (place / "equiv" / "manifest.json").read_bytes() == before
    with pytest.raises(ResumeError, match="isn't the result"):
        adapt_fit(place / "student", pairs=place / "para.jsonl", name="equiv", out=place / "equiv", **QUICK)


def test_what_cannot_be_aligned_is_refused(place, tmp_path):
    quick = {"steps": 2, "batch_rows": 4, "held_out": []}
    with pytest.raises(InputError, match="expected pairs for equiv, got para"):
        adapt_align(
            place / "student", [place / "equiv"], pairs={"para": place / "para.jsonl"}, out=tmp_path / "x", **quick
        )
    with pytest.raises(TrunkMismatchError):
        adapt_align(
            place / "other", [place / "equiv"], pairs={"equiv": place / "equiv.jsonl"}, out=tmp_path / "x", **quick
        )
    with pytest.raises(InputError, match="expected a new name"):
        adapt_align(place / "student", [place / "equiv"] * 2, pairs={}, out=tmp_path / "x", **quick)
    assert list(tmp_path.iterdir()) == []


def test_contaminated_pairs_are_refused(place, tmp_path):
    text = json.loads((place / "equiv.jsonl").read_text().splitlines()[4])["sentence2"]
    (tmp_path / "test.tsv").write_text(f"sentence1\tsentence2\tscore\n{text.upper()}\tx\t1\n")
    with pytest.raises(CorpusError, match=r"pair 5: holds a sentence of test\.tsv"):
        adapt_fit(
            place / "student",
            pairs=place / "equiv.jsonl",
            name="equiv",
            out=tmp_path / "x",
            **{**QUICK, "held_out": [tmp_path]},
        )


def test_mask_table(place):
    result = adapt_table(place / "student", place / "library", tasks=["grammar"], resamples=100)
    names = [model.model for model in result.models]
    assert names == ["off", "equiv only (damped)", "para only (damped)", "equiv solo", "para solo", "all"]
    assert all(model.tasks["grammar"].low <= model.mean <= model.tasks["grammar"].high for model in result.models)
    assert result.models[-1].geometry["effective_rank"] > 0
    with pytest.raises(TrunkMismatchError):
        adapt_table(place / "other", place / "library", tasks=["grammar"], resamples=100)


def test_random_arms_control_the_margins(place, tmp_path):
    pairs = {name: place / f"{name}.jsonl" for name in ("equiv", "para")}
    options = {"pairs": pairs, "held_out": []}
    arms = adapt_control(place / "student", place / "library", out=tmp_path / "control", **options)
    own = load_library(place / "library")
    assert arms.names == own.names
    assert arms.parameter_count == own.parameter_count
    assert arms.anchor("equiv").block(0).output.weight.abs().max() > 0  # not the identity, which controls nothing
    before = (tmp_path / "control" / "manifest.json").read_bytes()
    adapt_control(place / "student", place / "library", out=tmp_path / "control", **options)
    assert (tmp_path / "control" / "manifest.json").read_bytes() == before
    quick = {"tasks": ["grammar"], "resamples": 100}
    result = adapt_table(place / "student", place / "library", control=tmp_path / "control", **quick)
    labels = ["equiv solo", "para solo", "all"]
    assert [model.model for model in result.models[-3:]] == [CONTROL + label for label in labels]
    assert {("all", CONTROL + "all"), ("equiv solo", CONTROL + "equiv solo")} <= {
        (one.first, one.second) for one in result.comparisons if one.task == "mean"
    }
    with pytest.raises(
        InputError, match="expected random arms named and shaped like equiv, para, got equiv, para, tra"
    ):
        adapt_table(place / "student", place / "library", control=place / "library", **quick)
    with pytest.raises(InputError, match=r"never aligned\. Name adapt control's OUT itself"):
        adapt_table(place / "student", place / "library", control=tmp_path / "control.arms", **quick)
    adapt_control(place / "student", place / "library", out=tmp_path / "fewer", **{**options, "limit": 60})
    with pytest.raises(InputError, match="aligned with other pairs than the library"):
        adapt_table(place / "student", place / "library", control=tmp_path / "fewer", **quick)
    anchors = [place / "equiv", place / "para"]
    longer = {"steps": 3, "batch_rows": 8, "temperature": 0.05}
    adapt_align(place / "student", anchors, out=tmp_path / "longer", **options, **longer)
    with pytest.raises(InputError, match="other steps, rate or loss temperature than the library"):
        adapt_table(place / "student", tmp_path / "longer", control=tmp_path / "control", **quick)
    inherited = adapt_control(place / "student", tmp_path / "longer", out=tmp_path / "longer-control", **options)
    assert longer.items() <= inherited.provenance["keys"]["training"].items()
    own.temperature = 0.2
    save_library(own, tmp_path / "warmer")
    with pytest.raises(InputError, match="aligned with other routing temperature than"):
        adapt_table(place / "student", tmp_path / "warmer", control=tmp_path / "control", **quick)
    with pytest.raises(TrunkMismatchError, match="adapt control"):
        adapt_control(place / "other", place / "library", out=tmp_path / "x", **options)
    assert not list(tmp_path.glob("x*"))


def test_command_line(place, tmp_path):
    runner = CliRunner()
    words = ["--steps", "3", "--batch-rows", "8", "--json"]
    one = runner.invoke(
        app,
        f"fit {place}/student --pairs {place}/equiv.jsonl --name equiv --out {tmp_path}/a".split() + words,
    )
    assert one.exit_code == 0, one.output
    assert json.loads(one.stdout.strip().splitlines()[-1])["kind"] == "adapters"
    two = runner.invoke(
        app,
        f"align {place}/student {tmp_path}/a --pairs equiv={place}/equiv.jsonl --out {tmp_path}/b".split() + words[:-1],
    )
    assert two.exit_code == 0, two.output
    assert "share of equiv" in two.stdout
    three = runner.invoke(
        app, ["table", str(place / "student"), str(tmp_path / "b"), "--tasks", "grammar", "--resamples", "100"]
    )
    assert three.exit_code == 0, three.output
    assert "equiv solo" in three.stdout
    bad = runner.invoke(app, ["align", "x", "y", "--pairs", "equiv", "--out", "z"])
    assert isinstance(bad.exception, InputError)


def test_export(place, tmp_path):
    pytest.importorskip("onnxscript")
    words = f"export {place}/student {place}/library --out {tmp_path}/hub --mask equiv".split()
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "huggingface: the same bits (off, equiv only (damped)" in done.stdout
    assert "onnx, equiv only (damped): differs by at most" in done.stdout


KILLED = """
import sys, torch
torch.set_num_threads(1)
from consilience.recipes.adapt import adapt_fit
adapt_fit(sys.argv[1], pairs=sys.argv[2], name="equiv", out=sys.argv[3], steps=60, batch_rows=12, held_out=[],
          hidden=8, checkpoint_seconds=0.05)
"""


def test_killed_and_continued_it_has_the_same_bytes(place, tmp_path, kill_at_checkpoint):
    arguments = [sys.executable, "-c", KILLED, str(place / "student"), str(place / "equiv.jsonl")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([*arguments, str(tmp_path / "plain")], env=environment, check=True, stderr=subprocess.DEVNULL)
    kill_at_checkpoint([*arguments, str(tmp_path / "killed")], tmp_path / "killed")
    subprocess.run([*arguments, str(tmp_path / "killed")], env=environment, check=True, stderr=subprocess.DEVNULL)
    files = sorted(path.name for path in (tmp_path / "plain").iterdir())
    assert files == ["adapters.safetensors", "log.jsonl", "manifest.json", "report.json", "timing.json"]
    for name in files:
        if name != "timing.json":
            assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes(), name
