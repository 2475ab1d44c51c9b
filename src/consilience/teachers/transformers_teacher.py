"""``hf:`` teachers: a transformers backbone and a pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import TeacherError
from consilience.core.extras import require
from consilience.teachers.batching import DEFAULT_BATCH_TOKENS
from consilience.teachers.checked import check_embeddings
from consilience.teachers.pooling import normalise_rows, pool_torch
from consilience.teachers.provenance import folder_weights_sha256, tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.token_runner import (
    TokenRunner,
    check_local,
    check_max_length,
    choose_device,
    count_parameters,
    drop_pooler,
    first_line,
    first_position,
    quiet_loading,
    torch_dtype,
)

# Tokenizers without a limit of their own say so with a huge number.
_NO_LIMIT = 1_000_000


class TransformersTeacher:
    """A transformers backbone with mean, cls, last or max pooling.

    Args:
        spec: backend "hf"; the name is a hub id or a folder.
        trust_remote_code: allow the model's own Python code to run.

    Raises:
        TeacherError: the model can't be found or loaded.
        MissingExtraError: transformers isn't installed.
    """

    def __init__(self, spec: TeacherSpec, *, trust_remote_code: bool = False) -> None:
        transformers = require("transformers", extra="train", purpose="to run hf: teachers")
        folder = check_local(spec.name, "hf")
        device = choose_device(spec.options.get("device"))
        shared = {"revision": spec.options.get("revision") or "main", "trust_remote_code": trust_remote_code}
        source = str(folder or spec.name)
        try:
            with quiet_loading():
                tokenizer = transformers.AutoTokenizer.from_pretrained(source, **shared)
                dtype = torch_dtype(spec.options.get("dtype"))
                model = transformers.AutoModel.from_pretrained(source, dtype=dtype, **shared)
        except Exception as error:  # damaged files alone raise six classes without a common narrower base
            raise TeacherError(
                f"teacher hf:{spec.name}: can't load it: {type(error).__name__}: {first_line(error)}. "
                "Check the name, or fetch the model again"
            ) from error
        if getattr(model.config, "is_encoder_decoder", False):
            raise TeacherError(
                f"teacher hf:{spec.name}: an encoder-decoder has no single token states. Use st: instead"
            )
        drop_pooler(model)
        model.eval().to(device)
        self.name = spec.canonical()
        check_max_length(model, spec.integer("max_length"), teacher=self.name)
        self.pooling = spec.options.get("pool", "mean")
        self.prompt = spec.options.get("prompt", "")
        self.normalise = spec.flag("normalise", False)
        self.parameters: int | None = count_parameters(model)
        self.max_length = spec.integer("max_length") or model_max_length(tokenizer, model.config)
        self.dtype = spec.options.get("dtype", "fp32")
        self._spec, self._folder, self._commit = spec, folder, getattr(model.config, "_commit_hash", None)
        self._tokenizer_sha256 = tokenizer_sha256(tokenizer)
        self._weights_sha256 = folder_weights_sha256(folder) if folder is not None else None
        self._runner = TokenRunner(
            model,
            tokenizer,
            max_length=self.max_length,
            batch_tokens=spec.integer("batch_tokens") or DEFAULT_BATCH_TOKENS,
            finish=lambda states, lengths: pool_torch(states, lengths, self.pooling),
        )
        self._runner.accelerate()
        self.dimensions = int(self._runner.encode(["a"]).shape[1])

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors; neither device, batch size nor path."""
        return {
            "backend": "hf",
            "name": self._folder.resolve().name if self._folder is not None else self._spec.name,
            "revision": self._commit or self._spec.options.get("revision"),
            "weights_sha256": self._weights_sha256,
            "tokenizer_sha256": self._tokenizer_sha256,
            "prompt": self.prompt,
            "pooling": self.pooling,
            "max_length": self.max_length,
            "dtype": self.dtype,
            "normalise": self.normalise,
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        vectors = self._runner.encode([self.prompt + text for text in texts])
        checked = check_embeddings(vectors, rows=len(texts), dimensions=self.dimensions, teacher=self.name)
        return normalise_rows(checked) if self.normalise else checked


def model_max_length(tokenizer: Any, config: Any) -> int | None:  # noqa: ANN401 - transformers objects
    """Return the most tokens that the tokenizer and the position table both allow, or None without a limit."""
    limits = []
    declared = getattr(tokenizer, "model_max_length", None)
    if declared is not None and declared < _NO_LIMIT:
        limits.append(int(declared))
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        limits.append(positions - first_position(config))
    return min(limits) if limits else None
