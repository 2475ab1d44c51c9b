"""Reading an artefact: its manifest, and the checksums that the manifest has of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.core.errors import BankIntegrityError, InputError
from consilience.core.files import read_json
from consilience.core.hashing import content_id, file_sha256

MANIFEST = "manifest.json"
TIMING = "timing.json"
SCHEMA_VERSION = 1


def partial_path(out: Path) -> Path:
    """Return the folder in which the artefact ``out`` is being made.

    Raises:
        InputError: ``out`` is ".", ".." or "/", which can't be the name of a new folder.
    """
    if out.name in ("", ".."):
        raise InputError(f"{out}: expected the name of a new folder. Change --out")
    return out.with_name(out.name + ".partial")


def replaced_path(out: Path) -> Path:
    """Return where the artefact that ``out`` replaces waits until the new one is complete."""
    return out.with_name(out.name + ".replaced")


def read_manifest(path: Path, kind: str | None = None) -> dict[str, Any]:
    """Read and check an artefact's manifest (not its files; see :func:`verify_artefact`).

    Args:
        path: the artefact's folder.
        kind: what it has to be, or None for any.

    Raises:
        InputError: no such folder, no manifest, another kind, or a newer schema.
        BankIntegrityError: the manifest was edited: its id doesn't match its content.
    """
    if not path.exists():
        hint = " (an interrupted run is there: run its command again)" if partial_path(path).is_dir() else ""
        raise InputError(f"{path}: no such file or folder{hint}. Check the path")
    if not (path / MANIFEST).is_file():
        raise InputError(f"{path}: not a Consilience artefact: it has no {MANIFEST}")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise BankIntegrityError(
            f"{path / MANIFEST}: no manifest of Consilience's. Choose another folder, or rebuild the artefact"
        )
    if kind is not None and manifest.get("kind") != kind:
        wanted = "frames folder" if kind == "frames" else kind  # the one plural
        raise InputError(f"{path}: expected a {wanted}, found a {manifest.get('kind')}. Check the path")
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {manifest.get('schema_version')}, this Consilience reads {SCHEMA_VERSION}. "
            "Update Consilience or rebuild the artefact"
        )
    body = {k: v for k, v in manifest.items() if k != "id"}
    if content_id(body, prefix=f"{manifest.get('kind')}-") != manifest.get("id"):
        raise BankIntegrityError(f"{path / MANIFEST}: its id doesn't match its content; it was edited. Rebuild it")
    for name in manifest["files"]:
        relative = Path(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise BankIntegrityError(
                f"{path / MANIFEST}: file name {name!r} leaves the folder. Don't use this artefact"
            )
    return manifest


def verify_artefact(path: Path, kind: str | None = None) -> dict[str, Any]:
    """Read an artefact's manifest and check every file's checksum.

    Args:
        path: the artefact's folder.
        kind: what it has to be, or None for any; looked at before any file is read.

    Raises:
        InputError: no artefact, or of another kind.
        BankIntegrityError: a file is missing or its bytes changed; the message names the first such file.
    """
    manifest = read_manifest(path, kind)
    for name, expected in manifest["files"].items():
        check_file(path, name, expected)
    return manifest


def check_file(folder: Path, name: str, expected_sha256: str) -> None:
    """Check one file of an artefact.

    Raises:
        BankIntegrityError: it is missing or its bytes changed.
    """
    path = folder / name
    if not path.is_file():
        raise BankIntegrityError(f"{path}: listed in the manifest but missing. Rebuild or fetch {folder} again")
    found = file_sha256(path)
    if found != expected_sha256:
        raise BankIntegrityError(
            f"{path}: checksum {found[:12]}..., the manifest says {expected_sha256[:12]}...: the file is damaged. "
            f"Rebuild or fetch {folder} again"
        )
