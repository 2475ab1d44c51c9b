"""``onnx:`` teachers: an ONNX graph run by onnxruntime, and a tokenizer file."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.extras import require
from consilience.core.files import read_json
from consilience.core.hashing import file_sha256
from consilience.teachers.batching import DEFAULT_BATCH_TOKENS, plan_batches
from consilience.teachers.boundary import model_call, say_one_by_one, try_first_use
from consilience.teachers.checked import check_embeddings
from consilience.teachers.folder_settings import FolderSettings
from consilience.teachers.pooling import normalise_rows, pool_numpy
from consilience.teachers.position_limit import NO_LIMIT, require_room
from consilience.teachers.provenance import files_sha256, tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.token_runner import ONE_BATCH
from consilience.teachers.tokenizer_files import find_tokenizer, load_tokenizer

_FLOATS = {"tensor(float)", "tensor(float16)", "tensor(double)"}
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
# Assumed when neither the spec nor a file beside the graph says: the position table of BERT's family.
_FALLBACK_MAX_LENGTH = 512
# As sentence-transformers' exports, its backend and text-embeddings-inference call them.
_SENTENCES = "sentence_embedding"
_STATES = ("token_embeddings", "last_hidden_state")
# BERT's head for next sentences, a tanh of the first token: in many graphs, and never meant as an embedding.
_POOLER = "pooler_output"


class OnnxTeacher:
    """An ONNX graph that takes tokens.

    Inputs are filled by name: ``input_ids``, ``attention_mask``, ``token_type_ids`` (zeros), ``position_ids``; fixed
    batch sizes and lengths are filled up. The output is the option ``output``; else, with ``pool``, the token states;
    else ``sentence_embedding``, else ``token_embeddings`` or ``last_hidden_state``, pooled as the folder's
    ``modules.json`` says (without it, by the mean), else the only float output. Other graphs are refused with the
    choices.

    Args:
        spec: backend "onnx"; the name is a file, or a folder with ``model.onnx`` (or ``onnx/model.onnx``).

    Raises:
        TeacherError: no such file, not a graph of this kind, no tokenizer.
        InputError: the output or the pooling has to be chosen.
        MissingExtraError: onnxruntime isn't installed.
    """

    def __init__(self, spec: TeacherSpec) -> None:
        runtime = require("onnxruntime", extra="onnx", purpose="to run onnx: teachers")
        self.name = spec.canonical()
        path = _graph_file(spec)
        tokenizer_path = find_tokenizer(path, spec.options.get("tokenizer"), teacher=self.name)
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        with model_call(self.name, "load it", "Fetch the file again, with the .onnx_data beside it if it has one"):
            self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs, self._fixed = self._check_inputs()
        self._tokenizer = load_tokenizer(tokenizer_path, teacher=self.name)
        settings = FolderSettings(_settings_folder(path, tokenizer_path), self.name)
        longest = self._fixed[1] or settings.max_length() or _declared_max_length(tokenizer_path, self._tokenizer)
        self.max_length = spec.integer("max_length") or longest
        require_room(self.max_length, self._tokenizer.num_special_tokens_to_add(is_pair=False), self.name)
        if self._fixed[1] and self.max_length > self._fixed[1]:
            raise InputError(f"teacher {self.name}: the graph takes {self._fixed[1]} tokens. Lower max_length")
        self._pad = (self._tokenizer.padding or {}).get("pad_id", 0)
        direction = (self._tokenizer.truncation or {}).get("direction", "right")
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_length, direction=direction)
        settings.lowercase(self._tokenizer)
        self.prompt = settings.prompt(spec.options.get("prompt"))
        self._batch_tokens = spec.integer("batch_tokens") or DEFAULT_BATCH_TOKENS
        self._output, self.pooling = self._choose_output(spec, settings)
        bare = "pool" in spec.options or self.pooling is None  # finished vectors are as the graph gives them
        self.normalise = spec.flag("normalise", not bare and settings.normalises())
        self._spec, self._path = spec, path
        data = [(file.name, file) for file in sorted(path.parent.glob(path.name + "?data"))]
        self._weights_sha256 = files_sha256([("model", path), *data]) if data else file_sha256(path)
        self._tokenizer_sha256 = tokenizer_sha256(self._tokenizer)
        self.parameters = _count_parameters(path)
        self.dimensions = self._try()

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors; neither batch size nor path."""
        return {
            "backend": "onnx",
            "name": self._path.name,
            "revision": None,
            "weights_sha256": self._weights_sha256,
            "tokenizer_sha256": self._tokenizer_sha256,
            "prompt": self.prompt,
            "pooling": self.pooling,
            "output": self._output,
            "max_length": self.max_length,
            "dtype": "graph",
            "normalise": self.normalise,
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        checked = check_embeddings(self._embed(texts), rows=len(texts), dimensions=self.dimensions, teacher=self.name)
        return normalise_rows(checked) if self.normalise else checked

    def _try(self) -> int:
        """Embed probes and the vocabulary's last token, and return the width."""
        last = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        with model_call(self.name, f"embed the tokenizer's last token, {last}", "Pass the graph's own tokenizer="):
            self._run([[last]])
        _, alone, share = try_first_use(
            lambda texts, together: self._encode(texts, ONE_BATCH if together else 1),
            teacher=self.name,
            max_length=self.max_length,
            fix="Export the graph again, with dynamic axes for batch and sequence",
        )
        if not share:
            self._batch_tokens = 1
            say_one_by_one(self.name)
        return int(alone.shape[1])

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with model_call(self.name, f"embed {len(texts)} texts", "Try a smaller max_length= or batch_tokens="):
            return self._encode(texts, self._batch_tokens)

    def _encode(self, texts: Sequence[str], batch_tokens: int) -> NDArray[np.float32]:
        encodings = self._tokenizer.encode_batch([self.prompt + text for text in texts])
        ids = [encoding.ids or [self._pad] for encoding in encodings]
        result: NDArray[np.float32] | None = None
        for rows in plan_batches([len(row) for row in ids], batch_tokens):
            for chunk in np.split(rows, range(self._fixed[0], len(rows), self._fixed[0])) if self._fixed[0] else [rows]:
                vectors = self._run([ids[row] for row in chunk])
                if result is None:
                    result = np.empty((len(ids), vectors.shape[1]), dtype=np.float32)
                result[chunk] = vectors
        if result is None:
            raise TeacherError(f"teacher {self.name}: no batch was run. Report this")
        return result

    def _run(self, ids: list[list[int]]) -> NDArray[np.float32]:
        states, lengths = self._call(ids, [self._output])[0], np.array([len(row) for row in ids], dtype=np.int64)
        if self.pooling is not None and states.ndim == 3:
            states = pool_numpy(states, lengths, self.pooling)
        if states.ndim != 2 or len(states) != len(ids):
            raise TeacherError(
                f"teacher {self.name}: output {self._output!r} has shape {states.shape} for {len(ids)} texts, expected "
                f"({len(ids)}, d). Choose another with output=NAME"
            )
        return states.astype(np.float32)

    def _call(self, ids: list[list[int]], outputs: list[str]) -> list[NDArray[Any]]:
        """Run the graph; rows that only fill a fixed batch are cut off again."""
        rows, width = self._fixed
        lengths = np.array([len(row) for row in ids] + [1] * (rows - len(ids)), dtype=np.int64)
        block = np.full((len(lengths), width or int(lengths.max())), self._pad, dtype=np.int64)
        for position, row in enumerate(ids):
            block[position, : len(row)] = row
        steps = np.arange(block.shape[1], dtype=np.int64)[None, :]
        values = {
            "input_ids": block,
            "attention_mask": (steps < lengths[:, None]).astype(np.int64),
            "token_type_ids": np.zeros_like(block),
            "position_ids": np.broadcast_to(steps, block.shape),
        }
        feed = {name: np.ascontiguousarray(values[name], dtype=dtype) for name, dtype in self._inputs.items()}
        return [np.asarray(output)[: len(ids)] for output in self._session.run(outputs, feed)]

    def _check_inputs(self) -> tuple[dict[str, Any], tuple[int, int]]:
        """Return the type of each input, and the batch size and length that the graph is fixed to (0: any)."""
        known = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        inputs: dict[str, Any] = {}
        fixed = (0, 0)
        for item in self._session.get_inputs():
            if item.name not in known or item.type not in _INTEGERS:
                raise TeacherError(
                    f"teacher {self.name}: graph input {item.name!r} of type {item.type} can't be filled; known inputs "
                    f"are {', '.join(known)} (integers). Export the model with those names"
                )
            inputs[item.name] = _INTEGERS[item.type]
            if item.name == "input_ids" and len(item.shape) == 2:
                rows, width = (size if isinstance(size, int) and size > 0 else 0 for size in item.shape)
                fixed = (rows, width)
        if "input_ids" not in inputs:
            raise TeacherError(
                f"teacher {self.name}: the graph has no input 'input_ids'. Export the model with that name"
            )
        return inputs, fixed

    def _choose_output(self, spec: TeacherSpec, settings: FolderSettings) -> tuple[str, str | None]:
        """Return the output to read and how its token states are pooled (None: it holds finished vectors)."""
        names = [item.name for item in self._session.get_outputs() if item.type in _FLOATS]
        wanted, pool = spec.options.get("output"), spec.options.get("pool")
        with model_call(self.name, "run the graph", "Export it again, with dynamic axes for batch and sequence"):
            dims = dict(zip(names, (array.ndim for array in self._call([[self._pad]], names)), strict=True))
        states = [name for name in dims if dims[name] == 3]
        vectors = [name for name in dims if dims[name] == 2]
        if wanted is None:
            wanted = self._conventional(states, vectors, pool)
        if wanted is None or wanted not in states + vectors:
            choices = [f"output={name}" for name in vectors] + [f"output={name}&pool=mean" for name in states]
            what = f"has no output {wanted!r} of vectors or token states" if wanted else "has several readings"
            raise InputError(
                f"teacher {self.name}: the graph {what if choices else 'has no float output of 2 or 3 axes'}. Choose "
                f"{' or '.join(choices) or 'another file'}"
            )
        if wanted in states:
            return wanted, settings.pooling(pool, prompt=self.prompt)
        if pool is not None:
            raise InputError(
                f"teacher {self.name}: output {wanted!r} holds finished vectors, which pool={pool} can't pool. Leave "
                f"pool= out{f' or choose output={states[0]}' if states else ''}"
            )
        return wanted, None

    @staticmethod
    def _conventional(states: list[str], vectors: list[str], pool: str | None) -> str | None:
        """Return the output that the usual names or the lack of a choice point at, or None."""
        named = next((name for name in _STATES if name in states), None) or (states[0] if len(states) == 1 else None)
        if pool is not None:
            return named if states else next(iter(vectors), None)
        if _SENTENCES in vectors:
            return _SENTENCES
        meant = [name for name in vectors if name != _POOLER]
        if states:
            return None if meant else named
        return meant[0] if len(meant) == 1 else (_POOLER if vectors == [_POOLER] else None)


def _graph_file(spec: TeacherSpec) -> Path:
    path = Path(spec.name).expanduser()
    if path.is_dir():
        for candidate in (path / "model.onnx", path / "onnx" / "model.onnx"):
            if candidate.is_file():
                return candidate
        raise TeacherError(f"teacher {spec.canonical()}: the folder has no model.onnx or onnx/model.onnx")
    if not path.is_file():
        raise TeacherError(f"teacher {spec.canonical()}: no such file. Check the path")
    return path


def _settings_folder(path: Path, tokenizer_path: Path) -> Path:
    """Return where sentence-transformers' settings lie: beside the tokenizer, or above the graph's folder ``onnx``."""
    places = [tokenizer_path.parent, path.parent, *([path.parent.parent] if path.parent.name == "onnx" else [])]
    return next((place for place in places if (place / "modules.json").is_file()), tokenizer_path.parent)


def _declared_max_length(tokenizer_path: Path, tokenizer: Any) -> int:  # noqa: ANN401 - tokenizers.Tokenizer
    path = tokenizer_path.with_name("tokenizer_config.json")
    settings = read_json(path) if path.is_file() else {}
    declared = settings.get("model_max_length") if isinstance(settings, dict) else None
    if isinstance(declared, int) and 0 < declared < NO_LIMIT:
        return declared
    return int((tokenizer.truncation or {}).get("max_length", _FALLBACK_MAX_LENGTH))


def _count_parameters(path: Path) -> int | None:
    if importlib.util.find_spec("onnx") is None:
        return None
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.INT8,  # of quantised files, whose scales and zero points count a little, too
        onnx.TensorProto.UINT8,
    }
    return sum(int(np.prod(item.dims)) for item in graph.initializer if item.data_type in weights and item.dims)
