"""The study file: a TOML document that names a grid of trainings, checked completely before anything starts.

It shares its tables with the recipe file where they mean the same (``[corpus]``, ``[[teachers]]``, ``[align]``,
``[evaluate]``); ``study_checks`` looks at what the values point at.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from consilience.core.errors import RecipeError
from consilience.recipes.recipe_checks import BUDGETS
from consilience.recipes.recipe_file import (
    AlignPart,
    CorpusPart,
    EvaluatePart,
    Recipe,
    ShapePart,
    StudentPart,
    TeacherPart,
    TrainPart,
)
from consilience.recipes.recipe_values import apply_settings, expand_environment, follows_unset
from consilience.recipes.study_cells import grid_cells
from consilience.recipes.study_checks import check_study, decided_elsewhere, resolve_study
from consilience.recipes.toml_document import describe_fault, read_toml

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]  # a part of folder names
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class _Table(BaseModel):
    """A table of the study: unknown keys and wrong types are faults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TargetPart(_Table):
    """``[[targets]]``: what students learn to reproduce: one teacher, an existing bank, or a consensus.

    ``weights`` and ``leave_out`` choose the consensus' members; the other keys override those of ``[align]``.
    """

    name: Name
    teacher: str | None = None
    bank: str | None = None
    weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    leave_out: list[str] = Field(default_factory=list)
    method: str | None = None
    reference: str | None = None
    shrinkage: Annotated[float, Field(ge=0)] | Literal["ledoit-wolf", "gcv"] | None = None
    rank: Count | None = None
    dimensions: Count | None = None

    @property
    def is_consensus(self) -> bool:
        """Whether it's made of several teachers."""
        return self.teacher is None and self.bank is None


class _OptionsPart(StudentPart, TrainPart):
    """Options of ``distill``, as a recipe's ``[student]`` and ``[train]`` have them, and the vocabulary's size."""

    vocab_size: Count | None = None

    def options(self) -> dict[str, Any]:
        """Return what goes to ``distill`` by name: all but the student's size and what the grid decides."""
        return self.model_dump(exclude_none=True, exclude={"name", "preset", "shape", "objective"})


class StudyStudentPart(_OptionsPart):
    """``[[students]]``: a student of the grid, and options that replace those of ``[train]``."""

    name: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._+-]*)?$")] = ""


class StudyTrainPart(_OptionsPart):
    """``[train]``: exactly one budget, and options of all students."""


class CellsPart(_Table):
    """``[[cells]]``: a part of the grid; a key that isn't given stands for all of them."""

    objectives: list[str] | None = None
    targets: list[str] | None = None
    students: list[str] | None = None
    seeds: list[Seed] | None = None


class StudyEvaluatePart(EvaluatePart):
    """``[evaluate]``: tasks, their data, bootstrap resamples, and whether the teachers are measured too."""

    compare: bool = False
    resamples: Annotated[int, Field(ge=100)] = 4_000


class LawPart(_Table):
    """``[law]``: the model that serves, and texts that no student was trained on."""

    into: str
    corpus: CorpusPart
    pairs: Count = 2_500
    held_out: Annotated[int, Field(ge=10)] = 2_500
    unrotated: bool = False


class RetrievalPart(_Table):
    """``[retrieval]``: texts in groups; the first of a group shall find the second among all groups' second ones."""

    corpus: CorpusPart
    group: str
    queries: Annotated[int, Field(ge=20)] = 1_000


class Study(_Table):
    """A whole study."""

    name: Name
    seed: Seed = 0
    corpus: CorpusPart
    teachers: list[TeacherPart] = Field(default_factory=list)
    banks: list[str] | str = Field(default_factory=list)
    optional_banks: list[str] | str = Field(default_factory=list)
    align: AlignPart = AlignPart()
    targets: Annotated[list[TargetPart], Field(min_length=1)]
    objectives: list[str] = Field(default_factory=list)
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(default_factory=lambda: [0, 1])
    students: Annotated[list[StudyStudentPart], Field(min_length=1)]
    cells: list[CellsPart] = Field(default_factory=list)
    train: StudyTrainPart
    evaluate: StudyEvaluatePart = StudyEvaluatePart()
    law: LawPart | None = None
    retrieval: RetrievalPart | None = None

    @model_validator(mode="before")
    @classmethod
    def _starts_are_named(cls, document: Any) -> Any:  # noqa: ANN401 - TOML, not yet checked
        """Start from random weights where nothing is said: a start that the target decides would differ by cell."""
        train, parts = (document.get(key) for key in ("train", "students"))
        if not isinstance(parts, list) or (isinstance(train, dict) and train.get("init") is not None):
            return document
        named = [
            {**part, "preset": "mini"}
            if isinstance(part, dict) and not any(part.get(key) is not None for key in ("preset", "shape", "init"))
            else part
            for part in parts
        ]
        return {**document, "students": named}

    def base(self) -> Recipe:
        """Return the recipe whose corpus and embedding stages the study shares with runs."""
        part = self.evaluate
        return Recipe(
            name=self.name,
            seed=self.seed,
            corpus=self.corpus,
            # A recipe has at least one teacher; a study of existing banks may have none, and embeds none.
            teachers=self.teachers or [TeacherPart(spec="bank:none", name="none")],
            align=self.align,
            train=TrainPart(steps=1),
            evaluate=EvaluatePart(tasks=part.tasks, data=part.data, missing_data=part.missing_data),
        )

    def align_of(self, target: TargetPart) -> AlignPart:
        """Return how a consensus target's teachers are aligned."""
        changed = target.model_dump(include=set(ALIGN_KEYS), exclude_none=True)
        if changed.get("method") == "gpa":
            changed.setdefault("reference", "")  # its frame is nobody's
        return AlignPart(**{**self.align.model_dump(), **changed})

    def options_of(self, student: StudyStudentPart) -> dict[str, Any]:
        """Return the arguments of ``distill`` by name; a student's own replace those of ``[train]``."""
        own, shared = student.options(), self.train.options()
        if any(budget in own for budget in BUDGETS):
            shared = {key: value for key, value in shared.items() if key not in BUDGETS}
        return {**shared, **own}


ALIGN_KEYS = ("method", "reference", "shrinkage", "rank", "dimensions")

_MODELS: dict[str, type[BaseModel]] = {
    "corpus": CorpusPart,
    "teachers": TeacherPart,
    "align": AlignPart,
    "targets": TargetPart,
    "students": StudyStudentPart,
    "cells": CellsPart,
    "train": StudyTrainPart,
    "evaluate": StudyEvaluatePart,
    "law": LawPart,
    "retrieval": RetrievalPart,
    "shape": ShapePart,
}


def load_study(path: str | Path, *, settings: Sequence[str] = ()) -> Study:
    """Read a study, expand its environment variables, apply ``--set`` values and check all of it.

    Args:
        path: the TOML file.
        settings: ``key.path=value`` strings that override it.

    Returns:
        The study, its paths resolved relative to the file.

    Raises:
        InputError: the file is missing or isn't TOML.
        RecipeError: it has faults; all of them are listed.
    """
    path = Path(path)
    faults: list[str] = []
    document = expand_environment(apply_settings(read_toml(path, what="study"), settings, faults), faults)
    study, found, faulty = _validate(document)
    faults += found
    # What is well-formed is checked even when something else isn't, so that one pass shows every fault.
    if study is not None:
        parts = resolve_study(study.model_dump(), path.resolve().parent)
        resolved = Study.model_validate(parts)
        options = {part.name: resolved.options_of(part) for part in resolved.students}
        checked = check_study(parts, grid_cells(resolved), options)
        faults += [fault for fault in checked if not (follows_unset(fault) or _follows(fault, faulty))]
    if study is None or faults:
        raise RecipeError(str(path), list(dict.fromkeys(faults)))
    return resolved


def _validate(document: dict[str, Any]) -> tuple[Study | None, list[str], list[str]]:
    """Return the study without its faulty values, or None when too little is left; the faults; the values' keys."""
    try:
        return Study.model_validate(document), [], []
    except ValidationError as error:
        details = error.errors(include_url=False)
    faults = [_describe(detail) for detail in details]
    places = [_place(document, detail) for detail in details]
    faulty = [place for place in dict.fromkeys(places) if place is not None]
    if None in places or any(place[-1] == "name" for place in faulty):  # others refer to it
        return None, faults, []
    rest = copy.deepcopy(document)
    for *above, last in faulty:
        table: Any = rest
        for step in above:
            table = table[step]
        del table[last]
    try:
        return Study.model_validate(rest), faults, [_key(place) for place in faulty]
    except ValidationError:
        return None, faults, []


def _describe(detail: ErrorDetails) -> str:
    location = detail["loc"]
    decides = decided_elsewhere(str(location[-1]))
    if detail["type"] == "extra_forbidden" and location[0] in ("train", "students") and decides is not None:
        return f"{_key(location)}: {decides} decides it; leave it out"
    return describe_fault(detail, _MODELS, Study)


def _place(document: dict[str, Any], detail: ErrorDetails) -> tuple[int | str, ...] | None:
    """Return the place of a faulty value that can be left out: a table's key. None where that says too little."""
    value: Any = document
    place: tuple[int | str, ...] = ()
    held: Any = None
    location = detail["loc"]
    for depth, step in enumerate(location):  # its end may name a type, which is no place in the document
        if not (step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)):
            break
        if isinstance(value, dict):
            place, held = location[: depth + 1], value[step]
        value = value[step]
    tables = isinstance(held, list) and any(isinstance(item, dict) for item in held)
    return None if detail["type"] == "missing" or tables or not place else place


def _key(location: Sequence[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")


def _follows(fault: str, faulty: Sequence[str]) -> bool:
    """Return whether a fault may be there only because a faulty value was taken out."""
    key = fault.partition(":")[0]
    return any(value == key or value.startswith((f"{key}.", f"{key}[")) for value in faulty)
