"""Every artefact is a folder with a ``manifest.json``; this module starts, continues, finishes and checks one.

While a job runs, its folder is ``OUT.partial`` and holds a ``plan.json`` (the job's identity). When the job is
done, the manifest is written and the folder is renamed to ``OUT`` in one step. A killed job leaves ``OUT.partial``
behind; the same command finds the equal plan and continues. With ``overwrite`` the old artefact stays where it is
until the new one is complete. Wall-clock telemetry goes into ``timing.json``, which
is the only file outside the manifest: all others are the same bytes however often the job was interrupted.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from consilience.core.errors import BankIntegrityError, InputError, ResumeError, StorageError
from consilience.core.files import read_json, storage_errors, sync_directory, write_json
from consilience.core.hashing import content_id, file_sha256

MANIFEST = "manifest.json"
PLAN = "plan.json"
TIMING = "timing.json"
REPLACES = "replaces"  # empty file in a working folder: the artefact may take an older one's place
SCHEMA_VERSION = 1
_DISCARDED = {"discarded": True}  # plan of a working folder that is being deleted


def partial_path(out: Path) -> Path:
    """Return the folder in which the artefact ``out`` is being made.

    Raises:
        InputError: ``out`` is ".", ".." or "/", which can't be the name of a new folder.
    """
    if out.name in ("", ".."):
        raise InputError(f"{out}: expected the name of a new folder. Change --out")
    return out.with_name(out.name + ".partial")


def begin_artefact(out: Path, plan: dict[str, Any], *, overwrite: bool = False) -> tuple[Path, bool]:
    """Open the working folder of an artefact, new or left by an interrupted run of the same job.

    Args:
        out: final folder.
        plan: JSON identity of the job; a partial folder with another plan is refused.
        overwrite: drop another job's partial folder, and let the finished artefact take the place of one at ``out``.

    Returns:
        The working folder, and whether it continues an interrupted run.

    Raises:
        ResumeError: ``out`` exists and may not be overwritten, its partial folder belongs to another job, or a folder
            of somebody else has the name of one that this job would delete.
        StorageError: the folder can't be made.
    """
    work = partial_path(out)
    if overwrite:
        require_replaceable(out)
    elif out.exists():
        raise ResumeError(f"{out}: already exists. {_way_out(out)}")
    old = _replaced_path(out)
    if old.exists() and not _is_ours(old):
        raise ResumeError(f"{old}: is in the way: the folder that is replaced waits there. Move it away")
    found = read_plan(work)
    if found == _DISCARDED or (
        overwrite and found not in (None, plan)
    ):  # killed while it was being deleted, or unwanted
        discard_work(work)
        found = None
    if found == plan:
        if overwrite:
            (work / REPLACES).touch()
        return work, True
    if found is not None:
        keys = sorted(k for k in {*found, *plan} if found.get(k) != plan.get(k))
        raise ResumeError(
            f"{work}: an interrupted run of another job (differs in {', '.join(keys)}). "
            "Run that job again to finish it, or pass --overwrite to discard it"
        )
    if work.exists():  # killed between mkdir and the plan, or not of this program at all
        _require_worthless(work)
        shutil.rmtree(work)
    with storage_errors(work):
        work.mkdir(parents=True)
        if overwrite:
            (work / REPLACES).touch()
    write_json(work / PLAN, plan)
    return work, False


def read_plan(work: Path) -> Any | None:  # noqa: ANN401 - any JSON value
    """Return the job that a working folder belongs to, or None when it has no plan."""
    return read_json(work / PLAN) if (work / PLAN).is_file() else None


def discard_work(work: Path) -> None:
    """Delete a working folder, as far as the file system allows; after a kill midway it's known to be worthless."""
    if not work.is_dir():
        return
    with contextlib.suppress(StorageError):
        write_json(work / PLAN, _DISCARDED)
    for path in sorted(work.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != PLAN:
            with contextlib.suppress(OSError):
                path.unlink()
    shutil.rmtree(work, ignore_errors=True)


def require_replaceable(out: Path) -> None:
    """Refuse what ``--overwrite`` may not replace: all but an artefact, an empty folder, or nothing.

    Raises:
        ResumeError: ``out`` holds something else, which isn't ours to delete.
    """
    if out.exists() and not _is_ours(out):
        raise ResumeError(f"{out}: isn't a Consilience artefact, so --overwrite won't delete it. Choose another --out")


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder may be deleted: an artefact, or an empty one."""
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))


def _way_out(out: Path) -> str:
    return "Choose another --out or pass --overwrite" if _is_ours(out) else "Choose another --out"


def _replaced_path(out: Path) -> Path:
    return out.with_name(out.name + ".replaced")


def _require_worthless(work: Path) -> None:
    """Refuse to delete a working folder without a plan that holds more than a killed start leaves behind."""
    left = [path.name for path in work.iterdir()] if work.is_dir() else [work.name]
    kept = [name for name in left if name != REPLACES and not (name.startswith(".") and name.endswith(".tmp"))]
    if kept:
        raise ResumeError(
            f"{work}: would be the working folder, and isn't one of Consilience: it holds {kept[0]}. Move it away or "
            "choose another --out"
        )


def require_apart(out: Path, *inputs: object) -> None:
    """Refuse an output that is one of the job's inputs, lies in one, or has one in it: making it would destroy it.

    Args:
        out: the output.
        inputs: paths of what the job reads; whatever isn't the path of something that exists (a teacher's name, rows in
            memory) is passed over.

    Raises:
        InputError: names both.
    """
    target = out.resolve()
    for given in inputs:
        if not isinstance(given, str | Path) or not _exists(given):
            continue
        source = Path(given).resolve()
        inside = source.is_dir() and source in target.parents and (source / MANIFEST).is_file()
        if source == target or target in source.parents or inside:
            raise InputError(f"{out}: is or holds {given}, which this job reads. Choose another --out")


def _exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long a name, or a NUL in it: no path
        return False


def finish_artefact(
    out: Path, *, kind: str, manifest: dict[str, Any], files: list[str], sha256: dict[str, str] | None = None
) -> dict[str, Any]:
    """Write the manifest into the working folder, drop what isn't listed, rename the folder to ``out``.

    Args:
        out: final folder.
        kind: "bank", "frames", "student", "export", "run", ...
        manifest: the artefact's own fields (JSON, no wall-clock times).
        files: names, relative to the folder, that belong to the artefact.
        sha256: checksums already known, by name; the rest is computed.

    Returns:
        The manifest as written: the given fields plus ``kind``, ``schema_version``, ``files`` and ``id``.

    Raises:
        ResumeError: something else has appeared at ``out`` since the job began.
        StorageError: the disk is full, read-only or not permitted.
    """
    work = partial_path(out)
    if (work / REPLACES).is_file():
        require_replaceable(out)
    elif out.exists():
        raise ResumeError(f"{out}: was made while this job ran. Move it away and run the command again")
    known = sha256 or {}
    entries = {name: known.get(name) or file_sha256(work / name) for name in sorted(files)}
    body = {**manifest, "kind": kind, "schema_version": SCHEMA_VERSION, "files": entries}
    body["id"] = content_id(body, prefix=f"{kind}-")
    write_json(work / MANIFEST, body)
    _sweep_and_rename(work, out, {*entries, MANIFEST, TIMING})
    return body


def settle_artefact(out: Path) -> None:
    """Complete what a kill at the end of :func:`finish_artefact` left undone; call it before looking at ``out``.

    The plan is the first file that finishing removes. A partial folder with a manifest and no plan is therefore a
    finished artefact that lacks only its name.
    """
    work = partial_path(out)
    if not (work / MANIFEST).is_file():
        return
    if (work / PLAN).is_file():
        (work / MANIFEST).unlink()
        return
    manifest = read_manifest(work)
    _sweep_and_rename(work, out, {*manifest["files"], MANIFEST, TIMING})


def is_finished(out: Path, *, kind: str, job: Any, overwrite: bool = False) -> bool:  # noqa: ANN401 - JSON
    """Say whether an artefact is there that is exactly this job's result.

    Args:
        out: final folder; what a kill at its very end left undone is completed first.
        kind: the artefact's.
        job: what its manifest has as ``job``.
        overwrite: nothing that is there counts.

    Raises:
        ResumeError: something else is there.
        BankIntegrityError: its manifest was edited.
    """
    settle_artefact(out)
    if overwrite or not out.exists():
        return False
    if (out / MANIFEST).is_file():
        manifest = read_manifest(out)
        if manifest["kind"] == kind and manifest.get("job") == job:
            return True
    raise ResumeError(f"{out}: already exists and isn't the result of this command. {_way_out(out)}")


def _sweep_and_rename(work: Path, out: Path, keep: set[str]) -> None:
    """Remove all but the named files, the plan first, and give the folder its final name, an older one's perhaps."""
    old = _replaced_path(out)
    with storage_errors(out):
        (work / PLAN).unlink(missing_ok=True)
        sync_directory(work)
        for path in sorted(work.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.relative_to(work).as_posix() not in keep:
                path.unlink()
        if out.exists():
            if old.exists():
                shutil.rmtree(old)
            out.rename(old)
        work.rename(out)
        sync_directory(out.parent)
        if old.exists():
            shutil.rmtree(old)


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
        raise BankIntegrityError(f"{path / MANIFEST}: malformed manifest. Rebuild the artefact")
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
