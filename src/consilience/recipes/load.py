"""Open any finished artefact by its kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.manifests import read_manifest

if TYPE_CHECKING:
    from consilience.banks.reader import Bank
    from consilience.committee.frame_set import FrameSet
    from consilience.committee.migration_artefact import Migration
    from consilience.committee.rotation import Rotation
    from consilience.core.encoder import Encoder
    from consilience.students.text import StudentEncoder


def load(path: str | Path) -> Bank | FrameSet | Rotation | Migration | StudentEncoder | Encoder:
    """Open an artefact.

    Args:
        path: its folder.

    Returns:
        A bank, a frame set, a rotation, a migration, or an encoder for a student or an exported model.

    Raises:
        InputError: nothing is there, or an artefact that has no Python object (a run's report, say).
        BankIntegrityError: it is damaged.
    """
    folder = Path(path)
    kind: Any = read_manifest(folder).get("kind")
    if kind == "bank":
        from consilience.banks.reader import open_bank

        return open_bank(folder)
    if kind == "frames":
        from consilience.committee.frame_set import open_frames

        return open_frames(folder)
    if kind == "student":
        from consilience.students.text import load_student

        return load_student(folder)
    if kind == "rotation":
        from consilience.committee.rotation import load_rotation

        return load_rotation(folder)
    if kind == "migration":
        from consilience.committee.migration_artefact import load_migration

        return load_migration(folder)
    if kind == "export":
        from consilience.recipes.encoders import open_encoder

        return open_encoder(str(folder))
    raise InputError(f"{folder}: a {kind} can't be loaded as an object. See: consilience inspect {folder}")
