"""What a study's students start from: where it lies, what it is by content, and whether it fits the targets' widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from consilience.core.errors import ConsilienceError

Json = Mapping[str, Any]

PATH_OPTIONS = ("tokenizer", "init", "token_table")  # may name a file or folder beside the study
_FOLDER_SPECS = ("st:", "hf:")  # as a start these are folders on this machine
_SHORTEST = 3  # tokens: [CLS], a word, [SEP]


def resolve_start(key: str, text: str, folder: Path) -> str:
    """Return one of :data:`PATH_OPTIONS` with its path beside the study made absolute; packaged and hub names stay.

    Args:
        key: which option.
        text: its value.
        folder: where the study file is.
    """
    if key == "init" and (name := _spec_folder(text)) is not None:
        return f"{text.partition(':')[0]}:{quote(_beside(name, folder), safe='/:@~+, ')}"
    if "://" in text or text.startswith("packaged:") or text == "train":
        return text
    if (folder / Path(text).expanduser()).exists() or key == "token_table" or text.endswith(".json"):
        return _beside(text, folder)
    if key == "init" and ":" not in text:
        from consilience.teachers.packaged import find_packaged

        try:
            return f"packaged:{find_packaged(text).name}"
        except ConsilienceError:
            return _beside(text, folder)  # it's missing there, whatever the current folder holds
    return text


def _beside(text: str, folder: Path) -> str:
    return str((folder / Path(text).expanduser()).resolve())


def _spec_folder(text: str) -> str | None:
    """Return the folder that "st:FOLDER" or "hf:FOLDER" names, or None of anything else."""
    from consilience.recipes.warm_start import start_folder

    folder = start_folder(text) if text.startswith(_FOLDER_SPECS) else None
    return None if folder is None else str(folder)


def options_content(options: Json) -> dict[str, Any]:
    """Return the options of a training that its result depends on, local files and folders by their content.

    Args:
        options: of ``distill``, paths absolute.
    """
    content = {key: value for key, value in options.items() if key != "checkpoint_seconds"}
    return content | {key: _content(str(content[key])) for key in PATH_OPTIONS if key in content}


def _content(text: str) -> str:
    from consilience.recipes.stages import path_content

    name = _spec_folder(text)
    if name is not None and Path(name).exists():
        # The backend stays: the student's manifest says by which its start was named.
        return f"{text.partition(':')[0]}:{path_content(Path(name))}"
    return path_content(Path(text)) if Path(text).is_absolute() else text


def needs_width(options: Json) -> bool:
    """Return whether a student may fit some widths of the embedding only.

    Args:
        options: those of ``distill``.
    """
    return any(options.get(key) for key in ("matryoshka", "init")) or options.get("head") == "none"


def width_faults(key: str, student: Json, options: Json, widths: Mapping[str, int]) -> list[str]:
    """Find targets of a width that a student can't be trained to.

    Args:
        key: where the study has the student.
        student: its ``preset`` and ``shape``.
        options: those of ``distill``, paths absolute.
        widths: of its targets, by name.
    """
    from consilience.training.nested import check_widths

    faults = []
    for name, width in widths.items():
        if options.get("matryoshka"):
            try:
                check_widths(options["matryoshka"], width)
            except ConsilienceError as error:
                faults.append(f"{key}.matryoshka: target {name}: {error}")
        hidden = None if options.get("init") is not None else _hidden(student)
        if options.get("head") == "none" and hidden is not None and hidden != width:
            faults.append(
                f"{key}.head: none needs an embedding as wide as the token states, {hidden}, target {name} has "
                f"{width}; take linear or mlp"
            )
        elif options.get("init") is not None:
            faults += _faults_of_making(f"{key}: target {name}", student, options, width)
    return faults


def start_faults(key: str, student: Json, options: Json) -> list[str]:
    """Find what is wrong with a student's start whatever its targets are: sources, layers, tokenizer, length.

    Args:
        key: where the study has the student.
        student: its ``preset`` and ``shape``.
        options: those of ``distill``, paths absolute.
    """
    tokenizer = options.get("tokenizer")
    if tokenizer is not None and not Path(tokenizer).is_absolute() and Path(tokenizer).exists():
        return [f"{key}.tokenizer: {tokenizer}: isn't beside the study file but in the current folder; give its path"]
    if options.get("init") is None and options.get("token_table") is None:
        return _tokenizer_faults(key, tokenizer) + _length_faults(key, options, None)
    return _faults_of_making(key, student, options, None)


def _tokenizer_faults(key: str, tokenizer: str | None) -> list[str]:
    if tokenizer is None or tokenizer == "train":
        return []
    from consilience.recipes.initial_student import find_tokenizer

    try:
        find_tokenizer(tokenizer)
    except ConsilienceError as error:
        return [f"{key}.tokenizer: {error}"]
    return []


def _length_faults(key: str, options: Json, longest: int | None) -> list[str]:
    length = options.get("max_length")
    if length is None or (length >= _SHORTEST and (longest is None or length <= longest)):
        return []
    until = "" if longest is None else f" to {longest}, the start's positions"
    return [f"{key}.max_length: expected {_SHORTEST}{until or ' or more'}, got {length}"]


def _hidden(student: Json) -> int | None:
    """Return the width of the token states of a student that starts from random weights; None of a static one."""
    from consilience.students.presets import PRESETS

    if student["shape"] is not None:
        return int(student["shape"]["hidden"])
    config = PRESETS.get(student["preset"] or "mini")
    return None if config is None else config.hidden


def _faults_of_making(key: str, student: Json, options: Json, width: int | None) -> list[str]:
    """Make the start as a training will, at a target's width or at none in particular; return its fault, if any."""
    from consilience.recipes.initial_student import STATIC, StartOptions, start_student
    from consilience.recipes.warm_start import warm_start
    from consilience.students.presets import StudentConfig
    from consilience.students.static import load_table

    shape, init, table = student["shape"], options.get("init"), options.get("token_table")
    try:
        if width is None and init is not None:
            if student["preset"] == STATIC:
                load_table(init)
                return []
            _, _, config = warm_start(init, layers=options.get("layers"))
            width = config.hidden  # which any kind of head fits
        if options.get("tokenizer") == "train":  # its vocabulary comes from the corpus
            if table is not None:
                load_table(table)
            return []
        start = start_student(
            StartOptions(
                student=student["preset"] if shape is None else StudentConfig(**shape),
                init=init,
                layers=options.get("layers"),
                head=options.get("head") if width is not None else None,  # "none" fits one width only
                token_table=table,
                tokenizer=options.get("tokenizer"),
                vocab_size=1,
                dimensions=width or 8,
                seed=0,
            ),
            (),  # type: ignore[arg-type]  # only a tokenizer that is trained reads the texts
        )
    except ConsilienceError as error:
        return [f"{key}: {error}"]
    return _length_faults(key, options, start.max_positions)


def width_of_target(parts: Json, target: Json) -> int | None:
    """Return a target's width before it is made, or None where only its embeddings will tell.

    Args:
        parts: the study's tables, paths resolved.
        target: one of ``[[targets]]``.
    """
    teachers = {teacher["name"]: teacher for teacher in parts["teachers"]}
    if target["bank"] is not None:
        return _bank_width(Path(target["bank"]))
    if target["teacher"] is not None:
        return _teacher_width(teachers[target["teacher"]]) if target["teacher"] in teachers else None
    method = target["method"] or parts["align"]["method"]
    if method == "gpa":
        given = target["dimensions"] or parts["align"]["dimensions"]
        widths = [] if given else [_teacher_width(teacher) for teacher in teachers.values()]
        known = [width for width in widths if width is not None]
        return given or (max(known) if known and len(known) == len(widths) else None)
    reference = teachers.get(target["reference"] or parts["align"]["reference"])
    return None if reference is None else _teacher_width(reference)


def _bank_width(path: Path) -> int | None:
    from consilience.core.manifests import read_manifest

    try:
        return int(read_manifest(path, "bank")["dimensions"])
    except ConsilienceError:
        return None  # listed as a fault of its own


def _teacher_width(teacher: Json) -> int | None:
    backend, _, rest = teacher["spec"].partition(":")
    if backend == "bank":
        return _bank_width(Path(rest))
    if backend == "npy":
        return _array_width(Path(unquote(rest)))
    if backend in ("parquet", "http", "https"):
        return None
    try:
        return _model_width(teacher["spec"])
    except ConsilienceError:
        return None  # the teacher's own fault, listed with the teachers or when it's loaded


def _array_width(path: Path) -> int | None:
    import numpy as np

    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return int(rows.shape[1]) if rows.ndim == 2 else None


def _model_width(text: str) -> int | None:
    from consilience.teachers.packaged import find_packaged, packaged_files
    from consilience.teachers.registry import load_teacher
    from consilience.teachers.spec import parse_teacher_spec

    spec = parse_teacher_spec(text)
    backend, folder = spec.backend, Path(spec.name)
    if backend == "packaged":
        backend = find_packaged(spec.name).backend
        if backend == "st":
            folder = packaged_files(spec.name)["config.json"].parent
    if backend in ("onnx", "static", "vectors"):  # quick to open, without torch
        return load_teacher(text).dimensions
    return _declared_width(folder)


def _declared_width(folder: Path) -> int | None:
    """Return the width of a transformer's token states where nothing behind them changes it."""
    from consilience.core.files import read_json

    if not (folder / "config.json").is_file():
        return None
    modules = read_json(folder / "modules.json") if (folder / "modules.json").is_file() else []
    kinds: Sequence[str] = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
    if not set(kinds) <= {"Transformer", "Pooling", "Normalize"}:
        return None
    settings = read_json(folder / "config.json")
    found = settings.get("hidden_size", settings.get("dim"))
    return found if isinstance(found, int) else None
