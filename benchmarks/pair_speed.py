"""Seconds of a training step on pairs: what padding, attention kernel and precision cost, and what a library takes.

    python benchmarks/pair_speed.py TRUNK --data $CONSILIENCE_DATA [--threads 2] [--batches 5] [--pairs 96] [--json]

A step is one batch of real pairs through the frozen trunk, forward and backward, with one anchor trained alone (solo),
or with three anchors attached and the keys trained, or with none: the bare trunk's own forward pass and the backward
pass down to its first block's output, which is the least that any adapter on every block costs. Contestants take turns
on the same batches; the mean over batches is printed, and what three anchors of 1,500 steps and 800 steps of the keys
add up to.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from consilience.adapters.attach import attach_amoe
from consilience.adapters.library import AnchorLibrary
from consilience.corpora.pairs import open_pairs
from consilience.recipes.adapt import ALIGN_STEPS, FIT_STEPS
from consilience.training import attention, pair_model
from consilience.training.pair_loop import pair_infonce
from consilience.training.pair_model import Ids, PairModel, open_pair_model

DOMAINS = {"equiv": "equivalence", "simple": "simplification", "para": "paraphrase"}
# Name: (least padding, plain kernel on short rows, bf16)
CONTESTANTS = {
    "full passes, torch's kernel, fp32": (False, False, False),
    "least padding, torch's kernel, fp32": (True, False, False),
    "least padding, plain kernel, fp32": (True, True, False),
    "least padding, plain kernel, bf16": (True, True, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trunk", help="a student's folder")
    parser.add_argument("--data", type=Path, required=True, help="folder with pairs/")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=96)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    report = measure(arguments)
    if arguments.json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return
    for name, row in report["contestants"].items():
        solo = "  ".join(f"{domain} {row['solo'][domain]:.3f}" for domain in DOMAINS)
        print(
            f"{name:38} solo {solo}  keys {row['keys']:.3f} s   "
            f"anchors {row['anchor_minutes']:.0f} + keys {row['key_minutes']:.0f} min, "
            f"of it the trunk {row['trunk_minutes']:.0f} min"
        )


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    model = open_pair_model(arguments.trunk)
    trunk = model.trunk
    library = AnchorLibrary(trunk.width, trunk.blocks)
    for name in DOMAINS:
        library.add(name, seed=0)
    handle = attach_amoe(model.model, library)
    rng = np.random.default_rng(0)
    seconds: dict[tuple[str, str, str], list[float]] = {}
    tokens = {}
    for domain, file in DOMAINS.items():
        pairs = open_pairs(arguments.data / "pairs" / f"{file}.parquet", limit=5_000, held_out=None)
        left, right = model.tokenize(pairs.left), model.tokenize(pairs.right)
        masks = {
            "solo": handle.make_mask("solo", domain),
            "keys": handle.make_mask("all"),
            "trunk": handle.make_mask("off"),
        }
        tokens[domain] = float(np.mean([len(ids) for ids in (*left, *right)]))
        for number in range(arguments.batches + 1):
            rows = rng.choice(len(left), arguments.pairs, replace=False)
            ids = [left[row] for row in rows] + [right[row] for row in rows]
            for what in masks:
                library.trainable(domain) if what == "solo" else library.trainable(keys=True)
                for name, settings in CONTESTANTS.items():
                    shift = shifted(model) if what == "trunk" else nullcontext()
                    with handle.training(), handle.under(masks[what]), shift, as_asked(*settings):
                        began = time.perf_counter()
                        step(model, ids)
                        if number:  # the first batch warms up
                            seconds.setdefault((name, what, domain), []).append(time.perf_counter() - began)
                    library.zero_grad()
    rows_by_name = {}
    for name in CONTESTANTS:
        solo = {domain: float(np.mean(seconds[name, "solo", domain])) for domain in DOMAINS}
        keys = float(np.mean([np.mean(seconds[name, "keys", domain]) for domain in DOMAINS]))
        trunk_alone = [float(np.mean(seconds[name, "trunk", domain])) for domain in DOMAINS]
        rows_by_name[name] = {
            "solo": solo,
            "keys": keys,
            "anchor_minutes": sum(solo.values()) * FIT_STEPS / 60,
            "key_minutes": keys * ALIGN_STEPS / 60,
            "trunk_minutes": (sum(trunk_alone) * FIT_STEPS + float(np.mean(trunk_alone)) * ALIGN_STEPS) / 60,
        }
    return {"tokens_a_text": tokens, "threads": arguments.threads, "contestants": rows_by_name}


@contextmanager
def shifted(model: PairModel) -> Iterator[None]:
    """Add a trained zero to the first block's output, so that the bare trunk has something to carry gradients to."""
    zero = torch.zeros(model.trunk.width, requires_grad=True)

    def hook(module: torch.nn.Module, args: Any, output: Any) -> Any:  # noqa: ANN401
        return (output[0] + zero, *output[1:]) if isinstance(output, tuple) else output + zero

    handle = model.blocks[0].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def as_asked(least_padding: bool, plain: bool, half: bool) -> Iterator[None]:
    """Set what a contestant takes; the library's own settings come back afterwards."""
    kept = pair_model._PASS_TOKENS, dict(attention.LONGEST_PLAIN)
    if not least_padding:
        pair_model._PASS_TOKENS = 1 << 30  # as few passes as hold the batch
    if not plain:
        attention.LONGEST_PLAIN.update({False: 0, True: 0})
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            yield
    finally:
        pair_model._PASS_TOKENS = kept[0]
        attention.LONGEST_PLAIN.update(kept[1])


def step(model: PairModel, ids: list[Ids]) -> None:
    embedding = model.embed(ids)
    half = len(ids) // 2
    groups = np.arange(len(ids)).reshape(half, 2)
    with torch.autocast("cpu", enabled=False):
        pair_infonce(embedding[:half], embedding[half:], groups, temperature=0.02).backward()


if __name__ == "__main__":
    main()
