"""Frame law: several students' absolute gauges before and after their rotations into one frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.errors import InputError

if TYPE_CHECKING:
    from consilience.corpora.text import CorpusSpec

PAIRS = 2_500  # cited: design, section 6


def frame_law(
    students: Sequence[str | Path],
    *,
    into: str | Path,
    corpus: CorpusSpec | str | Path,
    pairs: int = PAIRS,
    held_out: int = PAIRS,
    column: str | None = None,
    where: Mapping[str, str] | None = None,
    limit: int | None = None,
    on_fault: Literal["refuse", "drop"] = "refuse",
    seed: int = 0,
    unrotated: bool = False,
) -> dict[str, Any]:
    """Rotate every student into one model's frame and report what that does to its absolute gauges.

    Args:
        students: folders of students, or of runs, whose students all count.
        into: the model that serves: anything that ``evaluate`` opens.
        corpus: texts, best ones that no student was trained on.
        pairs: texts that each rotation is fitted to.
        held_out: other texts that the gauges are read on.
        column: the corpus's text column.
        where: keep the corpus's rows with these values.
        limit: rows of the corpus.
        on_fault: what to do with faulty rows.
        seed: of the samples.
        unrotated: print the gauges of frame-free students before their rotation too, as a forensic.

    Returns:
        JSON: ``students`` (family, objective, target, seed, before, after, null) and ``across_seeds``.

    Raises:
        AlignmentRefusedError: fewer pairs than dimensions.
        InputError: no student, or one of the folders isn't one.

    Source: design, section 6.
    """
    from consilience.committee.consensus_report import rounded_json
    from consilience.committee.frame_law import across_seeds, measure_student, student_frame
    from consilience.committee.rotation import unit_pairs
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import open_corpus
    from consilience.frames.sampling import split_rows
    from consilience.gauges.variation import report_variation, require_variation
    from consilience.recipes.encoders import open_encoder
    from consilience.students.text import load_student
    from consilience.teachers.checked import encode_checked

    if not students:
        raise InputError("frames law: expected at least one student, got none. Name their folders")
    opened = [(str(path), load_student(path)) for given in students for path in _students_in(Path(given))]
    server = open_encoder(into)
    texts = open_corpus(corpus, column=column, where=dict(where or {}), limit=limit, on_fault=on_fault)
    split = split_rows(fingerprint_corpus(texts).rows, pairs, held_out, seed=seed)
    picked = texts.take([*split.fit.tolist(), *split.held_out.tolist()])
    fit_texts, held_texts = [[picked[row] for row in rows.tolist()] for rows in (split.fit, split.held_out)]
    target = encode_checked(server, fit_texts), encode_checked(server, held_texts)
    variation = report_variation(held_texts, target[1])
    require_variation(variation)  # before any retrieval number is quoted on them
    rows = []
    for name, student in opened:
        names = (name, str(into))
        rows.append(
            measure_student(
                name,
                student_frame(student.manifest),
                fit=unit_pairs(encode_checked(student, fit_texts), target[0], names=names),
                held_out=unit_pairs(encode_checked(student, held_texts), target[1], names=names),
            )
        )
    result: dict[str, Any] = rounded_json(
        {
            "into": server.name,
            "rows": {"fit": len(fit_texts), "held_out": len(held_texts)},
            "variation": variation.to_json(),
            "students": [row.to_json(unrotated=unrotated) for row in rows],
            "across_seeds": across_seeds(rows),
        }
    )
    return result


def _students_in(folder: Path) -> list[Path]:
    """Return a run's finished students, or the folder itself, which should be one."""
    return sorted(path.parent for path in folder.glob("distill-*/manifest.json")) or [folder]
