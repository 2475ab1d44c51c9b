"""Write captions or graded pairs of the scene grammar to a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError

_BATCH_ROWS = 16_384
_CAPTION_SUFFIXES = (".txt", ".jsonl", ".csv", ".parquet")


def grammar(count: int, out: str | Path, *, pairs: bool = False, seed: int = 0, overwrite: bool = False) -> Path:
    """Write ``count`` distinct captions, or graded pairs, atomically.

    Args:
        count: captions or pairs.
        out: ``.txt`` (a caption a line), ``.jsonl``, ``.csv`` or ``.parquet`` (column "text"); pairs are ``.tsv``
            with the header sentence1, sentence2, score, subset and without quoting, as the STS tasks are stored.
        pairs: write pairs.
        seed: number of the stream.
        overwrite: replace the file if it exists.

    Raises:
        InputError: the suffix isn't one of these, the folder is missing, the file exists, or ``count`` is below 1.
        StorageError: the file can't be written.
    """
    from consilience.core.files import atomic_write
    from consilience.core.placing import require_place
    from consilience.corpora.caption_grammar import generate_captions, generate_pairs

    out = Path(out)
    suffixes = (".tsv",) if pairs else _CAPTION_SUFFIXES
    if out.suffix not in suffixes:
        wanted = "pairs" if pairs else "captions"
        raise InputError(f"{out}: expected a name ending in {', '.join(suffixes)} for {wanted}. Change --out")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder. Make it or change --out")
    if out.exists() and not overwrite:
        raise InputError(f"{out}: already exists. Choose another --out or pass --overwrite")
    require_place(out)
    if out.is_dir():
        raise InputError(f"{out}: is a folder. Choose another --out")
    mode = "w" if overwrite else "x"
    if pairs:
        graded = generate_pairs(count, seed=seed)
        with atomic_write(out, mode) as stream:
            stream.write("sentence1\tsentence2\tscore\tsubset\n")
            for pair in graded:
                stream.write(f"{pair.sentence1}\t{pair.sentence2}\t{pair.score:.3f}\tgrammar\n")
        return out
    captions = generate_captions(count, seed=seed)
    with atomic_write(out, f"{mode}b" if out.suffix == ".parquet" else mode) as stream:
        _write_captions(stream, out.suffix, captions)
    return out


def _write_captions(stream: Any, suffix: str, captions: Iterator[str]) -> None:  # noqa: ANN401 - text or bytes
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([("text", pa.string())])
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            while batch := list(islice(captions, _BATCH_ROWS)):
                writer.write_table(pa.table({"text": batch}, schema=schema))
    elif suffix == ".csv":
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(["text"])
        rows.writerows([caption] for caption in captions)
    elif suffix == ".jsonl":
        stream.writelines(json.dumps({"text": caption}) + "\n" for caption in captions)
    else:
        stream.writelines(caption + "\n" for caption in captions)
