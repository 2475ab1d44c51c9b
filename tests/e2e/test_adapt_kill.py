"""adapt align and adapt lora, killed with SIGKILL midway: continued, they end with an uninterrupted run's bytes."""

import json
import sys

import pytest

from consilience.core.errors import ResumeError
from consilience.corpora.caption_grammar import generate_pairs
from consilience.recipes.adapt import adapt_align, adapt_fit
from consilience.recipes.adapt_lora import adapt_lora

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = {"batch_rows": 12, "held_out": [], "checkpoint_seconds": 0.05}

KILLED = """
import json, sys, torch
torch.set_num_threads(1)
from consilience.recipes.adapt import adapt_align
from consilience.recipes.adapt_lora import adapt_lora
words, options = json.loads(sys.argv[2])
{"align": adapt_align, "lora": adapt_lora}[sys.argv[1]](*words, **options)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory, make_student):
    folder = tmp_path_factory.mktemp("killed")
    make_student(folder / "student", 1)
    for seed, name in enumerate(("equiv", "para")):
        pairs = [(p.sentence1, p.sentence2) for p in generate_pairs(300, seed=seed + 5) if p.score >= 3]
        lines = [json.dumps({"sentence1": one, "sentence2": other}) + "\n" for one, other in pairs]
        (folder / f"{name}.jsonl").write_text("".join(lines))
        options = {**OPTIONS, "steps": 4, "hidden": 8}
        adapt_fit(folder / "student", pairs=folder / f"{name}.jsonl", name=name, out=folder / name, **options)
    return folder


def command(verb, words, options, out):
    return [sys.executable, "-c", KILLED, verb, json.dumps([words, {**options, "out": str(out)}])]


def assert_same_bytes(one, other, expected):
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir()) == expected
    for name in expected:
        if name != "timing.json":
            assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_align_killed_and_continued_has_the_same_bytes(place, tmp_path, capfd, kill_at_checkpoint):
    pairs = {name: str(place / f"{name}.jsonl") for name in ("equiv", "para")}
    words, options = [str(place / "student"), [str(place / name) for name in pairs]], {**OPTIONS, "steps": 90}
    killed = tmp_path / "killed"
    kill_at_checkpoint(command("align", words, {**options, "pairs": pairs}, killed), killed)
    other = {**pairs, "para": pairs["equiv"]}
    with pytest.raises(ResumeError, match="an interrupted run of another job"):
        adapt_align(*words, pairs=other, out=tmp_path / "killed", **options)
    adapt_align(*words, pairs=pairs, out=tmp_path / "killed", **options)
    assert "continuing at step" in capfd.readouterr().err
    adapt_align(*words, pairs=pairs, out=tmp_path / "plain", **options)
    files = ["adapters.safetensors", "log.jsonl", "manifest.json", "report.json", "timing.json"]
    assert_same_bytes(tmp_path / "plain", tmp_path / "killed", files)
    with pytest.raises(ResumeError, match="isn't the result"):  # a finished one doesn't go on with other pairs
        adapt_align(*words, pairs=other, out=tmp_path / "plain", **options)


def test_lora_killed_and_continued_has_the_same_bytes(place, tmp_path, capfd, kill_at_checkpoint):
    pytest.importorskip("peft")
    words, options = [str(place / "student")], {**OPTIONS, "steps": 90, "name": "equiv"}
    pairs, other = str(place / "equiv.jsonl"), str(place / "para.jsonl")
    killed = tmp_path / "killed"
    kill_at_checkpoint(command("lora", words, {**options, "pairs": pairs}, killed), killed)
    with pytest.raises(ResumeError, match="an interrupted run of another job"):
        adapt_lora(*words, pairs=other, out=tmp_path / "killed", **options)
    adapt_lora(*words, pairs=pairs, out=tmp_path / "killed", **options)
    assert "continuing at step" in capfd.readouterr().err
    adapt_lora(*words, pairs=pairs, out=tmp_path / "plain", **options)
    files = ["adapter_config.json", "adapter_model.safetensors", "log.jsonl", "manifest.json", "report.json"]
    assert_same_bytes(tmp_path / "plain", tmp_path / "killed", [*files, "timing.json"])
    with pytest.raises(ResumeError, match="isn't the result"):
        adapt_lora(*words, pairs=other, out=tmp_path / "plain", **options)
