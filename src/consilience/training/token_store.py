"""The corpus as token ids: tokenised once, memory-mapped afterwards, never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import CorpusError, InputError
from consilience.core.files import atomic_write, read_json, write_json
from consilience.core.hashing import RowHasher, file_sha256

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TOKENS, _OFFSETS, _KEY = "tokens.bin", "offsets.bin", "store.json"


class TokenStore:
    """Rows of token ids, special tokens included.

    Args:
        folder: made by :func:`build_token_store`.
    """

    def __init__(self, folder: Path) -> None:
        key = read_json(folder / _KEY)
        self.pad = int(key["pad"])
        self._tokens: NDArray[Any] = np.memmap(folder / _TOKENS, dtype=key["dtype"], mode="r")
        self._offsets: NDArray[np.int64] = np.memmap(folder / _OFFSETS, dtype="<i8", mode="r")
        if len(self._offsets) != key["key"]["rows"] + 1 or self._offsets[-1] != len(self._tokens):
            raise InputError(f"{folder}: the token store is damaged. Delete the folder and run the command again")
        self.lengths: NDArray[np.int32] = np.diff(self._offsets).astype(np.int32)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Return one row's ids."""
        return self._tokens[self._offsets[row] : self._offsets[row + 1]]

    def blocks(self, tokens: int = 1 << 20) -> Iterable[NDArray[Any]]:
        """Yield all ids in order, so many at a time."""
        for start in range(0, len(self._tokens), tokens):
            yield self._tokens[start : start + tokens]

    def gather(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Return rows as one padded matrix, and the mask, or None when no row is padded.

        Args:
            rows: row numbers (b,).

        Returns:
            Ids (b, s) and mask (b, s), 1 for tokens.
        """
        lengths = self.lengths[rows]
        width = int(lengths.max())
        columns = np.arange(width)
        places = self._offsets[rows][:, None] + columns
        if int(lengths.min()) == width:
            return self._tokens[places].astype(np.int64), None
        mask = columns < lengths[:, None]
        ids = self._tokens[np.where(mask, places, 0)].astype(np.int64)
        ids[~mask] = self.pad
        return ids, mask.astype(np.int64)


def build_token_store(
    batches: Iterable[list[str]],
    folder: Path,
    *,
    tokenizer: Tokenizer,
    tokenizer_sha256: str,
    pad: int,
    max_length: int,
    corpus_fingerprint: str,
    rows: int,
) -> TokenStore:
    """Tokenise a corpus into a folder, or open the equal store that is there.

    Files are written to temporary names and the key last, so a killed build leaves nothing that looks finished.

    Args:
        batches: the corpus, in order; read only when there is no store yet.
        folder: where the store is; made if needed.
        tokenizer: the student's.
        tokenizer_sha256: its hash.
        pad: id of its padding token.
        max_length: tokens a row is cut to, special ones included.
        corpus_fingerprint: of the rows; checked again while they are read.
        rows: how many there are.

    Raises:
        CorpusError: the corpus changed since it was fingerprinted.
        StorageError: the disk is full.
    """
    key = {"corpus": corpus_fingerprint, "max_length": max_length, "rows": rows, "tokenizer": tokenizer_sha256}
    if _is_whole(folder, key):
        return TokenStore(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _KEY).unlink(missing_ok=True)
    dtype = np.dtype("<u2" if tokenizer.get_vocab_size() <= 1 << 16 else "<u4")
    cutter = type(tokenizer).from_str(tokenizer.to_str())
    cutter.enable_truncation(max_length)
    hasher = RowHasher()
    end = 0
    with atomic_write(folder / _TOKENS) as tokens, atomic_write(folder / _OFFSETS) as offsets:
        offsets.write(np.zeros(1, dtype="<i8").tobytes())
        for texts in batches:
            encodings = cutter.encode_batch_fast(texts)
            lengths = np.array([len(encoding.ids) for encoding in encodings], dtype="<i8")
            if lengths.size and lengths.min() < 1:
                row = hasher.rows + int(np.argmin(lengths))
                raise CorpusError(f"row {row}: the tokenizer makes no tokens of it. Drop the row or change tokenizers")
            offsets.write((end + np.cumsum(lengths)).astype("<i8").tobytes())
            end += int(lengths.sum())
            tokens.write(np.concatenate([np.asarray(encoding.ids, dtype=dtype) for encoding in encodings]).tobytes())
            for text in texts:
                hasher.update(text)
    if hasher.rows != rows or hasher.hexdigest() != corpus_fingerprint:
        raise CorpusError("the corpus changed while it was read. Run the same command again")
    sums = {name: file_sha256(folder / name) for name in (_TOKENS, _OFFSETS)}
    write_json(folder / _KEY, {"key": key, "dtype": dtype.str, "pad": pad, "tokens": end, "files": sums})
    return TokenStore(folder)


def _is_whole(folder: Path, key: Mapping[str, Any]) -> bool:
    """Tell whether the store of this key is there, as it was written; a damaged one is built again."""
    try:
        found = read_json(folder / _KEY)
        sums = {name: file_sha256(folder / name) for name in (_TOKENS, _OFFSETS)}
    except (InputError, OSError):
        return False
    return isinstance(found, dict) and found.get("key") == key and found.get("files") == sums
