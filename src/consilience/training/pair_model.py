"""A model whose trunk carries adapters, seen from a training on pairs: texts to ids, ids to pooled outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from consilience.adapters.trunk import TrunkIdentity, find_backbone, find_blocks, identify_trunk
from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError
from consilience.core.files import read_json
from consilience.core.manifests import MANIFEST
from consilience.students.text import StudentEncoder, load_student, pad_rows
from consilience.students.tokenizer import pad_id
from consilience.training.attention import training_attention

Ids = NDArray[np.int64]
CHUNK_TOKENS = 2_048  # assumed: what a forward pass holds at most, unless one row is longer
_PASS_TOKENS = 192  # measured: what starting one more pass costs, in tokens that could be padded instead


class PairModel:
    """A student or a sentence-transformers model, with gradients.

    Args:
        model: what adapters are attached to.
        name: what a person calls it.

    Raises:
        InputError: it has no encoder with blocks, or is neither of the two kinds.
    """

    def __init__(self, model: Any, *, name: str) -> None:  # noqa: ANN401 - a student or a SentenceTransformer
        self.model = model
        self.name = name
        self.backbone = find_backbone(model)
        self.module: nn.Module = model.module if isinstance(model, StudentEncoder) else model
        self._tokenizer = _fast_tokenizer(model, name)
        self.max_length = model.max_length if isinstance(model, StudentEncoder) else _token_limit(model)
        self._tokenizer.enable_truncation(self.max_length)
        self._tokenizer.no_padding()
        self.pad = pad_id(self._tokenizer)
        self.module.eval()

    @property
    def trunk(self) -> TrunkIdentity:
        """Identity of the trunk, computed now."""
        return identify_trunk(self.model, name=self.name)

    @property
    def blocks(self) -> list[nn.Module]:
        """The trunk's blocks."""
        return find_blocks(self.backbone)

    def identity(self) -> dict[str, Any]:
        """Return, as JSON, what decides what an adapter of this model is trained on: weights, tokenizer, length."""
        digest = hashlib.sha256()
        for key, value in sorted(self.module.state_dict().items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().float().contiguous().numpy().tobytes())
        words = hashlib.sha256(self._tokenizer.to_str().encode()).hexdigest()
        return {"weights": digest.hexdigest()[:16], "tokenizer": words[:16], "max_length": self.max_length}

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        """Return each text's ids, special tokens included, cut to the model's length."""
        return [np.asarray(row.ids, dtype=np.int64) for row in self._tokenizer.encode_batch_fast(list(texts))]

    def embed(self, ids: Sequence[Ids]) -> torch.Tensor:
        """Return pooled outputs (n, d), L2-normalised, with gradients where something is trained.

        Args:
            ids: one array a row.
        """
        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        parts: list[torch.Tensor] = []
        device = next(self.backbone.parameters()).device
        for start, stop in cut_by_length(lengths[order]):
            tokens, mask = pad_rows([ids[row] for row in order[start:stop]], self.pad)
            mask = torch.ones_like(tokens) if mask is None else mask
            with training_attention(tokens.shape[1], device) if torch.is_grad_enabled() else nullcontext():
                parts.append(self._forward(tokens.to(device), mask.to(device)))
        back = torch.from_numpy(np.argsort(order, kind="stable")).to(device)
        return torch.cat(parts)[back]

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if isinstance(self.model, StudentEncoder):
            embedding: torch.Tensor = self.module(ids, mask).embedding
            return embedding
        output = self.module({"input_ids": ids, "attention_mask": mask})
        pooled: torch.Tensor = output["sentence_embedding"]
        return functional.normalize(pooled.to(torch.promote_types(pooled.dtype, torch.float32)), dim=-1)

    @torch.no_grad()
    def encode_ids(self, ids: Sequence[Ids]) -> NDArray[np.float32]:
        """Return pooled outputs as an array, without gradients."""
        parts = [self.embed(ids[start : start + 512]).cpu().numpy() for start in range(0, len(ids), 512)]
        return np.concatenate(parts).astype(np.float32, copy=False)


def cut_by_length(lengths: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut rows into passes with the least padding, weighed against the cost of a pass.

    Args:
        lengths: tokens a row, falling.

    Returns:
        (start, stop) of each pass, in order.

    Example:
        >>> cut_by_length(np.array([300, 299, 20, 20, 19]))
        [(0, 2), (2, 5)]
    """
    n = len(lengths)
    least = np.zeros(n + 1)  # cost of the rows from here on
    stops = np.zeros(n + 1, dtype=np.int64)
    for start in range(n - 1, -1, -1):
        width = max(int(lengths[start]), 1)
        rows = min(max(CHUNK_TOKENS // width, 1), n - start)
        costs = least[start + 1 : start + 1 + rows] + width * np.arange(1, rows + 1) + _PASS_TOKENS
        best = int(costs.argmin())
        least[start], stops[start] = costs[best], start + 1 + best
    cuts, start = [], 0
    while start < n:
        cuts.append((start, int(stops[start])))
        start = cuts[-1][1]
    return cuts


class PlainEncoder:
    """A :class:`PairModel` as it stands, as an :class:`~consilience.core.encoder.Encoder`.

    Args:
        model: its texts go through whatever is on it.
        name: what a table calls it.
        extra: part of the identity: what is on the model.
    """

    def __init__(self, model: PairModel, *, name: str | None = None, extra: dict[str, Any] | None = None) -> None:
        self.name = name or model.name
        self.parameters: int | None = sum(parameter.numel() for parameter in model.module.parameters())
        self._model, self._extra = model, extra or {}
        self.dimensions = int(self.encode(["a"]).shape[1])

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors."""
        return {"backend": "trunk", "name": self._model.name, **self._model.identity(), **self._extra}

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts."""
        return self._model.encode_ids(self._model.tokenize(texts))


def open_pair_model(model: Any) -> PairModel:  # noqa: ANN401 - a path, a name or a loaded model
    """Open a trunk for adapters.

    Args:
        model: a student's folder, an exported or sentence-transformers folder, "packaged:NAME" of a packaged teacher
            that sentence-transformers can open, or a loaded student or SentenceTransformer.

    Raises:
        InputError: it's none of these, or has no blocks.
        MissingExtraError: sentence-transformers is needed.
    """
    if isinstance(model, PairModel):
        return model
    if not isinstance(model, str | Path):
        return PairModel(model, name=str(getattr(model, "name", type(model).__name__)))
    folder, name = _folder(str(model)), str(model)
    if (folder / MANIFEST).is_file() and read_json(folder / MANIFEST).get("kind") == "student":
        return PairModel(load_student(folder), name=name)
    if (folder / "modules.json").is_file():
        from consilience.core.extras import require

        library = require("sentence_transformers", extra="st", purpose="to adapt a sentence-transformers model")
        from consilience.teachers.boundary import loading

        with loading(name):
            opened = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        return PairModel(opened, name=name)
    raise InputError(
        f"{model}: expected a student, an exported or sentence-transformers folder, or packaged:NAME. Adapters need "
        "the blocks of a live model"
    )


def _folder(text: str) -> Path:
    if not text.startswith("packaged:"):
        path = Path(text)
        if not path.is_dir():
            raise InputError(f"{text}: no such folder. Give a student's or a sentence-transformers folder")
        return path
    from consilience.teachers.packaged import packaged_files

    files = packaged_files(text.removeprefix("packaged:"))
    found = next((path for name, path in files.items() if name.endswith("modules.json")), None)
    if found is None:
        raise InputError(f"{text}: isn't a sentence-transformers folder, so nothing can be attached to it")
    return found.parent


def _token_limit(model: Any) -> int:  # noqa: ANN401 - a SentenceTransformer
    from consilience.teachers.position_limit import token_limit

    return token_limit(model.max_seq_length, getattr(model[0], "model", None)) or 512


def _fast_tokenizer(model: Any, name: str) -> Any:  # noqa: ANN401 - a tokenizers.Tokenizer
    """Return a copy of the model's tokenizer, so that truncation set here stays here."""
    from tokenizers import Tokenizer

    words = model.tokenizer
    fast = words if isinstance(words, Tokenizer) else getattr(words, "backend_tokenizer", None)
    if not isinstance(fast, Tokenizer):
        raise InputError(f"{name}: expected a fast tokenizer (tokenizer.json), got {type(words).__name__}. Convert it")
    return Tokenizer.from_str(fast.to_str())
