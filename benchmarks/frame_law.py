"""The frame-law table: objectives x targets x seeds of a `micro` student, rotated into one teacher's frame.

python benchmarks/frame_law.py RUN --captions captions.parquet --fresh other.txt --out FOLDER [--steps 1000]

RUN is the folder of a finished `consilience run` whose banks are reused: its teachers are aligned by GPA into a frame
of their own, their consensus there is one target, the reference teacher's bank the other. Everything continues after a
kill.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import consilience
from consilience.cli.corpus import parse_where

OBJECTIVES = ("composite", "infonce", "mimicry", "affinity")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--captions", required=True, help="the run's corpus")
    parser.add_argument("--where", default="source=flickr30k", help="COLUMN=VALUE of the run's corpus")
    parser.add_argument("--fresh", required=True, help="texts that no student was trained on")
    parser.add_argument("--fresh-where", default="source=coco-val2017")
    parser.add_argument("--into", default="packaged:all-MiniLM-L6-v2")
    parser.add_argument("--bank", default="embed-minilm-*", help="the bank of --into in RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    out: Path = arguments.out
    banks = sorted(path for path in arguments.run.glob("embed-*") if not path.name.endswith(".partial"))
    (single,) = arguments.run.glob(arguments.bank)
    where = parse_where([arguments.where])
    frames = consilience.align(banks, method="gpa", out=out / "gpa")
    target = consilience.consensus(banks, frames=frames, out=out / "gpa-consensus")
    students = []
    for objective in OBJECTIVES:
        for name, bank in (("consensus", target.path), ("single", single)):
            for seed in range(arguments.seeds):
                students.append(out / f"{objective}-{name}-{seed}")
                consilience.distill(
                    arguments.captions,
                    target=bank,
                    student="micro",
                    objective=objective,
                    steps=arguments.steps,
                    batch_rows=128,
                    lr=1e-3,
                    seed=seed,
                    where=where,
                    tokenizer=arguments.into,
                    out=students[-1],
                )
    fresh_where = parse_where([arguments.fresh_where])
    law = consilience.frame_law(
        students, into=arguments.into, corpus=arguments.fresh, where=fresh_where, limit=20_000, unrotated=True
    )
    (out / "law.json").write_text(json.dumps(law, indent=1), encoding="utf-8")
    print(
        "| objective | target | family | seed | cosine before / after | R@1 before / after | R@1 null "
        "|\n|---|---|---|--:|--:|--:|--:|"
    )
    for row in law["students"]:
        before, after = row["before"], row["after"]
        print(
            f"| {row['objective']} | {row['target']} | "
            f"{row['family']}{', frame-free' if row['frame_free'] else ''} | {row['seed']} | "
            f"{before['cosine']:.3f} / {after['cosine']:.3f} | {before['recall_at_1']:.3f} / "
            f"{after['recall_at_1']:.3f} | "
            f"{row['null']['recall_at_1']:.3f} |"
        )
    for group in law["across_seeds"]:
        print(
            f"{group['objective']} / {group['target']}: seeds differ by {group['spread']:.4f}, cosine "
            f"{group['cosine']:.3f}"
        )


if __name__ == "__main__":
    main()
