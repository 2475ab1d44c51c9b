"""Write a bank shard by shard; a killed writer continues where it stopped, with the same bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from consilience.banks.journal import Journal, ShardRecord
from consilience.banks.manifest import (
    TENSOR_NAME,
    DTypeName,
    as_json,
    shard_name,
    shard_ranges,
    teacher_frame,
)
from consilience.banks.reader import Bank, open_bank
from consilience.banks.rows import are_unit_rows, prepare_rows, preprocessing_constants
from consilience.core.artefacts import begin_artefact, discard_work, finish_artefact
from consilience.core.errors import BankIntegrityError, ConsilienceError, InputError, ShapeError
from consilience.core.files import atomic_write, write_json
from consilience.core.hashing import file_sha256
from consilience.core.locks import lock_work
from consilience.core.manifests import TIMING, partial_path


class BankWriter:
    """A bank in the making: one shard at a time; the shard is the unit of resumption.

    The finished files depend on these arguments and the rows alone, not on how often the job was interrupted.
    The working folder is locked for as long as the writer lives, so that two equal commands don't mix.

    Args:
        out: final folder.
        rows: rows of the whole bank.
        dimensions: width.
        dtype: stored type.
        corpus: the corpus's identity, with at least ``fingerprint`` and ``rows``.
        teacher: identity of what made the rows, as JSON.
        frame: frame of the rows; None for the teacher's own.
        shard_rows: rows a shard.
        extra: further facts for the manifest (JSON); they are part of the job's identity.
        overwrite: replace a finished bank or another job's partial one. This job's own partial bank is continued.
        normalise: L2-normalise the rows, in fp32, before they are cast.

    Raises:
        ResumeError: ``out`` exists, is another job's, or another process is writing it.
        InputError: a count is below one, or the corpus, teacher or extra isn't JSON.
        StorageError: the folder can't be made.
    """

    def __init__(
        self,
        out: Path,
        *,
        rows: int,
        dimensions: int,
        dtype: DTypeName,
        corpus: dict[str, Any],
        teacher: dict[str, Any],
        frame: str | None,
        shard_rows: int = 8192,
        extra: dict[str, Any] | None = None,
        overwrite: bool = False,
        normalise: bool = True,
    ) -> None:
        self.out = Path(out)
        self.plan = bank_plan(
            rows=rows,
            dimensions=dimensions,
            dtype=dtype,
            corpus=corpus,
            teacher=teacher,
            frame=frame,
            shard_rows=shard_rows,
            extra=extra,
            normalise=normalise,
        )
        self.shards = shard_ranges(rows, shard_rows)
        self._dtype: DTypeName = dtype
        self._dimensions = dimensions
        self._normalise = normalise
        if overwrite and partial_path(self.out).is_dir():
            os.close(lock_work(partial_path(self.out)))  # another process' work in progress isn't discarded
        self.work, self.resumed = begin_artefact(self.out, self.plan, overwrite=overwrite, lock=False)
        self._lock: int | None = lock_work(self.work)
        for leftover in self.work.glob(".*.tmp"):  # of a killed writer
            leftover.unlink()
        self._journal = Journal(self.work)
        self._drop_damaged_shards()
        self._last = time.monotonic()

    def _drop_damaged_shards(self) -> None:
        for index, record in sorted(self._journal.records.items()):
            path = self.work / shard_name(index)
            intact = path.is_file() and path.stat().st_size == record.bytes and file_sha256(path) == record.sha256
            if not intact:
                self._journal.discard(index)

    def missing(self) -> list[tuple[int, int]]:
        """Return the row ranges still to write; shards of an earlier run count once their checksum was verified."""
        return [bounds for index, bounds in enumerate(self.shards) if index not in self._journal.records]

    def write_shard(self, start: int, embeddings: NDArray[Any]) -> None:
        """Write one shard and record it; when this returns, the shard survives a kill.

        Args:
            start: the shard's first row, one of :attr:`shards`.
            embeddings: its rows, floating-point, normalised or not.

        Raises:
            ShapeError: no shard starts there, or another number of rows or dimensions.
            TeacherError: a row is NaN, infinite, zero or doesn't fit into fp16; the message has its number.
            StorageError: the disk is full, read-only or not permitted; the finished shards stay.
        """
        index = start // self.plan["shard_rows"]
        if index >= len(self.shards) or self.shards[index][0] != start:
            raise ShapeError(f"{self.out}: no shard starts at row {start}. Write the ranges of `missing()`")
        stop = self.shards[index][1]
        if embeddings.shape[0] != stop - start:
            raise ShapeError(
                f"{self.out}: shard {start}:{stop} needs {stop - start} rows, got {embeddings.shape[0]}. "
                "Write whole shards"
            )
        stored = prepare_rows(
            embeddings,
            dimensions=self._dimensions,
            dtype=self._dtype,
            normalise=self._normalise,
            first_row=start,
            where=str(self.out),
        )
        from safetensors.numpy import save

        path = self.work / shard_name(index)
        with atomic_write(path) as stream:
            stream.write(save({TENSOR_NAME: stored}))
        now = time.monotonic()
        self._journal.append(
            ShardRecord(
                index, file_sha256(path), path.stat().st_size, are_unit_rows(stored), round(now - self._last, 3)
            )
        )
        self._last = now

    def finish(self) -> Bank:
        """Write the manifest, rename the folder to its final name and open the bank.

        Raises:
            BankIntegrityError: shards are missing.
            StorageError: the file system refused.
        """
        missing = self.missing()
        if missing:
            raise BankIntegrityError(
                f"{self.out}: {len(missing)} of {len(self.shards)} shards are missing, first rows "
                f"{missing[0][0]}:{missing[0][1]}. Write them before finishing"
            )
        records = [self._journal.records[index] for index in range(len(self.shards))]
        seconds = sum(record.seconds for record in records)
        write_json(
            self.work / TIMING,
            {"seconds": round(seconds, 3), "rows_per_second": round(self.plan["rows"] / max(seconds, 1e-3), 1)},
        )
        manifest = {
            **self.plan,
            "normalised": self._normalise or all(record.unit for record in records),
            "shards": [
                {"file": shard_name(i), "start": start, "stop": stop, "bytes": records[i].bytes}
                for i, (start, stop) in enumerate(self.shards)
            ],
        }
        checksums = {shard_name(record.index): record.sha256 for record in records}
        finish_artefact(self.out, kind="bank", manifest=manifest, files=list(checksums), sha256=checksums)
        self.close()
        return open_bank(self.out)

    def close(self) -> None:
        """Unlock the working folder; what is in it stays."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConsilienceError) and self._lock is not None and not self._journal.records:
            discard_work(self.work)  # nothing to continue from, so nothing is left behind
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_lock", None) is not None:
            self.close()


def bank_plan(
    *,
    rows: int,
    dimensions: int,
    dtype: DTypeName,
    corpus: dict[str, Any],
    teacher: dict[str, Any],
    frame: str | None,
    shard_rows: int,
    extra: dict[str, Any] | None,
    normalise: bool,
) -> dict[str, Any]:
    """Return the identity of a bank's job; the arguments are :class:`BankWriter`'s.

    Raises:
        InputError: a count is below one, an unknown type, or a value isn't JSON.
    """
    for name, value in (("rows", rows), ("dimensions", dimensions), ("shard_rows", shard_rows)):
        if value < 1:
            raise InputError(f"bank: {name} must be at least 1, got {value}")
    if dtype not in ("fp16", "fp32"):
        raise InputError(f"bank: dtype must be fp16 or fp32, got {dtype!r}")
    if corpus.get("rows") != rows:
        raise InputError(f"bank: the corpus has {corpus.get('rows')} rows, the bank {rows}. Embed the whole corpus")
    plan = {
        "rows": rows,
        "dimensions": dimensions,
        "dtype": dtype,
        "corpus": corpus,
        "teacher": teacher,
        "frame": frame or teacher_frame(as_json(teacher, "teacher identity")),
        "shard_rows": shard_rows,
        "preprocessing": preprocessing_constants(normalise),
        "extra": extra or {},
    }
    return as_json(plan, "bank")


def is_finished_by(manifest: Mapping[str, Any], plan: dict[str, Any]) -> bool:
    """Return whether a manifest is of the result of exactly this job (see :func:`bank_plan`)."""
    return all(manifest.get(key) == value for key, value in plan.items())
