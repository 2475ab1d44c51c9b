"""Asymmetric use: documents embedded by the teacher, queries by the student through its rotation.

python benchmarks/asymmetric_retrieval.py STUDENT --teacher SPEC --rotation ROTATION --captions captions.parquet
[--where source=X]

Captions of one image are each other's relevant documents. A query's score is whether one of them is among its k
nearest among all other captions. Rows with intervals over queries; the same queries for all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import consilience
from consilience.cli.corpus import parse_where
from consilience.committee.frame_law import require_rotated, student_frame
from consilience.core.errors import FrameMismatchError
from consilience.gauges.neighbours import nearest
from consilience.recipes.encoders import open_encoder
from consilience.stats.means import mean_interval

KS = (1, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("student")
    parser.add_argument("--teacher", default="packaged:all-MiniLM-L6-v2")
    parser.add_argument("--rotation", type=Path, required=True)
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--where", default="source=coco-val2017")
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    filters = [(column, "=", value) for column, value in parse_where([arguments.where]).items()]
    table = pq.read_table(arguments.captions, filters=filters)
    texts = table.column("text").to_pylist()
    _, images = np.unique(np.asarray(table.column("image_id").to_pylist(), dtype=str), return_inverse=True)
    counts = np.bincount(images)
    rng = np.random.default_rng(arguments.seed)
    eligible = np.flatnonzero(counts[images] > 1)
    asked = np.sort(rng.choice(eligible, size=min(arguments.queries, len(eligible)), replace=False))

    teacher = open_encoder(arguments.teacher).encode(texts)
    student = open_encoder(arguments.student).encode(texts)
    rotated = consilience.load(arguments.rotation).apply(student)
    as_it_is = "student queries as they are, teacher documents"
    arms = {
        "teacher queries, teacher documents": (teacher, teacher),
        "student queries, student documents": (student, student),
        as_it_is: (student, teacher),
        "student queries rotated, teacher documents": (rotated, teacher),
    }
    try:
        require_rotated(
            student_frame(consilience.load(arguments.student).manifest), name=arguments.student, gauge="R@1"
        )
    except FrameMismatchError as error:
        del arms[as_it_is]
        print(f"{as_it_is}: refused: {error}\n")
    print(f"{len(texts)} captions of {len(counts)} images, {len(asked)} queries\n")
    print("| arm | R@1 | R@10 |\n|---|--:|--:|")
    for name, (queries, documents) in arms.items():
        if queries.shape[1] != documents.shape[1]:
            continue
        found = nearest(queries[asked], documents, k=max(KS), metric="cosine", own=asked)
        hits = images[found] == images[asked][:, None]
        cells = []
        for k in KS:
            interval = mean_interval(hits[:, :k].any(axis=1).astype(float), rng=np.random.default_rng(arguments.seed))
            cells.append(f"{interval.score:.3f} [{interval.low:.3f}, {interval.high:.3f}]")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
