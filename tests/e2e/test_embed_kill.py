"""``embed`` is killed, interrupted and starved of disk space, and still makes the bank an undisturbed run makes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from consilience.banks.journal import JOURNAL

KILLS = 10
ROWS = 2400
SHARD_ROWS = 8
WORDS = [f"word{i}" for i in range(200)]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A corpus, a static teacher made on the spot, and an undisturbed bank of them."""
    folder = tmp_path_factory.mktemp("embed")
    rng = random.Random(5)
    (folder / "corpus.txt").write_text(
        "\n".join(" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(ROWS)) + "\n"
    )
    make_static_teacher(folder / "teacher")
    began = time.monotonic()
    process = start(folder, folder / "whole")
    wait_for_progress(process, folder / "whole")
    startup = time.monotonic() - began
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return folder, startup, time.monotonic() - began - startup


def make_static_teacher(folder):
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder.mkdir()
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(1).standard_normal((len(vocabulary), 32)).astype(np.float32)
    save_file({"embeddings": table}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))


def start(folder, out):
    command = [sys.executable, "-m", "consilience", "embed", folder / "corpus.txt"]
    command += ["--teacher", f"static:{folder / 'teacher'}", "--out", out, "--shard-rows", SHARD_ROWS]
    return subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test run in the background of a shell inherits ignored interrupts.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def shards_done(out):
    journal = Path(f"{out}.partial") / JOURNAL
    try:
        return journal.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def wait_for_progress(process, out):
    before = shards_done(out)
    while process.poll() is None and shards_done(out) <= before:
        time.sleep(0.002)


def files_of(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "timing.json"}


@pytest.mark.slow
def test_ten_kills_leave_the_bytes_of_an_undisturbed_run(workshop):
    folder, startup, work = workshop
    seed = int(os.environ.get("CONSILIENCE_TEST_SEED", time.time_ns() % 10**6))
    print(f"kill seed: {seed} (repeat with CONSILIENCE_TEST_SEED)")
    rng = random.Random(seed)
    rounds, kills, interrupted_at = 0, 0, []
    while kills < KILLS or rounds == 0:
        rounds += 1
        out = folder / f"killed-{rounds}"
        while not out.exists():
            process = start(folder, out)
            if kills < KILLS:
                if rng.random() < 0.2:
                    time.sleep(rng.uniform(0, startup))
                else:
                    wait_for_progress(process, out)
                    time.sleep(rng.uniform(0, work / 5))
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    kills += 1
                    interrupted_at.append(shards_done(out))
            output, errors = process.communicate()
            assert process.returncode in (0, -signal.SIGKILL), (output, errors)
        assert files_of(out) == files_of(folder / "whole"), f"seed {seed}, killed at shards {interrupted_at}"
    assert len(interrupted_at) == KILLS
    assert len({done for done in interrupted_at if done}) >= 3, f"seed {seed}: too few kills met work in progress"


def test_an_interrupt_exits_with_130_and_the_same_command_continues(workshop):
    folder, _, _ = workshop
    out = folder / "interrupted"
    process = start(folder, out)
    wait_for_progress(process, out)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 130, errors
    assert output == ""
    assert "Traceback" not in errors
    assert not out.exists()
    partial = Path(f"{out}.partial")
    facts = subprocess.run(
        [sys.executable, "-m", "consilience", "inspect", str(partial), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(facts.stdout)
    assert 0 < facts["rows_done"] < ROWS
    assert facts["continue"].startswith("consilience embed")
    assert str(out) in facts["continue"]
    process = start(folder, out)
    _, errors = process.communicate()
    assert process.returncode == 0
    assert "continuing" in errors
    assert files_of(out) == files_of(folder / "whole")


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"mounting a tmpfs isn't permitted: {mount.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_one_line_and_exit_2_and_continues_when_there_is_space(workshop, small_disk):
    folder, _, _ = workshop
    (small_disk / "ballast").write_bytes(bytes(1_600_000))
    out = small_disk / "bank"
    for _ in range(2):  # also when the disk is still full
        process = start(folder, out)
        output, errors = process.communicate()
        assert process.returncode == 2, errors
        assert output == ""
        failure = [line for line in errors.splitlines() if "continuing" not in line]
        assert len(failure) == 1, errors
        assert "No space left on device" in failure[0]
        assert not out.exists()
        assert list(Path(f"{out}.partial").glob(".*.tmp")) == []
    assert shards_done(out) > 3
    (small_disk / "ballast").unlink()
    process = start(folder, out)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "continuing" in errors
    assert files_of(out) == files_of(folder / "whole")
