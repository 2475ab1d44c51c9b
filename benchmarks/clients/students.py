"""The students of the client table: real layers and vocabulary of all-MiniLM-L6-v2 under every head, and a static one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.committee.rotation import Rotation, save_rotation
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.exporters.folder import export_student
from consilience.exporters.parity import PROBE
from consilience.recipes.warm_start import warm_start
from consilience.students.static import StaticStudent
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
    Kind("mlp", "mlp"),
    Kind("none, rotated", "none", rotated=True),
    Kind("linear, rotated", "linear", rotated=True),
    Kind("mlp, rotated", "mlp", rotated=True),
    Kind("static", "static"),
)


def make_exports(folder: Path) -> dict[str, tuple[Path, NDArray[np.float32]]]:
    """Store one student of each kind, export it with an int8 file, and return its folder and its own vectors."""
    made = {}
    for kind in KINDS:
        place = folder / kind.label.replace(", ", "-")
        student = _store(kind, place / "student")
        rotation = _rotation(student, place / "rotation") if kind.rotated else None
        out, title = place / "export", f"head {kind.label}"
        export_student(student, out, rotation=rotation, teachers={}, quantize="int8", title=title)
        vectors = student.encode(list(PROBE))
        made[kind.label] = (out, vectors if rotation is None else rotation.apply(vectors))
    return made


def _store(kind: Kind, out: Path) -> StudentEncoder:
    if out.exists():
        return load_student(out)
    static = kind.head == "static"
    head: Any = "none" if static else kind.head
    dimensions = 384 if head == "none" else 256
    module, tokenizer, config = warm_start(
        "packaged:all-MiniLM-L6-v2", layers=(0, 2, 5), head=head, dimensions=dimensions, max_length=LIMIT, seed=1
    )
    shape: dict[str, Any] = config.to_json()
    student: Any = module
    if static:
        student = StaticStudent(module.backbone.embeddings.word_embeddings.weight.detach().clone())
        shape = {"architecture": "static"}
    out.parent.mkdir(parents=True, exist_ok=True)
    work, _ = begin_artefact(out, {"kind": kind.label})
    files = save_student_files(student, tokenizer, work, max_length=LIMIT)
    manifest = {"dimensions": dimensions, "max_length": LIMIT, "frame": _FRAME, "config": shape}
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
