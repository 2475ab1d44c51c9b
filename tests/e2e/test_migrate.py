"""An index moves into a new model's frame: with real teachers, the documentation's page as written, killed, refused."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import consilience
from consilience.core.errors import AlignmentRefusedError, CorpusError, FrameMismatchError, InputError, ResumeError
from consilience.corpora.caption_grammar import generate_captions

pytestmark = pytest.mark.weights

PAGE = Path(__file__).parents[2] / "docs" / "move-an-index.md"
OLD, NEW = "packaged:glove", "packaged:wordllama"  # both embed thousands of captions a second


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Texts with ids, and their old vectors as an index."""
    folder = tmp_path_factory.mktemp("scene")
    texts = list(generate_captions(3_000, seed=1))
    write_sample(folder / "texts.csv", enumerate(texts))
    bank = consilience.embed(texts, teacher=OLD, out=folder / "bank", dtype="fp32")
    np.save(folder / "old.npy", np.asarray(bank[0 : bank.rows], dtype=np.float32))
    return folder


def write_sample(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text"])
        writer.writerows(rows)


def move(scene, out, **options):
    defaults = {"to": NEW, "sample": scene / "texts.csv", "out": out, "bar": 0.0}
    return consilience.migrate(str(scene / "old.npy"), **{**defaults, **options})


def test_rewrite_moves_every_vector_and_leaves_the_source(scene, tmp_path):
    before = (scene / "old.npy").read_bytes()
    found = move(scene, tmp_path / "m", rewrite=str(tmp_path / "new.npy"))
    new = np.load(tmp_path / "new.npy")
    assert new.shape == (3_000, 256)
    np.testing.assert_allclose(new, found.maps["rewrite"].apply(np.load(scene / "old.npy")), atol=1e-6)
    assert (scene / "old.npy").read_bytes() == before
    manifest = found.manifest
    assert manifest["verdict"] == "ok"
    assert {(s["way"], s["method"]) for s in manifest["scores"]} >= {("rewrite", "ridge"), ("adapter", "whitened")}
    assert manifest["rewritten"] == {"rows": 3_000, "dimensions": 256}
    assert move(scene, tmp_path / "m", rewrite=str(tmp_path / "new.npy")).id == found.id  # already done
    assert str(tmp_path) not in (tmp_path / "m" / "manifest.json").read_text()
    (tmp_path / "new.npy").unlink()  # what isn't there any more isn't "already done"
    with pytest.raises(ResumeError, match=r"isn't there any more\. Pass --overwrite"):
        move(scene, tmp_path / "m", rewrite=str(tmp_path / "new.npy"))
    move(scene, tmp_path / "m", rewrite=str(tmp_path / "new.npy"), overwrite=True)
    np.testing.assert_array_equal(np.load(tmp_path / "new.npy"), new)


def test_the_query_side_map_finds_what_the_table_says(scene, tmp_path):
    found = move(scene, tmp_path / "m")
    adapter = consilience.load_query_adapter(tmp_path / "m", model=NEW)
    queries = adapter.encode(list(generate_captions(3_000, seed=1))[:50])
    nearest = (queries @ np.load(scene / "old.npy").T).argmax(axis=1)
    assert (nearest == np.arange(50)).mean() > 0.5
    assert found.manifest["rewritten"] is None
    with pytest.raises(FrameMismatchError, match="prompt"):
        consilience.load_query_adapter(tmp_path / "m", model=NEW, prompt="query: ")
    with pytest.raises(FrameMismatchError, match="another model"):
        consilience.load_query_adapter(tmp_path / "m", model=OLD)


def test_a_map_fitted_with_a_prompt_refuses_queries_without(scene, tmp_path):
    move(scene, tmp_path / "m", prompt="query: ")
    with pytest.raises(FrameMismatchError, match="prompt"):
        consilience.load_query_adapter(tmp_path / "m", model=NEW)
    consilience.load_query_adapter(tmp_path / "m", model=NEW, prompt="query: ")


def test_refusals_write_nothing(scene, tmp_path):
    out, new = tmp_path / "m", tmp_path / "new.npy"
    write_sample(tmp_path / "few.csv", enumerate(list(generate_captions(150, seed=1))))
    write_sample(tmp_path / "foreign.csv", ((f"x{i}", t) for i, t in enumerate(generate_captions(2_000, seed=1))))
    shuffled = np.random.default_rng(0).permutation(3_000)
    write_sample(tmp_path / "mixed.csv", zip(shuffled, generate_captions(3_000, seed=1), strict=True))
    write_sample(tmp_path / "twice.csv", [(1, "a b"), (1, "c d")])
    cases = [
        ({"sample": tmp_path / "few.csv"}, AlignmentRefusedError, "rows"),
        ({"sample": tmp_path / "foreign.csv"}, InputError, "x0"),
        ({"sample": tmp_path / "mixed.csv"}, AlignmentRefusedError, "every map"),
        ({"sample": tmp_path / "mixed.csv", "old_model": OLD}, AlignmentRefusedError, "ids belong to other texts"),
        ({"sample": tmp_path / "twice.csv"}, CorpusError, "more than once"),
        ({"sample": tmp_path / "absent.csv"}, CorpusError, "no such file"),
        ({"column": "caption"}, CorpusError, "no column 'caption'"),
        ({"methods": ["magic"]}, InputError, "magic"),
        ({"to": "packaged:nobody"}, Exception, "nobody"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            move(scene, out, rewrite=str(new), **options)
        assert not new.exists()
        assert not list(tmp_path.glob("m*/manifest.json"))


def test_what_cannot_be_written_is_refused_before_anything_is_embedded(scene, tmp_path):
    (tmp_path / "there.npy").write_bytes(b"mine")
    long = [(i, t) for i, t in enumerate(generate_captions(1_000, seed=1))]
    write_sample(tmp_path / "long.csv", [(5_000, "a " * 40_000), *long])
    cases = [
        ({"rewrite": str(scene / "old.npy")}, InputError, "is the source index"),
        ({"rewrite": str(tmp_path / "there.npy")}, InputError, "already exists"),
        ({"rewrite": str(tmp_path / "m")}, InputError, "migration's folder"),
        ({"rewrite": str(tmp_path / "m" / "new.npy")}, InputError, "migration's folder"),
        ({"rewrite": str(tmp_path / "new.faiss")}, InputError, "can't be written as faiss"),
        ({"methods": ["low-rank"], "rank": 900}, InputError, "--rank between 1 and 50"),
        ({"old_prompt": "query: "}, InputError, "--old-model"),
        ({"sample": tmp_path / "long.csv"}, CorpusError, r"long\.csv: the text of row 1 has 80,000 characters"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            move(scene, tmp_path / "m", **options)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["long.csv", "there.npy"]
    assert (tmp_path / "there.npy").read_bytes() == b"mine"


def test_an_index_that_a_killed_run_finished_is_recognised_whatever_its_columns(scene, tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    import consilience.recipes.migrate as recipe

    vectors = list(np.load(scene / "old.npy"))
    columns = {"key": [str(i) for i in range(3_000)], "other": vectors, "wanted": vectors, "note": ["n"] * 3_000}
    pq.write_table(pa.table(columns), tmp_path / "old.parquet")
    options = {
        "to": NEW, "sample": scene / "texts.csv", "out": tmp_path / "m", "rewrite": str(tmp_path / "new.parquet"),
        "bar": 0.0, "index_id_column": "key", "vector_column": "wanted",
    }  # fmt: skip

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe, "_cost", killed)  # the first thing after the new index is complete
    with pytest.raises(KeyboardInterrupt):
        consilience.migrate(str(tmp_path / "old.parquet"), **options)
    monkeypatch.undo()
    written = (tmp_path / "new.parquet").read_bytes()
    found = consilience.migrate(str(tmp_path / "old.parquet"), **options)
    assert found.manifest["rewritten"] == {"rows": 3_000, "dimensions": 256}
    assert (tmp_path / "new.parquet").read_bytes() == written


def test_a_low_rank_source_is_refused(scene, tmp_path):
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((3_000, 2)) @ rng.standard_normal((2, 50))
    np.save(tmp_path / "flat.npy", flat.astype(np.float32))
    with pytest.raises(AlignmentRefusedError, match="every map"):
        consilience.migrate(
            str(tmp_path / "flat.npy"),
            to=NEW,
            sample=scene / "texts.csv",
            out=tmp_path / "m",
            rewrite=str(tmp_path / "n.npy"),
        )
    assert not (tmp_path / "n.npy").exists()


def test_below_the_bar_the_report_is_written_and_the_index_is_not(scene, tmp_path):
    options = {"bar": 0.999, "rewrite": str(tmp_path / "new.npy")}
    for _ in range(2):  # the second time the report is already there
        with pytest.raises(AlignmentRefusedError, match=r"bar of 0\.999"):
            move(scene, tmp_path / "m", **options)
    assert not (tmp_path / "new.npy").exists()
    assert consilience.load(tmp_path / "m").manifest["verdict"] == "below the bar"
    with pytest.raises(ResumeError):
        move(scene, tmp_path / "m", **{**options, "bar": 0.0})
    forced = move(scene, tmp_path / "m", **options, force=True, overwrite=True)
    assert forced.manifest["rewritten"]
    assert (tmp_path / "new.npy").exists()


def test_killed_anywhere_the_same_command_ends_with_the_same_bytes(scene, tmp_path):
    def command(name):
        return [
            sys.executable, "-m", "consilience", "migrate", str(scene / "old.npy"), "--to", NEW, "--sample",
            str(scene / "texts.csv"), "--out", str(tmp_path / name), "--bar", "0", "--rewrite", str(tmp_path /
        f"{name}.npy"), ]  # fmt: skip

    began = time.monotonic()
    subprocess.run(command("whole"), check=True, capture_output=True)
    seconds = time.monotonic() - began
    source = (scene / "old.npy").read_bytes()
    for moment in (0.5, 0.7, 0.85, 0.95):
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moment * seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (tmp_path / "killed.npy").exists():
            assert (tmp_path / "killed.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    subprocess.run(command("killed"), check=True, capture_output=True)
    assert (tmp_path / "killed.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert (scene / "old.npy").read_bytes() == source
    assert (
        consilience.load(tmp_path / "killed").manifest["scores"]
        == consilience.load(tmp_path / "whole").manifest["scores"]
    )


def test_json_is_one_object_and_a_refusal_one_line(scene, tmp_path):
    base = [sys.executable, "-m", "consilience", "migrate", str(scene / "old.npy"), "--to", NEW]
    good = subprocess.run(
        [*base, "--sample", str(scene / "texts.csv"), "--out", str(tmp_path / "m"), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(good.stdout)
    assert found["cost"]["reembed_seconds"] > 0
    bad = subprocess.run(
        [*base, "--sample", "absent.csv", "--out", str(tmp_path / "n")], capture_output=True, text=True
    )
    assert (bad.returncode, bad.stdout, len(bad.stderr.strip().splitlines())) == (2, "", 1)


@pytest.mark.slow
def test_the_page_runs_as_written(tmp_path):
    blocks = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "sh", "sh", "python"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for language, code in blocks:
        runner = [sys.executable, "-c", code] if language == "python" else ["bash", "-ec", code]
        done = subprocess.run(
            runner, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stderr}"
    assert np.load(tmp_path / "new.npy").shape == (6_000, 384)
