"""What a teacher's identity is made of: hashes that don't depend on where the files lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from consilience.core.hashing import file_sha256

_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".onnx", ".npy"}
_CONFIG_NAMES = {"config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}


def files_sha256(files: Iterable[tuple[str, Path]]) -> str:
    """Return one hash of several files: of their given names and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, path in sorted(files):
        digest.update(f"{name}\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()


def folder_weights_sha256(folder: Path) -> str:
    """Return one hash of a model folder's weights and the configuration files that change its vectors."""
    chosen = [
        (path.relative_to(folder).as_posix(), path)
        for path in folder.rglob("*")
        if path.is_file() and (path.suffix in _WEIGHT_SUFFIXES or path.name in _CONFIG_NAMES)
    ]
    return files_sha256(chosen)


def tokenizer_sha256(tokenizer: Any) -> str:  # noqa: ANN401 - tokenizers.Tokenizer or a transformers tokenizer
    """Return a hash of what a tokenizer does, its padding and truncation settings left out."""
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        plain = Tokenizer.from_str(backend.to_str())
        plain.no_padding()
        plain.no_truncation()
        return hashlib.sha256(plain.to_str().encode()).hexdigest()
    vocabulary = sorted(tokenizer.get_vocab().items())  # a slow tokenizer has only its vocabulary to show
    return hashlib.sha256(repr(vocabulary).encode()).hexdigest()
