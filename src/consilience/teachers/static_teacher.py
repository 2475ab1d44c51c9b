"""``static:`` teachers: a table of token vectors and a tokenizer; a text is the mean of its tokens' vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import TeacherError
from consilience.core.files import read_json
from consilience.core.hashing import file_sha256
from consilience.teachers.checked import check_embeddings
from consilience.teachers.pooling import normalise_rows
from consilience.teachers.provenance import tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.table_mean import mean_rows, text_blocks
from consilience.teachers.tokenizer_files import find_tokenizer, load_tokenizer


class StaticTeacher:
    """A static table, or a model2vec folder (``embeddings``, ``weights``, ``mapping``; its config's ``normalize``).

    Special tokens aren't added (option ``special_tokens=true`` adds them). In model2vec folders unknown tokens are left
    out, as that library does.

    Args:
        spec: backend "static"; the name is a safetensors file or a folder with ``model.safetensors``. The option
            ``tensor`` names the table where the file has several 2-D tensors.

    Raises:
        TeacherError: no such file, no single table, no tokenizer, or the two don't fit.
    """

    def __init__(self, spec: TeacherSpec) -> None:
        self.name = spec.canonical()
        given = Path(spec.name).expanduser()
        path = given / "model.safetensors" if given.is_dir() else given
        if not path.is_file():
            raise TeacherError(f"teacher {self.name}: {path}: no such file. Check the path")
        tensors = _read_tensors(path, self.name)
        table_name = _choose_table(tensors, spec.options.get("tensor"), self.name)
        self._table = np.ascontiguousarray(tensors[table_name], dtype=np.float32)
        config = read_json(path.with_name("config.json")) if path.with_name("config.json").is_file() else {}
        model2vec = table_name == "embeddings" and isinstance(config, dict) and "normalize" in config
        tokenizer_path = find_tokenizer(path, spec.options.get("tokenizer"), teacher=self.name)
        self._tokenizer = load_tokenizer(tokenizer_path, teacher=self.name)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.max_length = spec.integer("max_length")
        if self.max_length is not None:
            self._tokenizer.enable_truncation(self.max_length)
        self._special = spec.flag("special_tokens", False)
        self.prompt = spec.options.get("prompt", "")
        self.normalise = spec.flag("normalise", bool(config.get("normalize")) if model2vec else False)
        self._mapping: NDArray[np.int64] | None = None
        self._weights: NDArray[np.float32] | None = None
        if model2vec:
            self._take_model2vec(tensors)
        self._dropped = self._unknown_token() if model2vec else None
        rows = len(self._mapping) if self._mapping is not None else len(self._table)
        if self._tokenizer.get_vocab_size(with_added_tokens=True) > rows:
            raise TeacherError(
                f"teacher {self.name}: the tokenizer has {self._tokenizer.get_vocab_size()} tokens, the table {rows} "
                "rows. They don't belong together; pass the right tokenizer=PATH"
            )
        self.dimensions = int(self._table.shape[1])
        self.parameters: int | None = int(self._table.size)
        self._path = path
        self._weights_sha256, self._tokenizer_sha256 = file_sha256(path), tokenizer_sha256(self._tokenizer)

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors; neither batch size nor path."""
        return {
            "backend": "static",
            "name": self._path.name if self._path.name != "model.safetensors" else self._path.resolve().parent.name,
            "revision": None,
            "weights_sha256": self._weights_sha256,
            "tokenizer_sha256": self._tokenizer_sha256,
            "prompt": self.prompt,
            "pooling": "mean",
            "special_tokens": self._special,
            "max_length": self.max_length,
            "dtype": "fp32",
            "normalise": self.normalise,
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        result = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for start, block in text_blocks(texts):
            result[start : start + len(block)] = self._embed([self.prompt + text for text in block])
        checked = check_embeddings(result, rows=len(texts), dimensions=self.dimensions, teacher=self.name)
        return normalise_rows(checked) if self.normalise else checked

    def sum_lengths(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the length of the sum of each text's rows: how much the table lets it weigh in a longer text.

        Args:
            texts: as they are; no prompt is put before them.

        Returns:
            (n,), 0 for a text without tokens.
        """
        result = np.empty(len(texts), dtype=np.float32)
        for start, block in text_blocks(texts):
            encodings = self._tokenizer.encode_batch_fast(block, add_special_tokens=self._special)
            counts = [sum(token != self._dropped for token in encoding.ids) for encoding in encodings]
            result[start : start + len(block)] = np.linalg.norm(self._embed(block), axis=1) * np.array(counts)
        return result

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._special)
        ids = [encoding.ids for encoding in encodings]
        if self._dropped is not None:
            ids = [[token for token in row if token != self._dropped] for row in ids]
        if self._mapping is None and self._weights is None:
            return mean_rows(self._table, ids)
        if self._mapping is None:
            return mean_rows(self._table, ids, self._weights)
        mapping = self._mapping
        if self._weights is None:
            return mean_rows(self._table, [mapping[row].tolist() for row in ids])
        # Weights belong to tokens, table rows to groups of tokens: a table of the tokens seen joins them.
        seen = np.unique(np.fromiter((token for row in ids for token in row), dtype=np.int64))
        small = self._table[mapping[seen]] * self._weights[seen][:, None]
        return mean_rows(small, [np.searchsorted(seen, row).tolist() for row in ids])

    def _take_model2vec(self, tensors: dict[str, NDArray[Any]]) -> None:
        if "mapping" in tensors:
            self._mapping = tensors["mapping"].astype(np.int64)
            if self._mapping.size == 0 or self._mapping.min() < 0 or self._mapping.max() >= len(self._table):
                raise TeacherError(f"teacher {self.name}: its mapping points outside the table. Fetch the model again")
        if "weights" in tensors:
            self._weights = tensors["weights"].astype(np.float32)
            expected = len(self._table) if self._mapping is None else len(self._mapping)
            if self._weights.shape != (expected,):
                raise TeacherError(
                    f"teacher {self.name}: expected {expected} weights, got shape {self._weights.shape}. Fetch it again"
                )

    def _unknown_token(self) -> int | None:
        token = getattr(self._tokenizer.model, "unk_token", None)
        return None if token is None else self._tokenizer.token_to_id(token)


def _read_tensors(path: Path, teacher: str) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise TeacherError(f"teacher {teacher}: {path.name} isn't a readable safetensors file: {error}") from error


def _choose_table(tensors: dict[str, NDArray[Any]], wanted: str | None, teacher: str) -> str:
    tables = [name for name, tensor in tensors.items() if tensor.ndim == 2 and tensor.dtype.kind == "f"]
    if wanted is not None:
        tables = [name for name in tables if name == wanted]
    elif "embeddings" in tables:
        tables = ["embeddings"]
    if len(tables) != 1:
        shown = ", ".join(f"{name} {tensor.shape}" for name, tensor in sorted(tensors.items())) or "none"
        raise TeacherError(
            f"teacher {teacher}: expected one 2-D float table, the file's tensors are {shown}. Pass tensor=NAME"
        )
    return tables[0]
