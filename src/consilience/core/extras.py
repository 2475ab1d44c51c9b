"""Optional dependencies are imported where they are used, with an error that names the extra."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency.

    Args:
        module: import name, e.g. ``onnxruntime``.
        extra: the extra of Consilience that brings it.
        purpose: clause for the error, e.g. "to run ONNX teachers".

    Raises:
        MissingExtraError: it isn't installed.
    """
    from consilience.core.errors import MissingExtraError

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(extra, module.split(".")[0], purpose) from error
