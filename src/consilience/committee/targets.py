"""The consensus c(x) = normalise(sum_t w_t a_t(x_t)), streamed shard by shard into a bank.

Source: design, section 3. One GEMM a teacher; memory doesn't depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.banks.reader import Bank
from consilience.banks.writer import BankWriter
from consilience.core.errors import ShapeError
from consilience.core.progress import progress_bar
from consilience.frames.align import AffineMap
from consilience.frames.rows import normalise_rows

SHARD_ROWS = 8192
BLOCK_ROWS = 2048  # bounds the temporaries; a part of the result's definition, since GEMMs may round by shape


def centroid(
    rows: Sequence[NDArray[np.floating]], maps: Sequence[AffineMap], weights: Sequence[float]
) -> NDArray[np.float32]:
    """Return the weighted mean of aligned unit rows, before its normalisation.

    Args:
        rows: each teacher's rows (n, d_t) of the same texts.
        maps: each teacher's map into the frame.
        weights: summing to one; a teacher with weight 0 isn't read.

    Returns:
        (n, d); the norm of a row, in [0, 1], says how much the committee agrees on it.

    Raises:
        ShapeError: not one map and weight a teacher, or the maps' widths differ.
    """
    if not rows or len({len(rows), len(maps), len(weights)}) != 1 or len({m.d_y for m in maps}) != 1:
        raise ShapeError(
            f"centroid: expected one map and one weight a teacher, all into one frame, got {len(rows)} teachers, "
            f"{len(maps)} maps of widths {sorted({m.d_y for m in maps})} and {len(weights)} weights"
        )
    total = np.zeros((len(rows[0]), maps[0].d_y), dtype=np.float32)
    for x, affine, weight in zip(rows, maps, weights, strict=True):
        if weight > 0:
            total += np.float32(weight) * affine.apply(x)
    return total


def stream_consensus(
    writer: BankWriter, banks: Sequence[Bank], maps: Sequence[AffineMap], weights: Sequence[float]
) -> Bank:
    """Write the missing shards of a consensus bank and finish it.

    Args:
        writer: of the consensus bank; shards that it already has are skipped.
        banks: row-aligned banks.
        maps: one a bank.
        weights: one a bank, summing to one.

    Returns:
        The finished bank.

    Raises:
        InputError: a centroid is zero: the teachers cancel out.
        StorageError: the disk is full; what is finished stays.
    """
    counting = [i for i, weight in enumerate(weights) if weight > 0]
    missing = dict(writer.missing())
    done = writer.plan["rows"] - sum(stop - start for start, stop in missing.items())
    streams = [banks[i].iter_blocks(writer.plan["shard_rows"]) for i in counting]
    chosen_maps = [maps[i] for i in counting]
    chosen_weights = [weights[i] for i in counting]
    with progress_bar("consensus", writer.plan["rows"], done=done) as bar:
        for blocks in zip(*streams, strict=True):
            start = blocks[0][0]
            if start not in missing:
                continue
            shard = np.empty((len(blocks[0][1]), chosen_maps[0].d_y), dtype=np.float32)
            for low in range(0, len(shard), BLOCK_ROWS):
                part = [block[low : low + BLOCK_ROWS] for _, block in blocks]
                mean = centroid(part, chosen_maps, chosen_weights)
                where = f"{writer.out}: consensus of the rows from {start + low}"
                shard[low : low + BLOCK_ROWS] = normalise_rows(mean, where=where)
            writer.write_shard(start, shard)
            bar.advance(len(shard))
    return writer.finish()


def open_writer(
    out: Path,
    banks: Sequence[Bank],
    *,
    frame: str,
    dimensions: int,
    dtype: Literal["fp16", "fp32"],
    teacher: dict[str, Any],
    extra: dict[str, Any],
    overwrite: bool = False,
) -> BankWriter:
    """Start or continue the consensus bank of these banks.

    Args:
        out: final folder.
        banks: the committee; rows and corpus are theirs.
        frame: id of the frame of the consensus.
        dimensions: its width.
        dtype: stored type.
        teacher: identity of the committee.
        extra: further facts for the manifest.
        overwrite: replace what is there.
    """
    return BankWriter(
        out,
        rows=banks[0].rows,
        dimensions=dimensions,
        dtype=dtype,
        corpus=banks[0].manifest["corpus"],
        teacher=teacher,
        frame=frame,
        shard_rows=SHARD_ROWS,
        extra=extra,
        overwrite=overwrite,
    )
