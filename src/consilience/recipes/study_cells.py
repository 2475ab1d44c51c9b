"""The cells of a study's grid: which objective, target, student and seed, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consilience.recipes.stages import StageResult
    from consilience.recipes.study_file import Study


@dataclass(frozen=True)
class Cell:
    """One training of the grid.

    Attributes:
        objective: name of the composition.
        target: name of the target.
        student: name of the student.
        seed: of the training.
    """

    objective: str
    target: str
    student: str
    seed: int

    @property
    def condition(self) -> str:
        """What all seeds of one setting share."""
        return f"{self.objective} · {self.target} · {self.student}"

    @property
    def slug(self) -> str:
        """The cell as a part of a folder's name.

        Example:
            >>> Cell("infonce=1,mimicry=0.5", "all", "micro", 1).slug
            'infonce-1-mimicry-0.5-all-micro-s1'
        """
        return re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{self.objective}-{self.target}-{self.student}-s{self.seed}")


@dataclass(frozen=True)
class MadeCell:
    """What became of one cell.

    Attributes:
        cell: which.
        student: the student, or the artefact of kind "failure" that says why there is none.
        measures: its measurement; None of a failed training.
    """

    cell: Cell
    student: StageResult
    measures: StageResult | None

    @property
    def failed(self) -> bool:
        """Whether the training failed."""
        return self.student.manifest is not None and self.student.manifest["kind"] == "failure"


@dataclass(frozen=True)
class MadeStudy:
    """The stages' results by their role."""

    corpus: StageResult
    banks: Mapping[str, StageResult]
    targets: Mapping[str, StageResult]
    facts: Mapping[str, StageResult]
    law: StageResult | None
    retrieval: StageResult | None
    cells: Sequence[MadeCell]
    teachers: Mapping[str, StageResult]


def grid_cells(study: Study) -> list[Cell]:
    """Return a study's cells, seed by seed, so that an unfinished study has every condition once.

    Args:
        study: its ``[[cells]]`` select parts of the grid; without them it's the whole grid.
    """
    targets, students = [part.name for part in study.targets], [part.name for part in study.students]
    whole = [(study.objectives, targets, students, study.seeds)]
    parts = [
        (
            part.objectives or study.objectives,
            part.targets or targets,
            part.students or students,
            part.seeds or study.seeds,
        )
        for part in study.cells
    ]
    cells = [Cell(*values) for lists in parts or whole for values in product(*lists)]
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    return sorted(dict.fromkeys(cells), key=lambda cell: seeds.index(cell.seed))
