"""What a study's values point at: teachers, targets, objectives, options of ``distill``. Faults are collected."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import ConsilienceError
from consilience.recipes.recipe_checks import BUDGETS, EXISTING, check_parts, resolve_paths
from consilience.recipes.recipe_values import did_you_mean
from consilience.recipes.study_starts import (
    PATH_OPTIONS,
    needs_width,
    resolve_start,
    start_faults,
    width_faults,
    width_of_target,
)

if TYPE_CHECKING:
    from consilience.recipes.study_cells import Cell

# What the grid decides, cell by cell, and what a study doesn't offer.
_GRID_DECIDES = ("corpus", "target", "out", "seed", "objective", "student", "teachers", "overwrite", "tensorboard")
_CORPUS_DECIDES = ("column", "where", "limit", "on_fault", "max_characters")
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
        result["law"]["into"] = _model_path(result["law"]["into"], folder)
    for key in ("banks", "optional_banks"):
        given = [result[key]] if isinstance(result[key], str) else result[key]
        result[key] = [str((folder / Path(path).expanduser()).resolve()) for path in given]
    for target in result["targets"]:
        if target["bank"] is not None:
            target["bank"] = str((folder / Path(target["bank"]).expanduser()).resolve())
    for i, student in enumerate(result["students"]):
        plain = student["shape"] is None and student["init"] is None and result["train"]["init"] is None
        student["name"] = student["name"] or student["preset"] or ("mini" if plain else f"student{i}")
    for table in (result["train"], *result["students"]):
        for key in PATH_OPTIONS:
            if table[key] is not None:
                table[key] = resolve_start(key, table[key], folder)
    return result


def _model_path(text: str, folder: Path) -> str:
    """Return a model's path or spec, absolute where it lies beside the study."""
    if "://" in text:
        return text
    if (folder / text).exists():
        return str((folder / text).resolve())
    spec: str = resolve_paths({"teachers": [{"name": "into", "spec": text}]}, folder)["teachers"][0]["spec"]
    return spec


def check_study(parts: Json, cells: Sequence[Cell], options: Mapping[str, Json]) -> list[str]:
    """Return a clause for every value that can't work, in the order of the study's tables.

    Args:
        parts: the well-formed tables, their paths resolved.
        cells: the grid that they mean.
        options: of ``distill``, by student.
    """
    checked = ["corpus", "teachers", "evaluate"] if parts["teachers"] else ["corpus", "evaluate"]
    faults = check_parts({key: parts[key] for key in checked})
    faults += _bank_faults(parts)
    faults += _target_faults(parts)
    faults += _repeated("objectives", parts["objectives"]) + _repeated("seeds", parts["seeds"])
    if not parts["objectives"] and (not parts["cells"] or any(not cells["objectives"] for cells in parts["cells"])):
        faults.append("objectives: expected at least one, here or in every [[cells]]")
    faults += _objective_faults([*parts["objectives"], *_named(parts, "objectives")])
    faults += _student_faults(parts, cells, options)
    faults += _cell_faults(parts)
    faults += _same_objectives(cells) + _sparse_faults(parts, cells, options)
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


def _bank_faults(parts: Json) -> list[str]:
    """Folders of other studies that aren't there, and banks that aren't banks or are of other rows."""
    from consilience.core.manifests import read_manifest

    faults = [
        f"banks: {path}: no such folder; check the path, or name it in optional_banks"
        for path in parts["banks"]
        if not Path(path).is_dir()
    ]
    named = {f"targets[{i}].bank": target["bank"] for i, target in enumerate(parts["targets"]) if target["bank"]}
    for i, teacher in enumerate(parts["teachers"]):
        backend, _, path = teacher["spec"].partition(":")
        if backend == "bank" and Path(path).exists():  # a missing one is listed with the teachers
            named[f"teachers[{i}].spec"] = path
    found = {}
    for key, path in named.items():
        try:
            found[key] = str(read_manifest(Path(path), "bank")["corpus"]["fingerprint"])
        except ConsilienceError as error:
            faults.append(f"{key}: {error}")
    own = _fingerprint(parts) if found else None
    faults += [
        f"{key}: {named[key]}: a bank of corpus {other[:12]}..., the study's is {own[:12]}...; name a bank of the "
        "same rows"
        for key, other in found.items()
        if own is not None and other != own
    ]
    return faults


def _fingerprint(parts: Json) -> str | None:
    """Return the fingerprint of the study's corpus, or None of one that can't be read, which is a fault already."""
    from consilience.corpora.caption_grammar import generate_captions
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import CorpusSpec, open_corpus

    corpus = parts["corpus"]
    try:
        if corpus["path"] is not None:
            return fingerprint_corpus(
                open_corpus(CorpusSpec(**{key: value for key, value in corpus.items() if key != "grammar"}))
            ).fingerprint
        captions = list(generate_captions(corpus["grammar"] or 0, seed=parts["seed"]))
        return fingerprint_corpus(open_corpus(captions[: corpus["limit"]])).fingerprint
    except ConsilienceError:
        return None


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
        elif target["bank"] is None:
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


def decided_elsewhere(name: str) -> str | None:
    """Return who decides an option of ``distill`` that no table of a study takes; None of any other name.

    Example:
        >>> decided_elsewhere("column"), decided_elsewhere("seed"), decided_elsewhere("lr")
        ('[corpus]', 'the grid', None)
    """
    if name in _CORPUS_DECIDES:
        return "[corpus]"
    return "the grid" if name in _GRID_DECIDES else None


def _student_faults(parts: Json, cells: Sequence[Cell], options: Mapping[str, Json]) -> list[str]:
    faults = _repeated("students", [student["name"] for student in parts["students"]])
    tables = [("train", parts["train"]), *((f"students[{i}]", student) for i, student in enumerate(parts["students"]))]
    for key, table in tables:
        if table["objective"] is not None:
            faults.append(f"{key}.objective: the grid decides it; leave it out")
    faults += [
        f"train.{key}: a student's own; put it into [[students]]"
        for key in ("preset", "shape")
        if parts["train"][key] is not None
    ]
    widths: dict[str, int | None] = {}
    for i, student in enumerate(parts["students"]):
        key, given = f"students[{i}]", options[student["name"]]
        merged = {**student, **given, "preset": student["preset"], "shape": student["shape"]}
        found = [key + fault.removeprefix("student") for fault in check_parts({"student": merged})]
        # A start is made only of options that go together, and compared with targets only where it can be made.
        found = found or start_faults(key, student, given)
        if not found and needs_width(given):
            own = dict.fromkeys(cell.target for cell in cells if cell.student == student["name"])
            found = width_faults(key, student, given, _known_widths(parts, list(own), widths))
        faults += found + _budget_faults(key, parts["train"], student)
    return faults


def _known_widths(parts: Json, names: Sequence[str], widths: dict[str, int | None]) -> dict[str, int]:
    """Return those targets' widths that are known before they're made; ``widths`` keeps all that were looked for."""
    for target in parts["targets"]:
        if target["name"] in names and target["name"] not in widths:
            widths[target["name"]] = width_of_target(parts, target)
    return {name: width for name in names if (width := widths.get(name)) is not None}


def _same_objectives(cells: Sequence[Cell]) -> list[str]:
    """Find two spellings of one objective that would be trained twice and compared as two conditions."""
    from consilience.objectives.names import require_objective

    first: dict[tuple[Any, ...], str] = {}
    faults = []
    for cell in cells:
        try:
            made = require_objective(cell.objective)
        except ConsilienceError:
            continue  # listed already
        meaning = (tuple(sorted(made.weights.items())), made.shaping, made.optimizer)
        known = first.setdefault((meaning, cell.target, cell.student, cell.seed), cell.objective)
        if known != cell.objective:
            faults.append(f"objectives: {cell.objective!r} means the same as {known!r}; name it once")
    return faults


def _sparse_faults(parts: Json, cells: Sequence[Cell], options: Mapping[str, Json]) -> list[str]:
    """Find objectives whose optimiser touches every row of a token table that is trained sparsely."""
    from consilience.objectives.names import require_objective
    from consilience.recipes.initial_student import STATIC

    numbers = {student["name"]: i for i, student in enumerate(parts["students"])}
    faults = []
    for name, objective in dict.fromkeys((cell.student, cell.objective) for cell in cells):
        static = name in numbers and parts["students"][numbers[name]]["preset"] == STATIC
        if name not in numbers or not options[name].get("sparse_embeddings", static):
            continue
        try:
            made = require_objective(objective)
        except ConsilienceError:
            continue  # listed already
        from consilience.training.optimizers import require_sparse_fit

        try:
            require_sparse_fit(made.optimizer)
        except ConsilienceError:
            whose = "a static student's" if static else "sparse"
            faults.append(
                f"students[{numbers[name]}]: objective {objective!r} asks for weight decay or clipping, which touch "
                f"every row, and {whose} gradients of the token table don't; take another objective, or set "
                "sparse_embeddings = false"
            )
    return faults


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
    # What is beside the study is absolute by now; the current folder's files are never meant.
    if ":" in law["into"] or (Path(law["into"]).is_absolute() and Path(law["into"]).exists()):
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
