"""distill, killed with SIGKILL at random moments and run again, ends with the bytes of an uninterrupted run."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from consilience.corpora.caption_grammar import generate_captions

ROWS, DIMENSIONS, KILLS = 1200, 32, 10

# What keeps a state of its own: learned scalars, lazy moments, dropout drawn twice, nested losses.
EVERYTHING = [
    "--objective", "siglip", "--matryoshka", "8,16", "--cache-rows", "6", "--sparse-embeddings",
]  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory, word_sum_bank):
    """A corpus, and a bank of the sums of random word vectors."""
    folder = tmp_path_factory.mktemp("distill")
    captions = list(generate_captions(ROWS, seed=3))
    corpus = folder / "captions.txt"
    corpus.write_text("\n".join(captions) + "\n", encoding="utf-8")
    word_sum_bank(folder / "bank", corpus, captions, DIMENSIONS)
    return folder


def start(folder, out, more=()):
    arguments = [
        "distill", str(folder / "captions.txt"), "--target", str(folder / "bank"), "--out", str(out),
        "--student", "micro", "--steps", "120", "--batch-rows", "16", "--tokenizer", "train", "--vocab-size", "400",
        "--checkpoint-seconds", "0.2", *more,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["CONSILIENCE_CACHE"] = str(folder / "cache")
    return subprocess.Popen(
        [sys.executable, "-m", "consilience", *arguments],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder, out, more=()):
    process = start(folder, out, more)
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def contents(out):
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "timing.json"
    }


def newest_checkpoint(out):
    names = [path.name for path in out.with_name(out.name + ".partial").glob("checkpoints/step-*")]
    return max(names, default="")


def kill_at_a_random_moment(folder, out, rng, *, early, more=()):
    """Start the job and kill it: before its first new checkpoint or a random while after it.

    Returns:
        Whether it was killed (it may have finished first).
    """
    before = newest_checkpoint(out)
    process = start(folder, out, more)
    if early:
        time.sleep(rng.uniform(0.2, 6.0))
    else:
        while process.poll() is None and newest_checkpoint(out) == before:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.8))
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return running


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "more"), [(KILLS, []), (KILLS // 2, EVERYTHING)], ids=["plain", "everything"])
def test_killed_many_times_the_student_has_the_same_bytes(job, tmp_path, wanted, more):
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    finish(job, plain, more)
    rng = random.Random(0)
    kills = resumptions = 0
    while kills < wanted:
        resumptions += bool(newest_checkpoint(killed))
        kills += kill_at_a_random_moment(job, killed, rng, early=kills % 3 == 2, more=more)
        if killed.exists():  # it got to the end between two kills: compare, and begin again
            assert contents(killed) == contents(plain)
            shutil.rmtree(killed)
    finish(job, killed, more)
    assert contents(killed) == contents(plain)
    assert resumptions >= wanted // 3, "too few runs continued from a checkpoint: the test tested nothing"
    assert not (tmp_path / "killed.partial").exists()


@pytest.mark.slow
def test_two_uninterrupted_runs_have_the_same_bytes_under_any_name(job, tmp_path):
    finish(job, tmp_path / "a")
    finish(job, tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    names = set(json.loads((tmp_path / "a" / "manifest.json").read_text())["files"])
    assert names == set(contents(tmp_path / "a")) - {"manifest.json"}
