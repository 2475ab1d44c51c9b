"""Sentences per second of a static student beside model2vec and sentence-transformers, in one process, one thread.

    python benchmarks/static_speed.py [STUDENT] [--rows 20000] [--rounds 5] [--clock wall|cpu] [--json]

Every contestant has the same table and the same tokenizer: the student's (a random one of bert-base-uncased's 30,522
tokens and 256 dimensions without STUDENT). Tokenising is timed, loading isn't. Every round encodes other captions of
8 to 12 words, which no contestant has met; so what the student keeps of words that it saw helps it as much as it would
in a stream of new texts. Contestants alternate within a round, and the ratio is taken within it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq


def captions(rows: int) -> list[str]:
    """Flickr30k captions of 8 to 12 words, each once, spread over the corpus."""
    if not os.environ.get("CONSILIENCE_DATA"):
        sys.exit("CONSILIENCE_DATA isn't set: it names the folder with captions/captions.parquet")
    root = Path(os.environ["CONSILIENCE_DATA"])
    table = pq.read_table(root / "captions" / "captions.parquet", columns=["text", "source"])
    texts = table.filter(pc.equal(table["source"], "flickr30k"))["text"].to_pylist()
    short = [text for text in dict.fromkeys(texts) if 8 <= len(text.split()) <= 12]
    order = np.random.default_rng(0).permutation(len(short))[:rows]
    return [short[row] for row in order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("student", nargs="?", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"

    import torch

    torch.set_num_threads(1)
    from sentence_transformers import SentenceTransformer

    from consilience.students.static import StaticEncoder, build_static, load_table, plain_tokenizer
    from consilience.students.static import StaticStudent as Student
    from consilience.students.tokenizer import load_tokenizer
    from consilience.teachers.packaged import packaged_files

    if arguments.student is None:
        words = plain_tokenizer(load_tokenizer(packaged_files("all-MiniLM-L6-v2")["tokenizer.json"]))
        module = build_static(words.get_vocab_size(), 256, seed=0)
    else:
        table, words = load_table(arguments.student)
        module = Student(table)
    rows = module.embedding.weight.detach()
    student = StaticEncoder(module, words, name="static", max_length=512, manifest={})
    plain = StaticEncoder(module, words, name="static", max_length=512, manifest={})
    plain._chunks = None
    peers: dict[str, Callable[[Sequence[str]], np.ndarray]] = {}
    with tempfile.TemporaryDirectory() as folder:
        peers["sentence-transformers StaticEmbedding"] = _library(SentenceTransformer, rows, words)
        found = _model2vec(rows, words, folder)
        if found is not None:
            peers["model2vec"] = found
    contestants = {"static student": student.encode, "static student, words not kept": plain.encode, **peers}
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    texts = captions(arguments.rows * (arguments.rounds + 1))
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    expected: np.ndarray | None = None
    for number in range(arguments.rounds + 1):
        batch = texts[number * arguments.rows : (number + 1) * arguments.rows]
        for name, encode in contestants.items():
            began = clock()
            vectors = encode(batch)
            seconds = clock() - began
            expected = vectors if name == "static student" else expected
            difference = float(np.abs(vectors - expected).max())
            if difference > 1e-4:
                raise SystemExit(f"{name} gives other vectors (by {difference:.1e}): it isn't the same model")
            if number:  # the first round warms up
                rates[name].append(len(batch) / seconds)
    report = {
        name: {
            "sentences_per_second": round(statistics.median(found)),
            "ratio": round(statistics.median(a / b for a, b in zip(rates["static student"], found, strict=True)), 2),
        }
        for name, found in rates.items()
    }
    if arguments.json:
        sys.stdout.write(json.dumps({"rows": arguments.rows, "clock": arguments.clock, "contestants": report}) + "\n")
        return
    for name, entry in report.items():
        sys.stdout.write(f"{name:40s} {entry['sentences_per_second']:>9,d} /s   student is {entry['ratio']:.2f} x\n")


def _library(library: type, rows: object, words: object) -> Callable[[Sequence[str]], np.ndarray]:
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    model = library(modules=[StaticEmbedding(words, embedding_weights=rows), Normalize()], device="cpu")
    return lambda texts: model.encode(list(texts), batch_size=1024, show_progress_bar=False)


def _model2vec(rows: object, words: object, folder: str) -> Callable[[Sequence[str]], np.ndarray] | None:
    try:
        from model2vec import StaticModel
    except ModuleNotFoundError:
        return None
    from tokenizers import Tokenizer

    path = Path(folder) / "tokenizer.json"
    words.save(str(path))  # type: ignore[attr-defined]
    table = rows.numpy()  # type: ignore[attr-defined]
    model = StaticModel(
        vectors=table, tokenizer=Tokenizer.from_file(str(path)), config={"normalize": True}, normalize=True
    )
    return lambda texts: model.encode(list(texts), max_length=None, use_multiprocessing=False)


if __name__ == "__main__":
    main()
