"""A corpus of many kinds of sentences, from the captions, pairs and long texts that lie beside the repository.

python benchmarks/mixed_corpus.py DATA OUT.parquet [--rows 400000] [--seed 0]

DATA holds captions/, pairs/ and longtext/ as their README describes. No label is used, only the sentences: of a pair
both sides, each once. Nothing from sts/ is read; the sources were cleaned of its sentences when they were built. The
rows are shuffled, so that the first n are a sample of the whole: `--limit n` is a smaller corpus of the same mixture.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Shares of the rows, by hand: no more than half captions, since only a third of the questions people ask are of scenes.
SHARES = {"captions": 0.4, "paraphrase": 0.18, "equivalence": 0.1, "simplification": 0.1, "lexical": 0.1,
          "topical": 0.06, "longtext": 0.06}  # fmt: skip
SHORTEST, LONGEST = 12, 400  # characters


def sentences(data: Path, kind: str) -> Iterator[str]:
    if kind == "captions":
        table = pq.read_table(data / "captions" / "captions.parquet", columns=["text"])
        yield from table["text"].to_pylist()
    elif kind == "longtext":
        for text in pq.read_table(data / "longtext" / "longtext.parquet", columns=["text"])["text"].to_pylist():
            for paragraph in text.split("\n"):
                yield from re.split(r"(?<=[.!?])\s+(?=[A-Z\"“])", paragraph)
    else:
        table = pq.read_table(data / "pairs" / f"{kind}.parquet", columns=["sentence1", "sentence2"])
        for column in table.columns:
            yield from column.to_pylist()


def write_mixture(data: Path, out: Path, *, rows: int, seed: int) -> None:
    """Write the first ``rows`` rows of a mixture of the sentences in ``data``."""
    rng = np.random.default_rng(seed)
    seen: set[str] = set()
    texts: list[str] = []
    sources: list[str] = []
    for kind, share in SHARES.items():
        found = []
        for text in sentences(data, kind):
            key = "".join(text.casefold().split())
            if SHORTEST <= len(text) <= LONGEST and key not in seen:
                seen.add(key)
                found.append(text)
        wanted = min(round(rows * share), len(found))
        texts += [found[i] for i in rng.permutation(len(found))[:wanted]]
        sources += [kind] * wanted
        print(f"{kind}: {wanted} of {len(found)}")
    order = rng.permutation(len(texts))
    table = pa.table({"text": [texts[i] for i in order], "source": [sources[i] for i in order]})
    pq.write_table(table, out, compression="zstd")
    print(f"{out}: {len(texts)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_mixture(arguments.data, arguments.out, rows=arguments.rows, seed=arguments.seed)


if __name__ == "__main__":
    main()
