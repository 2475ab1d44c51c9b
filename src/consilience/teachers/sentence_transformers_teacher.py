"""``st:`` teachers: models of sentence-transformers, loaded by the library, run on our fast path where it agrees."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.extras import require
from consilience.core.progress import log
from consilience.teachers.batching import DEFAULT_BATCH_TOKENS
from consilience.teachers.boundary import agree, loading, model_call, say_one_by_one, try_first_use
from consilience.teachers.checked import check_embeddings
from consilience.teachers.folder_settings import refuse_student_head
from consilience.teachers.pooling import normalise_rows
from consilience.teachers.position_limit import check_max_length, check_vocabulary, token_limit
from consilience.teachers.provenance import folder_weights_sha256, tokenizer_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.static_teacher import is_model2vec
from consilience.teachers.token_runner import (
    ONE_BATCH,
    TokenRunner,
    check_local,
    choose_device,
    count_parameters,
    drop_pooler,
    torch_dtype,
)

if TYPE_CHECKING:
    import torch

_LIBRARY_BATCH_ROWS = 32
_FETCH = "Check the name, or fetch the model again"


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
        folder = check_local(spec)
        self.name = shown_name or spec.canonical()
        device = choose_device(spec.options.get("device"))
        self.dtype = spec.options.get("dtype", "fp32")
        made = folder is not None and not (folder / "modules.json").is_file()
        other = "static" if folder is not None and is_model2vec(folder) else "hf"
        if other == "static":
            log(f"teacher {self.name}: a model2vec folder, whose own vectors static:{spec.name} gives")
        with loading(self.name, f"Try {other}:{spec.name}, since it has no modules.json" if made else _FETCH):
            model = library.SentenceTransformer(
                str(folder or spec.name),
                device=device,
                revision=spec.options.get("revision"),
                trust_remote_code=trust_remote_code,
                local_files_only=folder is not None,
                model_kwargs={"dtype": torch_dtype(self.dtype)},
            )
        model.eval()
        self._model = model
        self._spec, self._folder = spec, folder
        if made:
            self._check_made(model)
        self.normalise = spec.flag("normalise", False)
        prompt = spec.options.get("prompt")
        if prompt is None and model.default_prompt_name is not None:
            prompt = model.prompts.get(model.default_prompt_name)
        self.prompt: str = prompt or ""
        self._turns = threading.Lock()  # as a TokenRunner's
        self._route = self._choose_route(spec.options.get("route"))
        transformers = [module for module in model.modules() if _is_library_module(module, "Transformer")]
        self._commit = next((getattr(one.model.config, "_commit_hash", None) for one in transformers), None)
        self._tokenizer_sha256 = tokenizer_sha256(model.tokenizer) if model.tokenizer is not None else None
        self._weights_sha256 = folder_weights_sha256(folder) if folder is not None else None
        self.max_length = self._settle_length(transformers, spec.integer("max_length"))
        self._batch_rows = _LIBRARY_BATCH_ROWS
        self._runner: TokenRunner | None = None
        self.parameters: int | None = count_parameters(model)
        self.dimensions = self._try(spec.integer("batch_tokens") or DEFAULT_BATCH_TOKENS)

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
            **({"route": self._spec.options["route"]} if self._route else {}),
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        vectors = self._embed(texts)
        checked = check_embeddings(vectors, rows=len(texts), dimensions=self.dimensions, teacher=self.name)
        return normalise_rows(checked) if self.normalise else checked

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with model_call(self.name, f"embed {len(texts)} texts", "Try a smaller max_length= or batch_tokens="):
            return self._encode_fast(texts) if self._runner is not None else self._encode_library(texts)

    def _encode_library(self, texts: Sequence[str], batch_rows: int | None = None) -> NDArray[np.float32]:
        with self._turns:
            vectors = self._model.encode(
                list(texts),
                prompt=self.prompt,
                batch_size=batch_rows or self._batch_rows,
                show_progress_bar=False,
                convert_to_tensor=True,
                **self._route,
            )
        return vectors.float().cpu().numpy()  # type: ignore[no-any-return]

    def _encode_fast(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._runner is None:
            raise TeacherError(f"teacher {self.name}: it has no fast path. Report this")
        return self._runner.encode([self.prompt + text for text in texts])

    def _check_made(self, model: Any) -> None:  # noqa: ANN401 - a SentenceTransformer
        """Say which modules the library put in for the missing modules.json; refuse a classifier's body."""
        heads = getattr(getattr(getattr(model[0], "model", None), "config", None), "architectures", None) or ()
        head = next((name for name in heads if name.endswith("ForSequenceClassification")), None)
        if head is not None:
            raise InputError(
                f"teacher {self.name}: {head} is a reranker or classifier, not trained to give a vector of a text. "
                f"Choose an embedding model, or take its token states with hf:{self._spec.name}?pool=mean"
            )
        refuse_student_head(Path(self._spec.name), self.name)
        shown = " - ".join(type(module).__name__ for module in model)
        log(
            f"teacher {self.name}: without modules.json sentence-transformers takes its default, {shown}; hf: with "
            "pool= chooses another pooling"
        )

    def _choose_route(self, wanted: str | None) -> dict[str, str]:
        """Return the arguments that lead texts through one route of a Router."""
        router = next((module for module in self._model if _is_library_module(module, "Router")), None)
        routes = [] if router is None else list(router.sub_modules)
        if wanted is not None and wanted not in routes:
            has = f"its routes are {', '.join(routes)}" if routes else "it has no Router, so leave route= out"
            raise InputError(f"teacher {self.name}: no route {wanted!r}: {has}")
        if wanted is None and router is not None and router.default_route is None:
            raise InputError(
                f"teacher {self.name}: its Router has the routes {', '.join(routes)} and no default. Choose one with "
                f"route={routes[0]}"
            )
        return {} if wanted is None else {"task": wanted}

    def _settle_length(self, transformers: Sequence[Any], wanted: int | None) -> int | None:
        """Return at how many tokens texts are cut, after making the library do so, and pad with a token that is there.

        Args:
            transformers: the library's Transformer modules.
            wanted: the option ``max_length``.
        """
        for one in transformers:
            adds = getattr(one.tokenizer, "num_special_tokens_to_add", None)
            special = adds(pair=False) if adds is not None else 0
            check_max_length(one.model, wanted, special=special, teacher=self.name)
            if one.tokenizer is not None:
                check_vocabulary(one.tokenizer, one.model, teacher=self.name)
            if getattr(one.tokenizer, "pad_token", "") is None:  # any token will do: it is masked
                one.tokenizer.pad_token = one.tokenizer.eos_token or one.tokenizer.convert_ids_to_tokens(0)
        declared = getattr(self._model, "max_seq_length", None)
        limits = [token_limit(declared, one.model) for one in transformers] or [token_limit(declared, None)]
        length = wanted or min((limit for limit in limits if limit is not None), default=None)
        if length is None or length == declared:
            return length
        try:
            self._model.max_seq_length = length
        except AttributeError as error:  # a property that can only be read
            if not hasattr(self._model.tokenizer, "enable_truncation"):
                raise InputError(
                    f"teacher {self.name}: {type(self._model[0]).__name__} can't cut texts. Leave max_length out"
                ) from error
            self._model.tokenizer.enable_truncation(length)
        return length

    def _try(self, batch_tokens: int) -> int:
        """Embed probes, choose between the library and the fast path, and return the width."""
        rows = {False: 1, True: _LIBRARY_BATCH_ROWS}
        probes, alone, share = try_first_use(
            lambda texts, together: self._encode_library(texts, rows[together]),
            teacher=self.name,
            max_length=self.max_length,
            dtype=self.dtype,
            fix="Check that the folder is whole and that SentenceTransformer(FOLDER).encode works",
        )
        self._batch_rows = rows[share]
        runner = self._make_runner(batch_tokens)
        if runner is not None:
            drop_pooler(runner.model)
            fast = runner.encode([self.prompt + text for text in probes], ONE_BATCH)
            if agree(fast, alone):
                self._runner = runner
                runner.accelerate()
        if self._runner is None and not share:
            say_one_by_one(self.name)
        return int(alone.shape[1])

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
