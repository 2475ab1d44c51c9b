"""The whole job from one recipe: corpus, banks, frames, consensus, student, evaluation, export, report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.files import atomic_write, read_json, write_json
from consilience.core.locks import one_job
from consilience.core.progress import log
from consilience.recipes.staged_folder import StagedResult, begin_staged, recorded_command, require_staged_folder

if TYPE_CHECKING:
    from consilience.recipes.recipe_file import Recipe, TeacherPart
    from consilience.recipes.stages import StageResult, Stages


class RunResult(StagedResult):
    """What a run did and where it is."""

    @property
    def model(self) -> Path | None:
        """The exported model's folder, or None for a dry run that didn't find one."""
        folders = {stage.name: stage.folder for stage in self.stages if stage.manifest is not None}
        return folders.get("export")


@one_job
def run(
    recipe: str | Path,
    *,
    set: Sequence[str] = (),
    out: str | Path | None = None,
    dry_run: bool = False,
) -> RunResult:
    """Run a recipe; every stage whose output is already there is skipped, an interrupted one continues.

    Args:
        recipe: the TOML file (docs/recipes.md lists its keys).
        set: ``key.path=value`` strings that override it, e.g. ``train.minutes=5``.
        out: the run's folder; ``runs/<recipe name>`` when None.
        dry_run: only find out which stages would run.

    Returns:
        The stages, and the results as they are in ``results.json``.

    Raises:
        RecipeError: the recipe has faults; all are listed and nothing was started.
        ResumeError: ``out`` is another artefact's folder.
        ConsilienceError: a stage refused its input; finished stages are kept.
    """
    from consilience.recipes.recipe_file import load_recipe
    from consilience.recipes.stages import Stages

    checked = load_recipe(recipe, settings=set)
    folder = Path(out) if out is not None else Path("runs") / checked.name
    require_staged_folder(folder, "run")
    stages = Stages(folder, dry_run=dry_run)
    if not dry_run:
        begin_staged(folder, "run")
    command = recorded_command("run", recipe, set)
    made = _run_stages(checked, stages, command)
    if dry_run:
        return RunResult(folder, stages.results, {})
    from consilience.recipes.run_report import collect_results, write_report

    results = collect_results(checked, made, stages.results, command=command)
    write_report(folder, results)
    if results["verdict"] is not None:
        log(f"{folder}: {results['verdict']['said']}")
    return RunResult(folder, stages.results, results)


@dataclass(frozen=True)
class MadeStages:
    """The stages' results by their role."""

    corpus: StageResult
    banks: Mapping[str, StageResult]
    frames: StageResult
    consensus: StageResult
    static: StageResult | None
    student: StageResult
    evaluation: StageResult
    export: StageResult


def _run_stages(recipe: Recipe, stages: Stages, command: str) -> MadeStages:
    from consilience.recipes.align import align
    from consilience.recipes.consensus import consensus
    from consilience.recipes.distill import distill
    from consilience.recipes.export import export
    from consilience.recipes.measure import measure_run
    from consilience.students.presets import StudentConfig

    corpus = corpus_stage(recipe, stages)
    banks = {teacher.name: _embed_stage(recipe, teacher, corpus, stages) for teacher in recipe.teachers}
    bank_ids = [bank.id for bank in banks.values()]

    part = recipe.align.model_dump(exclude={"reference"}, exclude_none=True)
    reference = banks.get(recipe.align.reference)  # a gpa frame has none
    frames = stages.stage(
        "align",
        _when(
            *banks.values(),
            banks=bank_ids,
            reference=None if reference is None else reference.id,
            seed=recipe.seed,
            **part,
        ),
        lambda out: align(
            [bank.path for bank in banks.values()],
            reference=None if reference is None else reference.path,
            seed=recipe.seed,
            out=out,
            **part,
        ),
    )

    target = stages.stage(
        "consensus",
        _when(frames, frames=frames.id, banks=bank_ids, **recipe.consensus.model_dump()),
        lambda out: consensus(
            [bank.path for bank in banks.values()],
            frames=frames.path,
            weights={str(banks[name].path): weight for name, weight in recipe.consensus.weights.items()},
            leave_out=[str(banks[name].path) for name in recipe.consensus.leave_out],
            out=out,
        ),
    )

    train = recipe.train.model_dump(exclude_none=True)
    options = recipe.student.model_dump(exclude_none=True, exclude={"preset", "shape"})
    shape = None if recipe.student.shape is None else StudentConfig(**recipe.student.shape.model_dump())
    student = stages.stage(
        "distill",
        _when(
            target,
            target=target.id,
            seed=recipe.seed,
            student=student_content(recipe),
            train={key: value for key, value in train.items() if key != "checkpoint_seconds"},  # changes no byte
        ),
        lambda out: distill(
            **corpus_options(recipe, corpus),
            target=target.path,
            student=shape or recipe.student.preset,
            seed=recipe.seed,
            teachers=[teacher.spec for teacher in _reference_first(recipe)],
            out=out,
            **options,
            **train,
        ),
    )

    static = _static_stage(recipe, stages)
    plan = _evaluation_inputs(recipe, student, target, {name: bank.id for name, bank in banks.items()}, static)
    evaluation = stages.stage(
        "evaluate",
        _when(student, **plan),
        lambda out: measure_run(
            recipe,
            corpus_options(recipe, corpus),
            student=student.path,
            static=None if static is None else static.path,
            target=target.path,
            banks={name: bank.path for name, bank in banks.items()},
            out=out,
            plan=plan,
        ),
    )

    part = recipe.export.model_dump(exclude_none=True)
    exported = stages.stage(
        "export",
        _when(evaluation, student=student.id, evaluation=evaluation.id, command=command, **part),
        lambda out: export(
            student.path,
            out=out,
            **part,
            results=read_json(evaluation.path / "evaluation.json"),
            command=command,
            title=recipe.name,
        ),
    )
    return MadeStages(corpus, banks, frames, target, static, student, evaluation, exported)


def _reference_first(recipe: Recipe) -> list[TeacherPart]:
    return sorted(recipe.teachers, key=lambda teacher: teacher.name != recipe.align.reference)


def _static_stage(recipe: Recipe, stages: Stages) -> StageResult | None:
    """Make the static student of the same teachers, which costs minutes and no training: what a student has to beat."""
    from consilience.recipes.measure import embedding_teachers, teacher_spec
    from consilience.recipes.static import static

    teachers = embedding_teachers(_reference_first(recipe))
    if not recipe.evaluate.compare or not teachers:
        return None
    options = [teacher.model_dump(include={"prompt", "max_length"}) for teacher in teachers]
    inputs = {"teachers": [teacher_content(teacher) for teacher in teachers], "options": options, "seed": recipe.seed}
    specs = [teacher_spec(teacher.model_dump()) for teacher in teachers]
    # A map of tokens at its null makes a worse baseline, and is no reason to end a run.
    return stages.stage("static", inputs, lambda out: static(specs, force=True, seed=recipe.seed, out=out))


def _embed_stage(recipe: Recipe, teacher: TeacherPart, corpus: StageResult, stages: Stages) -> StageResult:
    from consilience.recipes.embed import embed

    options = teacher.model_dump(include={"prompt", "max_length", "dtype"})
    return stages.stage(
        f"embed-{teacher.name}",
        _when(corpus, corpus=stage_fingerprint(corpus), teacher=teacher_content(teacher), **options),
        lambda out: embed(**corpus_options(recipe, corpus), teacher=teacher.spec, out=out, **options),
    )


def _when(*upstream: StageResult, **inputs: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON values
    """Return the inputs, or None when an upstream artefact doesn't exist yet (in a dry run)."""
    return None if any(stage.manifest is None for stage in upstream) else inputs


def stage_fingerprint(corpus: StageResult) -> str | None:
    """Return the fingerprint of a corpus stage's rows, or None where they don't exist yet (in a dry run)."""
    return None if corpus.manifest is None else corpus.manifest["corpus"]["fingerprint"]


def teacher_content(teacher: TeacherPart) -> dict[str, Any]:
    """Return what a teacher is: its spec, and the content of the local files that the spec names."""
    from consilience.recipes.stages import path_content

    backend, _, rest = teacher.spec.partition(":")
    name, *options = re.split(r"(?=[?#])", rest, maxsplit=1)
    if "//" not in teacher.spec and Path(name).exists():
        return {"backend": backend, "options": options, "content": path_content(Path(name))}
    return {"spec": teacher.spec}


def student_content(recipe: Recipe) -> dict[str, Any]:
    """Return what a student is: its part of the recipe, local files by their content."""
    from consilience.recipes.stages import path_content

    # Keys that came later are left out where they aren't set, so that older runs stay done.
    first = ("preset", "shape", "tokenizer", "max_length")
    part = {key: value for key, value in recipe.student.model_dump().items() if key in first or value is not None}
    local = {key: part.get(key) for key in ("tokenizer", "init", "token_table")}
    return part | {key: path_content(Path(path)) for key, path in local.items() if path and Path(path).exists()}


def corpus_stage(recipe: Recipe, stages: Stages) -> StageResult:
    """Fingerprint and report the corpus; a grammar corpus is written first."""
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import CorpusSpec, open_corpus
    from consilience.recipes.initial_student import DEFAULT_TOKENIZER

    options = recipe.corpus.model_dump(exclude={"grammar"})
    if recipe.corpus.grammar is not None:
        inputs: dict[str, Any] = {"grammar": recipe.corpus.grammar, "seed": recipe.seed}
        if recipe.corpus.limit is not None:
            inputs["limit"] = recipe.corpus.limit
    else:
        # The text's path is no part of its identity: the same rows elsewhere are the same corpus.
        inputs = {"corpus": fingerprint_corpus(open_corpus(CorpusSpec(**options))).to_json()}
    inputs["tokenizer"] = student_content(recipe)["tokenizer"] or DEFAULT_TOKENIZER
    return stages.stage("corpus", inputs, lambda out: _make_corpus(recipe, inputs, out))


def _make_corpus(recipe: Recipe, plan: dict[str, Any], out: Path) -> None:
    from consilience.corpora.caption_grammar import generate_captions
    from consilience.corpora.corpus_report import report_corpus
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import CorpusSpec, open_corpus
    from consilience.recipes.corpus import token_counter
    from consilience.recipes.initial_student import DEFAULT_TOKENIZER

    work, _ = begin_artefact(out, plan)
    files = ["report.json"]
    if recipe.corpus.grammar is not None:
        with atomic_write(work / "captions.txt", "w") as stream:
            stream.writelines(f"{text}\n" for text in generate_captions(recipe.corpus.grammar, seed=recipe.seed))
        files.append("captions.txt")
        corpus = open_corpus(CorpusSpec(path=str(work / "captions.txt"), limit=recipe.corpus.limit))
    else:
        corpus = open_corpus(CorpusSpec(**recipe.corpus.model_dump(exclude={"grammar"})))
    identity = fingerprint_corpus(corpus).to_json()
    # A tokenizer that is trained on the corpus doesn't exist yet, and a hub's isn't fetched for a count.
    tokenizer = recipe.student.tokenizer or DEFAULT_TOKENIZER
    known = tokenizer.startswith("packaged:") or Path(tokenizer).exists()
    report = report_corpus(corpus, token_counter(tokenizer) if known else None).to_json()
    write_json(work / "report.json", {**report, "path": Path(report["path"]).name})
    finish_artefact(out, kind="corpus", manifest={"corpus": identity, "source": _source(recipe)}, files=files)


def _source(recipe: Recipe) -> dict[str, Any]:
    corpus = recipe.corpus
    if corpus.grammar is not None:
        return {"grammar": corpus.grammar, "seed": recipe.seed}
    return {"file": Path(str(corpus.path)).name, "column": corpus.column, "where": corpus.where, "limit": corpus.limit}


def corpus_options(recipe: Recipe, corpus: StageResult) -> dict[str, Any]:
    """Return the arguments by which the verbs read the run's corpus.

    Args:
        recipe: the recipe.
        corpus: the finished corpus stage.
    """
    options = recipe.corpus.model_dump(exclude={"grammar", "path"})
    path = recipe.corpus.path if recipe.corpus.grammar is None else str(corpus.path / "captions.txt")
    return {"corpus": path, **options}


def _evaluation_inputs(
    recipe: Recipe,
    student: StageResult,
    target: StageResult,
    bank_ids: Mapping[str, str | None],
    static: StageResult | None,
) -> dict[str, Any]:
    from consilience.recipes.measure import sts_content, tasks_to_run

    tasks = tasks_to_run(recipe)
    return {
        "student": student.id,
        "target": target.id,
        "banks": dict(bank_ids),
        "tasks": tasks,
        "data": sts_content(recipe) if tasks != ["grammar"] else None,
        "seed": recipe.seed,
        "compare": recipe.evaluate.compare,
        **({} if static is None else {"static": static.key}),
    }
