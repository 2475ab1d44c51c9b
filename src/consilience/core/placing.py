"""The last step of every output is a rename: what would make it fail is found before the work."""

from __future__ import annotations

import os
import re
from pathlib import Path

from consilience.core.errors import InputError, StorageError

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
