"""kill -9 at ten random moments of ``consensus``: the finished bank is the uninterrupted one, byte for byte."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from consilience.banks.writer import BankWriter
from consilience.core.manifests import TIMING, partial_path
from consilience.recipes.align import align

ROWS = 150_000
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def make_bank(folder: Path, name: str, d: int, seed: int) -> Path:
    mixing = np.random.default_rng(seed).standard_normal((16, d))
    with BankWriter(
        folder, rows=ROWS, dimensions=d, dtype="fp16", corpus={"fingerprint": "abc", "rows": ROWS},
        teacher={"backend": "synthetic", "name": name}, frame=None,
    ) as writer:  # fmt: skip
        for start, stop in writer.missing():
            rng = np.random.default_rng([seed, start])
            latent = np.random.default_rng(start).standard_normal((stop - start, 16))
            writer.write_shard(start, latent @ mixing + rng.standard_normal((stop - start, d)))
        writer.finish()
    return folder


def start(banks: list[Path], frames: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "consilience", "consensus", *map(str, banks)]
    command += ["--frames", str(frames), "--out", str(out), "--json"]
    # A session of its own, so that the kill takes the whole process group.
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != TIMING}


def wait_for(condition, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


def shards_in(out: Path) -> int:
    work = partial_path(out)
    return len(list(work.glob("shard-*"))) if work.is_dir() else 0


@pytest.mark.slow
def test_killed_consensus_ends_in_the_same_bytes(tmp_path):
    banks = [make_bank(tmp_path / name, name, d, seed) for name, d, seed in (("one", 48, 1), ("two", 40, 2))]
    frames = align(banks, reference="one", fit_rows=4000, held_out_rows=1000, out=tmp_path / "frames").path
    straight = tmp_path / "straight"
    assert start(banks, frames, straight).wait(timeout=600) == 0
    expected = contents(straight)
    assert len(expected) == 1 + -(-ROWS // 8192)

    chance = random.Random(20_261_129)
    out = tmp_path / "killed"
    kills = 0
    moments = []
    while kills < 10:
        process = start(banks, frames, out)
        # A random moment around a random one of the next few shards; the first one anywhere before the first shard.
        goal = shards_in(out) + chance.randint(1, 2) if kills else 0
        wait_for(lambda goal=goal: partial_path(out).is_dir() and shards_in(out) >= goal, process)
        time.sleep(chance.uniform(0, 0.03))
        moments.append(shards_in(out))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait(timeout=600)
        if out.is_dir():  # finished before the kill: start over, the count goes on
            assert contents(out) == expected
            for path in out.iterdir():
                path.unlink()
            out.rmdir()
    assert start(banks, frames, out).wait(timeout=600) == 0
    assert contents(out) == expected
    assert len(set(moments)) >= 4, f"the kills hit too few different moments: {moments}"
    assert not partial_path(out).exists()
