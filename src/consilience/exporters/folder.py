"""Export a student: write the forms asked for, check that they agree, write the card, finish the artefact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.committee.rotation import require_frame
from consilience.core.artefacts import PLAN, begin_artefact, discard_work, finish_artefact, is_finished
from consilience.core.errors import InputError
from consilience.core.files import atomic_write
from consilience.core.hashing import content_id
from consilience.core.manifests import verify_artefact
from consilience.core.progress import log
from consilience.exporters.card_results import without_speed
from consilience.exporters.card_usage import usage_sections
from consilience.exporters.clients import check_clients, clients_usage
from consilience.exporters.huggingface import write_backbone, write_tokenizer
from consilience.exporters.int8 import INT8_FILE, write_int8
from consilience.exporters.model_card import render_card
from consilience.exporters.onnx import ONNX_FILE, write_onnx
from consilience.exporters.parity import check_parity
from consilience.exporters.sentence_transformers import write_modules
from consilience.exporters.static_folder import StaticParts, static_parts, static_usage, write_static_forms
from consilience.exporters.student_parts import StudentParts, student_parts, trained_widths
from consilience.students.static import is_static
from consilience.students.text import count_parameters
from consilience.students.tokenizer import pad_id

if TYPE_CHECKING:
    from consilience.committee.rotation import Rotation
    from consilience.students.text import StudentEncoder

FORMATS = ("sentence-transformers", "onnx")


def export_student(
    student: StudentEncoder,
    out: Path,
    *,
    formats: Sequence[str] = FORMATS,
    results: Mapping[str, Any] | None = None,
    teachers: Mapping[str, str | None] | None = None,
    rotation: Rotation | None = None,
    quantize: str | None = None,
    truncate_dim: int | None = None,
    clients: Sequence[str] = (),
    command: str = "consilience export",
    title: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a student as a folder that other libraries load without remote code.

    Args:
        student: as loaded by ``load_student``.
        out: the folder; appears complete or not at all.
        formats: "sentence-transformers" (with ``AutoModel``), "onnx", or both.
        results: what ``consilience evaluate --json`` printed, for the card.
        teachers: licence (None: unknown) by teacher; by default those that the student's manifest names.
        rotation: out of the student's frame into the one that serves; becomes one Dense layer without bias.
        quantize: "int8" adds ``onnx/model_int8.onnx``.
        truncate_dim: leading dimensions to keep, of a student that was trained at that width too.
        clients: that are to serve it; see :data:`consilience.exporters.clients.CLIENTS`.
        command: for the card.
        title: heading of the card; by default the folder's name.
        overwrite: replace an existing folder.

    Returns:
        The artefact's manifest; ``parity`` holds the differences found. An export that is already there is verified
        and kept.

    Raises:
        FrameMismatchError: the rotation was fitted for another frame.
        InputError: an unknown format, a head that stock modules can't express, a width it wasn't trained at, or a
            client that would serve something else.
        ParityError: a form differs from the student by more than 1e-4, or int8 by more than rounding explains; nothing
            is left at ``out``.
        ResumeError: ``out`` exists.
        MissingExtraError: a library of a format isn't installed.
    """
    chosen = _check_formats(formats, quantize)
    if rotation is not None:
        require_frame(rotation, student.manifest.get("frame"), what=student.name)
    matrix = None if rotation is None else rotation.matrix
    parts: StudentParts | StaticParts
    if is_static(student.manifest):
        parts = static_parts(student, matrix, truncate_dim)
    else:
        parts = student_parts(student, matrix, truncate_dim)
    check_clients(clients, parts, chosen)
    if teachers is None:
        teachers = find_teachers(student.manifest)
    plan = {
        "student": student.manifest.get("id"),
        "formats": list(chosen),
        "card": content_id([title or out.name, command, dict(teachers), without_speed(results)]),
        **({} if rotation is None else {"rotation": rotation.id}),
        **({} if quantize is None else {"quantize": quantize}),
        **({} if truncate_dim is None else {"truncate_dim": truncate_dim}),
    }
    if is_finished(out, kind="export", job=content_id(plan), overwrite=overwrite):
        log(f"{out}: already done")
        return verify_artefact(out)
    # An export takes seconds and is deterministic: a leftover of a killed one is dropped, not continued.
    work, _ = begin_artefact(out, plan, overwrite=overwrite, resume=False)
    try:
        parity = _write_forms(parts, chosen, work, quantize)
        widths = [] if rotation is not None else [w for w in trained_widths(student.manifest) if w < parts.dimensions]
        padding = pad_id(parts.tokenizer)
        parameters = student.parameters if truncate_dim is None else _count(parts)
        card = render_card(
            title=title or out.name,
            manifest=student.manifest,
            teachers=teachers,
            dimensions=parts.dimensions,
            parameters=parameters,
            rotation=None if rotation is None else rotation.manifest,
            max_length=parts.max_length,
            padding=(padding, str(parts.tokenizer.id_to_token(padding))),
            formats=chosen,
            parity=parity,
            results=results,
            command=command,
            usage=_usage(parts, chosen, widths, work),
        )
        with atomic_write(work / "README.md", "w") as stream:
            stream.write(card)
        manifest = {
            "job": content_id(plan),
            "student": student.manifest.get("id"),
            "frame": student.manifest.get("frame") if rotation is None else rotation.target_frame,
            "rotation": None if rotation is None else rotation.id,
            "dimensions": parts.dimensions,
            "parameters": parameters,
            "max_length": parts.max_length,
            "formats": list(chosen),
            "teachers": dict(teachers),
            "parity": parity,
            **({} if quantize is None else {"quantize": quantize}),
            **({"matryoshka": [*widths, parts.dimensions]} if widths else {}),
        }
        files = [path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_file()]
        return finish_artefact(
            out,
            kind="export",
            manifest=manifest,
            files=[name for name in files if name != PLAN],
        )
    except BaseException:
        discard_work(work)  # a refused or interrupted export leaves nothing behind
        raise


def _write_forms(
    parts: StudentParts | StaticParts, formats: Sequence[str], work: Path, quantize: str | None
) -> dict[str, Any]:
    if isinstance(parts, StaticParts):
        return write_static_forms(parts, formats, work, quantize)
    if "sentence-transformers" in formats:
        write_backbone(parts, work)
        write_modules(parts, work)
    else:
        write_tokenizer(parts, work)
    if "onnx" in formats:
        write_onnx(parts, work)
    if quantize is not None:
        write_int8(work)
    return check_parity(parts, work)


def _count(parts: StudentParts | StaticParts) -> int:
    """Return how many parameters a cut student has left, token types not counted."""
    if isinstance(parts, StaticParts):
        return int(parts.table.size)
    tensors = [tensor for stage in parts.stages for tensor in (stage.weight, stage.bias) if tensor is not None]
    return count_parameters(parts.backbone) + sum(tensor.numel() for tensor in tensors)


def _usage(parts: StudentParts | StaticParts, formats: Sequence[str], widths: Sequence[int], work: Path) -> list[str]:
    if isinstance(parts, StaticParts):
        sections = static_usage(parts, formats, int8=(work / INT8_FILE).is_file())
    else:
        sections = usage_sections(parts, formats, widths=widths, onnx_bytes=_onnx_bytes(work))
    return [*sections, clients_usage(parts, formats)]


def _onnx_bytes(work: Path) -> tuple[int, int] | None:
    small = work / INT8_FILE
    return ((work / ONNX_FILE).stat().st_size, small.stat().st_size) if small.is_file() else None


def _check_formats(formats: Sequence[str], quantize: str | None) -> tuple[str, ...]:
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        got = ", ".join(unknown) or "none"
        raise InputError(f"export: formats among {', '.join(FORMATS)} expected, got {got}. Fix --format")
    if quantize not in (None, "int8"):
        raise InputError(f"export: int8 expected, got {quantize!r}. Fix --quantize")
    if quantize is not None and "onnx" not in formats:
        raise InputError("export: int8 is a form of ONNX, which wasn't asked for. Add onnx to --format")
    return tuple(name for name in FORMATS if name in formats)


def find_teachers(manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the teachers that a student's manifest names (in its target's identity) and their licences.

    Args:
        manifest: of a student; teacher identities are the objects with ``backend`` and ``name`` in it.
    """
    from consilience.teachers.registry import teacher_licence

    found: dict[str, str | None] = {}
    for entry in _identities(manifest):
        backend, name = entry["backend"], entry["name"]
        # A card is public: a model that was read from this machine's disk is named without its folder.
        shown = Path(name).name if Path(name).is_absolute() else name
        # An identity names a local model without its folder, so a folder of that name here may be another model's.
        licence = teacher_licence(f"packaged:{name}") if backend == "packaged" else None
        found[name if backend == "http" else f"{backend}:{shown}"] = licence
    return found


def _identities(value: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        if value.get("weight") == 0:
            return  # a member that was left out of the consensus taught nothing
        inner = [identity for entry in value.values() for identity in _identities(entry)]
        if inner:
            yield from inner  # a committee: its members, not itself
        elif isinstance(value.get("name"), str) and value.get("backend") not in (None, "consensus"):
            yield value
    elif isinstance(value, list):
        for entry in value:
            yield from _identities(entry)
