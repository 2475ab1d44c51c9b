"""Export a student to the forms that other libraries load without remote code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.files import read_json
from consilience.core.locks import one_job
from consilience.core.placing import require_apart

if TYPE_CHECKING:
    from consilience.committee.rotation import Rotation


@one_job
def export(
    student: str | Path,
    *,
    out: str | Path,
    formats: Sequence[str] = ("sentence-transformers", "onnx"),
    results: Mapping[str, Any] | str | Path | None = None,
    command: str | None = None,
    title: str | None = None,
    rotation: str | Path | Rotation | None = None,
    quantize: str | None = None,
    truncate_dim: int | None = None,
    clients: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Export a student as a sentence-transformers folder, an ONNX file, or both, checked against each other.

    Args:
        student: a student's folder.
        out: folder to make.
        formats: "sentence-transformers" (with ``AutoModel``) and "onnx".
        results: what ``consilience evaluate --json`` printed, as an object or a file, for the model card.
        command: what the card names as its command; by default the one that says the same.
        title: heading of the card; by default the folder's name.
        rotation: out of the student's frame into the one that serves (see ``consilience rotate``), or its folder.
        quantize: "int8" adds ``onnx/model_int8.onnx``, about a quarter of the size.
        truncate_dim: leading dimensions that every form keeps, at length 1; the student must have been trained at that
            width too (``matryoshka``).
        clients: that are to serve it ("llama.cpp", ...): one that can't hold this student is refused before any work.
        overwrite: replace an existing export.

    Returns:
        The export's manifest; ``parity`` holds the differences found.

    Raises:
        FrameMismatchError: the rotation is of another frame than the student's.
        InputError: no student, an unknown format, results that evaluate didn't print, a width that it wasn't trained
            at, or a client that would serve something else.
        ParityError: an exported form gives other vectors than the student.
        ResumeError: ``out`` exists.
    """
    require_apart(Path(out), student, results, rotation)
    from consilience.committee.rotation import load_rotation
    from consilience.exporters.card_results import check_results
    from consilience.exporters.folder import export_student
    from consilience.students.text import load_student

    command = command or _say(
        student, out, formats, results=results, title=title, rotation=rotation, quantize=quantize, width=truncate_dim
    )
    if isinstance(results, str | Path):
        results = _read_results(Path(results))
    elif results is not None:
        results = check_results(results, "export: results")
    return export_student(
        load_student(student),
        Path(out),
        formats=formats,
        results=results,
        command=command,
        title=title,
        rotation=load_rotation(rotation) if isinstance(rotation, str | Path) else rotation,
        quantize=quantize,
        truncate_dim=truncate_dim,
        clients=clients,
        overwrite=overwrite,
    )


def _read_results(source: Path) -> Mapping[str, Any]:
    from consilience.exporters.card_results import check_results

    if source.is_dir():
        raise InputError(f"{source}: a file with the output of consilience evaluate --json expected. Fix --results")
    return check_results(read_json(source), str(source))


def _say(
    student: str | Path,
    out: str | Path,
    formats: Sequence[str],
    *,
    results: Mapping[str, Any] | str | Path | None,
    title: str | None,
    rotation: str | Path | Rotation | None,
    quantize: str | None,
    width: int | None,
) -> str:
    """Return the command that makes this folder: all options that its content depends on, without their folders."""
    words = [Path(student).absolute().name, "--out", Path(out).absolute().name, "--format", ",".join(formats)]
    if results is not None:
        words += ["--results", Path(results).name if isinstance(results, str | Path) else "results.json"]
    if rotation is not None:
        folder = rotation if isinstance(rotation, str | Path) else rotation.path
        words += ["--rotation", Path(folder).absolute().name]
    words += [] if quantize is None else ["--quantize", quantize]
    words += [] if width is None else ["--truncate-dim", str(width)]
    words += [] if title is None else ["--title", title]
    return shlex.join(["consilience", "export", *words])
