"""An index moved between two models, on real banks: recall retention of every map, both ways, beside a peer's.

python benchmarks/migrate_recall.py OLD_BANK NEW_BANK [--fit-rows 24000] [--queries 5000] [--json]

OLD_BANK and NEW_BANK are banks of one corpus. Maps are fitted on a sample; all other rows are the gallery. The truth
is exact search among the new model's vectors. With `embspec` installed, its DriftAdapter is a line of the table.
"Candidates" is what a tool that keeps the old index and re-ranks its candidates can reach at most: the share of the
new model's neighbours that are among the old model's 100 nearest. It needs the old model for every query and the new
vectors of every candidate.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from typing import Any

import numpy as np

import consilience
from consilience.committee.migration import score_maps
from consilience.frames.rows import normalise_rows
from consilience.frames.sampling import split_rows
from consilience.gauges.neighbours import nearest, retained
from consilience.stats.means import mean_interval


def measure(old_path: str, new_path: str, fit_rows: int, queries: int) -> list[dict[str, Any]]:
    old_bank, new_bank = consilience.load(old_path), consilience.load(new_path)
    if old_bank.corpus_fingerprint != new_bank.corpus_fingerprint:
        raise SystemExit("the banks are of different corpora")
    old = np.asarray(old_bank[0 : old_bank.rows], dtype=np.float32)
    new = np.asarray(new_bank[0 : new_bank.rows], dtype=np.float32)
    rows = len(old)
    split = split_rows(rows, fit_rows, rows - fit_rows, seed=0)
    scores = score_maps(old, new, None, fit_rows=split.fit, held_out=split.held_out, metric="cosine")
    lines = []
    if scores.unmapped is not None:
        lines.append(
            {"way": "as it is", "map": "none", **{f"recall@{k}": f"{v:.3f}" for k, v in scores.unmapped.items()}}
        )
    for score in scores.scores:
        cells = {f"recall@{k}": f"{i.score:.3f} [{i.low:.3f}, {i.high:.3f}]" for k, i in score.retention.items()}
        lines.append({"way": score.way, "map": score.method, **cells})
    unit_old, unit_new = (normalise_rows(rows, where="bank") for rows in (old, new))
    asked = np.random.default_rng(0).permutation(len(split.held_out))[:queries]
    gallery_old, gallery_new = unit_old[split.held_out], unit_new[split.held_out]
    truth = nearest(gallery_new[asked], gallery_new, k=100, metric="cosine", own=asked)

    def line(way: str, name: str, found: np.ndarray, ks: tuple[int, ...] = (1, 10, 100)) -> dict[str, Any]:
        cells = {}
        for k in ks:
            interval = mean_interval(retained(found, truth, k), rng=np.random.default_rng(0))
            cells[f"recall@{k}"] = f"{interval.score:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
        return {"way": way, "map": name, **cells}

    if importlib.util.find_spec("embspec") is not None:
        from embspec import DriftAdapter

        adapter = DriftAdapter.fit(unit_new[split.fit], unit_old[split.fit])
        found = nearest(adapter.transform(gallery_new[asked]), gallery_old, k=100, metric="cosine", own=asked)
        lines.append(line("adapter", "embspec DriftAdapter", found))
    candidates = nearest(gallery_old[asked], gallery_old, k=100, metric="cosine", own=asked)
    kept = [len(np.intersect1d(c, t[:10], assume_unique=True)) / 10 for c, t in zip(candidates, truth, strict=True)]
    interval = mean_interval(np.asarray(kept), rng=np.random.default_rng(0))
    lines.append(
        {
            "way": "candidates",
            "map": "old top 100, re-ranked",
            "recall@10": f"{interval.score:.3f} [{interval.low:.3f}, {interval.high:.3f}]",
        }
    )
    print(f"{rows} rows: {len(split.fit)} fitted, gallery {len(split.held_out)}, {scores.queries} queries\n")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--fit-rows", type=int, default=24_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    lines = measure(arguments.old, arguments.new, arguments.fit_rows, arguments.queries)
    if arguments.json:
        print(json.dumps(lines))
        return
    print("| way | map | recall@1 | recall@10 | recall@100 |\n|---|---|--:|--:|--:|")
    for entry in lines:
        print(f"| {entry['way']} | {entry['map']} | {' | '.join(entry.get(f'recall@{k}', '') for k in (1, 10, 100))} |")


if __name__ == "__main__":
    main()
