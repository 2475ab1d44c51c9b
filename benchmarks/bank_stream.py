"""How fast a bank streams, against reading its bytes with plain reads; and that memory stays flat.

    python benchmarks/bank_stream.py [--rows 500000] [--dimensions 384]

Prints one JSON object. "ratio" is the bank's rate over the plain one, both from a warm page cache: each sums all
values, so that every byte is really touched. "gather" is rows a second of random batches of 256.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from consilience.banks.reader import Bank
from consilience.banks.writer import BankWriter


def make_bank(out: Path, rows: int, dimensions: int) -> Bank:
    rng = np.random.default_rng(0)
    block = rng.standard_normal((8192, dimensions)).astype(np.float32)
    with BankWriter(
        out,
        rows=rows,
        dimensions=dimensions,
        dtype="fp16",
        corpus={"fingerprint": "0" * 64, "rows": rows},
        teacher={"backend": "synthetic", "name": "gaussian"},
        frame=None,
    ) as writer:
        for start, stop in writer.missing():
            writer.write_shard(start, np.roll(block, start % 97, axis=1)[: stop - start])
        return writer.finish()


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS in /proc/self/status")


def touch(block: np.ndarray) -> int:
    # An integer sum of the raw words: cheap enough that reading is what is measured.
    return int(block.reshape(-1).view(np.uint64).sum(dtype=np.uint64))


def best_of(repeats: int, function: Callable[[], None]) -> float:
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--dimensions", type=int, default=384)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bank = make_bank(Path(folder) / "bank", options.rows, options.dimensions)
        total = sum(entry["bytes"] for entry in bank.manifest["shards"])
        peak = 0

        def plain() -> None:
            buffer = bytearray(8192 * options.dimensions * 2)
            for entry in bank.manifest["shards"]:
                with (bank.path / entry["file"]).open("rb", buffering=0) as stream:
                    while count := stream.readinto(buffer):
                        touch(np.frombuffer(buffer, dtype=np.uint8, count=count - count % 8))

        def streamed() -> None:
            nonlocal peak
            for _, block in bank.iter_shards():
                touch(block)
                peak = max(peak, resident_bytes())

        def verified() -> None:
            for _, block in bank.iter_shards(verify=True):
                touch(block)

        rng = np.random.default_rng(1)
        batches = [rng.integers(0, len(bank), 256) for _ in range(200)]

        def gathered() -> None:
            nonlocal peak
            for batch in batches:
                bank[batch]
            peak = max(peak, resident_bytes())

        plain()
        seconds = {}
        growth = {}
        for function in (plain, streamed, verified, gathered):
            peak = before = resident_bytes()
            seconds[function.__name__] = best_of(3, function)
            growth[function.__name__] = round((peak - before) / 1e6, 1)
        result = {
            "rows": len(bank),
            "megabytes": round(total / 1e6, 1),
            "plain_mb_per_second": round(total / 1e6 / seconds["plain"], 1),
            "bank_mb_per_second": round(total / 1e6 / seconds["streamed"], 1),
            "ratio": round(seconds["plain"] / seconds["streamed"], 2),
            "verified_mb_per_second": round(total / 1e6 / seconds["verified"], 1),
            "gather_rows_per_second": round(256 * len(batches) / seconds["gathered"]),
            "streaming_growth_megabytes": growth["streamed"],
            "gather_growth_megabytes": growth["gathered"],
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
