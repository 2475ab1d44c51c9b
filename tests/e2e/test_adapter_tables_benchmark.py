"""The benchmark of the adapter tables on tiny students: every stage and table, and a second call that does nothing."""

import importlib.util
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.corpora.caption_grammar import generate_pairs

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "adapter_tables.py"

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("adapter_tables", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path, make_student):
    make_student(tmp_path / "a", 1)
    make_student(tmp_path / "b", 2)
    (tmp_path / "data" / "pairs").mkdir(parents=True)
    (tmp_path / "data" / "sts").mkdir()
    for seed, name in enumerate(("equivalence", "paraphrase", "lexical")):
        pairs = [(p.sentence1, p.sentence2) for p in generate_pairs(250, seed=seed + 5) if p.score >= 3]
        left, right = zip(*pairs, strict=True)
        table = pa.table({"sentence1": left, "sentence2": right})
        pq.write_table(table, tmp_path / "data" / "pairs" / f"{name}.parquet")
    for seed, name in enumerate(("stsb-dev", "biosses")):
        # A word that no caption has keeps the tasks' sentences out of the pairs.
        rows = [
            f"{p.sentence1} task{seed}\t{p.sentence2} task{seed}\t{p.score}" for p in generate_pairs(40, seed=77 + seed)
        ]
        text = "\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n"
        (tmp_path / "data" / "sts" / f"{name}.tsv").write_text(text)
    return tmp_path


def test_every_table_comes_out_and_a_second_call_makes_nothing(place, benchmark, monkeypatch, capsys):
    pytest.importorskip("peft")
    words = f"{place}/a {place}/b --data {place}/data --out {place}/out --steps 2 --key-steps 2 --batch-rows 8".split()
    words += ["--anchors", "equiv=equivalence", "para=paraphrase", "--candidates", "lexical=lexical"]
    words += ["--tasks", "biosses", "--resamples", "100", "--temperatures", ".1", ".05"]
    monkeypatch.setattr(sys, "argv", ["adapter_tables.py", *words, "--skip", "sweep,roster,transplant"])
    benchmark.main()
    first = capsys.readouterr().out
    for title in ("# Amplitude shares, seed 1", "# Masks, seed 0", "# Masks over 2 seeds", "# Seconds"):
        assert title in first
    assert "| random arms: all |" in first
    assert "| lora equiv |" in first
    assert "All anchors beat the solo members on" in first
    made = {path: path.stat().st_mtime_ns for path in place.glob("out/*/manifest.json")}
    assert len(made) == 2 * 3 + 2 + 2  # anchors and keys of two seeds; LoRA; the control and its arms

    monkeypatch.setattr(sys, "argv", ["adapter_tables.py", *words])
    benchmark.main()
    second = capsys.readouterr().out
    for title in ("# Masks, seed 0", "# Routing temperature", "# Roster", "# Transplant"):
        assert title in second
    assert all(path.stat().st_mtime_ns == when for path, when in made.items())
    results = json.loads((place / "out" / "results.json").read_text())
    found = {"table-s0", "table-s1", "over-seeds", "sweep", "roster", "transplant-1", "reads-s0", "lora", "anchors"}
    assert found <= set(results)
    assert {name.split(":")[0] for name in results["seconds"]} == set(benchmark.STAGES)
    gain = benchmark.margin(results["table-s0"], "all", "off")
    back = benchmark.margin(results["table-s0"], "off", "all")
    assert (gain["difference"], gain["low"]) == (-back["difference"], -back["high"])
    rows = {model["model"]: model["mean"] for model in results["table-s0"]["models"]}
    assert gain["difference"] == pytest.approx(rows["all"] - rows["off"])


def test_a_stage_without_what_it_needs_is_left_out(place, benchmark, monkeypatch, capsys):
    words = f"{place}/a --data {place}/data --out {place}/out --seeds 1 --skip anchors,lora".split()
    monkeypatch.setattr(sys, "argv", ["adapter_tables.py", *words])
    benchmark.main()
    said = capsys.readouterr()
    assert "keys: left out, there is no anchor-equiv-s0" in said.err
    assert "# Masks" not in said.out
    monkeypatch.setattr(sys, "argv", ["adapter_tables.py", *words[:-1], "tables"])
    with pytest.raises(SystemExit, match="2"):
        benchmark.main()
