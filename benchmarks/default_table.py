"""What the default makes of a corpus: README's verbs with nothing else said, beside a static student and the teacher.

CONSILIENCE_DATA=DIR python benchmarks/default_table.py OUT [--rows 2000,20000,200000] [--minutes 2,10,60] [--seeds 0,1]

DIR holds captions/, pairs/, longtext/ and sts/. The corpus is the first n rows of one mixture of its sentences
(benchmarks/mixed_corpus.py). Two scores, neither of which any training sees: STS-B dev (Spearman, x 100), and held-out
neighbours: of 1,000 pairs each of paraphrases, of sentences of one article, and of captions of one picture, none of
whose sentences is in the corpus, the mean reciprocal rank of a sentence's partner among the 1,000 (x 100), averaged.
Every finished cell stays in OUT/cells.json, and a second call does what is missing; an interrupted training continues.
Prints the table; --write FILE puts it between the lines <!-- default --> and <!-- /default --> of a file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import consilience
from consilience.core.encoder import Encoder
from consilience.core.files import write_json
from consilience.evaluation.sts import load_selection_task
from consilience.recipes.encoders import open_encoder
from mixed_corpus import LONGEST, SHORTEST, write_mixture

TEACHERS = ("packaged:all-MiniLM-L6-v2", "packaged:paraphrase-MiniLM-L3-v2")  # README's; the first is the reference
PAIRS = 1_000
Neighbours = Mapping[str, list[tuple[str, str]]]


def held_out_neighbours(data: Path, corpus: Path) -> Neighbours:
    used = set(pq.read_table(corpus, columns=["text"])["text"].to_pylist())
    rng = np.random.default_rng(0)

    def free(text: str) -> bool:
        return text not in used and SHORTEST <= len(text) <= LONGEST

    found: dict[str, list[tuple[str, str]]] = {}
    for kind in ("paraphrase", "topical"):
        table = pq.read_table(data / "pairs" / f"{kind}.parquet").to_pydict()
        pairs = [pair for pair in zip(table["sentence1"], table["sentence2"], strict=True) if all(map(free, pair))]
        seen: set[str] = set()
        kept = []
        for place in rng.permutation(len(pairs)):
            if len(kept) < PAIRS and not seen & set(pairs[place]):
                seen |= set(pairs[place])
                kept.append(pairs[place])
        found[kind] = kept
    pictures = defaultdict(list)
    table = pq.read_table(data / "captions" / "captions.parquet").to_pydict()
    for text, source, picture in zip(table["text"], table["source"], table["image_id"], strict=True):
        if source in ("flickr30k", "coco-val2017") and picture and free(text):
            pictures[picture].append(text)
    several = [texts for texts in pictures.values() if len(texts) > 1]
    found["captions"] = [(several[i][0], several[i][1]) for i in rng.permutation(len(several))[:PAIRS]]
    return found


def scores(encoder: Encoder, data: Path, neighbours: Neighbours) -> dict[str, float]:
    from scipy.stats import spearmanr

    def unit(texts: Sequence[str]) -> np.ndarray:
        rows = encoder.encode(list(texts)).astype(np.float64)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    task = load_selection_task(data)
    assert task is not None
    dev = spearmanr((unit(task.sentence1) * unit(task.sentence2)).sum(axis=1), task.score).statistic
    ranks = {}
    for kind, pairs in neighbours.items():
        cosines = unit([a for a, _ in pairs]) @ unit([b for _, b in pairs]).T
        ranks[kind] = float((1 / (1 + (cosines > np.diag(cosines)[:, None]).sum(axis=1))).mean())
    found = {"dev": float(dev), **ranks, "neighbours": float(np.mean(list(ranks.values())))}
    return {name: round(100 * value, 2) for name, value in found.items()}


def target_of(out: Path, corpus: Path, rows: int) -> Path:
    """Return the consensus of the first rows, made as README's verbs make it."""
    folder = out / f"rows-{rows}"
    banks = [
        consilience.embed(corpus, teacher=teacher, limit=rows, out=folder / teacher.partition(":")[2])
        for teacher in TEACHERS
    ]
    frames = consilience.align(banks, reference=banks[0], out=folder / "frames")
    return consilience.consensus(banks, frames=frames, out=folder / "target").path


def table_of(cells: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| texts | minutes | seed | made with | minutes used | steps | STS-B dev | held-out neighbours | verdict |",
        "|--:|--:|--:|---|--:|--:|--:|--:|---|",
    ]
    for cell in cells.values():
        kept = cell.get("verdict") or {}
        share = f"{kept['verdict']}, {kept['neighbours_kept']:.0%}" if kept else ""
        used = f"{cell['seconds'] / 60:.1f}" if "seconds" in cell else ""
        shown = [cell.get(key, "") for key in ("rows", "minutes", "seed")]
        numbers = [used, cell.get("steps", ""), f"{cell['dev']:.1f}", f"{cell['neighbours']:.1f}", share]
        lines.append("| " + " | ".join(map(str, [*shown, cell["made"], *numbers])) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", default="2000,20000,200000")
    parser.add_argument("--minutes", default="2,10,60")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    if not os.environ.get("CONSILIENCE_DATA"):
        parser.error("set CONSILIENCE_DATA to the folder with captions/, pairs/, longtext/ and sts/")
    data, out = Path(os.environ["CONSILIENCE_DATA"]), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    corpus = out / "mixed.parquet"
    if not corpus.is_file():
        write_mixture(data, corpus, rows=250_000, seed=0)
    neighbours = held_out_neighbours(data, corpus)
    path = out / "cells.json"
    cells: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}

    def keep(name: str, cell: dict[str, Any]) -> None:
        cores = len(os.sched_getaffinity(0))
        machine = f"{platform.machine()}, {cores} core{'s'[: cores > 1]}, load {os.getloadavg()[0]:.1f}"
        if path.is_file():  # another call, of other rows, may have written in the meantime
            cells.update(json.loads(path.read_text()))
        cells[name] = {**cell, "machine": machine}
        write_json(path, cells)
        print(json.dumps(cells[name]), flush=True)

    if "reference" not in cells:
        keep("reference", {"made": TEACHERS[0], **scores(open_encoder(TEACHERS[0]), data, neighbours)})
    if "static" not in cells:
        static = consilience.static(list(TEACHERS), out=out / "static")
        keep("static", {"made": "`static`, no training", **scores(static, data, neighbours)})
    for minutes in arguments.minutes.split(","):
        for rows in arguments.rows.split(","):
            for seed in arguments.seeds.split(","):
                name = f"{rows}-{minutes}-{seed}"
                if name in cells:
                    continue
                target = target_of(out, corpus, int(rows))
                began = time.monotonic()
                student = consilience.distill(
                    corpus, target=target, limit=int(rows), minutes=float(minutes), seed=int(seed), out=out / name
                )
                seconds = round(time.monotonic() - began, 1)
                facts = {"steps": student.manifest["training"]["steps_done"], "verdict": student.manifest["verdict"]}
                cell = {"made": "the default", "rows": int(rows), "minutes": float(minutes), "seed": int(seed)}
                keep(name, {**cell, "seconds": seconds, **facts, **scores(student, data, neighbours)})
    table = table_of(cells)
    print(table)
    if arguments.write:
        before, rest = arguments.write.read_text().split("<!-- default -->\n")
        after = rest.split("<!-- /default -->")[1]
        arguments.write.write_text(f"{before}<!-- default -->\n{table}\n<!-- /default -->{after}")


if __name__ == "__main__":
    main()
