"""A packaged ONNX teacher as the start of a student: its graph's layers in a ``transformers`` folder, checked once."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from consilience.core.cache import cached_folder
from consilience.core.errors import InputError
from consilience.core.files import storage_errors, write_json
from consilience.core.hashing import content_id, file_sha256

_PROBES = ("a cat", "Two children in red coats run across a snowy field.", "Prices rose by 3.5% in the third quarter")
_TOLERANCE = 1e-4  # of a coordinate of the pooled vectors, as for exports
# Raised when the files that are written change, so that folders of an older version aren't found.
_FORMAT = 1


def unfold_onnx(graph: Path, tokenizer: Path, *, name: str, max_length: int) -> Path:
    """Write a BERT's ONNX graph as a ``transformers`` folder into the cache, once; its vectors are the graph's own.

    Args:
        graph: an export by ``torch.onnx`` of a BERT with GELU; its last output is the mean of the token states.
        tokenizer: its tokenizer.json.
        name: the model's name, for the folder and for messages.
        max_length: tokens that the model is meant to read.

    Returns:
        The folder: config.json, model.safetensors, tokenizer.json and the limit in sentence_bert_config.json.

    Raises:
        InputError: the graph isn't such a BERT, or the rebuilt model's vectors differ from the graph's by over 1e-4.
        MissingExtraError: onnx or onnxruntime isn't installed.
        StorageError: the cache folder can't be written.
    """
    key = {
        "format": _FORMAT,
        "graph": file_sha256(graph),
        "tokenizer": file_sha256(tokenizer),
        "max_length": max_length,
    }

    def build(work: Path) -> None:
        from safetensors.torch import save_file

        from consilience.students.onnx_layers import read_bert

        settings, tensors = read_bert(graph, where=name)
        with storage_errors(work):
            save_file(dict(tensors), work / "model.safetensors", metadata={"format": "pt"})
            write_json(work / "config.json", settings)
            write_json(work / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
            shutil.copyfile(tokenizer, work / "tokenizer.json")
        _compare(graph, work, tokenizer, name)

    return cached_folder(f"{name}-layers-{content_id(key)}", build)


def _compare(graph: Path, folder: Path, tokenizer: Path, where: str) -> None:
    """Refuse a rebuilt model that doesn't compute what the graph does."""
    import onnx

    from consilience.students.initialise import warm_start_from_folder
    from consilience.students.text import StudentEncoder
    from consilience.teachers.registry import load_teacher
    from consilience.teachers.spec import TeacherSpec

    student, words, config = warm_start_from_folder(folder, head="none")
    rebuilt = StudentEncoder(student, words, name=where, max_length=config.max_length, manifest={}).encode(_PROBES)
    pooled = onnx.load(str(graph), load_external_data=False).graph.output[-1].name
    options = {"tokenizer": str(tokenizer), "max_length": str(config.max_length), "output": pooled}
    original = load_teacher(TeacherSpec("onnx", str(graph), options)).encode(_PROBES)
    original = original / np.linalg.norm(original, axis=1, keepdims=True)
    gap = float(np.abs(rebuilt - original).max()) if rebuilt.shape == original.shape else float("inf")
    if not gap <= _TOLERANCE:
        raise InputError(
            f"{where}: rebuilt from its ONNX graph, its vectors differ by {gap:.1e}, at most {_TOLERANCE:g} expected. "
            "Start from its weights in safetensors"
        )
