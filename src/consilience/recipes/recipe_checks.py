"""What a recipe's values point at: files, columns, teachers, presets. Every fault is collected, none raised."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.recipes.align import GPA
from consilience.recipes.recipe_values import did_you_mean

BUDGETS = ("steps", "epochs", "minutes")
FORMATS = ("sentence-transformers", "onnx")
RESERVED_NAMES = ("student", "static", "consensus")
EXISTING = ("bank", "parquet", "npy")  # specs of embeddings that exist: read by banks, not loaded as a model
# Backends whose name is a path, relative to the recipe; the others' names are paths only when such a folder exists.
_PATH_BACKENDS = ("onnx", "static", "vectors", "bank", "parquet", "npy")
_NAME_OR_PATH_BACKENDS = ("st", "hf")
_NEEDS = {  # backend: (module, extra)
    "st": ("sentence_transformers", "st"),
    "hf": ("transformers", "train"),
    "onnx": ("onnxruntime", "onnx"),
    "http": ("httpx", "http"),
    "https": ("httpx", "http"),
}


def resolve_paths(parts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a copy of the tables with paths relative to the recipe's folder made absolute, and teachers named.

    Args:
        parts: the recipe's tables as plain values; absent ones are left absent.
        folder: where the recipe file is.
    """
    result = copy.deepcopy(dict(parts))
    corpus = result.get("corpus") or {}
    if corpus.get("path") and not corpus["path"].startswith("hub:") and corpus["path"] != "-":
        corpus["path"] = _absolute(corpus["path"], folder)
    evaluate = result.get("evaluate") or {}
    if "data" in evaluate:  # an empty one is none: ${NAME:-} where the variable isn't set
        evaluate["data"] = _absolute(evaluate["data"], folder) if evaluate["data"] else None
    student = result.get("student") or {}
    for key in ("tokenizer", "init", "token_table"):
        if student.get(key) and (folder / student[key]).exists():
            student[key] = _absolute(student[key], folder)
    for teacher in result.get("teachers", []):
        teacher["name"] = teacher["name"] or default_teacher_name(teacher["spec"])
        teacher["spec"] = _resolve_spec(teacher["spec"], folder)
    align = result.get("align")
    if align is not None and not align["reference"] and align["method"] != GPA and result.get("teachers"):
        align["reference"] = result["teachers"][0]["name"]
    return result


def default_teacher_name(spec: str) -> str:
    """Return the short name of a teacher that the recipe doesn't name.

    Example:
        >>> default_teacher_name("st:sentence-transformers/all-mpnet-base-v2?dtype=fp16")
        'all-mpnet-base-v2'
    """
    name = re.split(r"[?#]", spec.partition(":")[2] or spec)[0].rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "teacher"


def check_parts(parts: Mapping[str, Any]) -> list[str]:
    """Return a clause for every value that can't work, in the order of the recipe's tables.

    Args:
        parts: the tables that are well-formed, their paths resolved.
    """
    faults: list[str] = []
    if "corpus" in parts:
        faults += _corpus_faults(parts["corpus"])
    if "teachers" in parts:
        faults += _teacher_faults(parts["teachers"])
        faults += _name_faults(parts)
    if "align" in parts:
        faults += _align_faults(parts["align"], parts.get("teachers"))
    if "student" in parts:
        faults += _student_faults(parts["student"])
    if "train" in parts:
        faults += _train_faults(parts["train"])
    if "evaluate" in parts:
        faults += _evaluate_faults(parts["evaluate"])
    if parts.get("export", {}).get("formats") == []:
        faults.append(f"export.formats: expected at least one of {', '.join(FORMATS)}")
    for i, name in enumerate(parts.get("export", {}).get("formats", [])):
        faults += _choice(f"export.formats[{i}]", name, FORMATS)
    return faults


def _corpus_faults(corpus: Mapping[str, Any]) -> list[str]:
    if (corpus["path"] is None) == (corpus["grammar"] is None):
        missing = corpus["path"] if corpus["path"] and not Path(corpus["path"]).exists() else None
        also = [f"corpus: {missing}: no such file or folder. Check the path"] if missing and corpus["grammar"] else []
        return ["corpus: expected exactly one of path and grammar", *also]
    if corpus["grammar"] is not None:
        given = [key for key in ("column", "where") if corpus[key]]
        return [f"corpus.{key}: the grammar has no columns; leave it out" for key in given]
    if corpus["path"] == "-":
        return ["corpus.path: a recipe reads its corpus several times; save standard input to a file and name that"]
    from consilience.corpora.text import CorpusSpec, open_corpus

    spec = CorpusSpec(**{key: value for key, value in corpus.items() if key != "grammar"})
    try:
        open_corpus(spec)
    except ConsilienceError as error:
        return [f"corpus: {error}"]
    return []


def _teacher_faults(teachers: Sequence[Mapping[str, Any]]) -> list[str]:
    faults = []
    seen: dict[str, int] = {}
    same: dict[tuple[Any, ...], int] = {}
    for i, teacher in enumerate(teachers):
        name = teacher["name"]
        if name in seen:
            faults.append(f"teachers[{i}].name: {name} is also teachers[{seen[name]}]; give each its own name")
        seen.setdefault(name, i)
        if name in RESERVED_NAMES:
            faults.append(f"teachers[{i}].name: {name} is what the report calls the run's own; choose another")
        fault = _spec_fault(teacher)
        if fault:
            faults.append(f"teachers[{i}].spec: {fault}")
        first = same.setdefault((teacher["spec"], teacher["prompt"], teacher["max_length"]), i)
        if first != i:
            faults.append(f"teachers[{i}].spec: {teacher['spec']} is also teachers[{first}]; use consensus.weights")
    return faults


def _spec_fault(teacher: Mapping[str, Any]) -> str | None:
    backend, _, rest = teacher["spec"].partition(":")
    if backend not in EXISTING:
        from consilience.teachers.spec import parse_teacher_spec

        try:
            spec = parse_teacher_spec(teacher["spec"], prompt=teacher["prompt"], max_length=teacher["max_length"])
            if spec.backend == "packaged":
                from consilience.teachers.packaged import packaged_files

                packaged_files(spec.name)
        except ConsilienceError as error:
            return str(error)
        backend, rest = spec.backend, spec.name
    elif teacher["prompt"] is not None or teacher["max_length"] is not None:
        return f"{teacher['spec']}: prompt and max_length don't apply to embeddings that exist; leave them out"
    module, extra = _NEEDS.get(backend, ("", ""))
    if module and find_spec(module) is None:
        return f"{teacher['spec']}: {module} isn't installed. Run: pip install 'consilience[{extra}]'"
    if backend in _PATH_BACKENDS and not Path(re.split(r"[?#]", rest)[0]).exists():
        return f"{teacher['spec']}: no such file or folder. Check the path"
    return None


def _name_faults(parts: Mapping[str, Any]) -> list[str]:
    """Names that refer to teachers."""
    names = [teacher["name"] for teacher in parts["teachers"]]
    faults = []
    if "align" in parts and parts["align"]["method"] != GPA:
        faults += _choice("align.reference", parts["align"]["reference"], names, noun="teacher")
    consensus = parts.get("consensus", {"weights": {}, "leave_out": []})
    for name in consensus["weights"]:
        faults += _choice(f"consensus.weights.{name}", name, names, noun="teacher")
    for i, name in enumerate(consensus["leave_out"]):
        faults += _choice(f"consensus.leave_out[{i}]", name, names, noun="teacher")
    silent = {*consensus["leave_out"], *(name for name, weight in consensus["weights"].items() if weight == 0)}
    if names and set(names) <= silent:
        faults.append("consensus: leave_out and weights of 0 leave no teacher; keep at least one")
    return faults


def _align_faults(align: Mapping[str, Any], teachers: Sequence[Any] | None) -> list[str]:
    from consilience.frames.align import METHODS

    faults = _choice("align.method", align["method"], (*METHODS, GPA))
    if align["method"] == GPA and align["reference"]:
        faults.append("align.reference: a gpa frame is nobody's; leave it out")
    if align["shrinkage"] == "gcv" and align["method"] not in ("ridge", "low-rank"):
        faults.append(f"align.shrinkage: gcv is for ridge and low-rank maps, got {align['method']!r}; give a number")
    for key, method in (("rank", "low-rank"), ("dimensions", GPA)):
        if align[key] is not None and align["method"] != method:
            faults.append(f"align.{key}: an option of method {method!r}, got {align['method']!r}; leave it out")
    if teachers is not None and len(teachers) < 2:
        faults.append(f"teachers: expected at least two, got {len(teachers)}; a consensus needs several")
    return faults


def _student_faults(student: Mapping[str, Any]) -> list[str]:
    from consilience.recipes.initial_student import STATIC
    from consilience.students.presets import PRESETS, StudentConfig

    faults = []
    config = PRESETS.get(student["preset"])
    if student["preset"] is not None and student["shape"] is not None:
        faults.append("student: expected one of preset and shape, got both")
    if student["preset"] is not None:
        faults += _choice("student.preset", student["preset"], [*PRESETS, STATIC])
    faults += _start_faults(student)
    try:
        if student["shape"] is not None:
            config = StudentConfig(**student["shape"])
    except ConsilienceError as error:
        faults.append(f"student.shape: {error}")
    length = student["max_length"]
    if length is not None and config is not None and not 3 <= length <= config.max_positions:
        faults.append(
            f"student.max_length: expected 3 to {config.max_positions}, the student's positions, got {length}"
        )
    return faults + _tokenizer_faults(student["tokenizer"])


def _start_faults(student: Mapping[str, Any]) -> list[str]:
    """Find options of the start that exclude each other; what ``init`` names is looked at when it's read."""
    from consilience.recipes.initial_student import STATIC

    faults = []
    static = student["preset"] == STATIC
    sized = student["shape"] is not None or (student["preset"] is not None and not static)
    if student["init"] is not None and sized:
        faults.append("student.init: excludes preset and shape, since the start brings its own; leave one out")
    if student["tokenizer"] is not None and not (sized or (static and student["init"] is None)):
        faults.append("student.tokenizer: trained layers bring their own; leave it out, or give preset or shape")
    if student["layers"] is not None and (sized or static):
        faults.append("student.layers: picks trained layers, which preset and shape exclude; leave one out")
    faults += [
        f"student.{key}: a static student has none; leave it out"
        for key in ("head", "token_table")
        if static and student[key] is not None
    ]
    return faults


def _tokenizer_faults(tokenizer: str | None) -> list[str]:
    from consilience.recipes.initial_student import DEFAULT_TOKENIZER

    backend, _, name = (tokenizer or DEFAULT_TOKENIZER).partition(":")
    if backend == "packaged":
        from consilience.teachers.packaged import packaged_files

        try:
            if not any(Path(file).name == "tokenizer.json" for file in packaged_files(name)):
                return [f"student.tokenizer: {tokenizer} has no tokenizer.json; choose another"]
        except ConsilienceError as error:
            return [f"student.tokenizer: {error}"]
    elif tokenizer is not None and tokenizer.endswith(".json") and not Path(tokenizer).is_file():
        return [f"student.tokenizer: {tokenizer}: no such file. Check the path"]
    return []


def objective_faults(key: str, objective: str) -> list[str]:
    """Return what is wrong with an objective: a name or terms with weights.

    Args:
        key: where the recipe has it.
        objective: as written there.
    """
    from consilience.objectives.names import SHAPED, objective_names, require_objective

    try:
        require_objective(objective)
    except ConsilienceError as error:
        if "=" in objective:
            return [f"{key}: {error}"]
        return _choice(key, objective.removesuffix(SHAPED), objective_names())
    return []


def _train_faults(train: Mapping[str, Any]) -> list[str]:
    given = [key for key in BUDGETS if train[key] is not None]
    faults = []
    if len(given) != 1:
        found = " and ".join(f"{key} = {train[key]}" for key in given) or "none"
        faults.append(f"train: expected exactly one budget of {', '.join(BUDGETS)}, got {found}")
    if train["objective"] is not None:
        faults += objective_faults("train.objective", train["objective"])
    return faults


def _evaluate_faults(evaluate: Mapping[str, Any]) -> list[str]:
    from consilience.evaluation.sts import REPORTED_TASKS

    faults = [] if evaluate["tasks"] else ["evaluate.tasks: expected at least one task"]
    for i, name in enumerate(evaluate["tasks"]):
        faults += _choice(f"evaluate.tasks[{i}]", name, ("sts", "grammar", *REPORTED_TASKS), noun="task")
    needs_data = evaluate["missing_data"] == "refuse" and any(task != "grammar" for task in evaluate["tasks"])
    if needs_data and not has_sts_data(evaluate["data"]):
        found = f"{evaluate['data']} has no sts/*.tsv" if evaluate["data"] else "required for the STS tasks and missing"
        faults.append(f"evaluate.data: {found}; name their folder, or set evaluate.missing_data to 'skip'")
    folder = sts_folder(evaluate["data"])
    if folder is not None:
        wanted = REPORTED_TASKS if "sts" in evaluate["tasks"] else [t for t in evaluate["tasks"] if t in REPORTED_TASKS]
        missing = [f"{name}.tsv" for name in wanted if not (folder / f"{name}.tsv").is_file()]
        if missing:
            faults.append(f"evaluate.data: {folder} lacks {', '.join(missing)}; add them or name fewer tasks")
    return faults


def has_sts_data(data: str | None) -> bool:
    """Return whether a data folder holds the STS tasks (directly, or in ``sts/``)."""
    return sts_folder(data) is not None


def sts_folder(data: str | None) -> Path | None:
    """Return the folder with the STS tasks' files in a data folder, or None."""
    if data is None:
        return None
    return next((folder for folder in (Path(data) / "sts", Path(data)) if any(folder.glob("sts*.tsv"))), None)


def _choice(key: str, value: str, known: Sequence[str], *, noun: str = "value") -> list[str]:
    return [] if value in known else [f"{key}: unknown {noun} {value!r}{did_you_mean(value, list(known))}"]


def _absolute(path: str, folder: Path) -> str:
    return str((folder / Path(path).expanduser()).resolve())


def _resolve_spec(spec: str, folder: Path) -> str:
    backend, colon, rest = spec.partition(":")
    name, mark, tail = re.match(r"([^?#]*)([?#]?)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    is_path = backend in _PATH_BACKENDS or (backend in _NAME_OR_PATH_BACKENDS and (folder / name).exists())
    return f"{backend}{colon}{_absolute(name, folder)}{mark}{tail}" if is_path and name else spec
