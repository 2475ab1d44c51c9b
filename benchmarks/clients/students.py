"""The students of the client table: real layers and tokens of all-MiniLM-L6-v2 under every head, and a static one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience import exporters
from consilience.committee.rotation import Rotation, save_rotation
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.exporters.folder import export_student
from consilience.exporters.parity import PROBE
from consilience.exporters.static_folder import StaticParts, static_parts
from consilience.exporters.student_parts import StudentParts, student_parts
from consilience.recipes.static import static
from consilience.recipes.warm_start import warm_start
from consilience.students.text import StudentEncoder, load_student, save_student_files

LIMIT = 64
_FRAME = "student:own"


@dataclass(frozen=True)
class Kind:
    """One column of the table: how the student ends, and whether a rotation follows."""

    label: str
    head: str
    rotated: bool = False


KINDS = (
    Kind("none", "none"),
    Kind("linear", "linear"),
    Kind("linear, rotated", "linear", rotated=True),
    Kind("mlp", "mlp"),
    Kind("static", "static"),
)
TEXTS = PROBE


@dataclass(frozen=True)
class Made:
    """An export and what made it: its folder, what was exported, the student's own vectors."""

    folder: Path
    parts: StudentParts | StaticParts
    vectors: NDArray[np.float32]


def make_exports(folder: Path) -> dict[str, Made]:
    """Store one student of each kind and export it with an int8 file."""
    made = {}
    for kind in KINDS:
        place = folder / kind.label.replace(", ", "-")
        student = _store(kind, place / "student")
        rotation = _rotation(student, place / "rotation") if kind.rotated else None
        matrix = None if rotation is None else rotation.matrix
        out, title = place / f"export-{_code()}", f"head {kind.label}"
        export_student(student, out, rotation=rotation, teachers={}, quantize="int8", title=title)
        vectors = student.encode(list(TEXTS))
        parts = static_parts(student, matrix) if kind.head == "static" else student_parts(student, matrix)
        made[kind.label] = Made(out, parts, vectors if rotation is None else rotation.apply(vectors))
    return made


def _code() -> str:
    """Name the exporters' code, so that a kept export is of the code at hand."""
    sources = sorted(Path(exporters.__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def beyond_limit(made: Made) -> NDArray[np.bool_]:
    """Say which texts are longer than the students' limit."""
    tokenizer = type(made.parts.tokenizer).from_str(made.parts.tokenizer.to_str())
    tokenizer.no_truncation()
    return np.array([len(encoding.ids) > LIMIT for encoding in tokenizer.encode_batch(list(TEXTS))])


def _store(kind: Kind, out: Path) -> StudentEncoder:
    if out.exists():
        return load_student(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if kind.head == "static":
        return static("packaged:wordllama", out=out, max_length=LIMIT)
    head: Any = kind.head
    dimensions = 384 if head == "none" else 256
    student, tokenizer, config = warm_start(
        "packaged:all-MiniLM-L6-v2", layers=(0, 2, 5), head=head, dimensions=dimensions, max_length=LIMIT, seed=1
    )
    work, _ = begin_artefact(out, {"kind": kind.label})
    files = save_student_files(student, tokenizer, work, max_length=LIMIT)
    manifest = {"dimensions": dimensions, "max_length": LIMIT, "frame": _FRAME, "config": config.to_json()}
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return load_student(out)


def _rotation(student: StudentEncoder, out: Path) -> Rotation:
    """A random rotation: the table asks whether clients apply it, not whether it was fitted well."""
    width = student.dimensions
    matrix = np.linalg.qr(np.random.default_rng(3).standard_normal((width, width)))[0]
    side = {"label": "own", "id": "own", "frame": _FRAME, "dimensions": width}
    manifest = {
        "source": side,
        "target": {**side, "label": "served", "frame": "teacher:served"},
        "rows": {"fit": 0, "held_out": 0},
        "report": {"after": {"cosine": 1.0, "recall_at_1": 1.0, "recall_at_10": 1.0}, "gallery": 1},
    }
    return save_rotation(out, job={"kind": "random"}, manifest=manifest, matrix=matrix, overwrite=True)
