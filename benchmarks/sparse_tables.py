"""Sparse gradients and lazy Adam for the token table, beside dense Adam: seconds a step, in turn.

python benchmarks/sparse_tables.py [--rows 256] [--tokens 13] [--steps 20]

A static student of 30,522 x 384 and the `mini` student (4 layers x 384), random token ids drawn with Zipf frequencies.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn

from consilience.objectives.composition import compose_objective
from consilience.students.static import build_static
from consilience.students.text import build_student
from consilience.training.optimizers import Optimizers, make_tables_sparse

VOCABULARY, WIDTH = 30_522, 384


def build(kind: str, *, sparse: bool) -> tuple[nn.Module, Optimizers]:
    student: nn.Module = (
        build_static(VOCABULARY, WIDTH, seed=0)
        if kind == "static"
        else build_student("mini", vocab_size=VOCABULARY, dimensions=WIDTH, seed=0)
    )
    tables = make_tables_sparse(student) if sparse else []
    trained = {name: value for name, value in student.named_parameters() if value.requires_grad}
    return student.train(), Optimizers(trained, sparse=tables, lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=13)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    objective = compose_objective("composite")
    target = nn.functional.normalize(torch.randn(arguments.rows, WIDTH), dim=-1)
    print("| student | dense Adam, s a step | sparse, s a step | sparse is |\n|---|--:|--:|--:|")
    for kind in ("static", "mini"):
        arms = {sparse: build(kind, sparse=sparse) for sparse in (False, True)}
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for step in range(arguments.steps + 2):
            ids = torch.from_numpy(np.minimum(rng.zipf(1.2, (arguments.rows, arguments.tokens)), VOCABULARY) - 1)
            for sparse, (student, optimizers) in arms.items():
                began = time.perf_counter()
                objective(student(ids).embedding, target).total.backward()
                optimizers.step()
                optimizers.zero_grad()
                if step > 1:
                    seconds[sparse].append(time.perf_counter() - began)
        dense, lazy = (statistics.median(seconds[sparse]) for sparse in (False, True))
        print(f"| {kind} | {dense:.4f} | {lazy:.4f} | {dense / lazy:.2f}x |")


if __name__ == "__main__":
    main()
