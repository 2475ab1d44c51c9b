"""What a training starts from: a teacher's layers, random weights, a student, a static table; and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.progress import log

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from consilience.corpora.text import Corpus
    from consilience.students.presets import HeadKind, StudentConfig
    from consilience.students.static import StaticStudent
    from consilience.students.text import TextStudent

DEFAULT_TOKENIZER = "packaged:all-MiniLM-L6-v2"  # bert-base-uncased's WordPiece, 30,522 tokens
STATIC = "static"
# Of trained layers; one seed (docs/log.md): 5e-4 and the composite end at the same STS-B dev. The batch is assumed.
WARM_LR, WARM_BATCH_ROWS, WARM_OBJECTIVE = 2e-4, 64, "mimicry"
STATIC_LR = 1e-4  # assumed: gradient steps overfit a fitted table soon


@dataclass(frozen=True)
class StartOptions:
    """How a person describes the start.

    Attributes:
        student: a preset or a shape, whose weights are random; "static"; or None: what ``init`` brings.
        init: a teacher spec, a model's folder or a student's, whose weights are the start; None, without ``student``,
            for the first of ``teachers`` that has layers.
        layers: blocks of ``init`` that are kept; when None all, or of a teacher the most influential ones.
        head: "mlp", "linear" or "none"; the shape's when None.
        token_table: a static student whose table becomes the token table.
        tokenizer: as in :func:`consilience.recipes.distill.distill`.
        vocab_size: of a trained tokenizer.
        dimensions: width of the embedding.
        seed: of random weights.
        teachers: specs of the target's, the one to start from first, and whether the target is in their frame.
    """

    student: str | StudentConfig | None
    init: str | Path | None
    layers: Sequence[int] | None
    head: HeadKind | None
    token_table: str | Path | None
    tokenizer: str | Path | None
    vocab_size: int
    dimensions: int
    seed: int
    teachers: Sequence[tuple[str, bool]] = ()


@dataclass(frozen=True)
class InitialStudent:
    """A student before its training.

    Attributes:
        module: its weights.
        tokenizer: its tokenizer.
        name: the preset's name, "custom", "static", or "warm".
        config: its shape, as the manifest keeps it.
        batch_rows: rows of a batch unless the person says otherwise.
        max_length: tokens of a text unless the person says otherwise.
        max_positions: the longest text it can read at all; None without a limit.
        origin: what the start depends on beside the shape, for the job's plan; empty for random weights.
        taught_by: whose weights they were, for the manifest: identities with ``backend`` and ``name``, or a student's
            own target; what a card lists and whose licences count.
        fits_head: a new linear head on trained layers, which is to be set to the least-squares map onto the targets.
        fits_table: a table that is to be fitted to the targets in closed form before any step.
        lr: peak learning rate unless the person says otherwise.
        objective: unless the person says otherwise.
        operations: share of the operations a token of the model that it was cut from; None where there's no such model.
    """

    module: TextStudent | StaticStudent
    tokenizer: Tokenizer
    name: str
    config: Mapping[str, Any]
    batch_rows: int
    max_length: int
    max_positions: int | None
    origin: Mapping[str, Any]
    taught_by: Mapping[str, Any] = field(default_factory=dict)
    fits_head: bool = False
    fits_table: bool = False
    lr: float = 6e-4
    objective: str = "composite"
    operations: float | None = None


def start_student(options: StartOptions, texts: Corpus) -> InitialStudent:
    """Make the student that a training starts from; the same options, the same weights.

    Args:
        options: what to start from.
        texts: the corpus, which a tokenizer may be trained on.

    Raises:
        InputError: options that exclude each other, or a source that can't be a start.
    """
    if options.student == STATIC:
        return _static(options, texts)
    if options.init is not None:
        return _warm(options)
    if options.student is None:
        return _default(options, texts)
    return _random(options, texts)


def _default(options: StartOptions, texts: Corpus) -> InitialStudent:
    """Start from a teacher's layers, or from a table where there are none to be had."""
    from consilience.recipes.default_start import DefaultStart, find_default_start

    if options.tokenizer is not None:
        raise InputError(
            "distill: --tokenizer is for random weights: a teacher's layers bring their own. Name their shape with "
            "--student, or leave --tokenizer out"
        )
    found = find_default_start(options.teachers, texts, layers=options.layers)
    if isinstance(found, DefaultStart):
        kept = ", ".join(map(str, found.layers))
        log(
            f"distill: starts from {len(found.layers)} of {found.depth} layers of {found.source} ({kept}), the most "
            "influential ones on this corpus; --student mini starts from random weights instead"
        )
        head = options.head or (None if found.in_frame else "linear")
        start = _warm(replace(options, init=found.source, layers=found.layers, head=head))
        return replace(start, operations=len(found.layers) / found.depth)
    log(
        f"distill: no teacher's layers to start from ({found}): a static table, fitted to the target and then trained; "
        "--init names layers to start from, --student mini random ones"
    )
    start = _static(replace(options, student=STATIC), texts)
    return replace(start, fits_table=True, lr=STATIC_LR, objective="mimicry")


def _random(options: StartOptions, texts: Corpus) -> InitialStudent:
    from consilience.students.presets import resolve_config
    from consilience.students.text import build_student
    from consilience.students.tokenizer import pad_id

    if options.layers is not None:
        raise InputError(
            "distill: --layers picks a trained model's layers, and --student starts from random ones. Leave one out"
        )
    name, config = resolve_config(options.student or "mini")
    config = config.for_width(options.dimensions)
    if options.head is not None and options.head != config.head:
        name, config = "custom", replace(config, head=options.head)
    words = read_tokenizer(options.tokenizer or DEFAULT_TOKENIZER, texts, options.vocab_size)
    module = build_student(
        config if name == "custom" else name,
        vocab_size=words.get_vocab_size(),
        dimensions=options.dimensions,
        seed=options.seed,
        pad=pad_id(words),
    )
    origin = _set_table(module, words, options)
    return InitialStudent(
        module,
        words,
        name,
        config.to_json(),
        config.batch_rows,
        config.max_length,
        config.max_positions,
        origin,
        _taught_by(token_table=options.token_table),
    )


def _warm(options: StartOptions) -> InitialStudent:
    from consilience.recipes.warm_start import warm_start

    if options.student is not None:
        raise InputError(
            f"distill: --student {options.student} and --init exclude each other: the start brings its shape. "
            "Leave one out"
        )
    if options.tokenizer is not None:
        raise InputError("distill: --tokenizer and --init exclude each other: the start brings its own. Leave one out")
    source = options.init or ""
    module, words, config = warm_start(
        source,
        layers=options.layers,
        dimensions=options.dimensions,
        head=options.head or _usual_head(source, options.dimensions),
        seed=options.seed,
    )
    origin = {"init": weights_id(module), **_set_table(module, words, options)}
    return InitialStudent(
        module,
        words,
        "warm",
        config.to_json(),
        WARM_BATCH_ROWS,
        config.max_length,
        config.max_positions,
        origin,
        _taught_by(init=source, token_table=options.token_table),
        fits_head=config.head == "linear" and not _is_student(source),
        lr=WARM_LR,
        objective=WARM_OBJECTIVE,
    )


def _usual_head(source: str | Path, dimensions: int) -> HeadKind:
    """Return a student's own kind of head; for a foreign model none where the widths agree, which keeps its vectors."""
    from consilience.core.files import read_json
    from consilience.core.manifests import MANIFEST
    from consilience.recipes.warm_start import locate_start

    folder = locate_start(source)
    if _is_student(folder):
        kind: HeadKind = read_json(folder / MANIFEST).get("config", {}).get("head", "mlp")
        return kind
    settings = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    return "none" if dimensions in (settings.get("hidden_size"), settings.get("dim")) else "linear"


def _is_student(source: str | Path) -> bool:
    """Return whether a start is a folder of ours with a student in it; an exported folder is a foreign model."""
    from consilience.core.manifests import MANIFEST
    from consilience.recipes.warm_start import start_folder

    folder = start_folder(source)
    return folder is not None and (folder / MANIFEST).is_file() and not (folder / "modules.json").is_file()


def _static(options: StartOptions, texts: Corpus) -> InitialStudent:
    unfit = {"--layers": options.layers, "--head": options.head, "--token-table": options.token_table}
    given = [name for name, value in unfit.items() if value is not None]
    if given:
        raise InputError(f"distill: a static student has no {' and '.join(given)}. Leave it out")
    if options.init is not None and options.tokenizer is not None:
        raise InputError("distill: --tokenizer and --init exclude each other: the start brings its own. Leave one out")
    from consilience.core.manifests import read_manifest
    from consilience.students.static import StaticStudent, build_static, load_table, plain_tokenizer

    length = 512  # assumed: a table has no limit of its own
    if options.init is None:
        words = plain_tokenizer(read_tokenizer(options.tokenizer or DEFAULT_TOKENIZER, texts, options.vocab_size))
        module, origin = build_static(words.get_vocab_size(), options.dimensions, seed=options.seed), {}
    else:
        table, words = load_table(options.init)
        if table.shape[1] != options.dimensions:
            raise InputError(
                f"{options.init}: a static student of {table.shape[1]} dimensions, the target has "
                f"{options.dimensions}. Make one in the target's frame: consilience static --axes reference"
            )
        module = StaticStudent(table)
        origin = {"init": weights_id(module)}
        length = int(read_manifest(Path(options.init), "student")["max_length"])
    config = {"architecture": STATIC, "vocab_size": words.get_vocab_size(), "dimensions": options.dimensions}
    return InitialStudent(module, words, STATIC, config, 256, length, None, origin, _taught_by(init=options.init))


def _taught_by(**sources: str | Path | None) -> dict[str, Any]:
    """Return who taught the weights that a start brings, by the option that named them."""
    return {name: _identity(source) for name, source in sources.items() if source is not None}


def _identity(source: str | Path) -> dict[str, Any]:
    """Return a foreign model's backend and name, or of a student of ours its id and its own teachers."""
    from consilience.core.manifests import MANIFEST, read_manifest
    from consilience.recipes.warm_start import locate_start, start_folder
    from consilience.teachers.packaged import find_packaged
    from consilience.teachers.spec import parse_teacher_spec

    folder = start_folder(source)
    if folder is not None and _is_student(source):
        manifest = read_manifest(folder, "student")
        return {"student": manifest["id"], "target": manifest["target"], "start": manifest.get("start", {})}
    if folder is not None and (folder / MANIFEST).is_file():  # an export of ours: its student's teachers taught it
        manifest = read_manifest(folder, "export")
        return {"student": manifest["student"], "teachers": [_named(teacher) for teacher in manifest["teachers"]]}
    if folder is not None and folder.is_dir():
        return {"backend": "st", "name": folder.name}
    spec = parse_teacher_spec(str(source) if ":" in str(source) else f"packaged:{source}")
    if spec.backend == "packaged":
        return {"backend": "packaged", "name": find_packaged(spec.name).name}
    return {"backend": spec.backend, "name": locate_start(source).name}


def _named(teacher: str) -> dict[str, str]:
    """Return a teacher's identity from how a card names it: backend:name, or an HTTP model's name alone.

    Example:
        >>> _named("packaged:all-MiniLM-L6-v2"), _named("text-model")
        ({'backend': 'packaged', 'name': 'all-MiniLM-L6-v2'}, {'backend': 'http', 'name': 'text-model'})
    """
    backend, _, name = teacher.partition(":")
    if not name or name.startswith("//"):
        return {"backend": "http", "name": teacher}
    return {"backend": backend, "name": name}


def _set_table(module: TextStudent, words: Tokenizer, options: StartOptions) -> dict[str, Any]:
    """Replace the token table by a static student's, and return what that depends on."""
    if options.token_table is None:
        return {}
    from consilience.students.initialise import set_token_table
    from consilience.students.static import load_table

    table, theirs = load_table(options.token_table)
    set_token_table(module, table, theirs, words)
    return {"token_table": weights_id(module)}


def weights_id(module: nn.Module) -> str:
    """Return a hash over a module's weights: what a start is, wherever it was read from."""
    import hashlib

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_tokenizer(source: str | Path, texts: Corpus, vocab_size: int) -> Tokenizer:
    """Load a tokenizer, from the packaged teachers' files too, or train it on the corpus.

    Args:
        source: a tokenizer.json, its folder, "packaged:NAME", a hub name, or "train".
        texts: what "train" reads.
        vocab_size: of a trained one.

    Raises:
        InputError: there is none.
    """
    from consilience.students.tokenizer import train_tokenizer

    return train_tokenizer(texts, vocab_size=vocab_size) if source == "train" else find_tokenizer(source)


def find_tokenizer(source: str | Path) -> Tokenizer:
    """Load a tokenizer, from the packaged teachers' files too.

    Args:
        source: a tokenizer.json, its folder, "packaged:NAME", or a hub name.

    Raises:
        InputError: there is none.
    """
    from consilience.students.tokenizer import load_tokenizer

    if not str(source).startswith("packaged:"):
        return load_tokenizer(source)
    from consilience.teachers.packaged import packaged_files

    files = packaged_files(str(source).removeprefix("packaged:"))
    found = files.get("tokenizer.json") or files.get("tokenizer")
    if found is None:
        raise InputError(f"{source}: has no tokenizer.json. Choose another tokenizer")
    return load_tokenizer(found)
