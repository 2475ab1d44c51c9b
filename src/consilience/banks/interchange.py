"""Banks from and to npy and parquet files, and from other banks; all of it streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.banks.manifest import DTypeName
from consilience.banks.reader import Bank, open_bank
from consilience.banks.verify import verify_bank
from consilience.banks.writer import BankWriter, bank_plan, is_finished_by
from consilience.core.artefacts import settle_artefact
from consilience.core.errors import FrameMismatchError, InputError, StorageError
from consilience.core.files import atomic_write, storage_errors
from consilience.core.hashing import file_sha256
from consilience.core.manifests import MANIFEST
from consilience.core.placing import require_place

Block = NDArray[np.floating[Any]]
_PARQUET_BLOCK_ROWS = 8192


class EmbeddingSource(NamedTuple):
    """Embeddings that someone already has.

    Attributes:
        label: what a person calls them.
        rows: number of rows.
        dimensions: width.
        teacher: identity of what made them, as far as it is known.
        frame: their frame, or None for the teacher's own.
        fingerprint: of the corpus, or None when unknown.
        read: streams them, raw, in blocks of so many rows.
    """

    label: str
    rows: int
    dimensions: int
    teacher: dict[str, Any]
    frame: str | None
    fingerprint: str | None
    read: Callable[[int], Iterator[Block]]


def open_npy(path: Path) -> EmbeddingSource:
    """Describe a .npy file of embeddings; it is memory-mapped, and pickled objects are refused.

    Raises:
        InputError: no such file, not an npy file, or not rows of floating-point numbers.
    """

    def mapped() -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file. Check the path") from error
        except (ValueError, EOFError) as error:
            raise InputError(f"{path}: not a whole .npy file of numbers ({error}). Write it with numpy.save") from error
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f" or 0 in array.shape:
            found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "an archive"
            raise InputError(
                f"{path}: expected rows of floating-point numbers, got {found}. Save a two-dimensional float array"
            )
        return array

    def read(block_rows: int) -> Iterator[Block]:
        for start in range(0, rows, block_rows):
            # Mapped anew for each block: pages that were read stop counting as resident memory.
            yield np.array(mapped()[start : start + block_rows])

    rows, dimensions = mapped().shape
    teacher = {"backend": "npy", "name": path.name, "sha256": file_sha256(path)}
    return EmbeddingSource(f"npy:{path}", rows, dimensions, teacher, None, None, read)


def open_parquet(path: Path, column: str | None = None) -> EmbeddingSource:
    """Describe a parquet column of float lists, of fixed or variable size (all of one length).

    Args:
        path: the file.
        column: the column; by default the only one that holds lists of numbers.

    Raises:
        InputError: no such file or column, or the column isn't lists of floats of one length.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Otherwise pyarrow reads a row group's whole column at once.
        file = pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file. Check the path") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: can't be read as parquet ({error}). Check the file") from error
    with file:
        rows = file.metadata.num_rows
        lists = [field.name for field in file.schema_arrow if _is_float_list(field.type)]
    if column is None and len(lists) == 1:
        column = lists[0]
    if column is None or column not in lists:
        problem = f"column {column!r} doesn't hold lists of floats" if column is not None else "no one column is meant"
        raise InputError(f"{path}: {problem}; these do: {', '.join(lists) or 'none'}. Write parquet:{path}#COLUMN")
    chosen = column
    first = next(_parquet_blocks(path, chosen, 1), None)
    if first is None:
        raise InputError(f"{path}: has no rows. Give a file with embeddings")
    teacher = {"backend": "parquet", "name": f"{path.name}#{chosen}", "sha256": file_sha256(path)}

    def read(block_rows: int) -> Iterator[Block]:
        return _rebatched(_parquet_blocks(path, chosen, min(block_rows, _PARQUET_BLOCK_ROWS)), block_rows)

    return EmbeddingSource(f"parquet:{path}#{chosen}", rows, first.shape[1], teacher, None, None, read)


def open_bank_source(path: Path) -> EmbeddingSource:
    """Describe a bank as the source of another one: same teacher, same frame, perhaps another type or shard size.

    Raises:
        InputError: no bank is there.
        BankIntegrityError: it is damaged.
    """
    bank = verify_bank(path)

    def read(block_rows: int) -> Iterator[Block]:
        return (block for _, block in bank.iter_blocks(block_rows))

    return EmbeddingSource(
        f"bank:{path}", bank.rows, bank.dimensions, bank.teacher, bank.frame, bank.corpus_fingerprint, read
    )


def import_embeddings(
    source: EmbeddingSource,
    out: str | Path,
    *,
    corpus: dict[str, Any],
    dtype: DTypeName = "fp16",
    shard_rows: int = 8192,
    overwrite: bool = False,
) -> Bank:
    """Make a bank of embeddings that someone already has; their values are kept, not normalised.

    The manifest's ``normalised`` says whether all rows have norm one. An interrupted import continues.

    Args:
        source: from :func:`open_npy`, :func:`open_parquet` or :func:`open_bank_source`.
        out: the bank's folder.
        corpus: the corpus's identity, with at least ``fingerprint`` and ``rows``.
        dtype: stored type.
        shard_rows: rows a shard.
        overwrite: replace what is at ``out``.

    Raises:
        InputError: the corpus has another number of rows.
        FrameMismatchError: the source is a bank of another corpus.
        TeacherError: a row is NaN, infinite, zero or doesn't fit into fp16.
        ResumeError: ``out`` is another bank.
        StorageError: the file system refused.
    """
    if source.rows != corpus["rows"]:
        raise InputError(
            f"{source.label}: has {source.rows} rows, the corpus {corpus['rows']}. "
            "Give the corpus that was embedded, in the same order"
        )
    if source.fingerprint not in (None, corpus["fingerprint"]):
        raise FrameMismatchError(
            f"{source.label}: is a bank of the corpus {str(source.fingerprint)[:12]}..., not of "
            f"{corpus['fingerprint'][:12]}... with as many rows. Give the corpus that was embedded"
        )
    job: dict[str, Any] = {
        "rows": source.rows,
        "dimensions": source.dimensions,
        "dtype": dtype,
        "corpus": corpus,
        "teacher": source.teacher,
        "frame": source.frame,
        "shard_rows": shard_rows,
        "extra": None,
        "normalise": False,
    }
    finished = finished_bank(Path(out), bank_plan(**job), overwrite=overwrite)
    if finished is not None:
        return finished
    with BankWriter(Path(out), **job, overwrite=overwrite) as writer:
        missing = {start for start, _ in writer.missing()}
        for (start, _), block in zip(writer.shards, source.read(shard_rows), strict=True):
            if start in missing:
                writer.write_shard(start, block)
        return writer.finish()


def finished_bank(out: Path, plan: dict[str, Any], *, overwrite: bool) -> Bank | None:
    """Return the bank at ``out`` if it is exactly this job's result, intact; None if there is still work to do.

    What a kill at its very end left undone is completed first.

    Raises:
        BankIntegrityError: it is this job's result but damaged.
        InputError: something else is at ``out``.
    """
    settled = settle_artefact(out, partial(is_finished_by, plan=plan), overwrite=overwrite)
    if not (out / MANIFEST).is_file() or (overwrite and not settled):
        return None
    bank = open_bank(out)
    return verify_bank(bank) if is_finished_by(bank.manifest, plan) else None


def export_bank(bank: Bank | str | Path, out: str | Path, *, column: str = "embedding") -> Path:
    """Write a bank's rows to a ``.npy`` file (in their stored type) or a ``.parquet`` file (float32 lists, exact).

    The shards' checksums are verified on the way; the file is complete or absent.

    Args:
        bank: an open bank or its folder.
        out: the file; its suffix says which format.
        column: name of the parquet column.

    Returns:
        The file's path.

    Raises:
        InputError: another suffix, or the file is there already.
        BankIntegrityError: a shard is damaged.
        StorageError: the file system refused.
    """
    source = bank if isinstance(bank, Bank) else open_bank(bank)
    target = Path(out)
    if target.exists():
        raise InputError(f"{target}: already exists. Choose another name or remove it")
    require_place(target, option="out")
    if target.suffix == ".npy":
        _export_npy(source, target)
    elif target.suffix == ".parquet":
        _export_parquet(source, target, column)
    else:
        raise InputError(f"{target}: expected a name that ends in .npy or .parquet. Rename it")
    return target


def _export_npy(bank: Bank, target: Path) -> None:
    header = {"descr": bank.dtype.str, "fortran_order": False, "shape": (bank.rows, bank.dimensions)}
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target, "xb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for _, shard in bank.iter_shards(verify=True):
            stream.write(shard.data)


def _export_parquet(bank: Bank, target: Path, column: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # fp16 is exact in fp32, and most readers of parquet don't know half floats.
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), bank.dimensions)
    schema = pa.schema([pa.field(column, kind, nullable=False)], metadata={"consilience_bank": bank.id})
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic_write(target, "xb") as stream, pq.ParquetWriter(stream, schema) as writer:
            for _, shard in bank.iter_shards(verify=True):
                values = pa.array(shard.astype(np.float32).reshape(-1))
                rows = pa.FixedSizeListArray.from_arrays(values, type=kind)
                writer.write_batch(pa.record_batch([rows], schema=schema))
    except pa.ArrowException as error:
        raise StorageError(f"{target}: can't write: {error}. Free some space or choose another name") from error


def _is_float_list(kind: Any) -> bool:  # noqa: ANN401 - a pyarrow type
    import pyarrow.types as types

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and types.is_floating(kind.value_type))


def _parquet_blocks(path: Path, column: str, rows: int) -> Iterator[Block]:
    """Yield the column in blocks of at most so many rows, each checked to be of one width and without nulls."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, width = 0, None
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=rows, columns=[column]):
                array = batch.column(0)
                lengths = np.diff(_list_offsets(array))
                width = int(lengths[0]) if width is None else width
                faulty = (lengths != width) | np.asarray(array.is_null())
                if width == 0 or faulty.any():
                    row = number + int(faulty.argmax())
                    raise InputError(
                        f"{path}: column {column!r}: row {row} isn't a list of {width} numbers. Fix the row"
                    )
                values = array.flatten()
                if values.null_count:
                    row = number + int(np.asarray(values.is_null()).argmax()) // width
                    raise InputError(f"{path}: column {column!r}: row {row} holds a null. Fix the row")
                yield values.to_numpy(zero_copy_only=False).reshape(-1, width)
                number += len(array)
    except pa.ArrowException as error:
        raise InputError(f"{path}: can't be read as parquet ({error}). Fetch the file again") from error


def _list_offsets(array: Any) -> NDArray[np.int64]:  # noqa: ANN401 - a pyarrow list array
    import pyarrow.types as types

    if types.is_fixed_size_list(array.type):
        size: int = array.type.list_size
        return np.arange(len(array) + 1, dtype=np.int64) * size
    return np.asarray(array.offsets, dtype=np.int64)


def _rebatched(blocks: Iterator[Block], rows: int) -> Iterator[Block]:
    """Cut blocks of any sizes into blocks of exactly so many rows, the last one shorter."""
    waiting: list[Block] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        while count >= rows:
            joined = np.concatenate(waiting)
            yield joined[:rows]
            waiting, count = [joined[rows:]], count - rows
    if count:
        yield np.concatenate(waiting)
