"""The measuring stage of a run: task scores of the student and its teachers, and everybody's spectrum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.files import write_json
from consilience.core.manifests import TIMING
from consilience.core.seeds import rng_from_name
from consilience.recipes.recipe_checks import EXISTING, has_sts_data, sts_folder

if TYPE_CHECKING:
    from consilience.core.encoder import Encoder
    from consilience.recipes.recipe_file import Recipe, TeacherPart

SPECTRUM_ROWS = 2_000  # assumed: enough that a rank of a few hundred is not limited by the sample


def tasks_to_run(recipe: Recipe) -> list[str]:
    """Return the recipe's tasks, without those whose data isn't here if the recipe allows that."""
    part = recipe.evaluate
    if part.missing_data == "refuse" or has_sts_data(part.data):
        return list(part.tasks)
    return [task for task in part.tasks if task == "grammar"]


def sts_content(recipe: Recipe) -> str:
    """Return a hash of the STS files that the recipe reads."""
    from consilience.core.hashing import content_id, file_sha256

    folder = sts_folder(recipe.evaluate.data)
    files = sorted(folder.glob("*.tsv")) if folder is not None else []
    return content_id([[file.name, file_sha256(file)] for file in files])


def measure_run(
    recipe: Recipe,
    texts: Mapping[str, Any],
    *,
    student: Path,
    static: Path | None,
    target: Path,
    banks: Mapping[str, Path],
    out: Path,
    plan: dict[str, Any],
) -> None:
    """Write the evaluation artefact: ``evaluation.json`` and ``spectra.json``.

    Args:
        recipe: the recipe.
        texts: the corpus arguments that the verbs share.
        student: the finished student's folder.
        static: the static student's of the same teachers.
        target: the consensus'.
        banks: the banks' by teacher name.
        out: the artefact's folder.
        plan: what identifies this measurement.
    """
    from consilience.recipes.encoders import open_encoder
    from consilience.recipes.evaluate import evaluate

    work, _ = begin_artefact(out, plan)
    encoder = open_encoder(student)
    models: list[tuple[str, Any]] = [("student", encoder)]
    if static is not None:
        models.append(("static", open_encoder(static)))
    if recipe.evaluate.compare:
        teachers = embedding_teachers(recipe.teachers)
        models += [(teacher.name, teacher_spec(teacher.model_dump())) for teacher in teachers]
    found = evaluate(
        [model for _, model in models], tasks=tasks_to_run(recipe), data=recipe.evaluate.data, seed=recipe.seed
    ).to_json()
    found = _renamed(found, [name for name, _ in models])
    # What isn't the same twice stands outside the manifest, and so outside the ids of this artefact and the export.
    speeds = {model["model"]: model.pop("sentences_per_second") for model in found["models"]}
    write_json(work / TIMING, {"sentences_per_second": speeds, "speed_sample": found.pop("speed_sample")})
    write_json(work / "evaluation.json", found)
    write_json(work / "spectra.json", _spectra(recipe, texts, encoder, target, banks))
    finish_artefact(out, kind="evaluation", manifest=plan, files=["evaluation.json", "spectra.json"])


def embedding_teachers(teachers: Sequence[TeacherPart]) -> list[TeacherPart]:
    """Return the teachers that can embed a task's sentences: stored vectors can't."""
    return [teacher for teacher in teachers if teacher.spec.partition(":")[0] not in EXISTING]


def teacher_spec(teacher: Mapping[str, Any]) -> str:
    """Return the spec string of a recipe's teacher with its prompt and length inside."""
    from consilience.teachers.spec import parse_teacher_spec

    options = {key: teacher[key] for key in ("prompt", "max_length") if teacher[key] is not None}
    return parse_teacher_spec(teacher["spec"], **options).canonical()


def _renamed(found: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Call the models what the recipe calls them, so that the artefact names no local folders."""
    labels = {model["model"]: name for model, name in zip(found["models"], names, strict=True)}
    for model, name in zip(found["models"], names, strict=True):
        model["model"] = name
    for comparison in found["comparisons"]:
        comparison["first"], comparison["second"] = labels[comparison["first"]], labels[comparison["second"]]
    return found


def _spectra(
    recipe: Recipe,
    texts: Mapping[str, Any],
    student: Encoder,
    target: Path,
    banks: Mapping[str, Path],
) -> dict[str, Any]:
    """Eigenvalues of the centred covariance of unit rows, of the same corpus rows for every model."""
    from consilience.banks.reader import open_bank
    from consilience.corpora.text import CorpusSpec, open_corpus

    sources = {**banks, "consensus": target}
    opened = {name: open_bank(folder) for name, folder in sources.items()}
    total = opened["consensus"].rows
    rng = rng_from_name(f"{recipe.name}/spectrum", recipe.seed)
    rows = np.sort(rng.choice(total, size=min(SPECTRUM_ROWS, total), replace=False))
    spectra = {name: _eigenvalues(np.asarray(bank[rows], dtype=np.float64)) for name, bank in opened.items()}
    corpus = open_corpus(CorpusSpec(**{("path" if key == "corpus" else key): value for key, value in texts.items()}))
    sample = corpus.take(rows.tolist())
    vectors = student.encode([sample[row] for row in rows.tolist()])
    spectra["student"] = _eigenvalues(np.asarray(vectors, dtype=np.float64))
    return {"rows": len(rows), "eigenvalues": spectra}


def _eigenvalues(vectors: NDArray[np.float64]) -> list[float]:
    """Return the covariance's eigenvalues of normalised rows, largest first, as shares of their sum.

    Args:
        vectors: (n, d), not necessarily normalised; zero rows are left out.
    """
    from consilience.gauges.effective_rank import spectrum

    norms = np.linalg.norm(vectors, axis=1)
    return [round(float(share), 9) for share in spectrum(vectors[norms > 0] / norms[norms > 0, None])]
