"""Where things are kept that can be made again: unpacked models, measurements of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return the platform's cache folder for Consilience; the variable CONSILIENCE_CACHE overrides it."""
    chosen = os.environ.get("CONSILIENCE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "consilience"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local"))) / "consilience" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "consilience"
