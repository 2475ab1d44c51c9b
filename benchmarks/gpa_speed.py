"""GPA of five towers: seconds after the statistics pass, and that they don't depend on the number of rows.

python benchmarks/gpa_speed.py [--rows 24000 1000000] [--json]

Towers of widths 768, 384, 384, 256 and 50 are noisy random projections of one latent, made block by block.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from consilience.frames.gpa import fit_gpa
from consilience.frames.joint_statistics import JointStatistics
from consilience.frames.rows import normalise_rows

WIDTHS = (768, 384, 384, 256, 50)
LATENT = 96
BLOCK = 4096


def measure(rows: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    mixers = [rng.standard_normal((LATENT, width)) / LATENT**0.5 for width in WIDTHS]
    stats = JointStatistics(WIDTHS)
    made = 0.0
    began = time.perf_counter()
    for start in range(0, rows, BLOCK):
        before = time.perf_counter()
        latent = rng.standard_normal((min(BLOCK, rows - start), LATENT)) * np.geomspace(1.0, 0.1, LATENT)
        towers = [
            normalise_rows(latent @ mixer + 0.05 * rng.standard_normal((len(latent), mixer.shape[1])), where="tower")
            for mixer in mixers
        ]
        made += time.perf_counter() - before
        stats.update(towers)
    passed = time.perf_counter() - began - made
    began = time.perf_counter()
    fit = fit_gpa(stats)
    return {
        "rows": rows,
        "pass_seconds": round(passed, 2),
        "gpa_seconds": round(seconds := time.perf_counter() - began, 2),
        "seconds_an_iteration": round(seconds / fit.iterations, 3),
        "iterations": fit.iterations,
        "converged": fit.converged,
        "residual": round(fit.residual, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[24_000, 1_000_000])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = [measure(rows) for rows in arguments.rows]
    if arguments.json:
        print(json.dumps(found))
        return
    print("| rows | pass, s | GPA, s | iterations | s an iteration | residual |\n|--:|--:|--:|--:|--:|--:|")
    for entry in found:
        print(
            " | ".join(
                [
                    "",
                    *(
                        str(entry[k])
                        for k in (
                            "rows",
                            "pass_seconds",
                            "gpa_seconds",
                            "iterations",
                            "seconds_an_iteration",
                            "residual",
                        )
                    ),
                    "",
                ]
            )
        )


if __name__ == "__main__":
    main()
