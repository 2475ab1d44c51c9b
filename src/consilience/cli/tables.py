"""Tables on standard output, wide enough that no number is cut."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def table_console(table: Table, *, most: int = 160) -> Console:
    """Return a console on standard output on which a table keeps its numbers whole.

    A pipe, or a narrow terminal, would make rich cut them ("0.7…"); its lines are made longer instead.

    Args:
        table: what will be printed.
        most: columns beyond which names are folded.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(file=sys.stdout, markup=False)  # a path may hold "[...]"
    natural = Measurement.get(console, console.options.update(width=10_000), table).maximum
    console.width = max(console.width, min(natural, most))
    return console
