"""Time of three anchors on a 4 x 384 trunk beside the bare trunk, LoRA of the same size, and an unfused address read.

    python benchmarks/adapter_speed.py [--threads 1] [--rounds 7] [--pairs 96] [--tokens 16] [--clock wall|cpu] [--json]

A batch is both sides of the pairs, without padding. Inference: token states under inference_mode. Training: forward
and backward through the frozen trunk, with every parameter of what is attached trained: anchors and keys, or LoRA's
matrices. "solo" is what a training of one anchor costs. Contestants alternate within a round and ratios are taken
within it; the median over rounds and the extremes are printed. The clock "cpu" counts this process's own seconds, for
a machine that does other things too.
"""
# ruff: noqa: ANN401 - models of several libraries

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

WIDTH, BLOCKS, ANCHORS = 384, 4, ("equiv", "simplify", "paraphrase")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 30_000, (2 * arguments.pairs, arguments.tokens), generator=generator)
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    contestants = build()
    report: dict[str, Any] = {"threads": arguments.threads, "pairs": arguments.pairs, "tokens": arguments.tokens}
    for phase, run in (("inference", infer), ("training step", step)):
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(arguments.rounds + 1):
            for name, (model, parameters, context) in contestants.items():
                if phase == "training step" and not parameters:
                    continue
                with context():
                    began = clock()
                    run(model, ids)
                    if number:  # the first round warms up
                        seconds[name].append(clock() - began)
                for parameter in parameters:
                    parameter.grad = None
        # The bare trunk has nothing to train; a step is quoted against its inference, in both phases.
        if phase == "inference":
            bare = seconds["bare trunk"]
        report[phase] = {name: _row(times, bare) for name, times in seconds.items() if times}
    report["read"] = read_alone(arguments, clock)
    report["parameters"] = {name: sum(p.numel() for p in parts) for name, (_, parts, _) in contestants.items()}
    if arguments.json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return
    for phase in ("inference", "training step"):
        print(f"\n{phase}: {2 * arguments.pairs} texts of {arguments.tokens} tokens, {arguments.threads} thread(s)")
        for name, row in report[phase].items():
            low, high = row["ratio_range"]
            print(
                f"  {name:32} {1e3 * row['seconds']:8.1f} ms   {row['ratio']:5.2f} x bare inference "
                f"({low:.2f} to {high:.2f})   {report['parameters'][name]:>9,} parameters"
            )
    print("\naddress read alone, one anchor on one block")
    for name, value in report["read"].items():
        print(f"  {name:32} {1e3 * value:8.2f} ms")


Contestant = tuple[Any, list[Any], Callable[[], AbstractContextManager[Any]]]


def build() -> dict[str, Contestant]:
    """Return (model, trained parameters, mask) by name; every contestant has a trunk of its own, with equal weights."""
    import importlib.util

    from consilience.adapters import anchor as anchor_module
    from consilience.adapters.atoms import read_atoms, read_atoms_plain
    from consilience.adapters.attach import attach_amoe
    from consilience.adapters.library import AnchorLibrary

    library = AnchorLibrary(WIDTH, BLOCKS)
    for name in ANCHORS:
        library.add(name)
    model = trunk()
    handle = attach_amoe(model, library)

    def unfused() -> AbstractContextManager[Any]:
        class Swap(AbstractContextManager):  # type: ignore[type-arg]
            def __enter__(self) -> None:
                anchor_module.read_atoms = read_atoms_plain

            def __exit__(self, *_: object) -> None:
                anchor_module.read_atoms = read_atoms

        return Swap()

    everything = list(library.parameters())
    contestants: dict[str, Contestant] = {
        "bare trunk": (trunk(), [], nullcontext),
        "three anchors": (model, everything, handle.all),
        "three anchors, unfused read": (model, everything, unfused),
        "one anchor, solo": (model, library.parameters_of("equiv"), lambda: handle.solo("equiv")),
        "three anchors, all off": (model, [], handle.off),
    }
    if importlib.util.find_spec("peft") is None:
        sys.stderr.write("peft isn't installed, so LoRA isn't timed. Run: pip install peft\n")
        return contestants
    for name, target in (
        ("LoRA, of three anchors' size", everything),
        ("LoRA, of one anchor's size", library.parameters_of("equiv")),
    ):
        lora = with_lora(trunk(), sum(parameter.numel() for parameter in target))
        contestants[name] = (lora, [p for p in lora.parameters() if p.requires_grad], nullcontext)
    return contestants


def trunk() -> Any:
    """A random BERT of the mini preset's shape, frozen, in evaluation mode."""
    from consilience.students.text import build_student

    student = build_student("mini", vocab_size=30_522, dimensions=WIDTH, seed=0)
    return student.backbone.requires_grad_(False).eval()


def with_lora(model: Any, parameters: int) -> Any:
    """LoRA on the query, key, value, attention output and feed-forward matrices, of the rank that comes closest."""
    from peft import LoraConfig, get_peft_model

    targets = ["query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense"]
    per_rank = BLOCKS * (4 * 2 * WIDTH + 2 * (WIDTH + 4 * WIDTH))
    rank = max(1, round(parameters / per_rank))
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=rank, target_modules=targets)).eval()


def infer(model: Any, ids: Any) -> None:
    import torch

    with torch.inference_mode():
        model(input_ids=ids)


def step(model: Any, ids: Any) -> None:
    model(input_ids=ids).last_hidden_state.mean(dim=1).square().sum().backward()


def read_alone(arguments: argparse.Namespace, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of the address read itself, plain and fused."""
    import torch

    from consilience.adapters.atoms import read_atoms, read_atoms_plain

    slots = torch.randn(2 * arguments.pairs * arguments.tokens, 16, 4, requires_grad=True)
    atoms = torch.randn(64, 4, requires_grad=True)
    found = {}
    for name, read in (("plain", read_atoms_plain), ("fused", read_atoms)):
        forward, both = [], []
        for _ in range(arguments.rounds + 1):
            with torch.inference_mode():
                began = clock()
                read(slots, atoms, 0.1)
                forward.append(clock() - began)
            began = clock()
            read(slots, atoms, 0.1).sum().backward()
            both.append(clock() - began)
        found |= {
            f"{name}, forward": statistics.median(forward[1:]),
            f"{name}, forward and backward": statistics.median(both[1:]),
        }
    return found


def _row(times: list[float], bare: list[float]) -> dict[str, Any]:
    ratios = [one / other for one, other in zip(times, bare, strict=True)]
    return {
        "seconds": statistics.median(times),
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
    }


if __name__ == "__main__":
    main()
