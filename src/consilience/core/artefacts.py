"""Every artefact is a folder with a ``manifest.json``; this module starts, continues, finishes and checks one.

While a job runs, its folder is ``OUT.partial`` and holds a ``plan.json``: that the folder is ours, the job's identity,
and the older artefact, if any, whose place the result may take. When the job is done, the manifest is written, what it
doesn't list is dropped, and the folder is renamed to ``OUT`` in one step. A killed job leaves ``OUT.partial`` behind;
the same command finds the equal plan and continues. With ``overwrite`` the old artefact stays where it is until the
new one is complete; then it waits as ``OUT.replaced`` until it's deleted, file by file as its manifest lists them.
Nothing else is ever deleted or replaced; what somebody put into the working folder is moved to ``OUT.kept``.
Wall-clock telemetry goes into ``timing.json``, which is the only file outside the manifest: all others are the same
bytes however often the job was interrupted.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, InputError, ResumeError
from consilience.core.files import TEMPORARY, place, read_json, storage_errors, sync_directory, write_json
from consilience.core.hashing import content_id, file_sha256
from consilience.core.locks import hold, locked
from consilience.core.manifests import MANIFEST, SCHEMA_VERSION, TIMING, partial_path, read_manifest, replaced_path
from consilience.core.placing import is_mount, require_name, require_place
from consilience.core.progress import log

PLAN = "plan.json"
_OURS = "Consilience's working folder"
# What jobs keep in their working folder and don't list in the manifest.
_SCRATCH = re.compile(
    r"(checkpoints|tokens|trials|running|documents|queries)(\.partial)?/.*"
    r"|(log|shards)\.jsonl|(command|decisions|precision|rewriting)\.json"
    rf"|(.*/)?{TEMPORARY.pattern}"
)
_HAND_EDITED = 1 << 20  # assumed: what a person edits, a card or settings, is smaller; larger files aren't hashed


def output_path(out: str | Path, *, overwrite: bool = False) -> Path:
    """Return an artefact's final folder; call it before any work.

    Args:
        out: as the person gave it.
        overwrite: an artefact that is there may be replaced.

    Raises:
        ConsilienceError: as :func:`require_output`; without ``overwrite`` an artefact that is there may be the result.
    """
    folder = Path(out)
    require_name(folder, suffix=".replaced")
    if overwrite or not (folder / MANIFEST).is_file():
        require_output(folder, overwrite=overwrite)
    return folder


def require_output(out: Path, *, overwrite: bool = False, option: str = "--out") -> None:
    """Refuse a place where the job's result couldn't be put, or where it would cost something that isn't ours.

    Args:
        out: final folder.
        overwrite: an artefact that is there may be replaced.
        option: which option named it, for the message.

    Raises:
        InputError: no place for a new folder (a link, a mount point, ...).
        ResumeError: something is there and may not be replaced, or somebody's folder has a name that is needed.
        StorageError: its folder can't be written.
    """
    require_name(out, suffix=".replaced", option=option)
    _complete_swap(out)
    require_place(out, suffix=".replaced", option=option)
    if overwrite:
        require_replaceable(out)
    elif os.path.lexists(out):
        raise ResumeError(f"{out}: already exists. {_way_out(out)}")
    old, work = replaced_path(out), partial_path(out)
    if overwrite and os.path.lexists(old) and not _is_moved(old, _read_state(work)):
        raise ResumeError(f"{old}: is in the way: the folder that is replaced waits there. Move it away")
    if os.path.lexists(work) and _read_state(work) is None:
        _require_worthless(work, option)


def begin_artefact(
    out: Path, plan: dict[str, Any], *, overwrite: bool = False, resume: bool = True, lock: bool = True
) -> tuple[Path, bool]:
    """Open the working folder of an artefact, new or left by an interrupted run of the same job, and lock it.

    Args:
        out: final folder.
        plan: JSON identity of the job; a partial folder with another plan is refused.
        overwrite: drop another job's partial folder, and let the finished artefact take the place of one at ``out``.
        resume: continue an interrupted run of this job; else drop what it left.
        lock: not where the caller locks it, or a process of the same job has.

    Returns:
        The working folder, and whether it continues an interrupted run.

    Raises:
        ResumeError: ``out`` exists and may not be overwritten, its partial folder belongs to another job or is being
            written, or a folder of somebody else has the name of one that this job needs.
        InputError: as :func:`require_output`.
        StorageError: the folder can't be made.
    """
    require_output(out, overwrite=overwrite)
    work = partial_path(out)
    state = _read_state(work)
    if lock and state is not None:
        hold(work)
        state = _read_state(work)
    unwanted = state is not None and (state["swept"] or not resume if state["plan"] == plan else overwrite)
    if state is not None and (state["discarded"] or unwanted):  # or killed while it was being deleted
        _put_back(out, state)
        discard_work(work)
        state = None
    if state is not None and state["plan"] != plan:
        keys = sorted(k for k in {*state["plan"], *plan} if state["plan"].get(k) != plan.get(k))
        raise ResumeError(
            f"{work}: an interrupted run of another job (differs in {', '.join(keys)}). "
            "Run that job again to finish it, or pass --overwrite to discard it"
        )
    replaces = _identity(out) if overwrite and os.path.lexists(out) else None
    with storage_errors(work):
        work.mkdir(parents=True, exist_ok=True)
    if lock:
        hold(work)
    if state is None or overwrite:
        _write_state(work, plan=plan, replaces=replaces)
    return work, state is not None


def read_plan(work: Path) -> Any | None:  # noqa: ANN401 - any JSON value
    """Return the job that a working folder belongs to, or None when it isn't a working folder."""
    state = _read_state(work)
    return None if state is None else state["plan"]


def write_plan(work: Path, plan: dict[str, Any]) -> None:
    """Mark a folder as this program's, and with the job that it belongs to."""
    _write_state(work, plan=plan)


def discard_work(work: Path) -> None:
    """Delete a working folder, as far as the file system allows; after a kill midway it's known to be worthless."""
    if _read_state(work) is None:
        return  # not there, or not ours
    with suppress(ConsilienceError):
        _write_state(work, plan={}, discarded=True)
    for path in sorted(work.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != PLAN:
            with suppress(OSError):
                path.unlink()
    shutil.rmtree(work, ignore_errors=True)


def require_replaceable(out: Path) -> None:
    """Refuse what ``--overwrite`` may not replace: all but an artefact, an empty folder, or nothing.

    Raises:
        ResumeError: ``out`` is something else, or holds a file that isn't the artefact's: not ours to delete.
    """
    if os.path.lexists(out) and (reason := _foreign(out)) is not None:
        raise ResumeError(f"{out}: {reason}, so --overwrite won't delete it. Choose another --out")


def _foreign(folder: Path) -> str | None:
    """Say why a folder may not be deleted; None for an artefact with its own files only, and for an empty folder.

    This is the one place that decides it.
    """
    if folder.is_symlink() or not folder.is_dir():
        return "isn't a Consilience artefact"
    if not any(folder.iterdir()):
        return None
    try:
        own = _own_files(folder)
    except ConsilienceError:
        return "isn't a Consilience artefact"
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in own and (path.is_symlink() or not path.is_dir()):
            return f"holds {name}, which isn't part of the artefact"
        if own.get(name) and path.stat().st_size <= _HAND_EDITED and file_sha256(path) != own[name]:
            return f"holds {name}, which was changed since it was written"
    return None


def _own_files(folder: Path) -> dict[str, str]:
    """Return an artefact's files, with their checksums where they have one."""
    return {**read_manifest(folder)["files"], MANIFEST: "", TIMING: ""}


def _delete_artefact(folder: Path) -> None:
    """Delete an artefact's own files and the folders that are empty then, the manifest last."""
    own = _own_files(folder) if any(folder.iterdir()) else {}
    _sweep(folder, (own.keys() - {MANIFEST}).__contains__)
    if MANIFEST in own and not any(path.name != MANIFEST for path in folder.iterdir()):
        (folder / MANIFEST).unlink()
    with suppress(OSError):  # something else was put there meanwhile, and stays
        folder.rmdir()


def _sweep(folder: Path, doomed: Callable[[str], bool]) -> None:
    """Delete the files whose names are doomed, and the folders that are empty then."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif doomed(name):
            path.unlink()


def _save_strangers(work: Path, kept: Path, own: set[str]) -> None:
    """Move what no job writes, and somebody has put into the working folder, beside it."""
    names = (kept.with_name(f"{kept.name}{number or ''}") for number in count())
    kept = next(name for name in names if not os.path.lexists(name))
    for path in sorted(work.rglob("*")):
        name = path.relative_to(work).as_posix()
        if name in own or _SCRATCH.fullmatch(name) or (path.is_dir() and not path.is_symlink()):
            continue
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        place(path, kept / name)
        log(f"{path}: isn't of this job: moved to {kept / name}")


def _identity(folder: Path) -> dict[str, Any]:
    """Return what an artefact, or an empty folder, is recognised by after it was renamed."""
    return {"id": read_manifest(folder)["id"] if any(folder.iterdir()) else None, "inode": folder.stat().st_ino}


def _is_moved(old: Path, state: dict[str, Any] | None) -> bool:
    """Tell whether ``OUT.replaced`` is what the run with this state moved there, whole or half deleted."""
    replaces = None if state is None else state["replaces"]
    if replaces is None or old.is_symlink() or not old.is_dir() or old.stat().st_ino != replaces["inode"]:
        return False
    try:
        return not any(old.iterdir()) or bool(read_manifest(old)["id"] == replaces["id"])
    except ConsilienceError:
        return False


def _read_state(work: Path) -> dict[str, Any] | None:
    """Return what a working folder says of itself; None when there is none, or it isn't of this program."""
    if work.is_symlink() or not (work / PLAN).is_file():
        return None
    try:
        found = read_json(work / PLAN)
    except InputError:
        return None
    ours = isinstance(found, dict) and found.get("format") == _OURS and isinstance(found.get("plan"), dict)
    return found if ours else None


def _write_state(
    work: Path,
    *,
    plan: dict[str, Any],
    replaces: dict[str, Any] | None = None,
    swept: bool = False,
    discarded: bool = False,
) -> None:
    state = {"format": _OURS, "plan": plan, "replaces": replaces, "swept": swept, "discarded": discarded}
    write_json(work / PLAN, state)


def _way_out(out: Path) -> str:
    return "Choose another --out or pass --overwrite" if _foreign(out) is None else "Choose another --out"


def _put_back(out: Path, state: dict[str, Any]) -> None:
    """Undo the first half of a swap whose second half is not wanted any more."""
    old = replaced_path(out)
    if not os.path.lexists(out) and _is_moved(old, state):
        place(old, out)


def _complete_swap(out: Path) -> None:
    """Do what a kill right after the final rename left undone: delete the replaced artefact, then the plan."""
    state = _read_state(out)
    if state is None or not state["swept"] or not (out / MANIFEST).is_file():
        return
    old = replaced_path(out)
    with storage_errors(out):
        if _is_moved(old, state):
            _delete_artefact(old)
        (out / PLAN).unlink(missing_ok=True)


def _require_worthless(work: Path, option: str) -> None:
    """Refuse a working folder without a plan that holds more than a killed start leaves behind."""
    plain = work.is_dir() and not work.is_symlink() and not is_mount(work)
    left = [path.name for path in work.iterdir()] if plain else [work.name]
    kept = [name for name in left if not TEMPORARY.fullmatch(name)]
    if kept:
        raise ResumeError(
            f"{work}: would be the working folder, and isn't one of Consilience: it holds {kept[0]}. Move it away or "
            f"choose another {option}"
        )


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
    known = sha256 or {}
    entries = {name: known.get(name) or file_sha256(work / name) for name in sorted(files)}
    body = {**manifest, "kind": kind, "schema_version": SCHEMA_VERSION, "files": entries}
    body["id"] = content_id(body, prefix=f"{kind}-")
    write_json(work / MANIFEST, body)
    _give_name(work, out)
    return body


def settle_artefact(
    out: Path, is_result: Callable[[dict[str, Any]], bool] | None = None, *, overwrite: bool = False
) -> bool:
    """Complete what a kill at the end of :func:`finish_artefact` left undone; call it before looking at ``out``.

    A working folder with a manifest is a finished artefact that lacks only its name. It gets it when it is this job's
    result and nothing is at ``out`` that it may not replace.

    Args:
        out: final folder.
        is_result: tells from a manifest whether it's this job's result; None where no other job has that name.
        overwrite: an artefact that is there may be replaced.

    Returns:
        Whether the artefact was given its name now.
    """
    _complete_swap(out)
    work = partial_path(out)
    if _read_state(work) is None or not (work / MANIFEST).is_file():
        return False
    with locked(work, wait=True):  # equal processes settle one after another
        state = _read_state(work)
        if state is None or state["discarded"] or not (work / MANIFEST).is_file():
            return False  # another process was first
        if is_result is not None and not is_result(read_manifest(work)):
            return False
        if os.path.lexists(out):
            if overwrite:
                require_output(out, overwrite=True)
                _write_state(work, plan=state["plan"], replaces=_identity(out), swept=state["swept"])
            elif not _may_take(out, state):
                return False
        _give_name(work, out)
        return True


def is_finished(out: Path, *, kind: str, job: Any, overwrite: bool = False) -> bool:  # noqa: ANN401 - JSON
    """Say whether an artefact is there that is exactly this job's result.

    Args:
        out: final folder; what a kill at its very end left undone is completed first.
        kind: the artefact's.
        job: what its manifest has as ``job``.
        overwrite: nothing that was there before counts.

    Raises:
        ResumeError: something else is there.
        BankIntegrityError: its manifest was edited.
        ConsilienceError: as :func:`require_output`, when there is work to do.
    """

    def is_result(manifest: dict[str, Any]) -> bool:
        return bool(manifest["kind"] == kind and manifest.get("job") == job)

    if settle_artefact(out, is_result, overwrite=overwrite):
        return True
    if not overwrite and out.exists():
        if (out / MANIFEST).is_file() and is_result(read_manifest(out)):
            return True
        raise ResumeError(f"{out}: already exists and isn't the result of this command. {_way_out(out)}")
    require_output(out, overwrite=overwrite)
    return False


def _may_take(out: Path, state: dict[str, Any]) -> bool:
    """Tell whether what is at ``out`` is still the artefact, nothing added, that this job was told to replace."""
    return state["replaces"] is not None and _foreign(out) is None and _identity(out) == state["replaces"]


def _give_name(work: Path, out: Path) -> None:
    """Drop what the manifest doesn't list, and give the folder its final name, an older artefact's perhaps."""
    state = _read_state(work)
    if state is None:
        raise ResumeError(f"{work}: its {PLAN} is gone. Run the command again")
    if not state["swept"]:
        keep = {*_own_files(work), PLAN}
        with storage_errors(out):
            _save_strangers(work, out.with_name(out.name + ".kept"), keep)
            _sweep(work, lambda name: name not in keep)
            sync_directory(work)
        state["swept"] = True
        _write_state(work, plan=state["plan"], replaces=state["replaces"], swept=True)
    old = replaced_path(out)
    if os.path.lexists(out) and not (out.is_dir() and _may_take(out, state)):
        raise ResumeError(f"{out}: was made while this job ran. Move it away and run the command again")
    if os.path.lexists(out) and any(out.iterdir()):
        place(out, old)
        if _foreign(old) is not None or not _is_moved(old, state):  # changed between the look and the move
            place(old, out)
            raise ResumeError(f"{out}: changed while this job ran. Move it away and run the command again")
    try:
        place(work, out)
    except ConsilienceError:
        _put_back(out, state)
        raise
    _complete_swap(out)
