"""Start a student from whatever a person names: a packaged teacher, a model's folder, a student."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.core.errors import InputError, TeacherError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from consilience.students.presets import HeadKind, StudentConfig
    from consilience.students.text import TextStudent


def warm_start(
    source: str | Path,
    *,
    layers: Sequence[int] | None = None,
    dimensions: int | None = None,
    head: HeadKind | None = None,
    seed: int = 0,
    max_length: int | None = None,
    max_positions: int | None = None,
    dropout: float = 0.0,
) -> tuple[TextStudent, Tokenizer, StudentConfig]:
    """Build a student from a trained model's token table, positions and layers.

    Args:
        source: "packaged:NAME" (or the name alone), "st:FOLDER", "hf:FOLDER", or a folder: a student's, a
            sentence-transformers or a transformers one.
        layers: numbers of the layers to keep, ascending; all when not given.
        dimensions: width of the embedding; a student's own, and a model's token states' width, when not given.
        head: "mlp", "linear" or "none"; a student's own, and "mlp" for other models, when not given.
        seed: of a new head's weights.
        max_length: tokens a text is cut to; the model's own when not given.
        max_positions: positions to keep; all when not given.
        dropout: probability in the backbone while training.

    Returns:
        The student, its tokenizer, its shape; see
        :func:`consilience.students.initialise.warm_start_from_folder`.

    Raises:
        InputError: a model that a student can't start from; the message says which can.
        TeacherError: a packaged file is missing or isn't the pinned one.
        MissingExtraError: the package isn't installed.
    """
    from consilience.students.initialise import warm_start_from_folder

    return warm_start_from_folder(
        locate_start(source),
        layers=layers,
        dimensions=dimensions,
        head=head,
        seed=seed,
        max_length=max_length,
        max_positions=max_positions,
        dropout=dropout,
    )


def locate_start(source: str | Path) -> Path:
    """Return the folder of the model that a student is to start from; a packaged teacher's files are verified.

    Args:
        source: as of :func:`warm_start`.

    Raises:
        InputError: it isn't a folder here, or a packaged teacher without layers to take.
        TeacherError: a packaged file is missing or isn't the pinned one.
        MissingExtraError: the package isn't installed.
    """
    from consilience.teachers.packaged import find_packaged, packaged_files
    from consilience.teachers.spec import parse_teacher_spec

    text = str(source)
    folder = start_folder(source)
    if folder is not None and folder.is_dir():
        return folder
    if ":" not in text:
        try:
            text = f"packaged:{find_packaged(text).name}"
        except TeacherError as error:
            raise InputError(f"{text}: no such folder. Give a folder or packaged:NAME, {_possible()}") from error
    spec = parse_teacher_spec(text)
    if spec.options:
        raise InputError(f"{text}: a start takes no options, got {', '.join(spec.options)}. Leave them out")
    if spec.backend == "packaged":
        model = find_packaged(spec.name)
        if model.backend == "onnx":
            from consilience.recipes.onnx_start import unfold_onnx

            files = packaged_files(model.name)
            length = int(model.options["max_length"])
            return unfold_onnx(files["model"], files["tokenizer"], name=model.name, max_length=length)
        if model.backend != "st":
            kinds = {"static": "a token table", "vectors": "word vectors"}
            raise InputError(
                f"{text}: it is {kinds.get(model.backend, model.backend)}, without layers that a student could start "
                f"from. Choose {_possible()}"
            )
        return packaged_files(model.name)["config.json"].parent
    raise InputError(
        f"{text}: a student starts from a folder on this machine or from {_possible()}. Fetch the model first and give "
        "its folder"
    )


def start_folder(source: str | Path) -> Path | None:
    """Return the folder that a start names, there or not; None of specs of other kinds, and of those with options.

    Args:
        source: a path, "st:FOLDER" or "hf:FOLDER" (percent-encoded as in teacher specs), or another name.

    Example:
        >>> start_folder("st:my%20model"), start_folder("packaged:minilm")
        (PosixPath('my model'), None)
    """
    from consilience.teachers.spec import parse_teacher_spec

    text = str(source)
    backend, colon, _ = text.partition(":")
    if not colon or Path(text).exists():
        return Path(text)
    spec = parse_teacher_spec(text) if backend in ("st", "hf") else None
    return None if spec is None or spec.options else Path(spec.name)


def _possible() -> str:
    from consilience.teachers.packaged import find_packaged, list_packaged

    return " or ".join(f"packaged:{name}" for name in list_packaged() if find_packaged(name).backend in ("st", "onnx"))
