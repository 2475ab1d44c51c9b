"""A migration on disk: the chosen map of either way, all methods' scores, what it was measured on. Kind "migration"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.committee.migration import MapScore, Way
from consilience.core.artefacts import finish_artefact
from consilience.core.errors import BankIntegrityError
from consilience.core.files import atomic_write
from consilience.core.manifests import partial_path, verify_artefact
from consilience.frames.align import AffineMap


@dataclass(frozen=True)
class Migration:
    """A stored migration.

    Attributes:
        path: its folder.
        manifest: JSON: ``index``, ``model``, ``scores``, ``chosen`` by way, ``verdict``, ``bar``, ``rewritten``.
        maps: the chosen map by way.
    """

    path: Path
    manifest: dict[str, Any]
    maps: dict[Way, AffineMap]

    @property
    def id(self) -> str:
        """Content hash."""
        return str(self.manifest["id"])


def write_migration(out: Path, *, manifest: dict[str, Any], chosen: Mapping[Way, MapScore]) -> Migration:
    """Finish a migration's working folder.

    Args:
        out: final folder; its working folder exists.
        manifest: everything but the maps.
        chosen: the map that is stored, by way.

    Raises:
        StorageError: the file system refused.
    """
    from safetensors.numpy import save

    files = []
    for way, score in chosen.items():
        affine = score.affine
        tensors = {
            "matrix": np.ascontiguousarray(affine.matrix, dtype=np.float32),
            "bias": np.ascontiguousarray(affine.bias, dtype=np.float32),
        }
        files.append(_file(way))
        with atomic_write(partial_path(out) / files[-1]) as stream:
            stream.write(save(tensors))
    finish_artefact(out, kind="migration", manifest=manifest, files=files)
    return load_migration(out)


def load_migration(path: str | Path) -> Migration:
    """Open a migration and check its files.

    Raises:
        InputError: it isn't one.
        BankIntegrityError: a file was changed.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(path)
    manifest = verify_artefact(folder, "migration")
    maps: dict[Way, AffineMap] = {}
    for way in manifest["chosen"]:
        try:
            tensors = load((folder / _file(way)).read_bytes())
            maps[way] = AffineMap(tensors["matrix"], tensors["bias"])
        except (SafetensorError, KeyError) as error:
            raise BankIntegrityError(f"{folder / _file(way)}: isn't a map. Run `consilience migrate` again") from error
    return Migration(folder, manifest, maps)


def _file(way: Way) -> str:
    return f"{way}.safetensors"
