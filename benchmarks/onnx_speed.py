"""Captions per second of an export's ONNX files beside all-MiniLM-L6-v2's, exported by the same code, in one run.

    python benchmarks/onnx_speed.py STUDENT [--rows 1024] [--rounds 3] [--threads 1] [--clock wall|cpu] [--json]

STUDENT is a student's folder; it and MiniLM (a warm start with all layers and no head, so the same vectors as the
teacher's) are exported in fp32 and int8 into a temporary folder. Every round times each file once on the same captions,
so that load from elsewhere meets all alike; ratios are taken within a round and their median over the rounds reported.
On a machine that others use, ``--threads 1 --clock cpu`` compares processor seconds instead.
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

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq


def captions(rows: int) -> list[str]:
    """Every k-th Flickr30k caption, so that lengths are the corpus's own."""
    if not os.environ.get("CONSILIENCE_DATA"):
        sys.exit("CONSILIENCE_DATA isn't set: it names the folder with captions/captions.parquet")
    root = Path(os.environ["CONSILIENCE_DATA"])
    table = pq.read_table(root / "captions" / "captions.parquet")
    texts = table.filter(pc.equal(table["source"], "flickr30k"))["text"].to_pylist()
    return texts[:: max(1, len(texts) // rows)][:rows]


class OnnxFile:
    """An exported graph as a service would run it: sorted by length, batches of one length, a chosen thread count."""

    def __init__(self, folder: Path, file: str, threads: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        limit = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["model_max_length"]
        self.tokenizer.enable_truncation(limit)
        self.megabytes = (folder / file).stat().st_size / 1e6

    def encode(self, texts: list[str], batch: int = 64) -> np.ndarray:
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        out: np.ndarray | None = None
        start = 0
        while start < len(order):
            length = len(rows[order[start]])
            chosen = [row for row in order[start : start + batch] if len(rows[row]) == length]
            ids = np.array([rows[row] for row in chosen], dtype=np.int64)
            vectors = self.session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})[
                0
            ]
            if out is None:
                out = np.empty((len(rows), vectors.shape[1]), dtype=np.float32)
            out[chosen] = vectors
            start += len(chosen)
        return np.empty((0, 0), dtype=np.float32) if out is None else out


def export_all(student: str, place: Path) -> dict[str, Path]:
    """Export the student and MiniLM in both precisions."""
    from consilience.exporters.folder import export_student
    from consilience.recipes.warm_start import warm_start
    from consilience.students.text import StudentEncoder, load_student

    module, tokenizer, config = warm_start("packaged:all-MiniLM-L6-v2", head="none")
    minilm = StudentEncoder(module, tokenizer, name="MiniLM", max_length=config.max_length, manifest={})
    for name, encoder in (("student", load_student(student)), ("MiniLM", minilm)):
        export_student(encoder, place / name, formats=("onnx",), teachers={}, quantize="int8")
    return {"student": place / "student", "MiniLM": place / "MiniLM"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("student")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    from consilience.exporters.int8 import INT8_FILE
    from consilience.exporters.onnx import ONNX_FILE

    texts = captions(arguments.rows)
    with tempfile.TemporaryDirectory() as place:
        folders = export_all(arguments.student, Path(place))
        files = {
            f"{name} {label}": OnnxFile(folder, file, arguments.threads)
            for name, folder in folders.items()
            for label, file in (("fp32", ONNX_FILE), ("int8", INT8_FILE))
        }
        for file in files.values():
            file.encode(texts[:64])
        clock = time.perf_counter if arguments.clock == "wall" else time.process_time
        seconds: dict[str, list[float]] = {name: [] for name in files}
        for _ in range(arguments.rounds):
            for name, file in files.items():
                start = clock()
                file.encode(texts)
                seconds[name].append(clock() - start)
    base = seconds["MiniLM fp32"]
    result = {
        "rows": len(texts),
        "threads": arguments.threads,
        "clock": arguments.clock,
        "rounds": arguments.rounds,
        "captions_per_second": {n: round(len(texts) / statistics.median(s), 1) for n, s in seconds.items()},
        "times_minilm_fp32": {
            n: round(statistics.median(b / own for b, own in zip(base, s, strict=True)), 3) for n, s in seconds.items()
        },
        "megabytes": {name: round(file.megabytes, 1) for name, file in files.items()},
    }
    if arguments.json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    for name, speed in result["captions_per_second"].items():
        times, size = result["times_minilm_fp32"][name], result["megabytes"][name]
        print(f"{name:14} {speed:9.1f} captions/s  {times:6.2f} x MiniLM fp32  {size:6.1f} MB")


if __name__ == "__main__":
    main()
