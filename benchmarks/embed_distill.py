"""Distillation from one teacher by sentence-transformers' EmbedDistillLoss: the peer beside a consensus student.

The peer's own trainer, loss and defaults; given are the start, the teacher's bank, the texts, the batch, the peak
learning rate and the minutes of training, so that a student of ours can be trained on the same. The number of steps is
set by timing the first ones, since the learning rate's schedule must know it.

    python benchmarks/embed_distill.py --start FOLDER --bank EMBED --corpus FILE [--limit N] --minutes 10 --out MODEL
    consilience evaluate MODEL --tasks sts --data DATA

FOLDER is a transformers folder (of `packaged:paraphrase-MiniLM-L3-v2`, when left out). MODEL is a sentence-transformers
folder; what was done is printed as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from consilience.banks.reader import open_bank
from consilience.corpora.text import open_corpus
from consilience.recipes.warm_start import locate_start

TIMED_STEPS, UNTIMED_STEPS = 30, 5


def build(start: Path, max_length: int) -> SentenceTransformer:
    transformer = Transformer(str(start), max_seq_length=max_length)
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension()), Normalize()])


def fit(model: SentenceTransformer, data: Dataset, arguments: argparse.Namespace, steps: int) -> tuple[float, Any]:
    """Train for so many steps; return the seconds and the trainer's log."""
    torch.manual_seed(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        settings = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            max_steps=steps,
            per_device_train_batch_size=arguments.batch_rows,
            learning_rate=arguments.lr,
            warmup_steps=max(1, steps // 20),
            lr_scheduler_type="cosine",
            seed=arguments.seed,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=max(1, steps // 10),
        )
        loss = EmbedDistillLoss(model, distance_metric=arguments.metric)
        trainer = SentenceTransformerTrainer(model=model, args=settings, train_dataset=data, loss=loss)
        started = time.perf_counter()
        trainer.train()
        return time.perf_counter() - started, trainer.state.log_history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--bank", type=Path, required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--batch-rows", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--metric", default="cosine", choices=("cosine", "mse", "l2"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    texts = list(open_corpus(arguments.corpus, limit=arguments.limit))
    bank = open_bank(arguments.bank)
    if len(bank) != len(texts):
        parser.error(f"{arguments.bank} has {len(bank)} rows, the corpus {len(texts)}")
    data = Dataset.from_dict({"sentence": texts, "label": np.asarray(bank[:], dtype=np.float32)}).with_format(
        "torch", ["label"], True
    )
    start = arguments.start or locate_start("packaged:paraphrase-MiniLM-L3-v2")
    untimed, _ = fit(build(start, arguments.max_length), data, arguments, UNTIMED_STEPS)
    timed, _ = fit(build(start, arguments.max_length), data, arguments, UNTIMED_STEPS + TIMED_STEPS)
    steps = max(1, round(arguments.minutes * 60 * TIMED_STEPS / max(timed - untimed, 1e-3)))
    model = build(start, arguments.max_length)
    seconds, log = fit(model, data, arguments, steps)
    model.save_pretrained(str(arguments.out))
    losses = [entry["loss"] for entry in log if "loss" in entry]
    report = {"steps": steps, "texts": steps * arguments.batch_rows, "seconds": round(seconds, 1), "losses": losses}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
