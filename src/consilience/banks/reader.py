"""Read a bank through memory maps; it is never loaded whole."""

from __future__ import annotations

import mmap
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from consilience.banks.manifest import (
    SAFETENSORS_DTYPES,
    STORAGE_DTYPES,
    TENSOR_NAME,
    BankManifest,
    read_bank_manifest,
)
from consilience.banks.safetensors_header import read_safetensors_header
from consilience.core.errors import BankIntegrityError, FrameMismatchError, InputError, ShapeError
from consilience.core.hashing import content_id
from consilience.core.manifests import check_file

if TYPE_CHECKING:
    import torch

# Random access keeps shards mapped. Pages that were touched count as resident memory (the kernel maps many around a
# fault, so a shard counts whole), and each map holds a file descriptor; both are bounded, least recently used first.
_MAXIMUM_MAPS = 64
_MAXIMUM_MAPPED_BYTES = 256 << 20

Rows = NDArray[Any]


class Bank:
    """One teacher's embeddings of one corpus, memory-mapped. Open one with :func:`open_bank`.

    Slices within a shard are read-only views; slices across shards and fancy indices are copies. The rows are in
    the stored type (fp16 or fp32).

    Attributes:
        path: its folder.
        manifest: its manifest, as JSON.
        id: content hash of the manifest.
        rows: number of rows.
        dimensions: width.
        dtype: type of the rows.
        normalised: whether all rows have norm one.
        frame: the coordinate system of the rows.
        teacher: identity of what made them.
        corpus_fingerprint: of the corpus that was embedded.
    """

    def __init__(self, path: Path, checked: BankManifest, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.id = checked.id
        self.rows = checked.rows
        self.dimensions = checked.dimensions
        self.dtype = np.dtype(STORAGE_DTYPES[checked.dtype])
        self.normalised = checked.normalised
        self.frame = checked.frame
        self.teacher = checked.teacher
        self.corpus_fingerprint = checked.corpus.fingerprint
        self._checked = checked
        self._starts = [shard.start for shard in checked.shards]
        self._offsets: dict[int, int] = {}
        self._maps: OrderedDict[int, Rows] = OrderedDict()
        self._mapping = threading.Lock()  # threads may read; what one drops another may be about to take
        largest = max(shard.bytes for shard in checked.shards)
        self._maximum_maps = max(1, min(_MAXIMUM_MAPS, _MAXIMUM_MAPPED_BYTES // largest))

    @property
    def teacher_id(self) -> str:
        """Content hash of the teacher's identity."""
        return content_id(self.teacher)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"Bank({str(self.path)!r}, rows={self.rows}, dimensions={self.dimensions}, frame={self.frame!r})"

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        # Maps don't travel to other processes; the path does.
        return open_bank, (self.path,)

    @overload
    def __getitem__(self, rows: int) -> Rows: ...
    @overload
    def __getitem__(self, rows: slice | Sequence[int] | Rows) -> Rows: ...
    def __getitem__(self, rows: int | slice | Sequence[int] | Rows) -> Rows:
        """Return a row (d,), a slice (n, d) or the rows of an index or mask array (n, d).

        Raises:
            IndexError: a row is out of range.
            ShapeError: the index isn't one-dimensional integers or a mask of all rows.
        """
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.rows)
            if step == 1:
                return self._slice(start, max(start, stop))
            return self._gather(np.arange(start, stop, step))
        if isinstance(rows, int | np.integer):
            index = int(rows) + (self.rows if rows < 0 else 0)
            if not 0 <= index < self.rows:
                raise IndexError(f"row {rows} of a bank of {self.rows} rows")
            row: Rows = self._slice(index, index + 1)[0]
            return row
        return self._gather(self._row_numbers(rows))

    def _row_numbers(self, rows: Sequence[int] | Rows) -> NDArray[np.int64]:
        index = np.asarray(rows)
        if index.size == 0:
            return np.empty(0, dtype=np.int64)
        if index.ndim != 1 or index.dtype.kind not in "iub":
            raise ShapeError(
                f"{self.path}: rows are indexed by a one-dimensional integer array, got {index.dtype} "
                f"of shape {index.shape}. Flatten it"
            )
        if index.dtype.kind == "b":
            if len(index) != self.rows:
                raise ShapeError(f"{self.path}: a mask needs {self.rows} entries, got {len(index)}")
            return np.flatnonzero(index)
        numbers = index.astype(np.int64)
        numbers[numbers < 0] += self.rows
        outside = (numbers < 0) | (numbers >= self.rows)
        if outside.any():
            raise IndexError(f"row {index[outside.argmax()]} of a bank of {self.rows} rows")
        return numbers

    def _slice(self, start: int, stop: int) -> Rows:
        if start == stop:
            return np.empty((0, self.dimensions), dtype=self.dtype)
        return _joined([self._mapped(index)[lo:hi] for index, lo, hi in self._pieces(start, stop)])

    def _gather(self, numbers: NDArray[np.int64]) -> Rows:
        out = np.empty((len(numbers), self.dimensions), dtype=self.dtype)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        shard_of = np.searchsorted(self._starts, ordered, side="right") - 1
        for index in np.unique(shard_of):
            first, last = np.searchsorted(shard_of, [index, index + 1])
            within = ordered[first:last] - self._starts[index]
            if len(self._checked.shards) <= self._maximum_maps:
                out[order[first:last]] = self._mapped(int(index))[within]
            else:  # mapping and unmapping shards for a few rows each costs more than reading the rows
                out[order[first:last]] = self._read_rows(int(index), within)
        return out

    def _read_rows(self, index: int, within: NDArray[np.int64]) -> Rows:
        path = self.path / self._checked.shards[index].file
        offset = self._offset(index)
        row_bytes = self.dimensions * self.dtype.itemsize
        with path.open("rb", buffering=0) as stream:
            file = stream.fileno()
            content = b"".join([os.pread(file, row_bytes, offset + row * row_bytes) for row in within.tolist()])
        if len(content) != len(within) * row_bytes:
            raise BankIntegrityError(f"{path}: shorter than its manifest says. Rebuild the bank")
        return np.frombuffer(content, dtype=self.dtype).reshape(-1, self.dimensions)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (shard, first row, last row + 1), rows counted from the shard's start."""
        while start < stop:
            index = bisect_right(self._starts, start) - 1
            shard = self._checked.shards[index]
            end = min(stop, shard.stop)
            yield index, start - shard.start, end - shard.start
            start = end

    def _mapped(self, index: int) -> Rows:
        with self._mapping:
            array = self._maps.pop(index, None)
            if array is None:
                array = self._map(index)
            self._maps[index] = array
            while len(self._maps) > self._maximum_maps:
                self._maps.popitem(last=False)
            return array

    def _map(self, index: int, *, sequential: bool = False, private: bool = False) -> Rows:
        """Map one shard: read-only, or private (copy on write), which torch takes without a copy."""
        shard = self._checked.shards[index]
        path = self.path / shard.file
        offset = self._offset(index)
        try:
            with path.open("rb") as stream:
                access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
                mapped = mmap.mmap(stream.fileno(), shard.bytes, access=access)
        except (FileNotFoundError, ValueError) as error:
            raise BankIntegrityError(
                f"{path}: missing or shorter than {shard.bytes} bytes. Rebuild the bank"
            ) from error
        if sequential and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_SEQUENTIAL)
        count = (shard.stop - shard.start) * self.dimensions
        flat = np.frombuffer(mapped, dtype=self.dtype, count=count, offset=offset)
        return flat.reshape(-1, self.dimensions)

    def _offset(self, index: int) -> int:
        """Return where a shard's data begin; its header is read once."""
        if index not in self._offsets:
            shard = self._checked.shards[index]
            self._offsets[index] = self._data_offset(self.path / shard.file, shard.stop - shard.start)
        return self._offsets[index]

    def _data_offset(self, path: Path, rows: int) -> int:
        header = read_safetensors_header(path)
        tensor = header.tensors.get(TENSOR_NAME, {})
        expected = {
            "dtype": SAFETENSORS_DTYPES[self._checked.dtype],
            "shape": [rows, self.dimensions],
            "data_offsets": [0, rows * self.dimensions * self.dtype.itemsize],
        }
        if tensor != expected:
            raise BankIntegrityError(
                f"{path}: expected the tensor {TENSOR_NAME} as {expected}, got {tensor}. Rebuild it"
            )
        return header.data_start

    def iter_shards(self, *, verify: bool = False) -> Iterator[tuple[int, Rows]]:
        """Stream the shards in order; each one's map is let go with its view, so memory stays bounded.

        Args:
            verify: check each shard's checksum before it is yielded.

        Yields:
            The first row's number and a read-only view (n, d).

        Raises:
            BankIntegrityError: a shard is missing, short or damaged.
        """
        for index, shard in enumerate(self._checked.shards):
            if verify:
                check_file(self.path, shard.file, self._checked.files[shard.file])
            yield shard.start, self._map(index, sequential=True)

    def iter_blocks(self, block_rows: int) -> Iterator[tuple[int, Rows]]:
        """Stream blocks of rows in order, views where a block lies within a shard, in bounded memory.

        Args:
            block_rows: rows a block; the last one may be shorter.

        Yields:
            The first row's number and the block (n, d).
        """
        if block_rows < 1:
            raise InputError(f"{self.path}: block_rows must be at least 1, got {block_rows}")
        current, array = -1, np.empty((0, self.dimensions), dtype=self.dtype)
        for start in range(0, self.rows, block_rows):
            pieces = []
            for index, lo, hi in self._pieces(start, min(start + block_rows, self.rows)):
                if index != current:
                    current, array = index, self._map(index, sequential=True)
                pieces.append(array[lo:hi])
            yield start, _joined(pieces)

    def torch(self, start: int, stop: int) -> torch.Tensor:
        """Return rows as a tensor; without a copy when they lie within one shard.

        Writing to the tensor changes its own memory, never the file.

        Raises:
            IndexError: the range isn't within the bank.
        """
        import torch

        if not 0 <= start < stop <= self.rows:
            raise IndexError(f"rows {start}:{stop} of a bank of {self.rows} rows")
        pieces = [self._map(index, private=True)[lo:hi] for index, lo, hi in self._pieces(start, stop)]
        return torch.from_numpy(_joined(pieces))


def _joined(pieces: list[Rows]) -> Rows:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def open_bank(path: str | Path) -> Bank:
    """Open a bank: its manifest is checked and the size of every file, its checksums on demand.

    Args:
        path: the bank's folder.

    Raises:
        InputError: no bank is there.
        BankIntegrityError: the manifest was edited or contradicts itself, or a file is missing or truncated.
    """
    folder = Path(path)
    checked, raw = read_bank_manifest(folder)
    for shard in checked.shards:
        file = folder / shard.file
        size = file.stat().st_size if file.is_file() else None
        if size != shard.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise BankIntegrityError(f"{file}: {found}, expected {shard.bytes} bytes. Rebuild or fetch the bank again")
    return Bank(folder, checked, raw)


def require_same_corpus(banks: Sequence[Bank]) -> None:
    """Make sure that row i of all banks is the same text.

    Raises:
        FrameMismatchError: two banks are of different corpora; names both and their fingerprints.
    """
    for bank in banks[1:]:
        if bank.corpus_fingerprint != banks[0].corpus_fingerprint:
            raise FrameMismatchError(
                f"{banks[0].path} and {bank.path} are banks of different corpora: fingerprints "
                f"{banks[0].corpus_fingerprint[:12]}... ({banks[0].rows} rows) and {bank.corpus_fingerprint[:12]}... "
                f"({bank.rows} rows). Embed one corpus with both teachers"
            )
