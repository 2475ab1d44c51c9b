"""From a spec to a loaded teacher, and what is known of its licence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import Encoder, takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.hashing import content_id
from consilience.teachers.boundary import model_call
from consilience.teachers.packaged import find_packaged, list_packaged, packaged_files
from consilience.teachers.spec import STORED, TeacherSpec, parse_teacher_spec, valid_options

__all__ = ["PackagedTeacher", "list_packaged", "load_teacher", "teacher_licence"]


def load_teacher(spec: str | TeacherSpec, *, trust_remote_code: bool = False) -> Encoder:
    """Load the teacher that a spec names.

    Args:
        spec: ``backend:name?options``; see :mod:`consilience.teachers.spec`.
        trust_remote_code: allow hf: and st: models that bring Python code of their own to run it.

    Returns:
        An encoder whose vectors are finite and not all zero.

    Raises:
        TeacherError: unknown backend, missing model, or it can't be loaded; bank:, parquet: and npy: hold vectors
            already and aren't encoders.
        InputError: an unknown option or value.
        MissingExtraError: an optional dependency of the backend isn't installed.
    """
    parsed = parse_teacher_spec(spec)
    if parsed.backend in STORED:
        raise TeacherError(
            f"teacher {parsed.canonical()}: it holds finished embeddings, it can't embed texts. "
            "`consilience embed CORPUS --teacher` imports it as a bank"
        )
    if parsed.backend == "packaged":
        return PackagedTeacher(parsed)
    return _load(parsed, trust_remote_code=trust_remote_code)


def teacher_licence(spec: str | TeacherSpec) -> str | None:
    """Return the licence of a teacher's weights as an SPDX expression, or None when it isn't known.

    Packaged models have a recorded licence; model folders state one in their README's metadata.

    Example:
        >>> teacher_licence("packaged:all-MiniLM-L6-v2")
        'Apache-2.0'
    """
    parsed = parse_teacher_spec(spec)
    if parsed.backend == "packaged":
        return find_packaged(parsed.name).licence
    if parsed.backend in ("st", "hf", "static", "onnx"):
        path = Path(parsed.name).expanduser()
        readme = (path if path.is_dir() else path.parent) / "README.md"
        if path.exists() and readme.is_file():
            return _licence_of_card(readme)
    return None


class PackagedTeacher:
    """A packaged model, run by the backend of its files.

    Args:
        spec: backend "packaged".

    Raises:
        TeacherError: unknown name, damaged files.
        InputError: an option that the model's backend doesn't take.
        MissingExtraError: the package or the backend's library isn't installed.
    """

    def __init__(self, spec: TeacherSpec) -> None:
        model = find_packaged(spec.name)
        for option in spec.options:
            if option not in valid_options(model.backend):
                taken = ", ".join(sorted(valid_options(model.backend) & valid_options("packaged")))
                raise InputError(
                    f"teacher packaged:{model.name}: option {option!r} doesn't apply to it. Valid options: {taken}"
                )
        files = packaged_files(model.name)
        options = {**model.options, **spec.options}
        if model.backend == "st":
            target = files["modules.json"].parent
        else:
            target = files["model"]
            options.update({role: str(path) for role, path in files.items() if role != "model"})
        self._inner = _load(parse_teacher_spec(TeacherSpec(model.backend, str(target), options)))
        self.name = TeacherSpec("packaged", model.name, spec.options).canonical()
        self._model_name = model.name
        self._pinned = content_id({role: file.sha256 for role, file in model.files.items()})
        self.dimensions = self._inner.dimensions
        self.parameters = self._inner.parameters

    @property
    def inner(self) -> Encoder:
        """The backend that runs the model's files."""
        return self._inner

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors: the backend's identity with the package's pinned hashes."""
        inner = self._inner.identity()
        inner.update(backend="packaged", run_by=inner["backend"], name=self._model_name, weights_sha256=self._pinned)
        return inner

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        return self._inner.encode(texts)


def _load(spec: TeacherSpec, *, trust_remote_code: bool = False) -> Encoder:
    with model_call(spec.canonical(), "load it", "Check that its files are whole and belong together"):
        return _open(spec, trust_remote_code)


def _open(spec: TeacherSpec, trust_remote_code: bool) -> Encoder:
    if spec.backend == "st":
        from consilience.teachers.sentence_transformers_teacher import SentenceTransformersTeacher

        return SentenceTransformersTeacher(spec, trust_remote_code=trust_remote_code)
    if spec.backend == "hf":
        from consilience.teachers.transformers_teacher import TransformersTeacher

        return TransformersTeacher(spec, trust_remote_code=trust_remote_code)
    if spec.backend == "onnx":
        from consilience.teachers.onnx_teacher import OnnxTeacher

        return OnnxTeacher(spec)
    if spec.backend == "static":
        from consilience.teachers.static_teacher import StaticTeacher

        return StaticTeacher(spec)
    if spec.backend == "vectors":
        from consilience.teachers.vectors_teacher import VectorsTeacher

        return VectorsTeacher(spec)
    from consilience.teachers.http_teacher import HttpTeacher

    return HttpTeacher(spec)


def _licence_of_card(readme: Path) -> str | None:
    lines = readme.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip() != "---":
        return None
    for line in lines[1:]:
        if line.strip() == "---":
            return None
        key, colon, value = line.partition(":")
        if colon and key.strip() == "license" and value.strip():
            name = value.strip().strip("'\"")
            return {"apache-2.0": "Apache-2.0", "mit": "MIT", "cc-by-4.0": "CC-BY-4.0"}.get(name.lower(), name)
    return None
