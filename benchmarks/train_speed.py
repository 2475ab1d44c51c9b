"""Captions per second of the training loop, beside a plain reference loop, in one run on one machine.

The reference is what a person writes first: shuffled batches, tokenised as they come, padded to the longest row,
attention and pooling with a mask, plain Adam. Both train the same student on the same rows with the same objective.
The two take turns, so that a busy machine slows both.

    python benchmarks/train_speed.py [--student mini] [--steps 20] [--rounds 3] [--precision fp32] [--json]

Captions come from CONSILIENCE_DATA; without it, from the caption grammar.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from consilience.banks.reader import Bank
from consilience.banks.writer import BankWriter
from consilience.corpora.caption_grammar import generate_captions
from consilience.corpora.fingerprint import fingerprint_corpus
from consilience.corpora.text import open_corpus
from consilience.objectives.composition import compose_objective
from consilience.students.presets import PRESETS
from consilience.students.text import build_student
from consilience.students.tokenizer import pad_id, tokenizer_hash, train_tokenizer
from consilience.training.loop import train
from consilience.training.settings import TrainingSettings
from consilience.training.token_store import build_token_store

DIMENSIONS = 384


def read_captions(rows: int) -> tuple[str, list[str]]:
    """Return where the captions come from, and the captions."""
    folder = os.environ.get("CONSILIENCE_DATA")
    path = Path(folder or "", "captions", "captions.parquet")
    if not folder or not path.is_file():
        return "caption grammar", list(generate_captions(rows))
    column = "caption" if "caption" in _columns(path) else None
    return path.name, list(open_corpus(path, column=column, limit=rows, on_fault="drop"))


def _columns(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


def random_bank(folder: Path, captions: list[str]) -> Bank:
    """Write a bank of random unit rows: speed doesn't depend on what is learned."""
    identity = fingerprint_corpus(open_corpus(captions)).to_json()
    writer = BankWriter(
        folder,
        rows=len(captions),
        dimensions=DIMENSIONS,
        dtype="fp16",
        corpus=identity,
        teacher={"backend": "benchmark", "name": "random"},
        frame=None,
    )
    rng = np.random.default_rng(0)
    for start, stop in writer.missing():
        writer.write_shard(start, rng.standard_normal((stop - start, DIMENSIONS)).astype(np.float32))
    return writer.finish()


def reference_speed(preset: str, captions: list[str], tokenizer: Any, bank: Bank, *, steps: int) -> float:  # noqa: ANN401
    """Return captions per second of the plain loop."""
    config = PRESETS[preset]
    student = build_student(preset, vocab_size=tokenizer.get_vocab_size(), dimensions=DIMENSIONS, seed=0).train()
    optimizer = torch.optim.Adam([p for p in student.parameters() if p.requires_grad], lr=6e-4)
    objective = compose_objective("composite")
    padder = type(tokenizer).from_str(tokenizer.to_str())
    padder.enable_truncation(config.max_length)
    padder.enable_padding(pad_id=pad_id(tokenizer))
    order = np.random.default_rng(0).permutation(len(captions))
    began = time.perf_counter()
    for step in range(steps):
        rows = order[np.arange(step * config.batch_rows, (step + 1) * config.batch_rows) % len(order)]
        encodings = padder.encode_batch([captions[row] for row in rows])
        ids = torch.tensor([encoding.ids for encoding in encodings])
        mask = torch.tensor([encoding.attention_mask for encoding in encodings])
        targets = torch.nn.functional.normalize(torch.from_numpy(bank[rows].astype(np.float32)), dim=-1)
        objective(student(ids, mask).embedding, targets).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    return steps * config.batch_rows / (time.perf_counter() - began)


def our_speed(preset: str, captions: list[str], tokenizer: Any, bank: Bank, *, steps: int, precision: Any) -> dict:  # noqa: ANN401
    """Return captions per second of the training loop (tokenising once counted in), and its padding."""
    config = PRESETS[preset]
    student = build_student(preset, vocab_size=tokenizer.get_vocab_size(), dimensions=DIMENSIONS, seed=0)
    settings = TrainingSettings(steps=steps, batch_rows=config.batch_rows, gauge_readings=1, precision=precision)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        store = build_token_store(
            [captions],
            Path(folder) / "tokens",
            tokenizer=tokenizer,
            tokenizer_sha256=tokenizer_hash(tokenizer),
            pad=pad_id(tokenizer),
            max_length=config.max_length,
            corpus_fingerprint=bank.corpus_fingerprint,
            rows=len(captions),
        )
        per_caption = (time.perf_counter() - began) / len(captions)
        summary = train(student, store, bank, settings, Path(folder))
    speed = summary.rows_per_second or 0.0
    return {"speed": 1.0 / (1.0 / speed + per_caption), "padding": summary.position.padding}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--student", default="mini", choices=sorted(PRESETS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    source, captions = read_captions(options.rows)
    tokenizer = train_tokenizer(captions)
    with tempfile.TemporaryDirectory() as folder:
        bank = random_bank(Path(folder) / "bank", captions)
        ours, reference = [], []
        for _ in range(options.rounds):
            ours.append(
                our_speed(options.student, captions, tokenizer, bank, steps=options.steps, precision=options.precision)
            )
            reference.append(reference_speed(options.student, captions, tokenizer, bank, steps=options.steps))
    result = {
        "student": options.student,
        "captions": source,
        "threads": torch.get_num_threads(),
        "precision": options.precision,
        "ours_captions_per_second": round(statistics.median(entry["speed"] for entry in ours), 1),
        "reference_captions_per_second": round(statistics.median(reference), 1),
        "ratio": round(statistics.median(o["speed"] / r for o, r in zip(ours, reference, strict=True)), 2),
        "padding": round(ours[0]["padding"], 4),
    }
    if options.json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        for name, value in result.items():
            sys.stdout.write(f"{name:32} {value}\n")


if __name__ == "__main__":
    main()
