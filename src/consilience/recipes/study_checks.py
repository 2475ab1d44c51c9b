"""What a study's values point at: teachers, targets, objectives, options of ``distill``. Faults are collected."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.recipes.recipe_checks import BUDGETS, EXISTING, check_parts, resolve_paths
from consilience.recipes.recipe_values import did_you_mean

# What the grid decides, cell by cell, and what a study doesn't offer.
_GRID_DECIDES = ("corpus", "target", "out", "seed", "objective", "student", "overwrite", "tensorboard")
_CORPUS_DECIDES = ("column", "where", "limit", "on_fault", "max_characters")
PATH_OPTIONS = ("tokenizer", "init", "token_table")  # may name a file or folder beside the study
_ALIGN_KEYS = ("method", "reference", "shrinkage", "rank", "dimensions")

Json = Mapping[str, Any]


def resolve_study(parts: Json, folder: Path) -> dict[str, Any]:
    """Return a copy of a study's tables with paths relative to the study's folder made absolute, and students named.

    Args:
        parts: the tables as plain values.
        folder: where the study file is.
    """
    result = copy.deepcopy(dict(parts))
    result.update(resolve_paths({key: result[key] for key in ("corpus", "teachers", "align", "evaluate")}, folder))
    for table in ("law", "retrieval"):
        if result[table] is not None:
            result[table]["corpus"] = resolve_paths({"corpus": result[table]["corpus"]}, folder)["corpus"]
    if result["law"] is not None and result["law"]["into"] not in [teacher["name"] for teacher in result["teachers"]]:
        result["law"]["into"] = _existing(result["law"]["into"], folder)
    given = [result["banks"]] if isinstance(result["banks"], str) else result["banks"]
    result["banks"] = [str((folder / Path(path).expanduser()).resolve()) for path in given]
    for target in result["targets"]:
        if target["bank"] is not None:
            target["bank"] = str((folder / Path(target["bank"]).expanduser()).resolve())
    for i, student in enumerate(result["students"]):
        plain = student["shape"] is None and student.get("init") is None
        student["name"] = student["name"] or student["preset"] or ("mini" if plain else f"student{i}")
        for key in PATH_OPTIONS:
            if isinstance(student.get(key), str):
                student[key] = _existing(student[key], folder)
    return result


def _existing(text: str, folder: Path) -> str:
    """Return the absolute path of what exists beside the study, or the text itself."""
    return str((folder / text).resolve()) if "://" not in text and (folder / text).exists() else text


def check_study(parts: Json) -> list[str]:
    """Return a clause for every value that can't work, in the order of the study's tables.

    Args:
        parts: the well-formed tables, their paths resolved.
    """
    checked = ["corpus", "teachers", "evaluate"] if parts["teachers"] else ["corpus", "evaluate"]
    faults = check_parts({key: parts[key] for key in checked})
    faults += _target_faults(parts)
    faults += _repeated("objectives", parts["objectives"]) + _repeated("seeds", parts["seeds"])
    if not parts["objectives"] and (not parts["cells"] or any(not cells["objectives"] for cells in parts["cells"])):
        faults.append("objectives: expected at least one, here or in every [[cells]]")
    faults += _objective_faults([*parts["objectives"], *_named(parts, "objectives")])
    faults += _student_faults(parts)
    faults += _cell_faults(parts)
    for table in ("law", "retrieval"):
        if parts[table] is not None:
            faults += [f"{table}.{fault}" for fault in check_parts({"corpus": parts[table]["corpus"]})]
    faults += _law_faults(parts) + _retrieval_faults(parts)
    return list(dict.fromkeys(faults))


def _named(parts: Json, key: str) -> list[str]:
    return [name for cells in parts["cells"] for name in cells[key] or []]


def _repeated(key: str, values: Sequence[Any]) -> list[str]:
    twice = list(dict.fromkeys(value for value in values if values.count(value) > 1))
    return [f"{key}: {value!r} is given twice; name it once" for value in twice]


def _choice(key: str, value: str, known: Sequence[str], *, noun: str) -> list[str]:
    return [] if value in known else [f"{key}: unknown {noun} {value!r}{did_you_mean(value, list(known))}"]


def _target_faults(parts: Json) -> list[str]:
    faults = _repeated("targets", [target["name"] for target in parts["targets"]])
    names = [teacher["name"] for teacher in parts["teachers"]]
    for i, target in enumerate(parts["targets"]):
        key = f"targets[{i}]"
        chosen = [name for name in ("weights", "leave_out", *_ALIGN_KEYS) if target[name] not in (None, {}, [])]
        kinds = [name for name in ("teacher", "bank") if target[name] is not None]
        if len(kinds) == 2 or (kinds and chosen):
            faults.append(
                f"{key}: expected one of teacher, bank, or a consensus, got {', '.join([*kinds, *chosen])}; name one"
            )
        if target["teacher"] is not None:
            faults += _choice(f"{key}.teacher", target["teacher"], names, noun="teacher")
        elif target["bank"] is not None:
            if not (Path(target["bank"]) / "manifest.json").is_file():
                faults.append(f"{key}.bank: {target['bank']}: no bank there. Check the path")
        else:
            faults += _consensus_faults(parts, target, names, key)
    return faults


def _consensus_faults(parts: Json, target: Json, names: Sequence[str], key: str) -> list[str]:
    from consilience.frames.align import METHODS
    from consilience.recipes.align import GPA

    if len(names) < 2:
        return [f"{key}: a consensus needs at least two [[teachers]], got {len(names)}; name more, or teacher or bank"]
    faults = []
    for name in (*target["weights"], *target["leave_out"]):
        faults += _choice(key, name, names, noun="teacher")
    silent = {*target["leave_out"], *(name for name, weight in target["weights"].items() if weight == 0)}
    if set(names) <= silent:
        faults.append(f"{key}: leave_out and weights of 0 leave no teacher; keep at least one")
    method = target["method"] or parts["align"]["method"]
    faults += _choice(f"{key}.method", method, (*METHODS, GPA), noun="method")
    reference = target["reference"] or ("" if method == GPA else parts["align"]["reference"])
    if method == GPA and reference:
        faults.append(f"{key}.reference: a gpa frame is nobody's; leave it out")
    elif method != GPA:
        faults += _choice(f"{key}.reference", reference, names, noun="teacher")
    for option, wanted in (("rank", "low-rank"), ("dimensions", GPA)):
        if target[option] is not None and method != wanted:
            faults.append(f"{key}.{option}: an option of method {wanted!r}, got {method!r}; leave it out")
    return faults


def _objective_faults(names: Sequence[str]) -> list[str]:
    from consilience.objectives.names import require_objective

    faults = []
    for name in dict.fromkeys(names):
        try:
            require_objective(name)
        except ConsilienceError as error:
            faults.append(f"objectives: {error}")
    return faults


def _student_faults(parts: Json) -> list[str]:
    from consilience.recipes.distill import distill

    refused = (*_GRID_DECIDES, *_CORPUS_DECIDES)
    known = [name for name in inspect.signature(distill).parameters if name not in refused]
    own = ("name", "preset", "shape")
    faults = _repeated("students", [student["name"] for student in parts["students"]])
    for i, student in enumerate(parts["students"]):
        key = f"students[{i}]"
        for name, value in student.items():
            if name not in own and value is not None:
                faults += _option_faults(f"{key}.{name}", name, known, refused)
        faults += [key + fault.removeprefix("student") for fault in check_parts({"student": student})]
        faults += _budget_faults(key, parts["train"], student)
    for name, value in parts["train"].items():
        if value is not None:
            faults += _option_faults(f"train.{name}", name, known, refused)
    return faults


def _option_faults(key: str, name: str, known: Sequence[str], refused: Sequence[str]) -> list[str]:
    if name in refused:
        where = "[corpus]" if name in _CORPUS_DECIDES else "the grid"
        return [f"{key}: {where} decides it; leave it out"]
    return [] if name in known else [f"{key}: unknown key{did_you_mean(name, list(known))}"]


def _budget_faults(key: str, train: Json, student: Json) -> list[str]:
    """Exactly one budget: a student's own replaces that of ``[train]``."""
    own = [name for name in BUDGETS if student.get(name) is not None]
    shared = [name for name in BUDGETS if train[name] is not None]
    given = own or shared
    if len(given) == 1:
        return []
    found = " and ".join(given) or "none"
    return [f"{key if own else 'train'}: expected exactly one budget of {', '.join(BUDGETS)}, got {found}"]


def _cell_faults(parts: Json) -> list[str]:
    faults = []
    known = {
        "targets": [target["name"] for target in parts["targets"]],
        "students": [student["name"] for student in parts["students"]],
    }
    for i, cells in enumerate(parts["cells"]):
        for key, names in known.items():
            for name in cells[key] or []:
                faults += _choice(f"cells[{i}].{key}", name, names, noun=key[:-1])
        faults += [f"cells[{i}].{key}: is empty; leave it out for all" for key in cells if cells[key] == []]
    return faults


def _law_faults(parts: Json) -> list[str]:
    law = parts["law"]
    if law is None:
        return []
    teacher = next((teacher for teacher in parts["teachers"] if teacher["name"] == law["into"]), None)
    if teacher is not None:
        backend = teacher["spec"].partition(":")[0]
        if backend in EXISTING:
            return [f"law.into: {law['into']} is embeddings that exist, which can't embed fresh texts; name a model"]
        return []
    if ":" in law["into"] or Path(law["into"]).exists():
        return []
    names = [teacher["name"] for teacher in parts["teachers"]]
    return _choice("law.into", law["into"], names, noun="teacher") if names else [f"law.into: no model {law['into']!r}"]


def _retrieval_faults(parts: Json) -> list[str]:
    part = parts["retrieval"]
    if part is None or part["corpus"]["path"] is None:
        return [] if part is None else ["retrieval.corpus: needs a path: the grammar has no groups"]
    from consilience.corpora.text import CorpusSpec, open_corpus

    if part["corpus"]["on_fault"] == "drop":
        return [
            "retrieval.corpus.on_fault: texts and groups are read apart, so no row may be dropped; filter with where"
        ]
    fields = {key: value for key, value in part["corpus"].items() if key != "grammar"}
    try:
        open_corpus(CorpusSpec(**{**fields, "column": part["group"]}))
    except ConsilienceError as error:
        return [f"retrieval.group: {error}"]
    return []


def options_content(options: Json) -> dict[str, Any]:
    """Return the options of a training that its result depends on, local files and folders by their content.

    Args:
        options: of ``distill``, paths absolute.
    """
    from consilience.recipes.stages import path_content

    local = {key for key in PATH_OPTIONS if key in options and Path(str(options[key])).is_absolute()}
    return {
        key: path_content(Path(value)) if key in local else value
        for key, value in options.items()
        if key != "checkpoint_seconds"
    }
