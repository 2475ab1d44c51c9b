"""What runs and studies have in common: a folder of stages, the recorded command, and the closing report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.artefacts import MANIFEST, SCHEMA_VERSION
from consilience.core.errors import ResumeError
from consilience.core.files import atomic_write, read_json, write_json
from consilience.core.hashing import content_id, file_sha256

if TYPE_CHECKING:
    from consilience.recipes.stages import StageResult


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

    Args:
        folder: may exist or not.
        kind: "run" or "study".

    Raises:
        ResumeError: it's a file, another artefact, or holds files of somebody else's.
    """
    if folder.exists() and not folder.is_dir():
        raise ResumeError(f"{folder}: is a file, expected a {kind}'s folder or a new one. Choose another --out")
    if (folder / MANIFEST).is_file():
        found = read_json(folder / MANIFEST)
        there = found.get("kind") if isinstance(found, dict) else None
        if there != kind:
            raise ResumeError(
                f"{folder}: expected a {kind}'s folder or a new one, found a {there}. Choose another --out"
            )
    elif folder.is_dir() and any(folder.iterdir()):
        started = [path for path in folder.iterdir() if path.name == "seconds.json" or path.name.startswith("corpus-")]
        if not started:
            raise ResumeError(f"{folder}: holds files that aren't a {kind}'s. Choose another --out")


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

    (out / "plots").mkdir(exist_ok=True)
    images = {f"plots/{name}.svg": svg for name, svg in plots.items()}
    page = render_html(markdown, title=f"{results['name']}: Consilience {kind}", images=images)
    for name, text in {**images, "report.md": markdown, "report.html": page}.items():
        with atomic_write(out / name, "w") as stream:
            stream.write(text)
    write_json(out / "results.json", results)
    body: dict[str, Any] = {
        "kind": kind,
        "schema_version": SCHEMA_VERSION,
        document: results[document],
        "stages": [
            {"stage": stage["stage"], "folder": stage["folder"], "id": stage["id"]} for stage in results["stages"]
        ],
        "files": {
            name: file_sha256(out / name) for name in sorted(["report.md", "report.html", "results.json", *images])
        },
    }
    write_json(out / MANIFEST, {**body, "id": content_id(body, prefix=f"{kind}-")})
