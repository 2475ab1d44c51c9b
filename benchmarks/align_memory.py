"""Peak memory and time per row of ``align`` and ``consensus`` on synthetic banks: memory must not grow with the rows.

    python benchmarks/align_memory.py --rows 50000 500000 5000000

Two banks of rows x 384 in fp16 are generated shard by shard in a temporary folder (7.7 GB at 5,000,000 rows, and the
consensus as much as one of them), each job runs in a process of its own, and the folder is removed afterwards. The
process's ``ru_maxrss`` counts memory-mapped pages too. The exit code is 1 when a job exceeds the limit or when the
consensus' time per row isn't flat.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LIMIT_BYTES = 1_500_000_000
DIMENSIONS = 384
SIGNAL = 64  # dimensions that the two teachers share, so that the maps are real ones
SHARD_ROWS = 8192
FLATNESS = 1.5  # largest over smallest time per row, start-up not counted; wide because machines are shared


def make_bank(out: Path, name: str, rows: int, mixing_seed: int) -> None:
    from consilience.banks.writer import BankWriter

    mixing = np.random.default_rng(mixing_seed).standard_normal((SIGNAL, DIMENSIONS), dtype=np.float32)
    corpus = {"fingerprint": f"synthetic-{rows}", "rows": rows}
    teacher = {"backend": "synthetic", "name": name}
    with BankWriter(
        out, rows=rows, dimensions=DIMENSIONS, dtype="fp16", corpus=corpus, teacher=teacher, frame=None,
        shard_rows=SHARD_ROWS,
    ) as writer:  # fmt: skip
        for start, stop in writer.missing():
            latent = np.random.default_rng(start).standard_normal((stop - start, SIGNAL), dtype=np.float32)
            noise = np.random.default_rng([start, mixing_seed]).standard_normal(
                (stop - start, DIMENSIONS), dtype=np.float32
            )
            writer.write_shard(start, latent @ mixing + 2.0 * noise)
        writer.finish()


def run_job(job: str, folder: Path) -> None:
    """Run one job in this process and print its measurements (called in a process of its own)."""
    from consilience.recipes.align import align
    from consilience.recipes.consensus import consensus

    banks = [folder / "first", folder / "second"]
    began = time.perf_counter()
    if job == "align":
        align(banks, reference=banks[0], out=folder / "frames")
    else:
        consensus(banks, frames=folder / "frames", out=folder / "consensus")
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"job": job, "seconds": seconds, "peak_bytes": peak}))


def measure(rows: int, parent: Path | None) -> list[dict[str, float | str]]:
    with tempfile.TemporaryDirectory(prefix="align-memory-", dir=parent) as name:
        folder = Path(name)
        for seed, bank in enumerate(("first", "second"), 1):
            make_bank(folder / bank, bank, rows, seed)
        results = []
        for job in ("align", "consensus"):
            command = [sys.executable, __file__, "--job", job, "--folder", str(folder)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            result = json.loads(done.stdout.splitlines()[-1])
            results.append({**result, "rows": rows, "microseconds_per_row": result["seconds"] / rows * 1e6})
        return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 500_000, 5_000_000])
    parser.add_argument("--parent", type=Path, help="where the temporary folder is made")
    parser.add_argument("--job", choices=["align", "consensus"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(options.job, options.folder)
        return 0
    results = []
    print(f"{'rows':>10} {'job':>10} {'peak MB':>9} {'seconds':>9} {'us/row':>8}")
    for rows in options.rows:
        for r in measure(rows, options.parent):
            results.append(r)
            print(
                f"{rows:>10} {r['job']:>10} {float(r['peak_bytes']) / 1e6:>9.0f} {float(r['seconds']):>9.1f} "
                f"{float(r['microseconds_per_row']):>8.1f}",
                flush=True,
            )
    print(json.dumps(results))
    # The first size carries the fixed cost (imports, report); what must be flat is the cost of further rows.
    consensus = [r for r in results if r["job"] == "consensus"]
    marginal = [
        (float(b["seconds"]) - float(a["seconds"])) / (float(b["rows"]) - float(a["rows"])) * 1e6
        for a, b in itertools.pairwise(consensus)
    ]
    print("consensus, us per further row: " + ", ".join(f"{m:.1f}" for m in marginal))
    too_large = [r for r in results if float(r["peak_bytes"]) > LIMIT_BYTES]
    flat = len(marginal) < 2 or max(marginal) <= FLATNESS * min(marginal)
    return 1 if too_large or not flat else 0


if __name__ == "__main__":
    sys.exit(main())
