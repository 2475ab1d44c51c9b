"""Open whatever a person calls a model: a student, an exported folder, an ONNX file, a teacher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from consilience.core.errors import InputError, TeacherError
from consilience.core.files import read_json
from consilience.core.manifests import MANIFEST, verify_artefact
from consilience.teachers.spec import TeacherSpec

if TYPE_CHECKING:
    from consilience.core.encoder import Encoder

_ACCEPTED = (
    "a student folder, an exported or sentence-transformers folder, a folder with config.json and tokenizer "
    "(mean pooling), an .onnx file, a teacher spec such as st:NAME_OR_PATH, onnx:PATH or packaged:NAME"
)


def open_encoder(model: str | Path, *, trust_remote_code: bool = False) -> Encoder:
    """Open a model by path or teacher spec.

    Args:
        model: a student folder, an exported folder, a sentence-transformers or transformers folder, an ``.onnx``
            file, a teacher spec (``st:...``), or the bare name of a packaged teacher.
        trust_remote_code: let a Hugging Face model run code of its own.

    Returns:
        The model behind the one protocol that evaluation knows.

    Raises:
        InputError: it's none of these, or two of them; the message lists what is accepted.
        TeacherError: it's a teacher and can't be loaded.
    """
    text = str(model)
    path = Path(text)
    if path.is_dir():
        if isinstance(model, str):
            _refuse_two_readings(text)
        return _open_folder(path, trust_remote_code)
    if path.is_file():
        if path.suffix == ".onnx":
            return _teacher(TeacherSpec("onnx", str(path), {}), trust_remote_code)
        raise InputError(f"{path}: isn't a model that Consilience opens. Accepted: {_ACCEPTED}")
    if ":" in text:
        return _teacher(text, trust_remote_code)
    from consilience.teachers.packaged import find_packaged, list_packaged

    try:
        name = find_packaged(text).name  # in any case, or an alias
    except TeacherError as error:
        packaged = ", ".join(list_packaged())
        raise InputError(
            f"{text}: no such file, folder or model. Accepted: {_ACCEPTED}; packaged: {packaged}"
        ) from error
    return _teacher(f"packaged:{name}", trust_remote_code)


def _refuse_two_readings(text: str) -> None:
    """Refuse a bare name that is a folder here and a packaged model."""
    from consilience.teachers.packaged import find_packaged

    if text != Path(text).name:
        return
    try:
        name = find_packaged(text).name
    except TeacherError:
        return
    raise InputError(f"{text}: a folder here and a packaged model. Write ./{text} or packaged:{name}")


def _open_folder(path: Path, trust_remote_code: bool) -> Encoder:
    if (path / MANIFEST).is_file():
        manifest = read_json(path / MANIFEST)
        kind = manifest.get("kind") if isinstance(manifest, dict) else None
        if kind == "student":
            from consilience.students.text import load_student

            return load_student(path)
        if kind == "export":
            return _open_export(path, trust_remote_code)
        if kind is not None:
            raise InputError(f"{path}: a {kind} isn't a model. Accepted: {_ACCEPTED}")
    from consilience.teachers.static_teacher import is_model2vec

    if is_model2vec(path):  # model2vec writes a modules.json, too
        return _teacher(TeacherSpec("static", str(path), {}), trust_remote_code)
    if (path / "modules.json").is_file():
        return _teacher(TeacherSpec("st", str(path), {}), trust_remote_code)
    if (path / "config.json").is_file():
        return _teacher(TeacherSpec("hf", str(path), {}), trust_remote_code)
    raise InputError(
        f"{path}: the folder holds no {MANIFEST}, modules.json or config.json, so no model. Accepted: {_ACCEPTED}"
    )


def _open_export(path: Path, trust_remote_code: bool) -> Encoder:
    verify_artefact(path)
    if (path / "modules.json").is_file():
        return _teacher(TeacherSpec("st", str(path), {}), trust_remote_code)
    # Its tokenizer and length limit lie one folder up, where the backend looks too.
    return _teacher(TeacherSpec("onnx", str(path / "onnx" / "model.onnx"), {}), trust_remote_code)


def _teacher(spec: str | TeacherSpec, trust_remote_code: bool) -> Encoder:
    from consilience.teachers.registry import load_teacher

    return load_teacher(spec, trust_remote_code=trust_remote_code)
