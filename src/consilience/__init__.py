"""Consilience: distil one small embedding model from the agreement of several teachers.

The verbs of the command line are functions here, with the same options. They are imported when first used, so
that ``import consilience`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from consilience._version import __version__

if TYPE_CHECKING:
    from consilience.recipes.adapt import adapt_align, adapt_fit
    from consilience.recipes.adapt_export import adapt_export
    from consilience.recipes.adapt_lora import adapt_lora
    from consilience.recipes.adapt_roster import adapt_roster, adapt_sweep
    from consilience.recipes.adapt_table import adapt_control, adapt_table
    from consilience.recipes.adapt_transplant import adapt_transplant
    from consilience.recipes.align import align
    from consilience.recipes.consensus import consensus
    from consilience.recipes.distill import distill
    from consilience.recipes.embed import embed
    from consilience.recipes.evaluate import evaluate
    from consilience.recipes.export import export
    from consilience.recipes.frame_law import frame_law
    from consilience.recipes.inspect import inspect
    from consilience.recipes.load import load
    from consilience.recipes.migrate import load_query_adapter, migrate
    from consilience.recipes.rotate import rotate
    from consilience.recipes.run import run
    from consilience.recipes.static import static
    from consilience.recipes.study import study

_MODULES = {  # functions whose module has another name
    "adapt_align": "adapt",
    "adapt_fit": "adapt",
    "adapt_control": "adapt_table",
    "adapt_sweep": "adapt_roster",
    "load_query_adapter": "migrate",
}

__all__ = [
    "__version__",
    "adapt_align",
    "adapt_control",
    "adapt_export",
    "adapt_fit",
    "adapt_lora",
    "adapt_roster",
    "adapt_sweep",
    "adapt_table",
    "adapt_transplant",
    "align",
    "consensus",
    "distill",
    "embed",
    "evaluate",
    "export",
    "frame_law",
    "inspect",
    "load",
    "load_query_adapter",
    "migrate",
    "rotate",
    "run",
    "static",
    "study",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the verbs' own types are declared above
    """Import a verb when it is first used (PEP 562)."""
    if name in __all__:  # __version__ is there already
        from consilience.core.verbs import lenient_lists

        verb = getattr(importlib.import_module(f"consilience.recipes.{_MODULES.get(name, name)}"), name)
        globals()[name] = lenient_lists(verb)
        return globals()[name]
    raise AttributeError(f"module 'consilience' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Show the verbs to whoever completes a name."""
    return sorted(__all__)
