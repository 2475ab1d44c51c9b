"""Stages of a run: each has a key, the hash of what goes into it, and is skipped when its output is already there.

A stage's output is an artefact in ``OUT/<stage>-<key>``. Its key hashes the part of the recipe that it reads, the
ids of the artefacts it starts from and the artefacts' schema version, so an edited recipe runs again exactly the
stages that the edit touches, and their old outputs stay until somebody deletes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from consilience.core.artefacts import settle_artefact
from consilience.core.files import read_json, write_json
from consilience.core.hashing import content_id, file_sha256
from consilience.core.manifests import MANIFEST, SCHEMA_VERSION, partial_path, verify_artefact
from consilience.core.progress import log

Status = Literal["ran", "continued", "skipped", "would run", "would continue", "done"]


@dataclass(frozen=True)
class StageResult:
    """What became of one stage.

    Attributes:
        name: e.g. "embed-minilm".
        key: hash of the stage's inputs; None when they don't exist yet (a dry run).
        folder: the artefact; it exists unless the run is dry.
        status: "ran", "continued" or "skipped"; of a dry run "would run", "would continue" or "done".
        manifest: the artefact's manifest, or None where there is none yet.
        seconds: wall-clock time over all attempts, or None when unknown.
    """

    name: str
    key: str | None
    folder: Path | None
    status: Status
    manifest: Mapping[str, Any] | None = None
    seconds: float | None = None

    @property
    def path(self) -> Path:
        """The artefact's folder, of a stage whose inputs exist."""
        if self.folder is None:
            raise ValueError(f"stage {self.name} has no folder before the stages above it are done")
        return self.folder

    @property
    def id(self) -> str | None:
        """The artefact's id."""
        return None if self.manifest is None else str(self.manifest["id"])

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON, the folder by its name."""
        return {
            "stage": self.name,
            "status": self.status,
            "folder": self.folder.name if self.folder else None,
            "id": self.id,
            "seconds": self.seconds,
        }


@dataclass
class Stages:
    """Runs stages in order and remembers what became of them.

    Args:
        out: the run's folder.
        dry_run: only find out what would run.
    """

    out: Path
    dry_run: bool = False
    results: list[StageResult] = field(default_factory=list)

    def stage(self, name: str, inputs: Mapping[str, Any] | None, make: Callable[[Path], object]) -> StageResult:
        """Run one stage, or skip it when its output exists and is sound.

        Args:
            name: the stage's name, which starts its folder's name.
            inputs: JSON value of everything that determines the output; None when an input doesn't exist yet.
            make: writes the artefact to the folder it's given; continues a partial one.

        Raises:
            BankIntegrityError: the output exists but is damaged.
        """
        result = self._stage(name, inputs, make)
        self.results.append(result)
        return result

    def _stage(self, name: str, inputs: Mapping[str, Any] | None, make: Callable[[Path], object]) -> StageResult:
        if inputs is None:
            return StageResult(name, None, None, "would run")
        key = stage_key(name, inputs)
        folder = self.out / f"{name}-{key}"
        if not self.dry_run:
            settle_artefact(folder)
        if (folder / MANIFEST).is_file():
            # A dry run promises not to work for long: it trusts the checksums that a real run verifies.
            manifest = read_json(folder / MANIFEST) if self.dry_run else verify_artefact(folder)
            if not self.dry_run:
                log(f"skipped: {name}: {folder} is already there")
            return StageResult(
                name, key, folder, "done" if self.dry_run else "skipped", manifest, self._seconds(folder)
            )
        continues = partial_path(folder).is_dir()
        if self.dry_run:
            return StageResult(name, key, folder, "would continue" if continues else "would run")
        log(f"{'continue' if continues else 'run'}: {name} -> {folder}")
        started = time.perf_counter()
        try:
            make(folder)
        finally:
            seconds = self._add_seconds(folder, time.perf_counter() - started)
        return StageResult(
            name, key, folder, "continued" if continues else "ran", read_json(folder / MANIFEST), seconds
        )

    def _seconds(self, folder: Path) -> float | None:
        path = self.out / "seconds.json"
        found = read_json(path).get(folder.name) if path.is_file() else None
        return None if found is None else float(found)

    def _add_seconds(self, folder: Path, seconds: float) -> float:
        """Add to the time that earlier, interrupted attempts took, and return the sum."""
        path = self.out / "seconds.json"
        known = read_json(path) if path.is_file() else {}
        total = round(known.get(folder.name, 0.0) + seconds, 3)
        write_json(path, {**known, folder.name: total})
        return float(total)


def stage_key(name: str, inputs: Mapping[str, Any]) -> str:
    """Return the hash of a stage's inputs, 12 hexadecimal digits.

    Example:
        >>> stage_key("align", {"method": "ridge"}) == stage_key("align", {"method": "whitened"})
        False
    """
    return content_id({"stage": name, "schema_version": SCHEMA_VERSION, "inputs": dict(inputs)})[:12]


def path_content(path: Path) -> str:
    """Return what identifies the content of a file or folder: an artefact's id, or a hash over all files.

    Args:
        path: an existing file or folder.
    """
    if path.is_file():
        return file_sha256(path)
    if (path / MANIFEST).is_file():
        return str(read_json(path / MANIFEST).get("id"))
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return content_id([[file.relative_to(path).as_posix(), file_sha256(file)] for file in files])
