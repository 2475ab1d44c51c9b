"""Captions per second of our teachers beside sentence-transformers' own ``encode``, alternating in one process.

    python benchmarks/encode_speed.py [--rows 4096] [--rounds 3] [--threads 2] [--clock wall|cpu] [--json]

Every round times each contestant once on the same captions, so that load from elsewhere meets all alike; the ratio is
taken within a round and its median over the rounds reported. The peer's default is batch_size=32; 64 and 128 are there
to be fair to it. On a machine that others use at the same time, ``--threads 1 --clock cpu`` compares processor seconds
instead (with more threads, waiting ones spin and count as busy).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq


def captions(rows: int) -> list[str]:
    """Every k-th Flickr30k caption, so that lengths are the corpus's own."""
    if not os.environ.get("CONSILIENCE_DATA"):
        sys.exit("CONSILIENCE_DATA isn't set: it names the folder with captions/captions.parquet")
    root = Path(os.environ["CONSILIENCE_DATA"])
    table = pq.read_table(root / "captions" / "captions.parquet")
    texts = table.filter(pc.equal(table["source"], "flickr30k"))["text"].to_pylist()
    return texts[:: max(1, len(texts) // rows)][:rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    import torch
    from sentence_transformers import SentenceTransformer

    from consilience.teachers.packaged import packaged_files
    from consilience.teachers.registry import load_teacher

    torch.set_num_threads(arguments.threads)
    texts = captions(arguments.rows)
    peer = SentenceTransformer(str(packaged_files("all-MiniLM-L6-v2")["modules.json"].parent), device="cpu")
    ours = load_teacher("packaged:all-MiniLM-L6-v2?device=cpu")
    static = load_teacher("packaged:wordllama")

    def peer_at(batch_size: int) -> Callable[[], np.ndarray]:
        return lambda: peer.encode(texts, batch_size=batch_size, show_progress_bar=False)

    contestants: dict[str, Callable[[], np.ndarray]] = {
        "sentence-transformers batch 32": peer_at(32),
        "ours": lambda: ours.encode(texts),
        "sentence-transformers batch 64": peer_at(64),
        "sentence-transformers batch 128": peer_at(128),
        "ours, wordllama": lambda: static.encode(texts),
    }
    peer.encode(texts[:64])
    ours.encode(texts[:64])
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    vectors: dict[str, np.ndarray] = {}
    for _ in range(arguments.rounds):
        for name, run in contestants.items():
            start = clock()
            vectors[name] = run()
            seconds[name].append(clock() - start)
    mine = seconds["ours"]
    peers = [name for name in contestants if name.startswith("sentence")]
    result = {
        "rows": len(texts),
        "threads": arguments.threads,
        "clock": arguments.clock,
        "rounds": arguments.rounds,
        "captions_per_second": {n: round(len(texts) / statistics.median(s), 1) for n, s in seconds.items()},
        "ratio_to": {
            n: round(statistics.median(theirs / own for theirs, own in zip(seconds[n], mine, strict=True)), 3)
            for n in peers
        },
        "largest_difference": float(np.abs(vectors["ours"] - vectors[peers[0]]).max()),
    }
    if arguments.json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    for name, speed in result["captions_per_second"].items():
        ratio = f"ours is {result['ratio_to'][name]:.2f}x" if name in peers else ""
        print(f"{name:34} {speed:10.1f} captions/s  {ratio}")
    print(f"largest difference of a coordinate: {result['largest_difference']:.1e}")


if __name__ == "__main__":
    main()
