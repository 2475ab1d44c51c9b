"""Two processes train as one does: negatives are gathered, gradients are those of the whole batch."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from consilience.banks.writer import BankWriter
from consilience.corpora.fingerprint import fingerprint_corpus
from consilience.corpora.text import open_corpus
from consilience.students.text import load_student

# All rows have one length, so that one and two processes cut the same batches: 144 training rows in nines of 16.
NOUNS = ["cat", "dog", "cow", "hen", "fox", "owl", "bee", "ant"]
TEXTS = [f"{a} {b} {c}" for a in NOUNS for b in NOUNS for c in NOUNS][:160]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    corpus = folder / "texts.txt"
    corpus.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    writer = BankWriter(
        folder / "bank",
        rows=len(TEXTS),
        dimensions=8,
        dtype="fp32",
        corpus=fingerprint_corpus(open_corpus(corpus)).to_json(),
        teacher={"backend": "test", "name": "random"},
        frame=None,
    )
    rows = np.random.default_rng(0).standard_normal((len(TEXTS), 8)).astype(np.float32)
    for start, stop in writer.missing():
        writer.write_shard(start, rows[start:stop])
    writer.finish()
    return folder


def run(folder, out, launcher, more=()):
    arguments = [
        "distill", str(folder / "texts.txt"), "--target", str(folder / "bank"), "--out", str(out),
        "--student", "micro", "--steps", "8", "--batch-rows", "16", "--tokenizer", "train", "--vocab-size", "120",
        *more,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "consilience", *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return load_student(out), lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--objective", "siglip", "--cache-rows", "3"],  # learned scalars, and pieces whose gradients are summed
        ["--sparse-embeddings", "--cache-rows", "5"],
    ],
    ids=["plain", "cached", "sparse"],
)
def test_two_processes_train_as_one(job, tmp_path, more):
    single, single_log = run(job, tmp_path / "one", [], more)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    double, double_log = run(job, tmp_path / "two", launcher, more)
    assert (single.manifest["training"]["processes"], double.manifest["training"]["processes"]) == (1, 2)
    assert double.manifest["training"]["rows_seen"] == single.manifest["training"]["rows_seen"] == 8 * 16
    assert len(single_log) == len(double_log)
    # The same up to rounding: missing negatives, lost rows or targets paired with other rows would show.
    np.testing.assert_allclose(double.encode(TEXTS), single.encode(TEXTS), atol=2e-3)
    for ours, theirs in zip(single_log, double_log, strict=True):
        if "loss" in ours:
            assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-4)
            assert theirs.get("learned", {}) == pytest.approx(ours.get("learned", {}), rel=1e-4)
