"""What all sections of a study's report share: names of conditions, numbers by seed, pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.reports.markdown import number
from consilience.reports.study_plots import short_names

Json = Mapping[str, Any]


def lookup(found: Any, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value at a dotted path of a JSON value, or None.

    Example:
        >>> lookup({"a": {"b": 1}}, "a.b"), lookup({"a": 2}, "a.b")
        (1, None)
    """
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def signed(value: float | None, digits: int = 4) -> str:
    """Format a number with its sign, or a dash where there is none.

    Example:
        >>> signed(0.5, 2), signed(None)
        ('+0.50', '–')
    """
    return "–" if value is None else f"{value:+.{digits}f}"


class StudyView:
    """One study's results and plots.

    Args:
        results: what ``results.json`` holds.
        plots: addresses of the plots that there are.
    """

    def __init__(self, results: Json, plots: Mapping[str, str]) -> None:
        self.results, self.plots = results, plots
        self.names = short_names([condition["name"] for condition in results["conditions"]])
        self.measured = [cell for cell in results["cells"] if cell["error"] is None]

    def cells_of(self, name: str) -> list[Json]:
        """Return a condition's measured cells, by seed."""
        found = [
            cell for cell in self.measured if f"{cell['objective']} · {cell['target']} · {cell['student']}" == name
        ]
        return sorted(found, key=lambda cell: cell["seed"])

    def by_seed(self, name: str, path: str, digits: int = 4) -> str:
        """Return a condition's numbers, one a seed."""
        values = [lookup(cell["measures"], path) for cell in self.cells_of(name)]
        return " / ".join(value if isinstance(value, str) else number(value, digits) for value in values)

    def rows(self, *columns: tuple[str, int]) -> list[list[str]]:
        """Return one line a condition."""
        return [
            [self.names[name], *(self.by_seed(name, path, digits) for path, digits in columns)] for name in self.names
        ]

    def image(self, name: str, title: str) -> list[str]:
        """Return a plot's line, where there is one."""
        return [f"![{title}]({self.plots[name]})"] if name in self.plots else []

    def values(self, part: str) -> list[str]:
        """Return the objectives, targets or students of the grid."""
        return list(dict.fromkeys(cell[part] for cell in self.results["cells"]))
