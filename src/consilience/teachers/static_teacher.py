"""``static:`` teachers: a table of token vectors and a tokenizer; a text is the mean of its tokens' vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.files import read_json
from consilience.core.hashing import file_sha256
from consilience.core.safetensors_files import read_arrays, weight_files
from consilience.teachers.boundary import model_call
from consilience.teachers.checked import check_embeddings
from consilience.teachers.folder_settings import FolderSettings
from consilience.teachers.pooling import normalise_rows
from consilience.teachers.provenance import files_sha256, tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.table_mean import mean_rows, text_blocks
from consilience.teachers.tokenizer_files import find_tokenizer, load_tokenizer

_MODEL2VEC_LENGTH = 512  # cited: model2vec 0.10, DEFAULT_MAX_LENGTH


class StaticTeacher:
    """A static table, or a model2vec folder (``embeddings``, ``weights``, ``mapping``; its config's ``normalize``).

    Special tokens aren't added (option ``special_tokens=true`` adds them). Tables may be fp32, fp16, bf16, fp8 or int8
    without scales. Of model2vec folders (the table is called ``embeddings`` and has a config) the vectors are that
    library's: unknown tokens are left out, and a text is cut at the config's ``max_length``, 512 where it has none:
    first at so many characters as that many tokens of median length have, then at the tokens.

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
        files, tensors = _read_tensors(path, self.name)
        table_name = _choose_table(tensors, spec.options.get("tensor"), self.name)
        self._table = np.ascontiguousarray(tensors[table_name], dtype=np.float32)
        config = read_json(path.with_name("config.json")) if path.with_name("config.json").is_file() else {}
        config = config if isinstance(config, dict) else {}
        belongs = path.with_name("config.json").is_file() or bool({"weights", "mapping"} & {*tensors})
        model2vec = table_name == "embeddings" and belongs
        settings = FolderSettings(path.parent, self.name)
        settings.require_plain(("StaticEmbedding", "Normalize"), "copy the table and tokenizer.json out of the folder")
        tokenizer_path = find_tokenizer(path, spec.options.get("tokenizer"), teacher=self.name)
        self._tokenizer = load_tokenizer(tokenizer_path, teacher=self.name)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.max_length: int | None = spec.integer("max_length")
        if model2vec and self.max_length is None:
            self.max_length = config.get("max_length", _MODEL2VEC_LENGTH)
            if self.max_length is not None and (type(self.max_length) is not int or self.max_length < 1):
                raise TeacherError(
                    f"teacher {self.name}: expected a whole number or null as max_length in config.json, got "
                    f"{self.max_length!r}. Pass max_length=TOKENS"
                )
        self._characters: int | None = None
        if self.max_length is not None:
            self._tokenizer.enable_truncation(self.max_length)
            if model2vec:
                self._characters = self.max_length * int(np.median([len(word) for word in self._tokenizer.get_vocab()]))
        self._special = spec.flag("special_tokens", False)
        self.prompt = settings.prompt(spec.options.get("prompt"))
        declared = bool(config.get("normalize")) if model2vec else False
        self.normalise = spec.flag("normalise", declared or settings.normalises())
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
        whole = file_sha256(path) if files == [path] else files_sha256([(file.name, file) for file in files])
        self._weights_sha256, self._tokenizer_sha256 = whole, tokenizer_sha256(self._tokenizer)

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
            with model_call(self.name, f"split {len(block)} texts into tokens", "Pass another tokenizer=PATH"):
                ids = self._tokenize([self.prompt + text for text in block])
            result[start : start + len(block)] = self._mean(ids)
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
            ids = self._tokenize(block)
            lengths = np.linalg.norm(self._mean(ids), axis=1)
            result[start : start + len(block)] = lengths * np.array([len(row) for row in ids])
        return result

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        cut = texts if self._characters is None else [text[: self._characters] for text in texts]
        encodings = self._tokenizer.encode_batch_fast(cut, add_special_tokens=self._special)
        if self._dropped is None:
            return [encoding.ids for encoding in encodings]
        return [[token for token in encoding.ids if token != self._dropped] for encoding in encodings]

    def _mean(self, ids: list[list[int]]) -> NDArray[np.float32]:
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
        model = json.loads(self._tokenizer.to_str())["model"]
        if "unk_id" in model:  # of Unigram; the others name it
            unknown: int | None = model["unk_id"]
            return unknown
        return None if model.get("unk_token") is None else self._tokenizer.token_to_id(model["unk_token"])


def is_model2vec(folder: Path) -> bool:
    """Tell whether a folder is model2vec's; no other library reads the table as it does."""
    from safetensors import SafetensorError, safe_open

    weights = folder / "model.safetensors"
    if not weights.is_file() or not (folder / "config.json").is_file():
        return False
    try:
        with safe_open(weights, "np") as file:
            return "embeddings" in file.keys()  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError):
        return False


def _read_tensors(path: Path, teacher: str) -> tuple[list[Path], dict[str, NDArray[Any]]]:
    try:
        files = weight_files(path)
        tensors = {name: tensor for file in files for name, tensor in read_arrays(file).items()}
    except InputError as error:
        raise TeacherError(f"teacher {teacher}: {error}") from error
    if not files:
        raise TeacherError(f"teacher {teacher}: {path}: no such file. Check the path")
    return files, tensors


def _choose_table(tensors: dict[str, NDArray[Any]], wanted: str | None, teacher: str) -> str:
    tables = [
        name
        for name, tensor in tensors.items()
        if tensor.ndim == 2 and (tensor.dtype.kind == "f" or tensor.dtype == np.int8)
    ]
    if wanted is not None:
        tables = [name for name in tables if name == wanted]
    elif "embeddings" in tables:
        tables = ["embeddings"]
    if len(tables) != 1:
        shown = ", ".join(f"{name} {tensor.shape}" for name, tensor in sorted(tensors.items())) or "none"
        raise TeacherError(
            f"teacher {teacher}: expected one 2-D table of floats or int8, the file's tensors are {shown}. "
            "Pass tensor=NAME"
        )
    scales = [name for name in tensors if "scale" in name or "zero_point" in name]
    if scales:
        raise TeacherError(
            f"teacher {teacher}: its table comes with {', '.join(scales)}, and how they multiply isn't known here. "
            "Store the table as floats, scales multiplied in"
        )
    return tables[0]
