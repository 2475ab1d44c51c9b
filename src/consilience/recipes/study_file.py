"""The study file: a TOML document that names a grid of trainings, checked completely before anything starts.

It shares its tables with the recipe file where they mean the same (``[corpus]``, ``[[teachers]]``, ``[align]``,
``[evaluate]``); ``study_checks`` looks at what the values point at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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
from consilience.recipes.recipe_values import apply_settings, expand_environment
from consilience.recipes.study_checks import check_study, resolve_study
from consilience.recipes.toml_document import describe_fault, read_toml

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


class StudyStudentPart(StudentPart):
    """``[[students]]``: a student of the grid; every other option of ``distill`` may stand here too."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, allow_inf_nan=False)

    name: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._+-]*)?$")] = ""

    def options(self) -> dict[str, Any]:
        """Return what goes to ``distill`` by name: all but its size."""
        return self.model_dump(exclude_none=True, exclude={"name", "preset", "shape"})


class StudyTrainPart(_Table):
    """``[train]``: exactly one budget; every other option of ``distill`` may stand here too."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, allow_inf_nan=False)

    steps: Count | None = None
    epochs: Positive | None = None
    minutes: Positive | None = None
    lr: Positive | None = None
    batch_rows: Annotated[int, Field(ge=2)] | None = None
    precision: Literal["auto", "fp32", "bf16"] | None = None
    checkpoint_seconds: Positive | None = None


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
        own, shared = student.options(), self.train.model_dump(exclude_none=True)
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
    try:
        study = Study.model_validate(document)
    except ValidationError as error:
        found = [describe_fault(detail, _MODELS, Study) for detail in error.errors(include_url=False)]
        raise RecipeError(str(path), [*faults, *dict.fromkeys(found)]) from error
    parts = resolve_study(study.model_dump(), path.resolve().parent)
    faults += check_study(parts)
    if faults:
        raise RecipeError(str(path), faults)
    return Study.model_validate(parts)
