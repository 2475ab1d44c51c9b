"""``onnx:`` teachers: an ONNX graph run by onnxruntime, and a tokenizer file."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import TeacherError
from consilience.core.extras import require
from consilience.core.files import read_json
from consilience.core.hashing import file_sha256
from consilience.teachers.batching import DEFAULT_BATCH_TOKENS, plan_batches
from consilience.teachers.checked import check_embeddings
from consilience.teachers.pooling import normalise_rows, pool_numpy
from consilience.teachers.provenance import files_sha256, tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.token_runner import first_line
from consilience.teachers.tokenizer_files import find_tokenizer, load_tokenizer

_FLOATS = {"tensor(float)", "tensor(float16)", "tensor(double)"}
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
# Assumed when neither the spec nor a file beside the graph says: the position table of BERT's family.
_FALLBACK_MAX_LENGTH = 512


class OnnxTeacher:
    """An ONNX graph that takes tokens.

    Inputs are filled by name: ``input_ids``, ``attention_mask``, ``token_type_ids`` (zeros), ``position_ids``. The
    output is the option ``output``, else the last 2-D float output (a pooled embedding), else the first 3-D float one
    with the pooling ``pool`` (default mean).

    Args:
        spec: backend "onnx"; the name is a file, or a folder with ``model.onnx`` (or ``onnx/model.onnx``).

    Raises:
        TeacherError: no such file, not a graph of this kind, no tokenizer.
        MissingExtraError: onnxruntime isn't installed.
    """

    def __init__(self, spec: TeacherSpec) -> None:
        runtime = require("onnxruntime", extra="onnx", purpose="to run onnx: teachers")
        self.name = spec.canonical()
        path = _graph_file(spec)
        tokenizer_path = find_tokenizer(path, spec.options.get("tokenizer"), teacher=self.name)
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises its own classes, which derive from nothing narrower
            raise TeacherError(f"teacher {self.name}: onnxruntime can't load it: {first_line(error)}") from error
        self._inputs = self._check_inputs()
        self._output, self._pooled = self._choose_output(spec.options.get("output"))
        self.pooling = None if self._pooled else spec.options.get("pool", "mean")
        self._tokenizer = load_tokenizer(tokenizer_path, teacher=self.name)
        self.max_length = spec.integer("max_length") or _declared_max_length(tokenizer_path, self._tokenizer)
        self._pad = (self._tokenizer.padding or {}).get("pad_id", 0)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_length)
        self.prompt = spec.options.get("prompt", "")
        self.normalise = spec.flag("normalise", False)
        self._batch_tokens = spec.integer("batch_tokens") or DEFAULT_BATCH_TOKENS
        self._spec, self._path = spec, path
        data = [(file.name, file) for file in sorted(path.parent.glob(path.name + "?data"))]
        self._weights_sha256 = files_sha256([("model", path), *data]) if data else file_sha256(path)
        self._tokenizer_sha256 = tokenizer_sha256(self._tokenizer)
        self.parameters = _count_parameters(path)
        self.dimensions = int(self._embed(["a"]).shape[1])

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

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        encodings = self._tokenizer.encode_batch([self.prompt + text for text in texts])
        ids = [encoding.ids or [self._pad] for encoding in encodings]
        result: NDArray[np.float32] | None = None
        for rows in plan_batches([len(row) for row in ids], self._batch_tokens):
            vectors = self._run([ids[row] for row in rows])
            if result is None:
                result = np.empty((len(ids), vectors.shape[1]), dtype=np.float32)
            result[rows] = vectors
        if result is None:
            raise TeacherError(f"teacher {self.name}: no batch was run. Report this")
        return result

    def _run(self, ids: list[list[int]]) -> NDArray[np.float32]:
        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        block = np.full((len(ids), int(lengths.max())), self._pad, dtype=np.int64)
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
        try:
            states = np.asarray(self._session.run([self._output], feed)[0])
        except Exception as error:  # as above
            raise TeacherError(f"teacher {self.name}: the graph failed: {first_line(error)}") from error
        if not self._pooled:
            states = pool_numpy(states, lengths, self.pooling or "mean")
        if states.ndim != 2 or len(states) != len(ids):
            raise TeacherError(
                f"teacher {self.name}: output {self._output!r} has shape {states.shape} for {len(ids)} texts, expected "
                f"({len(ids)}, d). Choose another with output=NAME"
            )
        return states.astype(np.float32)

    def _check_inputs(self) -> dict[str, Any]:
        known = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        inputs: dict[str, Any] = {}
        for item in self._session.get_inputs():
            if item.name not in known or item.type not in _INTEGERS:
                raise TeacherError(
                    f"teacher {self.name}: graph input {item.name!r} of type {item.type} can't be filled; known inputs "
                    f"are {', '.join(known)} (integers). Export the model with those names"
                )
            inputs[item.name] = _INTEGERS[item.type]
        if "input_ids" not in inputs:
            raise TeacherError(
                f"teacher {self.name}: the graph has no input 'input_ids'. Export the model with that name"
            )
        return inputs

    def _choose_output(self, wanted: str | None) -> tuple[str, bool]:
        outputs = self._session.get_outputs()
        floats = [item for item in outputs if item.type in _FLOATS]
        if wanted is not None:
            floats = [item for item in floats if item.name == wanted]
        flat = [item for item in floats if len(item.shape) == 2]
        deep = [item for item in floats if len(item.shape) == 3]
        if flat:
            return flat[-1].name, True
        if deep:
            return deep[0].name, False
        shown = ", ".join(f"{item.name} {item.type} {item.shape}" for item in outputs)
        raise TeacherError(
            f"teacher {self.name}: no 2-D or 3-D float output{f' named {wanted!r}' if wanted else ''};"
            f" the graph has {shown}"
        )


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


def _declared_max_length(tokenizer_path: Path, tokenizer: Any) -> int:  # noqa: ANN401 - tokenizers.Tokenizer
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        path = tokenizer_path.with_name(name)
        if path.is_file():
            settings = read_json(path)
            declared = settings.get(key) if isinstance(settings, dict) else None
            if isinstance(declared, int) and 0 < declared < 1_000_000:
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
