"""A frame set: one map a teacher into one frame, with the evidence that each map is real. Artefact kind "frames"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import BankIntegrityError
from consilience.core.files import atomic_write
from consilience.core.manifests import partial_path, verify_artefact
from consilience.frames.align import AffineMap
from consilience.frames.sampling import split_rows

MAPS_FILE = "maps.safetensors"


@dataclass(frozen=True)
class FrameSet:
    """Maps of several teachers into one frame.

    Attributes:
        path: its folder.
        manifest: its manifest, as JSON.
        maps: by teacher id (the content id of the teacher's identity); a reference's is the identity map.
    """

    path: Path
    manifest: dict[str, Any]
    maps: dict[str, AffineMap]

    @property
    def id(self) -> str:
        """Content hash of the manifest."""
        return str(self.manifest["id"])

    @property
    def frame(self) -> str:
        """Id of the frame that all maps lead into."""
        return str(self.manifest["frame"])

    @property
    def reference_bank_id(self) -> str | None:
        """Bank of the reference teacher that the maps were fitted with; None of a GPA frame, which has none."""
        reference = self.manifest["reference"]
        return None if reference is None else str(reference["bank_id"])

    @property
    def dimensions(self) -> int:
        """Width of the frame."""
        return int(self.manifest["dimensions"])

    @property
    def teachers(self) -> dict[str, dict[str, Any]]:
        """By teacher id: label, identity, bank id, dimensions and fit report (None for the reference)."""
        return dict(self.manifest["teachers"])

    def held_out_rows(self, corpus_fingerprint: str) -> NDArray[np.int64] | None:
        """Return the rows that no map was fitted to, or None when the corpus isn't the one of the fit."""
        if corpus_fingerprint != self.manifest["corpus"]["fingerprint"]:
            return None
        job = self.manifest["job"]
        rows = int(self.manifest["corpus"]["rows"])
        return split_rows(rows, job["fit_rows"], job["held_out_rows"], seed=job["seed"]).held_out


def save_frames(
    out: Path,
    *,
    job: dict[str, Any],
    manifest: dict[str, Any],
    maps: Mapping[str, AffineMap],
    overwrite: bool = False,
) -> FrameSet:
    """Write a frame set: complete or absent.

    Args:
        out: final folder.
        job: identity of the alignment job; stored as the manifest's ``job``.
        manifest: frame, reference, teachers, corpus, method.
        maps: by teacher id; stored in float32.
        overwrite: replace what is there.

    Raises:
        ResumeError: ``out`` exists.
        StorageError: the file system refused.
    """
    from safetensors.numpy import save

    tensors: dict[str, NDArray[np.float32]] = {}
    for teacher, affine in sorted(maps.items()):
        tensors[f"{teacher}.matrix"] = np.ascontiguousarray(affine.matrix, dtype=np.float32)
        tensors[f"{teacher}.bias"] = np.ascontiguousarray(affine.bias, dtype=np.float32)
    begin_artefact(out, job, overwrite=overwrite)
    with atomic_write(partial_path(out) / MAPS_FILE) as stream:
        stream.write(save(tensors))
    finish_artefact(out, kind="frames", manifest={**manifest, "job": job}, files=[MAPS_FILE])
    return load_frames(out)


def load_frames(path: str | Path) -> FrameSet:
    """Open a frame set and check its files.

    Args:
        path: its folder.

    Raises:
        InputError: it isn't a frame set.
        BankIntegrityError: the manifest or the maps were changed.
    """
    from safetensors.numpy import load

    folder = Path(path)
    manifest = verify_artefact(folder, "frames")
    tensors = load((folder / MAPS_FILE).read_bytes())
    maps: dict[str, AffineMap] = {}
    for teacher in manifest["teachers"]:
        names = (f"{teacher}.matrix", f"{teacher}.bias")
        if any(name not in tensors for name in names):
            raise BankIntegrityError(
                f"{folder / MAPS_FILE}: no map of teacher {teacher}. Run `consilience align` again"
            )
        maps[teacher] = AffineMap(tensors[names[0]], tensors[names[1]])
    return FrameSet(folder, manifest, maps)


open_frames = load_frames
