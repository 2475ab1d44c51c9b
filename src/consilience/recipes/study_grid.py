"""The stages of a study: banks, targets, what is measured on, and one training and one measurement a cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import ConsilienceError, InputError
from consilience.core.manifests import MANIFEST, read_manifest
from consilience.core.progress import log
from consilience.recipes.stages import StageResult, path_content, stage_key
from consilience.recipes.study_cells import Cell, MadeCell, MadeStudy, grid_cells
from consilience.recipes.study_starts import needs_width, options_content, width_faults

if TYPE_CHECKING:
    from consilience.core.encoder import Encoder
    from consilience.recipes.recipe_file import CorpusPart, TeacherPart
    from consilience.recipes.study_file import Study, TargetPart
    from consilience.recipes.study_measure import Bench
    from consilience.recipes.study_stages import SharedStages

Json = dict[str, Any]


class StudyGrid:
    """One study at work; a class because its stages share what is opened once.

    Args:
        study: what to do.
        stages: where, and whether only to look.
    """

    def __init__(self, study: Study, stages: SharedStages) -> None:
        from consilience.recipes.run import corpus_options, corpus_stage, stage_fingerprint

        self.study, self.stages = study, stages
        self.base = study.base()
        self.corpus = corpus_stage(self.base, stages)
        self.fingerprint = stage_fingerprint(self.corpus)
        self.texts = {} if self.corpus.folder is None else corpus_options(self.base, self.corpus)

    def run(self) -> MadeStudy:
        """Run all stages, cell by cell."""
        banks = {teacher.name: self._bank(teacher) for teacher in self.study.teachers}
        cells = grid_cells(self.study)
        wanted = {cell.target for cell in cells}
        targets = {part.name: self._target(part, banks) for part in self.study.targets if part.name in wanted}
        facts = {name: self._facts(name, target) for name, target in targets.items()}
        self._require_widths(cells, targets)
        law, retrieval = self._law(), self._retrieval()
        self._require_pairs(law, targets)
        plan, bench = self._bench_plan(law, retrieval), self._bench(law, retrieval)
        # Of a teacher no rotation is fitted, so its measurement doesn't depend on the law.
        compared = self.study.teachers if self.study.evaluate.compare else []
        teachers = self._teachers(compared, {**plan, "law": None, "unrotated": False}, retrieval, bench)
        made = []
        for number, cell in enumerate(cells, 1):
            if not self.stages.dry_run:
                log(f"cell {number} of {len(cells)}: {cell.condition}, seed {cell.seed}")
            try:
                student = self._train(cell, targets[cell.target])
                made.append(self._measured(cell, student, (law, retrieval), plan, bench))
            except ConsilienceError as error:
                error.args = (f"cell {cell.condition}, seed {cell.seed}: {error}",)
                raise
        return MadeStudy(self.corpus, banks, targets, facts, law, retrieval, made, teachers)

    def _bank(self, teacher: TeacherPart) -> StageResult:
        from consilience.recipes.embed import embed
        from consilience.recipes.run import teacher_content

        backend, _, path = teacher.spec.partition(":")
        if backend == "bank":
            return self._existing_bank(f"embed-{teacher.name}", Path(path))
        options = teacher.model_dump(include={"prompt", "max_length", "dtype"})
        return self.stages.stage(
            f"embed-{teacher.name}",
            _when(self.corpus, corpus=self.fingerprint, teacher=teacher_content(teacher), **options),
            lambda out: embed(**self.texts, teacher=teacher.spec, out=out, **options),
        )

    def _existing_bank(self, name: str, path: Path) -> StageResult:
        manifest = read_manifest(path, "bank")
        found = manifest["corpus"]["fingerprint"]
        if self.fingerprint is not None and found != self.fingerprint:
            raise InputError(
                f"{path}: a bank of corpus {found[:12]}..., the study's is {self.fingerprint[:12]}.... Name a bank of "
                "the same rows"
            )
        return self.stages.found(name, None, path, manifest)

    def _target(self, part: TargetPart, banks: Mapping[str, StageResult]) -> StageResult:
        """Return a target's bank. Inputs are those of ``run``, so that both find each other's consensus."""
        from consilience.recipes.align import align
        from consilience.recipes.consensus import consensus

        if part.teacher is not None:
            return banks[part.teacher]
        if part.bank is not None:
            return self._existing_bank(f"bank-{part.name}", Path(part.bank))
        method = self.study.align_of(part)
        options = method.model_dump(exclude={"reference"}, exclude_none=True)
        reference = banks.get(method.reference)  # a gpa frame has none
        members = list(banks.values())
        ids, seed = [bank.id for bank in members], self.study.seed
        frames = self.stages.stage(
            "align",
            _when(*members, banks=ids, reference=None if reference is None else reference.id, seed=seed, **options),
            lambda out: align(
                [bank.path for bank in members],
                reference=None if reference is None else reference.path,
                seed=seed,
                out=out,
                **options,
            ),
        )
        return self.stages.stage(
            "consensus",
            _when(frames, frames=frames.id, banks=ids, weights=part.weights, leave_out=part.leave_out),
            lambda out: consensus(
                [bank.path for bank in members],
                frames=frames.path,
                weights={str(banks[name].path): weight for name, weight in part.weights.items()},
                leave_out=[str(banks[name].path) for name in part.leave_out],
                out=out,
            ),
        )

    def _facts(self, name: str, target: StageResult) -> StageResult:
        from consilience.recipes.study_measure import describe_target

        plan = {"target": target.id}
        return self.stages.stage(
            f"target-{name}", _when(target, **plan), lambda out: describe_target(target.path, out=out, plan=plan)
        )

    def _known(self) -> frozenset[str]:
        """Return every text that students are trained on."""
        from consilience.corpora.text import CorpusSpec, open_corpus

        options = {("path" if key == "corpus" else key): value for key, value in self.texts.items()}
        return frozenset(open_corpus(CorpusSpec(**options)))

    def _law(self) -> StageResult | None:
        from consilience.recipes.recipe_file import TeacherPart
        from consilience.recipes.run import teacher_content
        from consilience.recipes.study_measure import make_law_target

        law, seed = self.study.law, self.study.seed
        if law is None:
            return None
        teacher = self._teacher(law.into)
        if teacher is not None:
            into: Any = {**teacher_content(teacher), **teacher.model_dump(include={"prompt", "max_length"})}
        elif Path(law.into).exists():
            into = path_content(Path(law.into))
        else:
            found = teacher_content(TeacherPart(spec=law.into)) if ":" in law.into else {}
            into = found if "content" in found else law.into
        plan = {
            "into": into,
            "texts": _texts_content(law.corpus),
            "trained_on": self.fingerprint,
            "pairs": law.pairs,
            "held_out": law.held_out,
            "seed": seed,
        }
        return self.stages.stage(
            "law",
            _when(self.corpus, **plan),
            lambda out: make_law_target(self._open(law.into), law, self._known(), seed=seed, out=out, plan=plan),
        )

    def _retrieval(self) -> StageResult | None:
        from consilience.recipes.study_measure import make_retrieval

        part, seed = self.study.retrieval, self.study.seed
        if part is None:
            return None
        plan = {
            "texts": _texts_content(part.corpus),
            "groups": _texts_content(part.corpus.model_copy(update={"column": part.group})),
            "trained_on": self.fingerprint,
            "queries": part.queries,
            "seed": seed,
        }
        return self.stages.stage(
            "retrieval",
            _when(self.corpus, **plan),
            lambda out: make_retrieval(part, self._known(), seed=seed, out=out, plan=plan),
        )

    def _teacher(self, name: str) -> TeacherPart | None:
        return next((teacher for teacher in self.study.teachers if teacher.name == name), None)

    def _open(self, model: str) -> Encoder:
        """Open a teacher of the study by its name, or any model."""
        from consilience.recipes.encoders import open_encoder
        from consilience.recipes.measure import teacher_spec

        teacher = self._teacher(model)
        return open_encoder(model if teacher is None else teacher_spec(teacher.model_dump()))

    def _require_pairs(self, law: StageResult | None, targets: Mapping[str, StageResult]) -> None:
        """Refuse a law with fewer pairs than dimensions before any training is spent."""
        if law is None or law.manifest is None:
            return
        pairs = int(law.manifest["facts"]["rows"]["fit"])
        for name, target in targets.items():
            if target.manifest is not None and target.manifest["dimensions"] > pairs:
                raise InputError(
                    f"law: need at least {target.manifest['dimensions']} pairs, the dimensions of target {name}, got "
                    f"{pairs}. Raise law.pairs or give more texts in [law.corpus]"
                )

    def _require_widths(self, cells: Sequence[Cell], targets: Mapping[str, StageResult]) -> None:
        """Refuse students that don't fit a target, whose width is known by now, before any training is spent."""
        faults = []
        for i, part in enumerate(self.study.students):
            options, size = self.study.options_of(part), part.model_dump(include={"preset", "shape"})
            if not needs_width(options):
                continue
            own = dict.fromkeys(cell.target for cell in cells if cell.student == part.name)
            made = {name: targets[name].manifest for name in own}
            widths = {name: int(manifest["dimensions"]) for name, manifest in made.items() if manifest is not None}
            faults += width_faults(f"students[{i}]", size, options, widths)
        if faults:
            raise InputError(f"study {self.study.name}: {'; '.join(faults)}")

    def _bench(self, law: StageResult | None, retrieval: StageResult | None) -> Bench | None:
        """Load what students are measured on; None in a dry run."""
        from consilience.evaluation.geometry import geometry_sample
        from consilience.evaluation.grammar_task import grammar_task
        from consilience.recipes.evaluate import load_tasks
        from consilience.recipes.measure import tasks_to_run
        from consilience.recipes.study_measure import Bench

        if self.stages.dry_run:
            return None
        tasks, selection = load_tasks(tasks_to_run(self.base), self.study.evaluate.data)
        return Bench(
            tasks=tasks,
            selection=selection,
            sample=geometry_sample(selection, grammar_task()),
            seed=self.study.seed,
            resamples=self.study.evaluate.resamples,
            law=None if law is None else law.path,
            retrieval=None if retrieval is None else retrieval.path,
            unrotated=self.study.law is not None and self.study.law.unrotated,
        )

    def _bench_plan(self, law: StageResult | None, retrieval: StageResult | None) -> Json:
        """Return what identifies the bench."""
        from consilience.recipes.measure import sts_content, tasks_to_run

        tasks = tasks_to_run(self.base)
        return {
            "tasks": tasks,
            "data": sts_content(self.base) if tasks != ["grammar"] else None,
            "seed": self.study.seed,
            "resamples": self.study.evaluate.resamples,
            "law": None if law is None else law.id,
            "retrieval": None if retrieval is None else retrieval.id,
            "unrotated": self.study.law is not None and self.study.law.unrotated,
        }

    def _teachers(
        self, teachers: Sequence[TeacherPart], plan: Json, retrieval: StageResult | None, bench: Bench | None
    ) -> dict[str, StageResult]:
        """Measure teachers on the same bench: what the students are compared with."""
        from consilience.recipes.recipe_checks import EXISTING
        from consilience.recipes.run import teacher_content

        found = {}
        for teacher in teachers:
            if teacher.spec.partition(":")[0] in EXISTING:
                continue  # stored vectors can't embed a task's sentences
            options = teacher.model_dump(include={"prompt", "max_length"})
            inputs = {**plan, "teacher": teacher_content(teacher), **options}
            needed = [] if retrieval is None else [retrieval]
            found[teacher.name] = self.stages.stage(
                f"measure-teacher-{teacher.name}",
                _when(*needed, **inputs),
                partial(_measure, partial(self._open, teacher.name), None, bench, inputs),
            )
        return found

    def _measured(
        self,
        cell: Cell,
        student: StageResult,
        upstream: Sequence[StageResult | None],
        plan: Json,
        bench: Bench | None,
    ) -> MadeCell:
        from consilience.students.text import load_student

        made = MadeCell(cell, student, None)
        if made.failed:
            return made
        inputs = {**plan, "student": student.id}
        measures = self.stages.stage(
            f"measure-{cell.slug}",
            _when(student, *(stage for stage in upstream if stage is not None), **inputs),
            partial(_measure, lambda: load_student(student.path), student.manifest, bench, inputs),
        )
        return MadeCell(cell, student, measures)

    def _train(self, cell: Cell, target: StageResult) -> StageResult:
        """Train a cell's student, or find out that its training fails."""
        from consilience.recipes.distill import distill
        from consilience.recipes.study_measure import write_failure
        from consilience.students.presets import StudentConfig
        from consilience.training.loop import DivergedError

        part = next(part for part in self.study.students if part.name == cell.student)
        options = self.study.options_of(part)
        shape = None if part.shape is None else StudentConfig(**part.shape.model_dump())
        inputs = {
            "target": target.id,
            "seed": cell.seed,
            "objective": cell.objective,
            "student": part.preset if part.shape is None else part.shape.model_dump(),
            "options": options_content(options),
        }
        name, failure = f"distill-{cell.slug}", f"failed-{cell.slug}"
        given = _when(target, **inputs)

        def fail(error: ConsilienceError) -> StageResult:
            folder = self.stages.out / f"{name}-{stage_key(name, inputs)}"
            plan = {"job": inputs}
            return self.stages.stage(failure, given, lambda out: write_failure(error, folder, out=out, plan=plan))

        if given is not None and (self.stages.out / f"{failure}-{stage_key(failure, given)}" / MANIFEST).is_file():
            return fail(DivergedError("known"))  # the same training would fail in the same way
        try:
            return self.stages.stage(
                name,
                given,
                lambda out: distill(
                    **self.texts,
                    target=target.path,
                    student=shape or part.preset,
                    objective=cell.objective,
                    seed=cell.seed,
                    out=out,
                    **options,
                ),
            )
        except DivergedError as error:
            log(f"failed: {error}")
            return fail(error)


def _measure(
    open_model: Callable[[], Encoder], manifest: Mapping[str, Any] | None, bench: Bench | None, plan: Json, out: Path
) -> None:
    """Measure a model that is opened now."""
    from consilience.recipes.study_measure import measure_encoder

    if bench is None:
        raise ValueError("nothing is measured in a dry run")
    measure_encoder(open_model(), bench, out=out, plan=plan, student=manifest)


def _texts_content(part: CorpusPart) -> Json:
    """Return what identifies the texts of a corpus table."""
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import CorpusSpec, open_corpus

    if part.grammar is not None:
        return {"grammar": part.grammar}
    return fingerprint_corpus(open_corpus(CorpusSpec(**part.model_dump(exclude={"grammar"})))).to_json()


def _when(*upstream: StageResult, **inputs: Any) -> Json | None:  # noqa: ANN401 - JSON values
    """Return the inputs, or None when an upstream artefact doesn't exist yet (in a dry run)."""
    return None if any(stage.manifest is None for stage in upstream) else inputs
