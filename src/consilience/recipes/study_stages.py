"""Stages that a study shares: among its cells, and with runs and studies in other folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.core.manifests import MANIFEST, read_manifest, verify_artefact
from consilience.core.progress import log
from consilience.recipes.stages import StageResult, Stages, stage_key

_SHARED = ("corpus", "embed", "align", "consensus")  # their inputs are the same for runs and studies


@dataclass
class SharedStages(Stages):
    """Stages of which each runs once however many cells need it, and none whose output is in another folder.

    Args:
        out: the study's folder.
        dry_run: only find out what would run.
        shelves: folders of other runs and studies; one that doesn't exist holds nothing.
    """

    shelves: Sequence[Path] = ()
    seen: dict[str, StageResult] = field(default_factory=dict)

    def stage(self, name: str, inputs: Mapping[str, Any] | None, make: Callable[[Path], object]) -> StageResult:
        """Run a stage, or skip it when its output exists here or on a shelf; as :meth:`Stages.stage`."""
        key = None if inputs is None else stage_key(name, inputs)
        if key is None:
            return super().stage(name, inputs, make)
        if key not in self.seen:
            self.seen[key] = self._elsewhere(name, key) or super().stage(name, inputs, make)
        return self.seen[key]

    def _elsewhere(self, name: str, key: str) -> StageResult | None:
        folder = f"{name}-{key}"
        if name.split("-")[0] not in _SHARED or (self.out / folder).is_dir():
            return None
        path = next((shelf / folder for shelf in self.shelves if (shelf / folder / MANIFEST).is_file()), None)
        if path is None:
            return None
        # As in :meth:`Stages.stage`: a dry run trusts the checksums that a real run verifies.
        return self.found(name, key, path, read_manifest(path) if self.dry_run else verify_artefact(path))

    def found(self, name: str, key: str | None, path: Path, manifest: dict[str, Any]) -> StageResult:
        """Take an artefact where it lies.

        Args:
            name: the stage's.
            key: of its inputs, or None of an artefact that no stage made.
            path: where it is.
            manifest: its manifest.
        """
        result = StageResult(name, key, path, "done" if self.dry_run else "skipped", manifest)
        self.results.append(result)
        if not self.dry_run:
            log(f"skipped: {name}: {path} is already there")
        return result
