"""What runs and studies have in common: a folder of stages, the recorded command, and the closing report."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.artefacts import PLAN, read_plan, write_plan
from consilience.core.errors import ConsilienceError, ResumeError, StorageError
from consilience.core.files import TEMPORARY, atomic_write, json_text, storage_errors, write_json
from consilience.core.hashing import content_id, file_sha256
from consilience.core.manifests import MANIFEST, SCHEMA_VERSION, read_manifest
from consilience.core.placing import require_place

if TYPE_CHECKING:
    from consilience.recipes.stages import StageResult

LINK = "model"  # in a run's folder, to its export
_REPORTS = ("report.md", "report.html", "results.json")


@dataclass(frozen=True)
class StagedResult:
    """What a run or a study did and where it is.

    Attributes:
        out: its folder.
        stages: one entry a stage, in order.
        results: everything that ``results.json`` holds; empty for a dry run.
    """

    out: Path
    stages: Sequence[StageResult]
    results: Mapping[str, Any]

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.out / "report.html"

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON; of a dry run, the stages alone."""
        return dict(self.results) or {"stages": [stage.to_json() for stage in self.stages]}


def require_staged_folder(folder: Path, kind: str) -> None:
    """Refuse another artefact's folder, whose manifest ours would replace, and whatever else isn't ours.

    The folder is written in place, so it may be a mount point or a link to a folder; no file in it that isn't a
    report of ours is replaced.

    Args:
        folder: may exist or not.
        kind: "run" or "study".

    Raises:
        ResumeError: it's a file, another artefact, or holds files of somebody else's.
        InputError: a folder can't be made there.
        StorageError: it can't be written.
    """
    if folder.is_dir():
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StorageError(f"{folder}: can't write: read-only or not permitted. Choose another --out")
    elif not folder.exists():
        require_place(folder)
    if folder.exists() and not folder.is_dir():
        raise ResumeError(f"{folder}: is a file, expected a {kind}'s folder or a new one. Choose another --out")
    if (folder / MANIFEST).is_file():
        try:
            there = read_manifest(folder)["kind"]
        except ConsilienceError as error:
            raise ResumeError(f"{folder}: isn't a {kind}'s folder ({error}). Choose another --out") from error
        if there != kind:
            raise ResumeError(
                f"{folder}: expected a {kind}'s folder or a new one, found a {there}. Choose another --out"
            )
    elif _is_in_use(folder) and (read_plan(folder) or {}).get("kind") != kind:
        raise ResumeError(f"{folder}: holds files that aren't a {kind}'s. Choose another --out")
    reported = _reported(folder)
    for name in {*_REPORTS, *reported}:
        _require_reported(folder / name, reported.get(name, set()))
    link = folder / LINK
    if os.path.lexists(link) and not (link.is_symlink() and str(link.readlink()).startswith("export-")):
        raise ResumeError(f"{link}: isn't this {kind}'s link to its export. Move it away")


def begin_staged(folder: Path, kind: str) -> None:
    """Make the folder of a run or study, and mark it as one until its manifest is written."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MANIFEST).is_file() and read_plan(folder) is None:
        write_plan(folder, {"kind": kind})


def _reported(folder: Path) -> dict[str, set[str]]:
    """Return the checksums that a report's files have had by our hand: finished, or in a killed attempt."""
    listed = [(read_plan(folder) or {}).get("files", {})]
    if (folder / MANIFEST).is_file():
        listed.append(read_manifest(folder)["files"])
    return {name: {files[name] for files in listed if name in files} for name in {name for f in listed for name in f}}


def _is_in_use(folder: Path) -> bool:
    return folder.is_dir() and not all(TEMPORARY.fullmatch(path.name) for path in folder.iterdir())


def _require_reported(path: Path, checksums: set[str]) -> None:
    """Refuse to replace what isn't a report of ours, or was changed since."""
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file() or file_sha256(path) not in checksums):
        raise ResumeError(f"{path}: isn't the report that was written there. Move it away")


def recorded_command(verb: str, file: str | Path, settings: Sequence[str]) -> str:
    """Return the command as artefacts record it, without the folders of this machine.

    The folder of the output isn't part of it either: the same job elsewhere is the same job.

    Args:
        verb: "run" or "study".
        file: as the person named it.
        settings: the ``--set`` values.

    Example:
        >>> recorded_command("run", "../elsewhere/a.toml", ["train.steps=2"])
        'consilience run a.toml --set train.steps=2'
    """
    path = Path(file)
    shown = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    return shlex.join(["consilience", verb, shown, *(word for text in settings for word in ("--set", text))])


def write_staged_report(
    out: Path, results: Mapping[str, Any], *, kind: str, document: str, markdown: str, plots: Mapping[str, str]
) -> None:
    """Write ``results.json``, the plots, ``report.md``, ``report.html`` and, last, the manifest.

    The manifest is written in place: its folder holds the stages' artefacts and can't be renamed.

    Args:
        out: the folder.
        results: everything that the report shows, with ``name``, ``stages`` and the checked file under ``document``.
        kind: "run" or "study".
        document: key of the checked file in ``results``, which the manifest keeps.
        markdown: the report, its images addressed as ``plots/NAME.svg``.
        plots: SVG by name.
    """
    from consilience.reports.html import render_html

    images = {f"plots/{name}.svg": svg for name, svg in plots.items()}
    page = render_html(markdown, title=f"{results['name']}: Consilience {kind}", images=images)
    texts = {**images, "report.md": markdown, "report.html": page, "results.json": json_text(results)}
    files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    earlier = _reported(out)
    for name in {*texts, *earlier}:
        _require_reported(out / name, {files.get(name, ""), *earlier.get(name, ())})
    write_plan(out, {"kind": kind, "files": files})  # killed from here on, the files are known as ours
    (out / "plots").mkdir(exist_ok=True)
    for name, text in texts.items():
        with atomic_write(out / name, "w") as stream:
            stream.write(text)
    for name in {*earlier} - {*texts}:  # plots of an earlier recipe
        (out / name).unlink(missing_ok=True)
    body: dict[str, Any] = {
        "kind": kind,
        "schema_version": SCHEMA_VERSION,
        document: results[document],
        "stages": [
            {"stage": stage["stage"], "folder": stage["folder"], "id": stage["id"]} for stage in results["stages"]
        ],
        "files": dict(sorted(files.items())),
    }
    write_json(out / MANIFEST, {**body, "id": content_id(body, prefix=f"{kind}-")})
    (out / PLAN).unlink()
