"""The last step of every output is a rename: what would make it fail is found before the work."""

from __future__ import annotations

import os
import re
from pathlib import Path

from consilience.core.errors import InputError, StorageError
from consilience.core.manifests import MANIFEST, partial_path, replaced_path

_MOUNTS = Path("/proc/self/mountinfo")


def require_place(out: Path, *, suffix: str = "", option: str = "--out") -> None:
    """Refuse a name that a finished output couldn't be given.

    Args:
        out: the output; what is there already is the caller's business.
        suffix: the longest ending that temporary names beside it have.
        option: which option named it, for the message.

    Raises:
        InputError: no name, a link, a mount point, too long, or below something that isn't a folder.
        StorageError: its folder can't be written.
    """
    folder = require_name(out, suffix=suffix, option=option)
    if out.is_symlink():
        raise InputError(
            f"{out}: is a link, and a link isn't replaced. Name what it points to: {option} {os.path.realpath(out)}"
        )
    if is_mount(out):
        raise InputError(
            f"{out}: is a mount point, which can't take a finished output's name. Name something inside it: "
            f"{option} {out / 'NAME'}"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"{out}: can't write: {folder} is read-only or not permitted. Choose another {option}")


def require_name(out: Path, *, suffix: str = "", option: str = "--out") -> Path:
    """Refuse a path that can't be one.

    Args:
        out: the output.
        suffix: the longest ending that temporary names beside it have.
        option: which option named it, for the message.

    Returns:
        The folder in which it, or the first missing folder above it, would be made.

    Raises:
        InputError: no name, too long a name, or below something that isn't a folder.
    """
    if out.name in ("", ".."):
        raise InputError(f"{out}: expected the name of a new file or folder. Change {option}")
    if suffix and out.name.endswith((".partial", suffix)):
        raise InputError(f"{out}: this ending is kept for folders of jobs at work. Change {option}")
    if out.parts[0].startswith("~"):
        raise InputError(f"{out}: the shell didn't expand the ~, so this would be a folder of that name. Write $HOME")
    names, folder = [out.name + suffix], out.absolute().parent
    while not os.path.lexists(folder):
        names.append(folder.name)
        folder = folder.parent
    if not folder.is_dir():
        what = "is a link to nothing" if folder.is_symlink() else "isn't a folder"
        raise InputError(f"{out}: {folder} {what}, so nothing can be written below it. Change {option}")
    if max(len(os.fsencode(name)) for name in names) > os.pathconf(folder, "PC_NAME_MAX"):
        behind = f", with {suffix} behind it" if suffix else ""
        raise InputError(f"{out}: the name is too long{behind}. Shorten {option}")
    return folder


def is_mount(path: Path) -> bool:
    """Tell whether something is mounted at a path, be it a folder or file of the same file system."""
    if os.path.ismount(path):
        return True
    if not (path.exists() and _MOUNTS.is_file()):
        return False
    escaped = re.sub(rb"[ \t\n\\]", lambda found: b"\\%03o" % found[0][0], os.fsencode(os.path.realpath(path)))
    return any(line.split(b" ")[4] == escaped for line in _MOUNTS.read_bytes().splitlines())


def require_apart(out: Path, *inputs: object) -> None:
    """Refuse an output that is one of the job's inputs, lies in one, or has one in it: making it would destroy it.

    Args:
        out: the output.
        inputs: paths of what the job reads; whatever isn't the path of something that exists (a teacher's name, rows in
            memory) is passed over.

    Raises:
        InputError: names both.
    """
    targets = [path.resolve() for path in (out, partial_path(out), replaced_path(out))]
    for given in inputs:
        place = given
        if isinstance(given, str) and not _exists(given):  # a spec: st:FOLDER?pool=mean, npy:FILE#KEY
            place = re.split("[?#]", given.partition(":")[2])[0] or None
        if not isinstance(place, str | Path) or not _exists(place):
            continue
        source = Path(place).resolve()
        inside = source.is_dir() and source in targets[0].parents and (source / MANIFEST).is_file()
        if inside or not {source, *source.parents}.isdisjoint(targets):
            raise InputError(f"{out}: is or holds {given}, which this job reads. Choose another --out")


def _exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long a name, or a NUL in it: no path
        return False
