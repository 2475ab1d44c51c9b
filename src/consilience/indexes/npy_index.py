"""An array of vectors in a .npy file; ids are row numbers, or the lines of a text file beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.artefacts import read_plan
from consilience.core.errors import CorpusError, InputError
from consilience.core.files import place
from consilience.core.manifests import partial_path
from consilience.core.placing import require_place
from consilience.core.text_files import is_decodable, iter_lines
from consilience.indexes.index import (
    Block,
    Metric,
    Transform,
    VectorIndex,
    Vectors,
    checked_blocks,
    fingerprint_blocks,
    is_row_number,
    lookup_by_scan,
    require_ids,
    require_rows,
    transformed,
)
from consilience.indexes.publish import published, require_new
from consilience.indexes.spec import IndexSpec


def ids_path(path: Path) -> Path:
    """Return where the ids of a .npy file are, one a line: ``FILE.npy.ids.txt``."""
    return path.with_name(path.name + ".ids.txt")


class NpyIndex:
    """A memory-mapped .npy file of floats (rows, dimensions).

    Args:
        path: the file.
        ids: "ids=FILE", a text file with one id a line; by default ``FILE.ids.txt`` beside the array where there is
            one, else row numbers.
        metric: what the vectors are compared by; the file doesn't say.

    Raises:
        InputError: no such file, not rows of floats, empty, or another number of ids than of rows.
    """

    kind = "npy"

    def __init__(self, path: Path, *, ids: str | None = None, metric: Metric | None = None) -> None:
        self.label = f"npy:{path}"
        self.spec = IndexSpec("npy", str(path), None)
        self.metric: Metric = metric or "cosine"
        self._path = path
        self.rows, self.dimensions = self._array().shape
        if ids is not None and not ids.startswith("ids="):
            raise InputError(f"{self.label}#{ids}: expected #ids=FILE behind the path. Write it so")
        self._ids: Path | None = Path(ids.removeprefix("ids=")) if ids is not None else ids_path(path)
        if ids is None and not ids_path(path).exists():
            self._ids = None
        if self._ids is not None:
            lines = sum(1 for _ in self._id_lines())
            if lines != self.rows:
                raise InputError(
                    f"{self._ids}: expected one id for each of the {self.rows} rows of {path}, got {lines}. "
                    "Give the ids that belong to it, one a line"
                )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored type."""
        return self._array().dtype

    @property
    def has_ids(self) -> bool:
        """Whether ids come from a file; if not, they are row numbers."""
        return self._ids is not None

    def iter_blocks(self, rows: int = 8192) -> Iterator[Block]:
        """See :meth:`VectorIndex.iter_blocks`."""
        return checked_blocks(self, lambda: self._blocks(rows), unique=self._ids is None)

    def lookup(self, ids: Sequence[str]) -> Vectors:
        """See :meth:`VectorIndex.lookup`."""
        if self._ids is not None:
            return lookup_by_scan(self, self._blocks(8192), ids)
        known = [is_row_number(name, self.rows) for name in ids]
        require_ids(self.label, [name for name, there in zip(ids, known, strict=True) if not there], len(ids))
        return np.asarray(self._array()[[int(name) for name in ids]], dtype=np.float32)

    def fingerprint(self) -> str:
        """See :meth:`VectorIndex.fingerprint`."""
        return fingerprint_blocks(self.iter_blocks())

    def require_target(self, out: str, fragment: str | None) -> None:
        """See :meth:`RewritableIndex.require_target`."""
        if fragment is not None:
            raise InputError(f"{out}#{fragment}: the ids go to {ids_path(Path(out))}. Leave out the #")
        require_new(Path(out), self._path)
        if self.has_ids:
            require_new_ids(Path(out))

    def rewrite(self, out: str, fragment: str | None, transform: Transform, dimensions: int, block_rows: int) -> None:
        """Write a new .npy file of the same type, and its ids beside it if they aren't row numbers."""
        self.require_target(out, fragment)
        write_npy(self, Path(out), transform, dimensions, block_rows)

    def _array(self) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(self._path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise InputError(f"{self._path}: no such file. Check the path") from error
        except (ValueError, EOFError, OSError) as error:
            raise InputError(
                f"{self._path}: not a whole .npy file of numbers ({error}). Write it with numpy.save"
            ) from error
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f" or array.shape[1] == 0:
            found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "an archive"
            raise InputError(
                f"{self._path}: expected rows of floating-point numbers, got {found}. "
                "Save a two-dimensional float array"
            )
        require_rows(self.label, len(array))
        return array

    def _blocks(self, rows: int) -> Iterator[Block]:
        lines = self._id_lines() if self._ids is not None else None
        for start in range(0, self.rows, rows):
            # Mapped anew for each block: pages that were read stop counting as resident memory.
            vectors = np.array(self._array()[start : start + rows], dtype=np.float32)
            numbers = range(start, start + len(vectors))
            yield [str(i) for i in numbers] if lines is None else [next(lines) for _ in numbers], vectors

    def _id_lines(self) -> Iterator[str]:
        path = self._ids or ids_path(self._path)
        if not path.exists():
            raise InputError(f"{path}: no such file of ids. Check the path")
        try:
            for number, line in iter_lines(path, str(path)):
                if not is_decodable(line):
                    raise InputError(f"{path}: line {number} isn't UTF-8 text. Write the ids as UTF-8, one a line")
                yield line
        except CorpusError as error:
            raise InputError(f"{path}: can't be read as a list of ids ({error})") from error


def write_npy(source: VectorIndex, out: Path, transform: Transform, dimensions: int, block_rows: int) -> None:
    """Write the transformed vectors of any index as a .npy file, with its ids beside it.

    The ids get their name before the array does, so an array that is there has its ids.

    Raises:
        InputError: ``out`` or its ids exist already, or an id holds a line break.
    """
    plain = isinstance(source, NpyIndex) and not source.has_ids
    dtype = source.dtype if isinstance(source, NpyIndex) else np.dtype(np.float32)
    names = ids_path(out)
    if out.exists():
        raise InputError(f"{out}: already exists. Choose another --rewrite or move it away")
    with published(out) as partial:
        fresh_ids = partial.with_name(names.name)
        number = dtype.newbyteorder("<").str
        header = {"descr": number, "fortran_order": False, "shape": (source.rows, dimensions)}
        done = 0
        # Written as a stream: the pages of a mapped file would count as memory until they are on the disk.
        with partial.open("wb") as array, fresh_ids.open("w", encoding="utf-8", newline="\n") as stream:
            np.lib.format.write_array_header_1_0(array, header)
            for ids, vectors in source.iter_blocks(block_rows):
                new = transformed(source.label, transform, ids, vectors, dimensions)
                array.write(new.astype(number).tobytes())
                done += len(ids)
                for name in ids:
                    if "\n" in name or "\r" in name:
                        raise InputError(
                            f"{source.label}: id {name!r} has a line break, which a list of ids can't hold. "
                            "Write a parquet file instead"
                        )
                    stream.write(name + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        if done != source.rows:
            raise InputError(
                f"{source.label}: had {source.rows} rows when it was opened and {done} now: it's being changed. "
                "Run the command again when nothing writes to it"
            )
        if not plain:
            _place_ids(fresh_ids, names)


def require_new_ids(out: Path) -> None:
    """Refuse early to write ids where somebody's file is; a killed run leaves its working folder beside its ids.

    Raises:
        InputError: the file of ids exists, or is no place for a new file.
    """
    names = ids_path(out)
    require_place(names, option="--rewrite")
    if names.exists() and read_plan(partial_path(out)) is None:
        raise InputError(f"{names}: already exists. Choose another --rewrite or move it away")


def _place_ids(fresh: Path, names: Path) -> None:
    """Rename the list of ids; one that a killed run left is the same, another one is somebody's."""
    if not os.path.lexists(names):
        place(fresh, names)
    elif not names.is_file() or names.read_bytes() != fresh.read_bytes():
        raise InputError(f"{names}: already exists and lists other ids. Choose another --rewrite or move it away")
