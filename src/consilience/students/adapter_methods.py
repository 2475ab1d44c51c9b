"""Attach and detach as methods of a student; the work is done a tier above, which is looked up when it's called."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_TIER = "consilience.adapters.attach"  # above this one, so it's resolved by name


class AdapterMethods:
    """What a student can do with an adapter library."""

    def attach_amoe(self, library: str | Path | nn.Module, *, force: bool = False) -> Any:  # noqa: ANN401 - a Handle
        """Attach a library; see :func:`consilience.adapters.attach.attach_amoe`.

        Args:
            library: a library, or its folder.
            force: attach it to a trunk that it wasn't trained on, and have every number say so.

        Returns:
            The handle, with ``only``, ``mask``, ``solo``, ``off`` and ``all``.

        Raises:
            TrunkMismatchError: it belongs to another trunk.
        """
        return importlib.import_module(_TIER).attach_amoe(self, library, force=force)

    def detach_amoe(self) -> Any:  # noqa: ANN401 - an AnchorLibrary
        """Take the library off; see :func:`consilience.adapters.attach.detach_amoe`.

        Raises:
            InputError: there is none.
            TrunkMismatchError: the trunk changed meanwhile.
        """
        return importlib.import_module(_TIER).detach_amoe(self)

    def adapters_identity(self) -> dict[str, Any]:
        """Return {"adapters": ...} while a library answers here, {} otherwise: part of what determines the vectors."""
        tier = sys.modules.get(_TIER)  # never imported: nothing was ever attached
        handle = tier.handle_of(self) if tier is not None else None
        if handle is None or handle.mask_here.kind == "off":
            return {}
        return {"adapters": handle.describe()}
