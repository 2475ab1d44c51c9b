"""Bad input of every kind: exit code 2, one line on standard error with a remedy, and nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

WORDS = [f"word{i}" for i in range(64)]
ROWS = 400
DIMENSIONS = 8


def consilience(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "consilience", *map(str, words)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def assert_refused(result, out, *expected):
    """One clear line, exit code 2, neither the artefact nor a trace of it."""
    lines = result.stderr.strip().splitlines()
    assert result.returncode == 2, result.stderr
    assert len([line for line in lines if line.startswith("consilience: error: ")]) == 1, result.stderr
    assert lines[-1].startswith("consilience: error: "), result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    for text in expected:
        assert text in lines[-1], lines[-1]
    if out is not None:
        assert not out.exists()


def make_teacher(folder, table):
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": table.astype(np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": False}))


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Two corpora, three teachers and the banks and frames of them."""
    folder = tmp_path_factory.mktemp("bad")
    rng = np.random.default_rng(3)
    for name in ("one", "two"):
        texts = [" ".join(rng.choice(WORDS, size=6)) for _ in range(ROWS)]
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
    for name in ("a", "b", "c"):
        make_teacher(folder / name, rng.standard_normal((len(WORDS) + 1, DIMENSIONS)))
    for bank, corpus, teacher in (("a1", "one", "a"), ("b1", "one", "b"), ("c1", "one", "c"), ("b2", "two", "b")):
        done = consilience(
            "embed", folder / f"{corpus}.txt", "--teacher", f"static:{folder / teacher}", "--out", folder / bank
        )
        assert done.returncode == 0, done.stderr
    done = align(folder, folder / "a1", folder / "b1", "--force", out=folder / "frames")
    assert done.returncode == 0, done.stderr
    return folder


def align(bench, *words, out):
    return consilience("align", *words, "--reference", bench / "a1", "--out", out)


def embed(bench, corpus, *options, teacher="a"):
    out = bench / "refused"
    return consilience("embed", corpus, "--teacher", f"static:{bench / teacher}", "--out", out, *options), out


def test_missing_file(bench):
    assert_refused(*embed(bench, bench / "no_such.txt"), "no_such.txt")


def test_wrong_column(bench, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("caption,source\na cat,x\n")
    assert_refused(*embed(bench, path, "--column", "text"), "'text'", "caption, source")


def test_empty_corpus(bench, tmp_path):
    path = tmp_path / "empty.txt"
    path.write_text("")
    assert_refused(*embed(bench, path), "empty.txt")


@pytest.mark.parametrize(
    ("row", "expected"),
    [(b"x" * 100_000, "--max-characters"), (b"a\x00b", "NUL"), (b"caf\xe9 \xff", "UTF-8")],
    ids=["100,000 characters", "NUL", "invalid UTF-8"],
)
def test_faulty_row(bench, tmp_path, row, expected):
    path = tmp_path / "faulty.txt"
    path.write_bytes(b"word1 word2\n" + row + b"\nword3\n")
    assert_refused(*embed(bench, path), "faulty.txt", "2", expected, "--on-fault drop")


def test_flipped_byte(bench, tmp_path):
    import shutil

    bank = tmp_path / "flipped"
    shutil.copytree(bench / "b1", bank)
    shard = bank / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    out = tmp_path / "frames"
    assert_refused(consilience("inspect", bank), None, "shard-00000.safetensors", "damaged")
    result = align(bench, bench / "a1", bank, out=out)
    assert_refused(result, out, "shard-00000.safetensors", "damaged")


def test_banks_of_different_corpora(bench, tmp_path):
    out = tmp_path / "frames"
    assert_refused(align(bench, bench / "a1", bench / "b2", out=out), out, "corpus")


def test_map_between_unrelated_teachers(bench, tmp_path):
    out = tmp_path / "frames"
    assert_refused(align(bench, bench / "a1", bench / "b1", out=out), out, "held-out R@1", "--force")


def test_maps_of_another_frame(bench, tmp_path):
    out = tmp_path / "target"
    result = consilience("consensus", bench / "a1", bench / "c1", "--frames", bench / "frames", "--out", out)
    assert_refused(result, out, "frame")


def test_target_of_another_corpus(bench, tmp_path):
    out = tmp_path / "student"
    result = consilience(
        "distill", bench / "two.txt", "--target", bench / "a1", "--student", "micro", "--steps", 1, "--out", out,
        "--tokenizer", "train",
    )  # fmt: skip
    assert_refused(result, out, "corpus")


@pytest.mark.parametrize(("value", "expected"), [(np.nan, "NaN"), (np.inf, "inf"), (0.0, "zero")])
def test_teacher_that_returns_nothing_usable(bench, tmp_path, value, expected):
    make_teacher(tmp_path / "broken", np.full((len(WORDS) + 1, DIMENSIONS), value))
    out = tmp_path / "bank"
    result = consilience("embed", bench / "one.txt", "--teacher", f"static:{tmp_path / 'broken'}", "--out", out)
    assert_refused(result, out, expected)


@pytest.mark.parametrize("spec", ["no-such-teacher", "packaged:no-such", "static:/no/such/folder", "sorcery:x"])
def test_unknown_teacher(bench, tmp_path, spec):
    out = tmp_path / "bank"
    assert_refused(consilience("embed", bench / "one.txt", "--teacher", spec, "--out", out), out, spec.split(":")[-1])


def test_recipe_with_three_faults(bench, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"""
name = "three"
[corpus]
path = "{bench / "no_such.txt"}"
[[teachers]]
spec = "static:{bench / "a"}"
name = "a"
[[teachers]]
spec = "static:{bench / "b"}"
name = "b"
[align]
reference = "c"
[train]
stepps = 10
steps = 10
"""
    )
    out = tmp_path / "run"
    assert_refused(consilience("run", recipe, "--out", out), out, "3 faults", "no_such.txt", "stepps", "'c'")


def test_unknown_model(tmp_path):
    assert_refused(consilience("evaluate", tmp_path / "no_such_model", "--tasks", "grammar"), None, "no_such_model")


def test_not_an_artefact(tmp_path):
    assert_refused(consilience("inspect", tmp_path), None, str(tmp_path))
    out = tmp_path / "export"
    assert_refused(consilience("export", tmp_path, "--out", out), out, str(tmp_path))
