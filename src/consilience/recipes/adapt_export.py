"""Export a student with its library: a Hugging Face folder, and ONNX with the mask baked in or as an input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.locks import one_job

if TYPE_CHECKING:
    from consilience.adapters.library import AnchorLibrary
    from consilience.students.text import StudentEncoder


@one_job
def adapt_export(
    student: str | Path | StudentEncoder,
    library: str | Path | AnchorLibrary,
    *,
    out: str | Path,
    formats: Sequence[str] = ("huggingface", "onnx"),
    mask: str = "input",
    force: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a student with its adapter library as a folder that other software loads.

    Args:
        student: a student's folder, or a loaded student.
        library: trained on it.
        out: the folder.
        formats: "huggingface" (remote code puts the anchors on; without it the folder is the bare student), "onnx".
        mask: of the ONNX file: "input", "all", "off", or names separated by commas.
        force: export a library of another trunk; the manifest says so.
        overwrite: replace what is at ``out``.

    Returns:
        The manifest; ``parity`` holds what was compared.

    Raises:
        TrunkMismatchError: the library belongs to another trunk.
        InputError: not a student with blocks, an unknown format or mask.
        ParityError: a form differs from the live model.
    """
    from consilience.adapters.library import AnchorLibrary, load_library
    from consilience.core.placing import require_apart
    from consilience.exporters.adapted_folder import export_adapted
    from consilience.students.static import is_static
    from consilience.students.text import StudentEncoder, load_student

    opened = student if isinstance(student, StudentEncoder) else load_student(student)
    if is_static(opened.manifest):
        raise InputError(f"{opened.name}: a static student has no blocks, so no adapters. Name another student")
    loaded = library if isinstance(library, AnchorLibrary) else load_library(library)
    require_apart(Path(out), student, library)
    return export_adapted(opened, loaded, Path(out), formats=list(formats), mask=mask, force=force, overwrite=overwrite)
