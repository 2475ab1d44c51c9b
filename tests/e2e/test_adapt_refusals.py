"""What ``consilience adapt`` refuses: one clear line, exit code 2, and nothing half-written anywhere."""

import json
import os
import shutil
import signal
import sys

import pytest

from consilience.adapters.library import FILE
from consilience.cli.main import main
from consilience.corpora.caption_grammar import generate_pairs
from consilience.recipes.adapt import adapt_align, adapt_fit

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = "--steps 2 --batch-rows 8"
PAIRS = "--pairs equiv={p}/equiv.jsonl --pairs para={p}/para.jsonl"
FIT = f"adapt fit {{p}}/student --name equiv --out {{out}} {QUICK} --pairs"
LORA = f"adapt lora {{p}}/student --name equiv --out {{out}} {QUICK} --pairs"
ALIGN = f"adapt align {{p}}/student {{p}}/equiv {{p}}/para --out {{out}} {QUICK} {PAIRS}"
SWEEP = f"adapt sweep {{p}}/student {{p}}/library --out {{out}} {QUICK} {PAIRS}"
ROSTER = f"adapt roster {{p}}/student {{p}}/equiv {{p}}/para --out {{out}} {QUICK} {PAIRS}"
CONTROL = f"adapt control {{p}}/student {{p}}/library --out {{out}} {PAIRS}"
TRANSPLANT = f"adapt transplant {{p}}/student {{p}}/other --library {{p}}/library --tasks grammar --out {{out}} {PAIRS}"
TABLE = "adapt table {p}/student {p}/library --tasks grammar"
EXPORT = "adapt export {p}/student {p}/library --out {out}"
OTHER, WIDE = ("{p}/student", "{p}/other"), ("{p}/student", "{p}/wide")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def damage(folder, name, change):
    """Write a changed file back into a copy of an artefact."""
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


@pytest.fixture(scope="module")
def place(tmp_path_factory, make_student):
    folder = tmp_path_factory.mktemp("refusals")
    make_student(folder / "student", 1)
    make_student(folder / "other", 2)
    make_student(folder / "wide", 1, hidden=48)
    quick = {"steps": 2, "batch_rows": 8, "held_out": []}
    for seed, name in enumerate(("equiv", "para")):
        pairs = [(p.sentence1, p.sentence2) for p in generate_pairs(300, seed=seed + 5) if p.score >= 3]
        write(folder / f"{name}.jsonl", [{"sentence1": a, "sentence2": b} for a, b in pairs])
        adapt_fit(folder / "student", pairs=folder / f"{name}.jsonl", name=name, out=folder / name, hidden=8, **quick)
    named = {name: folder / f"{name}.jsonl" for name in ("equiv", "para")}
    adapt_align(folder / "student", [folder / "equiv", folder / "para"], pairs=named, out=folder / "library", **quick)

    rows = [json.loads(line) for line in (folder / "equiv.jsonl").read_text().splitlines()]
    write(folder / "nan.jsonl", [*rows[:5], {"sentence1": float("nan"), "sentence2": "x y"}, *rows[5:]])
    write(folder / "empty.jsonl", [])
    (folder / "header.csv").write_text("sentence1,sentence2\n")
    write(folder / "one-side.jsonl", [{"sentence1": "a cat", "sentence2": f"text {i}"} for i in range(60)])
    write(folder / "labelled.jsonl", [{**row, "label": 1} for row in rows])
    write(folder / "columns.jsonl", [{"a": row["sentence1"], "b": row["sentence2"]} for row in rows])
    tested = [("A man is smoking.", "A man is skating."), ("A plane is taking off.", "An air plane takes off.")]
    tested += [("A dog barks loudly.", "Loud barking of dogs.")]
    write(folder / "tested.jsonl", [*rows, {"sentence1": "somebody leaves", "sentence2": "An AIR plane takes off"}])
    (folder / "data" / "sts").mkdir(parents=True)
    lines = ["sentence1\tsentence2\tscore", *(f"{a}\t{b}\t{i}" for i, (a, b) in enumerate(tested))]
    (folder / "data" / "sts" / "stsb-dev.tsv").write_text("\n".join(lines) + "\n")

    for name in ("truncated", "flipped", "edited", "no-manifest"):
        shutil.copytree(folder / "library", folder / name)
    damage(folder / "truncated", FILE, lambda data: data[:-99])
    damage(folder / "flipped", FILE, lambda data: data[:-50] + bytes([data[-50] ^ 1]) + data[-49:])
    damage(
        folder / "edited",
        "manifest.json",
        lambda data: json.dumps({**json.loads(data), "temperature": 0.2}).encode(),
    )
    (folder / "no-manifest" / "manifest.json").unlink()
    shutil.copytree(folder / "equiv", folder / "flipped-anchor")
    damage(folder / "flipped-anchor", FILE, lambda data: data[:-50] + bytes([data[-50] ^ 1]) + data[-49:])
    return folder


@pytest.fixture(autouse=True)
def _put_back(place, monkeypatch):
    """main() sets a signal's handler and variables of the process."""
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("CONSILIENCE_DATA", str(place / "data"))
    yield
    signal.signal(signal.SIGTERM, handler)
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture
def refused(place, tmp_path, monkeypatch, capsys):
    """Runs a command that has to be refused and returns its line."""

    def run(words):
        filled = [word.format(p=place, out=tmp_path / "out") for word in words]
        monkeypatch.setattr(sys, "argv", ["consilience", *filled])
        before = sorted(place.rglob("*"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (2, ""), said
        lines = said.err.strip().splitlines()
        assert len(lines) == 1, said.err
        assert lines[0].startswith("consilience: error: ")
        assert list(tmp_path.iterdir()) == []
        assert sorted(place.rglob("*")) == before
        return lines[0]

    return run


BOUND, SHAPE = "Anchors are bound to their trunk", "a different shape, so not even force"
CASES = {
    "precision": (f"{ALIGN} --precision fp8", "--precision: expected auto, fp32 or bf16, got 'fp8'"),
    "another trunk: table": (TABLE.replace(*OTHER), BOUND),
    "another trunk: align": (ALIGN.replace(*OTHER), BOUND),
    "another trunk: export": (EXPORT.replace(*OTHER), BOUND),
    "another trunk: sweep": (SWEEP.replace(*OTHER), BOUND),
    "another trunk: roster": (ROSTER.replace(*OTHER), BOUND),
    "another trunk: control": (CONTROL.replace(*OTHER), BOUND),
    "another width, forced": (TABLE.replace(*WIDE) + " --force", SHAPE),
    "transplant to another width": (TRANSPLANT.replace("{p}/other", "{p}/wide"), SHAPE),
    "transplant onto itself": (TRANSPLANT.replace("{p}/other", "{p}/student"), "both trunks are one"),
    "transplant of another trunk's": (
        TRANSPLANT.replace("{p}/student {p}/other", "{p}/other {p}/student"),
        BOUND,
    ),
    "transplant, native of another trunk": (TRANSPLANT + " --native {p}/library", BOUND),
    "transplant, native of other anchors": (
        TRANSPLANT + " --native {p}/equiv",
        "expected a native library of equiv, para, got one of equiv",
    ),
    "truncated": (TABLE.replace("{p}/library", "{p}/truncated"), "the file is damaged"),
    "a byte of weights": (TABLE.replace("{p}/library", "{p}/flipped"), "the file is damaged"),
    "a byte of an anchor": (ALIGN.replace("{p}/equiv {p}", "{p}/flipped-anchor {p}"), "the file is damaged"),
    "a field of the manifest": (EXPORT.replace("{p}/library", "{p}/edited"), "it was edited"),
    "no manifest": (TABLE.replace("{p}/library", "{p}/no-manifest"), "no-manifest"),
    "no control": (TABLE + " --control {p}/library", "expected random arms"),
    "NaN": (FIT + " {p}/nan.jsonl", "pair 6: column sentence1 is null (NaN)"),
    "empty": (FIT + " {p}/empty.jsonl", "the file has no rows"),
    "header only": (LORA + " {p}/header.csv", "the file has no rows"),
    "one class": (FIT + " {p}/one-side.jsonl", "one class, so a batch has no negatives"),
    "one class: align": (ALIGN.replace("{p}/para.jsonl", "{p}/one-side.jsonl"), "one class"),
    "rate without end": (FIT + " {p}/equiv.jsonl --lr inf", "expected a finite --lr above 0, got inf"),
    "no loss temperature": (
        FIT + " {p}/equiv.jsonl --loss-temperature 1e-300",
        "expected a finite --loss-temperature of at least 1e-06, got 1e-300",
    ),
    "a name that is a mask": (
        FIT.replace("--name equiv", "--name input") + " {p}/equiv.jsonl",
        "expected a new name of lower-case letters",
    ),
    "labels": (FIT + " {p}/labelled.jsonl", "got the column label: labels aren't read"),
    "test sentences": (FIT + " {p}/tested.jsonl", "holds a sentence of stsb-dev.tsv, which models are tested on"),
    "test sentences: lora": (LORA + " {p}/tested.jsonl", "holds a sentence of stsb-dev.tsv"),
    "test sentences: align": (ALIGN.replace("{p}/para.jsonl", "{p}/tested.jsonl"), "holds a sentence of"),
    "columns": (FIT + " {p}/columns.jsonl", "no column 'sentence1' and no column 'sentence2'; its columns: a, b"),
    "no file": (FIT + " {p}/nowhere.jsonl", "no such file"),
    "an anchor twice": (ALIGN.replace("{p}/equiv {p}/para", "{p}/equiv {p}/equiv"), "expected a new name"),
    "pairs twice": (ALIGN.replace("para={p}", "equiv={p}"), "equiv is given twice"),
    "pairs missing": (ALIGN.replace(" --pairs para={p}/para.jsonl", ""), "expected pairs for equiv, para"),
    "unknown mask": (EXPORT + " --formats onnx --mask equiv,nope", "expected names among equiv, para, got nope"),
    "unknown format": (EXPORT + " --formats tflite", "Change --formats"),
    "a library as student": (FIT.replace("{p}/student", "{p}/library") + " {p}/equiv.jsonl", "expected a student"),
    **{
        f"temperature {value}: {verb}": (f"{command} --temperature {value}", "above 0")
        for verb, command in (("align", ALIGN), ("sweep", SWEEP))
        for value in ("0", "-0.1", "nan", "inf", "1e-30")
    },
}


@pytest.mark.parametrize("case", CASES)
def test_refused_in_one_line(refused, case):
    command, expected = CASES[case]
    assert expected in refused(command.split())


@pytest.mark.parametrize("verb", ["fit", "lora"])
@pytest.mark.parametrize("name", ["", "Équiv", "a b", "../x", "a.b", "all", "keys", "x" * 80, "-x", "a\nb"])
def test_names_that_are_no_names(refused, verb, name):
    words = ["adapt", verb, "{p}/student", *QUICK.split(), "--out", "{out}", "--pairs", "{p}/equiv.jsonl"]
    assert "expected a new name of lower-case letters" in refused([*words, f"--name={name}"])


def test_a_sharp_temperature_warns_and_points_at_the_sweep(place, tmp_path, monkeypatch, capsys):
    words = f"{ALIGN} --temperature .05".format(p=place, out=tmp_path / "out").split()
    monkeypatch.setattr(sys, "argv", ["consilience", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    said = capsys.readouterr().err
    assert "temperature 0.05 is below the default 0.1" in said
    assert "consilience adapt sweep" in said
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["temperature"] == 0.05


@pytest.mark.parametrize("verb", ["fit", "lora"])
def test_a_training_that_diverges_says_so_and_what_to_change(place, tmp_path, monkeypatch, capsys, verb):
    command = {"fit": FIT, "lora": LORA}[verb] + " {p}/equiv.jsonl --lr 1e30"
    monkeypatch.setattr(
        sys, "argv", ["consilience", *(w.format(p=place, out=tmp_path / "out") for w in command.split())]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code != 0
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "aren't finite at --lr 1e+30" in last or "became nan at --lr 1e+30" in last
    assert "lower --lr or a higher --loss-temperature" in last
    assert not (tmp_path / "out").exists()
