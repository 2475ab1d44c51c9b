"""``st:`` teachers: models of sentence-transformers, loaded by the library, run on our fast path where it agrees."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import TeacherError
from consilience.core.extras import require
from consilience.teachers.batching import DEFAULT_BATCH_TOKENS
from consilience.teachers.checked import check_embeddings
from consilience.teachers.pooling import normalise_rows
from consilience.teachers.provenance import folder_weights_sha256, tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.token_runner import (
    TokenRunner,
    agrees_on_probes,
    check_local,
    check_max_length,
    choose_device,
    count_parameters,
    drop_pooler,
    first_line,
    quiet_loading,
    torch_dtype,
)

if TYPE_CHECKING:
    import torch

_LIBRARY_BATCH_ROWS = 32


class SentenceTransformersTeacher:
    """A sentence-transformers model with all its modules and its default prompt.

    A text Transformer module followed by any modules runs on :class:`TokenRunner`: tokenised once, sorted by token
    length, with next to no padding. Models that this can't express (static embeddings, prompts left out of the
    pooling, chat formats, ...), or for which it doesn't reproduce the library's vectors of a few probes, run through
    the library's own ``encode``; ``fast`` tells which.

    Args:
        spec: backend "st"; the name is a hub id or a folder.
        trust_remote_code: allow the model's own Python code to run.
        shown_name: name for messages and :attr:`name`, when the spec isn't what the person wrote.

    Raises:
        TeacherError: the model can't be found or loaded.
        MissingExtraError: sentence-transformers isn't installed.
    """

    def __init__(self, spec: TeacherSpec, *, trust_remote_code: bool = False, shown_name: str | None = None) -> None:
        library = require("sentence_transformers", extra="st", purpose="to run st: teachers")
        folder = check_local(spec.name, "st")
        device = choose_device(spec.options.get("device"))
        try:
            with quiet_loading():
                model = library.SentenceTransformer(
                    str(folder or spec.name),
                    device=device,
                    revision=spec.options.get("revision"),
                    trust_remote_code=trust_remote_code,
                    local_files_only=folder is not None,
                    model_kwargs={"dtype": torch_dtype(spec.options.get("dtype"))},
                )
        except Exception as error:  # damaged files alone raise six classes without a common narrower base
            raise TeacherError(
                f"teacher st:{spec.name}: can't load it: {type(error).__name__}: {first_line(error)}. "
                "Check the name, or fetch the model again"
            ) from error
        model.eval()
        self.name = shown_name or spec.canonical()
        self.dtype = spec.options.get("dtype", "fp32")
        self.normalise = spec.flag("normalise", False)
        prompt = spec.options.get("prompt")
        if prompt is None and model.default_prompt_name is not None:
            prompt = model.prompts.get(model.default_prompt_name)
        self.prompt: str = prompt or ""
        if spec.integer("max_length") is not None:
            if _backbone(model) is not None:
                check_max_length(_backbone(model), spec.integer("max_length"), teacher=self.name)
            model.max_seq_length = spec.integer("max_length")
        self._model = model
        self._turns = threading.Lock()  # as a TokenRunner's
        self._spec, self._folder = spec, folder
        self.max_length = _max_length(model)
        self._commit = getattr(getattr(_backbone(model), "config", None), "_commit_hash", None)
        self._tokenizer_sha256 = tokenizer_sha256(model.tokenizer) if model.tokenizer is not None else None
        self._weights_sha256 = folder_weights_sha256(folder) if folder is not None else None
        self._runner = self._make_runner(spec.integer("batch_tokens") or DEFAULT_BATCH_TOKENS)
        if self._runner is not None:
            drop_pooler(self._runner.model)
            if not agrees_on_probes(self._encode_fast, self._encode_library):
                self._runner = None
        self.parameters: int | None = count_parameters(model)
        if self._runner is not None:
            self._runner.accelerate()
        self.dimensions = int(self._embed(["a"]).shape[1])

    @property
    def fast(self) -> bool:
        """Whether the fast path runs this model."""
        return self._runner is not None

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors; neither device, batch size nor path."""
        return {
            "backend": "st",
            "name": self._folder.resolve().name if self._folder is not None else self._spec.name,
            "revision": self._commit or self._spec.options.get("revision"),
            "weights_sha256": self._weights_sha256,
            "tokenizer_sha256": self._tokenizer_sha256,
            "prompt": self.prompt,
            "pooling": "model",
            "max_length": self.max_length,
            "dtype": self.dtype,
            "normalise": self.normalise,
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        vectors = self._embed(texts)
        checked = check_embeddings(vectors, rows=len(texts), dimensions=self.dimensions, teacher=self.name)
        return normalise_rows(checked) if self.normalise else checked

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode_fast(texts) if self._runner is not None else self._encode_library(texts)

    def _encode_library(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._turns:
            vectors = self._model.encode(
                list(texts),
                prompt=self.prompt,
                batch_size=_LIBRARY_BATCH_ROWS,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
        return vectors.float().cpu().numpy()  # type: ignore[no-any-return]

    def _encode_fast(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._runner is None:
            raise TeacherError(f"teacher {self.name}: it has no fast path. Report this")
        return self._runner.encode([self.prompt + text for text in texts])

    def _make_runner(self, batch_tokens: int) -> TokenRunner | None:
        modules = list(self._model)
        first, rest = modules[0], modules[1:]
        # By name: where the classes are imported from changes between releases. A release whose Transformer lacks these
        # attributes runs through the library.
        backbone = getattr(first, "model", None)
        plain = (
            _is_library_module(first, "Transformer")
            and getattr(first, "transformer_task", None) == "feature-extraction"
            and getattr(first, "module_output_name", None) == "token_embeddings"
            and not getattr(first, "processing_kwargs", None)
            and backbone is not None
            and not getattr(backbone.config, "is_encoder_decoder", False)
            and first.tokenizer is not None
            and bool(rest)
            and _is_library_module(rest[0], "Pooling")
            and (rest[0].include_prompt or not self.prompt)
            and self._model.truncate_dim is None
        )
        if not plain:
            return None

        def finish(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            import torch

            mask = (torch.arange(states.shape[1], device=states.device)[None, :] < lengths[:, None]).long()
            features = {"token_embeddings": states, "attention_mask": mask}
            for module in rest:
                features = module(features)
            return features["sentence_embedding"]

        return TokenRunner(
            first.model, first.tokenizer, max_length=self.max_length, batch_tokens=batch_tokens, finish=finish
        )


def _is_library_module(module: object, name: str) -> bool:
    kind = type(module)
    return kind.__name__ == name and kind.__module__.split(".")[0] == "sentence_transformers"


def _backbone(model: Any) -> Any:  # noqa: ANN401 - a SentenceTransformer
    return getattr(model[0], "model", None)


def _max_length(model: Any) -> int | None:  # noqa: ANN401 - a SentenceTransformer
    limit = model.max_seq_length
    return int(limit) if limit is not None and limit < 1_000_000 else None
