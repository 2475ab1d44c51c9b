"""Roster, sweep and transplant on tiny students; grammar pairs stand in for STS-B dev."""

import json

import pytest
from typer.testing import CliRunner

from consilience.cli.adapt import app
from consilience.core.errors import InputError, ResumeError, TrunkMismatchError
from consilience.corpora.caption_grammar import generate_pairs
from consilience.recipes import adapt_trials
from consilience.recipes.adapt import adapt_align, adapt_fit
from consilience.recipes.adapt_roster import adapt_roster, adapt_sweep
from consilience.recipes.adapt_transplant import adapt_transplant, transplant_shares

FAST = {"steps": 4, "batch_rows": 8, "held_out": [], "resamples": 100}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def place(tmp_path_factory, make_student):
    folder = tmp_path_factory.mktemp("studies")
    make_student(folder / "a", 1)
    make_student(folder / "b", 2)
    (folder / "sts").mkdir()
    rows = [f"{p.sentence1}\t{p.sentence2}\t{p.score}" for p in generate_pairs(120, seed=77)]
    (folder / "sts" / "stsb-dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    for seed, name in enumerate(("equiv", "para")):
        pairs = [(p.sentence1, p.sentence2) for p in generate_pairs(400, seed=seed + 5) if p.score >= 3]
        lines = [json.dumps({"sentence1": one, "sentence2": other}) + "\n" for one, other in pairs]
        (folder / f"{name}.jsonl").write_text("".join(lines))
        adapt_fit(
            folder / "a",
            pairs=folder / f"{name}.jsonl",
            name=name,
            out=folder / name,
            steps=25 if name == "equiv" else 1,
            batch_rows=24,
            lr=3e-3,
            hidden=8,
            held_out=[],
        )
    adapt_align(
        folder / "a",
        [folder / "equiv", folder / "para"],
        pairs=named(folder),
        out=folder / "library",
        steps=4,
        batch_rows=8,
        held_out=[],
    )
    return folder


def named(folder):
    return {name: folder / f"{name}.jsonl" for name in ("equiv", "para")}


def test_roster(place, tmp_path, monkeypatch):
    scored = []
    plain = adapt_trials.Bench.aligned

    def aligned(self, library, folder, **options):
        scored.append(library.names)
        if len(scored) == 3:
            raise KeyboardInterrupt
        return plain(self, library, folder, **options)

    monkeypatch.setattr(adapt_trials.Bench, "aligned", aligned)
    candidates = [place / "equiv", place / "para"]
    options = {"pairs": named(place), "out": tmp_path / "roster", "data": place, **FAST}
    with pytest.raises(KeyboardInterrupt):
        adapt_roster(place / "a", candidates, **options)
    assert scored == [("random-arm",), ("equiv",), ("para",)]
    results = adapt_roster(place / "a", candidates, **options)
    assert scored[3] == ("para",)  # the first two weren't run again
    first = results["rounds"][0]
    assert {trial["name"] for trial in first["trials"]} == {"equiv", "para"}
    for trial in first["trials"]:
        over = trial["over_control"]
        assert over["difference"] == pytest.approx(trial["score"] - first["control"]["score"])
        assert trial["clears"] == (over["low"] > 0 and trial["over_current"]["difference"] > 0)
    assert results["members"] == [entry["chosen"] for entry in results["rounds"] if entry["chosen"]]
    assert results["selection"]["task"] == "stsb-dev"
    assert 0 < results["preflight"]["own"]["equiv"]["share_sum"] < 1
    assert results["preflight"]["own"]["equiv"]["mask"] == "off"
    count = len(scored)
    assert adapt_roster(place / "a", candidates, **options) == results
    assert len(scored) == count
    assert "random arm" in (tmp_path / "roster" / "report.md").read_text()


def test_a_roster_of_untrained_anchors_halts_at_once(place, tmp_path):
    """The control can fail a candidate: an anchor of one step is the identity, and doesn't beat a random arm."""
    options = {"pairs": {"para": place / "para.jsonl"}, "data": place, **FAST}
    results = adapt_roster(place / "a", [place / "para"], out=tmp_path / "roster", **options)
    assert results["members"] == []
    assert results["halted"] == "no candidate cleared the random arm in round 1"
    # A verdict gates the claim, not the artefact: what was refuted is reported with its numbers.
    (trial,) = results["rounds"][0]["trials"]
    assert (trial["name"], trial["clears"]) == ("para", False)
    assert "| para |" in (tmp_path / "roster" / "report.md").read_text()


def test_refusals(place, tmp_path):
    options = {"pairs": {"equiv": place / "equiv.jsonl"}, "out": tmp_path / "x", **FAST}
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "sts12.tsv").write_text("sentence1\tsentence2\tscore\n")
    with pytest.raises(InputError, match=r"expected stsb-dev\.tsv"):
        adapt_roster(place / "a", [place / "equiv"], data=tmp_path, **options)
    with pytest.raises(TrunkMismatchError):
        adapt_roster(place / "b", [place / "equiv"], data=place, **options)
    with pytest.raises(InputError, match="different temperatures"):
        adapt_sweep(place / "a", place / "library", data=place, temperatures=[0.1, 0.1], **options)
    transplant = {"library": place / "library", "pairs": named(place), "out": tmp_path / "x", "tasks": ["grammar"]}
    with pytest.raises(InputError, match="both trunks are one"):
        adapt_transplant(place / "a", place / "a", held_out=[], **transplant)
    with pytest.raises(TrunkMismatchError):
        adapt_transplant(place / "b", place / "a", held_out=[], **transplant)
    assert not (tmp_path / "x.partial").exists()


def test_sweep_on_the_command_line(place, tmp_path):
    words = f"sweep {place}/a {place}/library --temperature .10 .05 --out {tmp_path}/s --data {place} --steps 3".split()
    pairs = [word for name, path in named(place).items() for word in ("--pairs", f"{name}={path}")]
    done = CliRunner().invoke(app, [*words, *pairs, "--batch-rows", "8", "--resamples", "100", "--seeds", "2"])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "s" / "results.json").read_text())["rows"]
    assert [row["temperature"] for row in rows] == [0.1, 0.05]
    assert all(len(row["scores"]) == 2 and row["separation"] > 0 and 0 < row["share_sum"] < 1 for row in rows)
    assert rows[1]["share_sum"] > rows[0]["share_sum"]  # sharper routing spends more of the budget
    assert "# Routing temperature" in done.output


def test_transplant(place, tmp_path, monkeypatch):
    options = {
        "library": place / "library",
        "pairs": named(place),
        "out": tmp_path / "t",
        "tasks": ["grammar"],
        "fit_steps": 3,
        "align_steps": 3,
        "batch_rows": 8,
        "held_out": [],
        "resamples": 100,
    }
    results = adapt_transplant(place / "a", place / "b", **options)
    rows = {row["label"]: row for row in results["rows"]}
    assert list(rows) == [
        "bare source", "native on source", "bare target", "transplanted (forced)", "keys re-aligned (forced)",
        "anchors retrained",
    ]  # fmt: skip
    assert rows["transplanted (forced)"]["forced"]["anchors_of"]
    assert rows["native on source"]["forced"] is None
    assert rows["anchors retrained"]["forced"] is None
    assert all(row["low"] <= row["score"] <= row["high"] for row in rows.values())
    assert results["shares"] == transplant_shares(*(row["score"] for row in rows.values()))
    assert (tmp_path / "t.native" / "manifest.json").is_file()
    assert "Share of the gain" in (tmp_path / "t" / "report.md").read_text()

    # Another seed finds the first one's native anchors in its way, before any trial; --overwrite replaces them, and
    # continued after a kill keeps those that it has made.
    (tmp_path / "t").rename(tmp_path / "first")
    before = {path.name: (path / "manifest.json").read_bytes() for path in tmp_path.glob("t.native*")}
    with pytest.raises(ResumeError, match=r"t\.native-equiv: already exists and isn't the result"):
        adapt_transplant(place / "a", place / "b", **options, seed=1)
    assert not (tmp_path / "t.partial").exists()
    scored = adapt_trials.Bench.score_bare

    def killed(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(adapt_trials.Bench, "score_bare", killed)
    with pytest.raises(KeyboardInterrupt):
        adapt_transplant(place / "a", place / "b", **options, seed=1, overwrite=True)
    monkeypatch.setattr(adapt_trials.Bench, "score_bare", scored)
    made = {path.name: (path / "manifest.json") for path in tmp_path.glob("t.native*")}
    assert made.keys() == before.keys()
    assert all(path.read_bytes() != before[name] for name, path in made.items())
    written = {name: path.stat().st_mtime_ns for name, path in made.items()}
    adapt_transplant(place / "a", place / "b", **options, seed=1, overwrite=True)
    assert {name: path.stat().st_mtime_ns for name, path in made.items()} == written


def test_shares_of_the_document():
    """Source: technical companion, section 5: 68.8 % kept, keys 29 %, anchors 71 %."""
    shares = transplant_shares(0.6077, 0.7287, 0.6031, 0.6863, 0.6987, 0.7294)
    assert shares["kept"] == pytest.approx(0.688, abs=5e-4)
    assert shares["keys_recover"] == pytest.approx(0.29, abs=5e-3)
    assert shares["anchors_recover"] == pytest.approx(0.71, abs=5e-3)
    assert transplant_shares(0.7, 0.7, 0.6, 0.6, 0.6, 0.6) == dict.fromkeys(shares)
