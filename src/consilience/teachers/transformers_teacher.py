"""``hf:`` teachers: a transformers backbone and a pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.extras import require
from consilience.teachers.batching import DEFAULT_BATCH_TOKENS
from consilience.teachers.boundary import loading, model_call, say_one_by_one, try_first_use
from consilience.teachers.checked import check_embeddings
from consilience.teachers.folder_settings import FolderSettings
from consilience.teachers.pooling import normalise_rows, pool_torch
from consilience.teachers.position_limit import check_max_length, check_vocabulary, token_limit
from consilience.teachers.provenance import folder_weights_sha256, tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.token_runner import (
    ONE_BATCH,
    TokenRunner,
    check_local,
    choose_device,
    count_parameters,
    drop_pooler,
    torch_dtype,
)


class TransformersTeacher:
    """A transformers backbone with mean, cls, last or max pooling.

    Without the options ``pool`` and ``prompt`` a sentence-transformers folder decides, else the mean is taken. Of a
    model of two towers (CLIP) the text tower runs, and its own projection gives the vector.

    Args:
        spec: backend "hf"; the name is a hub id or a folder.
        trust_remote_code: allow the model's own Python code to run.

    Raises:
        TeacherError: the model can't be found, loaded or used.
        InputError: an option that the model doesn't take, or the pooling has to be chosen.
        MissingExtraError: transformers isn't installed.
    """

    def __init__(self, spec: TeacherSpec, *, trust_remote_code: bool = False) -> None:
        transformers = require("transformers", extra="train", purpose="to run hf: teachers")
        folder = check_local(spec)
        self.name = spec.canonical()
        device = choose_device(spec.options.get("device"))
        shared = {"revision": spec.options.get("revision") or "main", "trust_remote_code": trust_remote_code}
        source = str(folder or spec.name)
        self.dtype = spec.options.get("dtype", "fp32")
        with loading(self.name):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **shared)
            model = transformers.AutoModel.from_pretrained(source, dtype=torch_dtype(self.dtype), **shared)
        if getattr(model.config, "is_encoder_decoder", False):
            raise TeacherError(f"teacher {self.name}: an encoder-decoder has no single token states. Use st: instead")
        drop_pooler(model)
        model.eval().to(device)
        special = tokenizer.num_special_tokens_to_add(pair=False)
        check_max_length(model, spec.integer("max_length"), special=special, teacher=self.name)
        if "token_type_ids" in tokenizer.model_input_names and any(tokenizer("a")["token_type_ids"]):
            raise TeacherError(f"teacher {self.name}: its tokenizer gives tokens types, which only st: passes. Use st:")
        check_vocabulary(tokenizer, model, teacher=self.name)
        settings = FolderSettings(folder, self.name)
        settings.lowercase(getattr(tokenizer, "backend_tokenizer", tokenizer))
        self.prompt = settings.prompt(spec.options.get("prompt"))
        self.pooling = self._choose_pooling(model, spec.options.get("pool"), settings)
        bare = "pool" in spec.options or self.pooling == "projection"
        self.normalise = spec.flag("normalise", not bare and settings.normalises())
        self.parameters: int | None = count_parameters(model)
        limits = [tokenizer.model_max_length, settings.max_length()]
        declared = min((limit for limit in limits if limit is not None), default=None)
        self.max_length = spec.integer("max_length") or token_limit(declared, model)
        self._spec, self._folder, self._commit = spec, folder, getattr(model.config, "_commit_hash", None)
        self._tokenizer_sha256 = tokenizer_sha256(tokenizer)
        self._weights_sha256 = folder_weights_sha256(folder) if folder is not None else None
        self._runner = TokenRunner(
            model,
            tokenizer,
            max_length=self.max_length,
            batch_tokens=spec.integer("batch_tokens") or DEFAULT_BATCH_TOKENS,
            finish=lambda states, lengths: pool_torch(states, lengths, self.pooling),
            states=_text_tower(model) if self.pooling == "projection" else None,
        )
        _, alone, share = try_first_use(
            lambda texts, together: self._runner.encode(texts, ONE_BATCH if together else 1),
            teacher=self.name,
            max_length=self.max_length,
            dtype=self.dtype,
            fix="Use st: if it is a sentence-transformers folder, or a model of texts whose output has token states",
        )
        if not share:
            self._runner.batch_tokens = 1
            say_one_by_one(self.name)
        self._runner.accelerate()
        self.dimensions = int(alone.shape[1])

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
        with model_call(self.name, f"embed {len(texts)} texts", "Try a smaller max_length= or batch_tokens="):
            vectors = self._runner.encode([self.prompt + text for text in texts])
        checked = check_embeddings(vectors, rows=len(texts), dimensions=self.dimensions, teacher=self.name)
        return normalise_rows(checked) if self.normalise else checked

    def _choose_pooling(self, model: Any, chosen: str | None, settings: FolderSettings) -> str:  # noqa: ANN401 - any model
        if hasattr(model, "get_text_features"):
            if chosen is not None or model.config.model_type.startswith("siglip"):
                raise InputError(
                    f"teacher {self.name}: of a model of two towers the text tower's own projection is taken, "
                    + ("so leave pool= out" if chosen else "and SigLIP's reads padding as text. Choose a CLIP model")
                )
            return "projection"
        heads = [name for name in model.config.architectures or () if name.endswith("ForSequenceClassification")]
        if heads and chosen is None and not (settings.folder and (settings.folder / "modules.json").is_file()):
            raise InputError(
                f"teacher {self.name}: {heads[0]} is a reranker or classifier, not trained to give a vector of a text. "
                "Choose an embedding model, or take its token states with pool=mean or pool=cls"
            )
        return settings.pooling(chosen, prompt=self.prompt)


def _text_tower(model: Any) -> Callable[..., Any]:  # noqa: ANN401 - a transformers model
    def run(**given: Any) -> Any:  # noqa: ANN401 - tensors
        features = model.get_text_features(**given)
        return getattr(features, "pooler_output", features)  # a tensor before transformers 5

    return run
