"""The adapter tables: anchors, keys, mask tables beside random arms and LoRA, temperature sweep, roster, transplant.

    python benchmarks/adapter_tables.py TRUNK OTHER --data DATA --out runs/adapters

TRUNK and OTHER are students (or exported folders) trained with different seeds; DATA has ``pairs/*.parquet`` and
``sts/*.tsv``. Everything but the transplant is done on the first trunk; its library of seed 0 is transplanted to each
other one. Every stage continues where a killed run stopped; what is finished isn't done again. Each table is printed as
Markdown as it comes, and ``OUT/results.json`` has everything, with the seconds of every stage (of the attempt that
finished it) and of a training step. Selection (roster, sweep) reads STS-B dev only; the pairs are checked against every
sentence of ``DATA/sts``.

Stages, in their order, for --skip: for each seed ``anchors`` ``keys`` ``lora`` (seed 0) ``control`` (seed 0) ``table``;
then ``sweep`` ``roster`` ``transplant``. What needs a skipped stage does without it or, where it can't, is skipped too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ANCHORS = ("equiv=equivalence", "simple=simplification", "para=paraphrase")
CANDIDATES = ("lexical=lexical", "topical=topical")  # of the roster, beside the anchors; they may fail
STAGES = ("anchors", "keys", "lora", "control", "table", "sweep", "roster", "transplant")


def main() -> None:
    arguments = parse()
    if arguments.threads:
        import torch

        torch.set_num_threads(arguments.threads)
    tables = Tables(arguments)
    for seed in range(arguments.seeds):
        tables.anchors(seed)
        tables.keys(seed)
        if seed == 0:
            tables.lora(seed)
            tables.control(seed)
        tables.table(seed)
    tables.over_seeds()
    tables.sweep()
    tables.roster()
    for number in range(1, len(arguments.trunks)):
        tables.transplant(number)
    tables.costs()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trunks", nargs="+", help="student folders; the first carries the library")
    parser.add_argument("--data", type=Path, required=True, help="folder with pairs/ and sts/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--anchors", nargs="+", default=ANCHORS, metavar="NAME=FILE", help="files of DATA/pairs")
    parser.add_argument("--candidates", nargs="*", default=CANDIDATES, metavar="NAME=FILE", help="more, for the roster")
    parser.add_argument("--seeds", type=int, default=2, help="of the anchors")
    parser.add_argument("--steps", type=int, default=1_500, help="of an anchor or a LoRA")
    parser.add_argument("--key-steps", type=int, default=800)
    parser.add_argument(
        "--trial-steps", type=int, help="of a key alignment in sweep and roster; --key-steps if not given"
    )
    parser.add_argument("--temperatures", nargs="+", type=float, default=(0.10, 0.05, 0.02))
    parser.add_argument("--sweep-seeds", type=int, default=1)
    parser.add_argument("--batch-rows", type=int, default=96)
    parser.add_argument("--lr", type=float, default=3e-3, help="of the anchors")
    parser.add_argument("--key-lr", type=float, default=1e-3)
    parser.add_argument("--lora-lr", type=float, default=1e-3)
    parser.add_argument("--limit", type=int, help="rows of each pair file")
    parser.add_argument("--tasks", default="sts", help="of the tables, separated by commas")
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--skip", default="", help=f"stages, separated by commas: {', '.join(STAGES)}")
    arguments = parser.parse_args()
    arguments.skip = [word for word in arguments.skip.split(",") if word]
    unknown = sorted(set(arguments.skip) - set(STAGES))
    if unknown:
        parser.error(f"--skip: expected stages among {', '.join(STAGES)}, got {', '.join(unknown)}")
    arguments.tasks = [word for word in arguments.tasks.split(",") if word]
    arguments.trial_steps = arguments.trial_steps or arguments.key_steps
    return arguments


class Tables:
    """The stages of one call, and what they found so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.given = arguments
        self.out: Path = arguments.out
        self.trunk: str = arguments.trunks[0]
        self.pairs = _named(arguments.anchors, arguments.data)
        self.more = _named(arguments.candidates, arguments.data)
        self.file = self.out / "results.json"
        self.out.mkdir(parents=True, exist_ok=True)
        found = json.loads(self.file.read_text(encoding="utf-8")) if self.file.is_file() else {}
        self.results: dict[str, Any] = {"seconds": {}, "seconds_per_step": {}, **found}
        settings = {key: value for key, value in vars(arguments).items() if key not in ("skip", "threads")}
        self.results["command"] = {**settings, "data": str(arguments.data), "out": str(self.out)}
        self.training = {
            "batch_rows": arguments.batch_rows,
            "limit": arguments.limit,
            "held_out": [arguments.data],
        }

    # -- stages ------------------------------------------------------------------------------------------------------

    def anchors(self, seed: int) -> None:
        for name, file in self.pairs.items():
            self._fit(name, file, seed, stage="anchors")

    def _fit(self, name: str, file: Path, seed: int, *, stage: str) -> None:
        from consilience.recipes.adapt import adapt_fit

        if not self._wanted(stage):
            return
        out = self._anchor(name, seed)
        options = {"name": name, "seed": seed, "steps": self.given.steps, "lr": self.given.lr, **self.training}
        with self._stage(stage, out.name):
            adapt_fit(self.trunk, pairs=file, out=out, **options)
            self._note_steps(out)
        self.results.setdefault("anchors", {})[out.name] = _gauges(out)

    def keys(self, seed: int) -> None:
        from consilience.recipes.adapt import adapt_align

        anchors = [self._anchor(name, seed) for name in self.pairs]
        if not self._wanted("keys", anchors):
            return
        out = self._library(seed)
        with self._stage("keys", out.name):
            adapt_align(self.trunk, anchors, pairs=self.pairs, out=out, seed=seed, **self._keys_training())
            self._note_steps(out)
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        self._show(f"reads-s{seed}", report["reads"], reads_markdown(report["reads"], seed))

    def lora(self, seed: int) -> None:
        from consilience.recipes.adapt_lora import adapt_lora

        if not self._wanted("lora"):
            return
        for name, file in self.pairs.items():
            out = self.out / f"lora-{name}-s{seed}"
            options = {"name": name, "seed": seed, "steps": self.given.steps, "lr": self.given.lora_lr, **self.training}
            with self._stage("lora", out.name):
                manifest = adapt_lora(self.trunk, pairs=file, out=out, **options)
                self._note_steps(out)
                counts = {key: manifest[key] for key in ("parameters", "anchor_parameters")}
                self.results.setdefault("lora", {})[out.name] = {**counts, **_gauges(out)}

    def control(self, seed: int) -> None:
        from consilience.recipes.adapt_table import adapt_control

        library = self._library(seed)
        if not self._wanted("control", [library]):
            return
        out = self.out / f"control-s{seed}"
        with self._stage("control", out.name):
            options = {key: value for key, value in self.training.items() if key != "batch_rows"}
            adapt_control(self.trunk, library, pairs=self.pairs, out=out, seed=seed, **options)
            self._note_steps(out)

    def table(self, seed: int) -> None:
        from consilience.recipes.adapt_table import adapt_table

        library, control = self._library(seed), self.out / f"control-s{seed}"
        if not self._wanted("table", [library]):
            return
        lora = [path for name in self.pairs if _is_made(path := self.out / f"lora-{name}-s{seed}")]
        options = {"tasks": self.given.tasks, "resamples": self.given.resamples}
        key = {
            **options,
            "made": [_id(path) for path in (library, *lora, *([control] if _is_made(control) else []))],
        }
        name = f"table-s{seed}"
        kept = self.results.get(name)
        if kept is None or kept["of"] != key:
            with self._stage("table", name):
                chosen = control if _is_made(control) else None
                result = adapt_table(
                    self.trunk, library, data=self.given.data, lora=lora, control=chosen, **options
                ).to_json()
                kept = {"of": key, **_small(result)}
        self._show(name, kept, table_markdown(kept, seed))

    def over_seeds(self) -> None:
        """Print the means of the seeds' tables."""
        kept = [self.results[f"table-s{seed}"] for seed in range(self.given.seeds) if f"table-s{seed}" in self.results]
        if len(kept) > 1:
            rows = over_seeds(kept)
            self._show("over-seeds", rows, over_seeds_markdown(rows, len(kept)))

    def sweep(self) -> None:
        from consilience.recipes.adapt_roster import adapt_sweep

        library = self._library(0)
        if not self._wanted("sweep", [library]):
            return
        with self._stage("sweep", "sweep"):
            results = adapt_sweep(
                self.trunk,
                library,
                pairs=self.pairs,
                out=self.out / "sweep",
                temperatures=self.given.temperatures,
                seeds=self.given.sweep_seeds,
                **self._trials(),
            )
        self._show("sweep", results, (self.out / "sweep" / "report.md").read_text(encoding="utf-8"))

    def roster(self) -> None:
        from consilience.recipes.adapt_roster import adapt_roster

        anchors = [self._anchor(name, 0) for name in self.pairs]
        if not self._wanted("roster", anchors):
            return
        for name, file in self.more.items():
            self._fit(name, file, 0, stage="roster")
        candidates = [*anchors, *(self._anchor(name, 0) for name in self.more)]
        with self._stage("roster", "roster"):
            results = adapt_roster(
                self.trunk, candidates, pairs={**self.pairs, **self.more}, out=self.out / "roster", **self._trials()
            )
        self._show("roster", results, (self.out / "roster" / "report.md").read_text(encoding="utf-8"))

    def transplant(self, number: int) -> None:
        from consilience.recipes.adapt_transplant import adapt_transplant

        library = self._library(0)
        if not self._wanted("transplant", [library]):
            return
        name = f"transplant-{number}"
        with self._stage("transplant", name):
            results = adapt_transplant(
                self.trunk,
                self.given.trunks[number],
                library=library,
                pairs=self.pairs,
                out=self.out / name,
                tasks=self.given.tasks,
                data=self.given.data,
                fit_steps=self.given.steps,
                align_steps=self.given.key_steps,
                lr=self.given.key_lr,
                fit_lr=self.given.lr,
                resamples=self.given.resamples,
                **self.training,
            )
        self._show(name, results, (self.out / name / "report.md").read_text(encoding="utf-8"))

    def costs(self) -> None:
        rows = [[name, f"{seconds:.0f}"] for name, seconds in self.results["seconds"].items()]
        steps = [[name, f"{seconds:.3f}"] for name, seconds in self.results["seconds_per_step"].items()]
        text = [
            "# Seconds",
            "",
            *_table(["stage", "seconds"], rows),
            "",
            *_table(["training", "seconds a step"], steps),
        ]
        sys.stdout.write("\n".join(text) + "\n")

    # -- what stages share -------------------------------------------------------------------------------------------

    def _anchor(self, name: str, seed: int) -> Path:
        return self.out / f"anchor-{name}-s{seed}"

    def _library(self, seed: int) -> Path:
        return self.out / f"library-s{seed}"

    def _trials(self) -> dict[str, Any]:
        return {
            **self._keys_training(),
            "steps": self.given.trial_steps,
            "data": self.given.data,
            "resamples": self.given.resamples,
        }

    def _keys_training(self) -> dict[str, Any]:
        return {"steps": self.given.key_steps, "lr": self.given.key_lr, **self.training}

    def _wanted(self, stage: str, needed: Sequence[Path] = ()) -> bool:
        """Whether a stage is to run; one without what it needs is left out, and says so."""
        if stage in self.given.skip:
            return False
        missing = [path.name for path in needed if not _is_made(path)]
        if missing:
            sys.stderr.write(f"{stage}: left out, there is no {', '.join(missing)}\n")
        return not missing

    @contextlib.contextmanager
    def _stage(self, stage: str, name: str) -> Iterator[None]:
        """Time a part of a stage; what an earlier call has finished keeps its time."""
        began = time.monotonic()
        yield
        self.results["seconds"].setdefault(f"{stage}: {name}", round(time.monotonic() - began, 1))
        self._write()

    def _note_steps(self, folder: Path) -> None:
        found = json.loads((folder / "timing.json").read_text(encoding="utf-8"))["seconds_per_step"]
        if found is not None:
            self.results["seconds_per_step"][folder.name] = round(found, 4)

    def _show(self, name: str, value: Any, markdown: str) -> None:  # noqa: ANN401 - any JSON value
        self.results[name] = value
        self._write()
        sys.stdout.write(markdown.rstrip("\n") + "\n\n")
        sys.stdout.flush()

    def _write(self) -> None:
        from consilience.core.files import write_json

        write_json(self.file, self.results)


# -- what the library reports, as tables -----------------------------------------------------------------------------


def reads_markdown(reads: Mapping[str, Any], seed: int) -> str:
    names = next(iter(reads["own"].values()))["names"]
    rows = [
        [
            domain,
            *(f"{share:.4f}" for share in read["shares"]),
            f"{read['share_sum']:.4f}",
            f"{reads['ratios'][domain]['ratio']:.2f}" if domain in reads["ratios"] else "",
        ]
        for domain, read in reads["own"].items()
    ]
    lines = [f"# Amplitude shares, seed {seed}", "", *_table(["texts of", *names, "sum", "own / others"], rows)]
    if reads["starved"]:
        lines += ["", f"Starved: {', '.join(reads['starved'])}."]
    return "\n".join(lines)


def table_markdown(kept: Mapping[str, Any], seed: int) -> str:
    from consilience.recipes.adapt_table import CONTROL

    models = {model["model"]: model for model in kept["models"]}
    tasks = sorted(next(iter(models.values()))["tasks"])  # the same order, whether just scored or read back
    rows = []
    for name, model in models.items():
        control = CONTROL + name
        rows.append(
            [
                name,
                *(f"{model['tasks'][task]['score']:.4f}" for task in tasks),
                f"{model['mean']:.4f} ({model['mean_low']:.4f}..{model['mean_high']:.4f})",
                _margin(margin(kept, name, "off")) if name != "off" else "",
                _margin(margin(kept, name, control)) if control in models else "",
                f"{model['geometry']['effective_rank']:.1f}",
                f"{model['geometry']['self_cosine']:+.3f}",
                ", ".join(f"{one['score']:.4f}" for one in model["selection"].values()),
            ]
        )
    header = ["mask", *tasks, "mean (95%)", "over off", "over random arms", "rank", "self-cosine", "STS-B dev"]
    lines = [f"# Masks, seed {seed}", "", *_table(header, rows), ""]
    members = {
        "bare trunk": ["off"],
        "damped members": [name for name in models if name.endswith("(damped)")],
        "solo members": [name for name in models if name.endswith(" solo") and not name.startswith(CONTROL)],
    }
    for what, others in members.items():
        if others:
            wins = sum(
                all(models["all"]["tasks"][task]["score"] > models[other]["tasks"][task]["score"] for other in others)
                for task in tasks
            )
            lines.append(f"All anchors beat the {what} on {wins} of {len(tasks)} tasks.")
    return "\n".join(lines)


def over_seeds(kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, for the rows that every seed has, the means and how far they lie apart."""
    means = [{model["model"]: model["mean"] for model in one["models"]} for one in kept]
    rows = {}
    for name in means[0]:
        if all(name in one for one in means):
            scores = [one[name] for one in means]
            gains = [one[name] - one["off"] for one in means]
            rows[name] = {
                "scores": scores,
                "mean": sum(scores) / len(scores),
                "spread": max(scores) - min(scores),
                "gain": sum(gains) / len(gains),
            }
    return rows


def over_seeds_markdown(rows: Mapping[str, Any], seeds: int) -> str:
    cells = [
        [
            name,
            f"{row['mean']:.4f}",
            ", ".join(f"{score:.4f}" for score in row["scores"]),
            f"{row['spread']:.4f}",
            f"{row['gain']:+.4f}",
        ]
        for name, row in rows.items()
    ]
    return "\n".join(
        [f"# Masks over {seeds} seeds", "", *_table(["mask", "mean", "by seed", "apart by", "over off"], cells)]
    )


def margin(kept: Mapping[str, Any], first: str, second: str, task: str = "mean") -> dict[str, float]:
    """Return first minus second with its interval, whichever way round the comparison was stored."""
    for one in kept["comparisons"]:
        if one["task"] == task and {one["first"], one["second"]} == {first, second}:
            if one["first"] == first:
                return {"difference": one["difference"], "low": one["low"], "high": one["high"]}
            return {"difference": -one["difference"], "low": -one["high"], "high": -one["low"]}
    raise SystemExit(f"adapter_tables: no comparison of {first} with {second}")


def _margin(found: Mapping[str, float]) -> str:
    return f"{found['difference']:+.4f} ({found['low']:+.4f}..{found['high']:+.4f})"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _small(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's result without identities and without single tasks of comparisons that nobody reads."""
    models = [{key: value for key, value in model.items() if key != "identity"} for model in result["models"]]
    read = {"off", "all"}
    comparisons = [
        one for one in result["comparisons"] if one["task"] == "mean" or {one["first"], one["second"]} & read
    ]
    return {**result, "models": models, "comparisons": comparisons}


def _gauges(folder: Path) -> dict[str, Any]:
    """Return what a training's report says: gauges before and after, and whether its R@1 may be quoted."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {"gauges": report["gauges"], "retrieval": report["retrieval"], "pairs": report["pairs"]}


def _named(words: Sequence[str], data: Path) -> dict[str, Path]:
    found = dict(word.split("=", 1) for word in words)
    return {name: data / "pairs" / f"{file}.parquet" for name, file in found.items()}


def _is_made(folder: Path) -> bool:
    return (folder / "manifest.json").is_file()


def _id(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["id"])


if __name__ == "__main__":
    main()
