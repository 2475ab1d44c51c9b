"""The memory benchmark runs, and both jobs stay far below their limit on a small bank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "align_memory.py"


@pytest.mark.slow
def test_benchmark_measures_both_jobs_and_cleans_up(tmp_path):
    command = [sys.executable, str(BENCHMARK), "--rows", "6000", "12000", "--parent", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    results = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert [(r["job"], r["rows"]) for r in results] == [
        ("align", 6000), ("consensus", 6000), ("align", 12000), ("consensus", 12000),
    ]  # fmt: skip
    assert all(20e6 < r["peak_bytes"] < 700e6 for r in results)
    assert list(tmp_path.iterdir()) == []
