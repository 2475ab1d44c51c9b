"""The recipe file: a TOML document that describes a whole run, checked completely before anything starts.

The models here say which keys there are; ``recipe_values`` expands the environment and applies ``--set``;
``recipe_checks`` looks at what the values point at (files, columns, teachers, presets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from consilience.core.errors import RecipeError
from consilience.recipes.recipe_checks import check_parts, resolve_paths
from consilience.recipes.recipe_values import apply_settings, expand_environment, follows_unset
from consilience.recipes.toml_document import describe_fault, read_toml

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class _Part(BaseModel):
    """A table of the recipe: unknown keys and wrong types are faults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CorpusPart(_Part):
    """``[corpus]``: a file, folder or data set, or ``grammar = N`` captions of the built-in grammar."""

    path: str | None = None
    column: str | None = None
    where: dict[str, str] = Field(default_factory=dict)
    limit: Count | None = None
    on_fault: Literal["refuse", "drop"] = "refuse"
    max_characters: Count = 50_000
    grammar: Count | None = None


class TeacherPart(_Part):
    """``[[teachers]]``: one teacher; the first one is the reference unless ``[align]`` names another."""

    spec: str
    name: Annotated[str, Field(pattern=r"^[^/\\\x00-\x1f]*$")] = ""  # a part of the bank's folder name
    prompt: str | None = None
    max_length: Count | None = None
    dtype: Literal["fp16", "fp32"] = "fp16"


class AlignPart(_Part):
    """``[align]``: how the teachers' frames are mapped into the reference's."""

    reference: str = ""
    method: str = "whitened"
    fit_rows: Count = 24_000
    held_out_rows: Count = 5_000
    shrinkage: Annotated[float, Field(ge=0)] | Literal["ledoit-wolf", "gcv"] = 1e-3
    rank: Count | None = None
    dimensions: Count | None = None


class ConsensusPart(_Part):
    """``[consensus]``: weights per teacher name (1 when not named), and teachers to leave out."""

    weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    leave_out: list[str] = Field(default_factory=list)


class ShapePart(_Part):
    """``[student.shape]``: a size of one's own instead of a preset's."""

    layers: Count
    hidden: Count
    heads: Count
    ffn: Count
    max_positions: Count = 512
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


class StudentPart(_Part):
    """``[student]``: its size or the weights it starts from, its tokenizer and the longest text it reads."""

    preset: str | None = None
    shape: ShapePart | None = None
    init: str | None = None
    layers: list[Annotated[int, Field(ge=0)]] | None = None
    head: Literal["mlp", "linear", "none"] | None = None
    token_table: str | None = None
    tokenizer: str | None = None
    max_length: Count | None = None


class TrainPart(_Part):
    """``[train]``: exactly one budget, and the optimiser's settings."""

    steps: Count | None = None
    epochs: Positive | None = None
    minutes: Positive | None = None
    lr: Positive | None = None
    batch_rows: Annotated[int, Field(ge=2)] | None = None
    objective: str | None = None
    precision: Literal["auto", "fp32", "bf16"] | None = None
    matryoshka: list[Count] | None = None
    cache_rows: Count | None = None
    compile: bool | None = None
    sparse_embeddings: bool | None = None
    checkpoint_seconds: Positive | None = None


class EvaluatePart(_Part):
    """``[evaluate]``: the tasks, their data, and whether the teachers are measured beside the student."""

    tasks: list[str] = Field(default_factory=lambda: ["grammar"])
    data: str | None = None
    missing_data: Literal["refuse", "skip"] = "refuse"
    compare: bool = True


class ExportPart(_Part):
    """``[export]``: the formats that are written, and how small."""

    formats: list[str] = Field(default_factory=lambda: ["sentence-transformers", "onnx"])
    quantize: Literal["int8"] | None = None
    truncate_dim: Count | None = None


class BarPart(_Part):
    """``[[bars]]``: a number seen elsewhere, and how far the run's own may be from it."""

    what: str
    metric: str
    seen: float | None = None
    within: Annotated[float, Field(ge=0)] | None = None
    at_least: float | None = None

    @model_validator(mode="after")
    def _one_threshold(self) -> BarPart:
        if self.within is not None and (self.seen is None or self.at_least is not None):
            raise ValueError("within needs seen and excludes at_least")
        return self


class Recipe(_Part):
    """A whole run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    seed: Annotated[int, Field(ge=0)] = 0
    corpus: CorpusPart
    teachers: Annotated[list[TeacherPart], Field(min_length=1)]
    align: AlignPart = AlignPart()
    consensus: ConsensusPart = ConsensusPart()
    student: StudentPart = StudentPart()
    train: TrainPart
    evaluate: EvaluatePart = EvaluatePart()
    export: ExportPart = ExportPart()
    bars: list[BarPart] = Field(default_factory=list)


TABLES: dict[str, type[_Part]] = {
    "corpus": CorpusPart,
    "teachers": TeacherPart,
    "align": AlignPart,
    "consensus": ConsensusPart,
    "student": StudentPart,
    "train": TrainPart,
    "evaluate": EvaluatePart,
    "export": ExportPart,
    "bars": BarPart,
}

_NAMED: dict[str, type[BaseModel]] = {**TABLES, "shape": ShapePart}


def load_recipe(path: str | Path, *, settings: Sequence[str] = ()) -> Recipe:
    """Read a recipe, expand its environment variables, apply ``--set`` values and check all of it.

    Args:
        path: the TOML file.
        settings: ``key.path=value`` strings that override it.

    Returns:
        The recipe, its paths resolved relative to the file.

    Raises:
        InputError: the file is missing or isn't TOML.
        RecipeError: it has faults; all of them are listed.
    """
    path = Path(path)
    document = read_toml(path, what="recipe")
    faults: list[str] = []
    document = apply_settings(document, settings, faults)
    document = expand_environment(document, faults)
    recipe, shape_faults = _validate(document)
    faults += shape_faults
    # Tables that are well-formed are checked even when another is not, so that one pass shows every fault.
    parts = resolve_paths(recipe.model_dump() if recipe else _sound_parts(document), path.resolve().parent)
    faults += [fault for fault in check_parts(parts) if not follows_unset(fault)]
    if faults:
        raise RecipeError(str(path), faults)
    return Recipe.model_validate(parts)


def _validate(document: Mapping[str, Any]) -> tuple[Recipe | None, list[str]]:
    try:
        return Recipe.model_validate(document), []
    except ValidationError as error:
        return None, [describe_fault(detail, _NAMED, Recipe) for detail in error.errors(include_url=False)]


def _sound_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a faulty recipe that are valid but for unknown keys, with their defaults."""
    parts: dict[str, Any] = {}
    for table, model in TABLES.items():
        value = document.get(table, None if table in ("corpus", "teachers", "train") else {})
        try:
            if table in ("teachers", "bars"):
                parts[table] = [_known_keys(model, item) for item in value or []]
            elif value is not None:
                parts[table] = _known_keys(model, value)
        except (ValidationError, TypeError):
            continue
    return parts


def _known_keys(model: type[_Part], table: Any) -> dict[str, Any]:  # noqa: ANN401 - any TOML value
    known = {key: table[key] for key in table if key in model.model_fields} if isinstance(table, dict) else table
    try:
        return model.model_validate(known).model_dump()
    except ValidationError as error:
        # A faulty value is reported already; its neighbours are checked without it.
        faulty = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
        if not isinstance(known, dict) or not faulty & set(known):
            raise
        return model.model_validate({key: value for key, value in known.items() if key not in faulty}).model_dump()
