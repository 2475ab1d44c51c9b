"""Align: several teachers' banks in, one map a teacher into one frame out: the reference's or, by GPA, their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import is_finished
from consilience.core.errors import AlignmentRefusedError, InputError
from consilience.core.locks import one_job
from consilience.core.placing import require_apart

if TYPE_CHECKING:
    from consilience.banks.reader import Bank
    from consilience.committee.frame_set import FrameSet
    from consilience.frames.align import AffineMap
    from consilience.frames.fit_report import FitReport
    from consilience.frames.sampling import RowSplit
    from consilience.frames.statistics import CrossStatistics

    BankLike = str | Path | Bank

GPA = "gpa"
GPA_FRAME = "the towers' own frame"


@one_job
def align(
    banks: Sequence[BankLike],
    *,
    reference: BankLike | None = None,
    method: str = "whitened",
    fit_rows: int = 24_000,
    held_out_rows: int = 5_000,
    shrinkage: float | Literal["ledoit-wolf", "gcv"] = 1e-3,
    rank: int | None = None,
    dimensions: int | None = None,
    seed: int = 0,
    force: bool = False,
    out: str | Path,
    overwrite: bool = False,
) -> FrameSet:
    """Fit a map of every teacher into one frame, and refuse those that are no better than chance.

    Args:
        banks: banks of one corpus, one a teacher.
        reference: whose frame it will be: a bank's path, or a teacher's name among the banks; None for "gpa".
        method: "whitened", "orthogonal", "orthogonal-scaled", "isotropic", "ridge" or "low-rank" into the reference's
            frame; "gpa" into a frame that no teacher owns.
        fit_rows: rows that the maps are fitted to; fewer are used when the corpus is smaller.
        held_out_rows: disjoint rows that they are judged on.
        shrinkage: lambda as a multiple of the mean eigenvalue, "ledoit-wolf", or "gcv" (ridge and low-rank).
        rank: of a low-rank map; None keeps 99% of the fitted variance.
        dimensions: width of a GPA frame; the widest bank's when None.
        seed: of the row samples.
        force: keep refused maps; the report still calls them refused.
        out: folder of the frame set.
        overwrite: replace what is there.

    Returns:
        The frame set; the one that exists when ``out`` is exactly this job, finished.

    Raises:
        AlignmentRefusedError: a map is at its null, or there are too few rows to fit one.
        FrameMismatchError: the banks are of different corpora.
        InputError: a bank, the reference or an option isn't valid.
        ResumeError: ``out`` is something else.

    Source: design, section 2.
    """
    from consilience.banks.reader import Bank, open_bank
    from consilience.committee.frame_set import load_frames, save_frames
    from consilience.committee.members import check_members, find_member, member_labels, verify_members
    from consilience.frames.align import check_method, fit_map, identity_map, require_rows
    from consilience.frames.identity import frame_id
    from consilience.frames.sampling import split_rows
    from consilience.frames.whitening import check_shrinkage

    if method != GPA:
        check_method(method)
    check_shrinkage(shrinkage)
    _check_options(method, reference, rank, dimensions)
    opened = [bank if isinstance(bank, Bank) else open_bank(bank) for bank in banks]
    selector = reference.path if isinstance(reference, Bank) else reference
    opened = opened if selector is None else _with_reference(opened, selector)
    check_members(opened)
    if len(opened) < 2:
        raise InputError(f"align: expected at least two banks, got {len(opened)}. Name every teacher's bank")
    anchor = None if selector is None else opened[find_member(opened, selector, what="reference")]
    job = {
        "banks": [bank.id for bank in opened],
        "reference": None if anchor is None else anchor.id,
        "method": method,
        "fit_rows": fit_rows,
        "held_out_rows": held_out_rows,
        "shrinkage": shrinkage,
        "seed": seed,
        "force": force,
        **({} if rank is None else {"rank": rank}),
        **({} if dimensions is None else {"dimensions": dimensions}),
    }
    folder = Path(out)
    require_apart(folder, *(bank.path for bank in opened))
    if is_finished(folder, kind="frames", job=job, overwrite=overwrite):
        return load_frames(folder)

    split = split_rows(opened[0].rows, fit_rows, held_out_rows, seed=seed)
    if not force:
        require_rows(len(split.fit), max(bank.dimensions for bank in opened), where="align")
    verify_members(opened)
    labels = dict(zip((bank.teacher_id for bank in opened), member_labels(opened), strict=True))
    maps: dict[str, AffineMap] = {}
    reports: dict[str, FitReport] = {}
    shared: dict[str, Any] | None = None
    if anchor is None:
        from consilience.committee.shared_frame import fit_shared_frame

        fit, judged, shared = fit_shared_frame(opened, split, dimensions=dimensions)
        for bank, affine, report in zip(opened, fit.maps, judged, strict=True):
            maps[bank.teacher_id], reports[bank.teacher_id] = affine, report
    else:
        maps[anchor.teacher_id] = identity_map(anchor.dimensions)
        solve = partial(fit_map, method=method, shrinkage=shrinkage, rank=rank, force=force)
        for bank in opened:
            if bank is not anchor:
                maps[bank.teacher_id], reports[bank.teacher_id] = _fit(bank, anchor, split, method, solve)
    into = GPA_FRAME if anchor is None else labels[anchor.teacher_id]
    if not force:
        _refuse_at_null({labels[teacher]: report for teacher, report in reports.items()}, into)

    from consilience.committee.consensus_report import rounded_json

    frame = frame_id(
        reference_teacher=GPA if anchor is None else anchor.teacher_id,
        corpus_fingerprint=opened[0].corpus_fingerprint,
        fit_rows=split.fit,
        method=method,
        shrinkage=shrinkage,
        maps=maps,
    )
    manifest: dict[str, Any] = {
        "frame": frame,
        "dimensions": maps[opened[0].teacher_id].d_y,
        "method": method,
        "shrinkage": shrinkage,
        "corpus": opened[0].manifest["corpus"],
        "rows": {"fit": len(split.fit), "held_out": len(split.held_out)},
        "reference": None
        if anchor is None
        else {
            "bank_id": anchor.id,
            "teacher_id": anchor.teacher_id,
            "teacher": anchor.teacher,
            "label": labels[anchor.teacher_id],
        },
        "teachers": {
            bank.teacher_id: {
                "label": labels[bank.teacher_id],
                "teacher": bank.teacher,
                "bank_id": bank.id,
                "dimensions": bank.dimensions,
                "report": rounded_json(reports[bank.teacher_id].to_json()) if bank.teacher_id in reports else None,
            }
            for bank in opened
        },
    }
    if shared is not None:
        manifest["gpa"] = rounded_json(shared)
    return save_frames(folder, job=job, manifest=manifest, maps=maps, overwrite=overwrite)


def _check_options(method: str, reference: object, rank: int | None, dimensions: int | None) -> None:
    """Refuse options that the method doesn't have."""
    if (method == GPA) == (reference is not None):
        wanted = "no --reference: its frame is nobody's" if method == GPA else "--reference, whose frame it will be"
        raise InputError(f"align: --method {method} needs {wanted}")
    if rank is not None and method != "low-rank":
        raise InputError(f"align: --rank is an option of --method low-rank, got --method {method}. Leave it out")
    if dimensions is not None and method != GPA:
        raise InputError(f"align: --dimensions is an option of --method gpa, got --method {method}. Leave it out")


def _with_reference(banks: list[Bank], reference: str | Path) -> list[Bank]:
    """Return the banks, and the reference's behind them when it is a path that isn't among them."""
    from consilience.banks.reader import open_bank

    path = Path(reference)
    if not (path / "manifest.json").is_file():
        return banks
    if any(bank.path.resolve() == path.resolve() for bank in banks):
        return banks
    return [*banks, open_bank(path)]


def _fit(
    bank: Bank,
    anchor: Bank,
    split: RowSplit,
    method: str,
    solve: Callable[[CrossStatistics], AffineMap],
) -> tuple[AffineMap, FitReport]:
    """Stream the fit rows into statistics, solve, and score on the held-out rows."""
    from consilience.committee.fit_rows import gather_statistics, shown_fit_rows, unit_rows
    from consilience.committee.map_scoring import score_map

    stats = gather_statistics([bank, anchor], split.fit, what=f"align {bank.path.name}").pair(0, 1)
    affine = solve(stats)
    shown = shown_fit_rows(split)
    report = score_map(
        affine,
        stats,
        fit=(unit_rows(bank, shown), unit_rows(anchor, shown)),
        held_out=(unit_rows(bank, split.held_out), unit_rows(anchor, split.held_out)),
        method=method,
    )
    return affine, report


def _refuse_at_null(reports: dict[str, FitReport], reference: str) -> None:
    refused = {label: report for label, report in reports.items() if report.verdict == "refused"}
    if refused:
        listed = "; ".join(f"{label}: {', '.join(report.reasons)}" for label, report in refused.items())
        raise AlignmentRefusedError(
            f"align: {len(refused)} of {len(reports)} maps into {reference} refused: {listed}. Check the teacher "
            "(prompt, pooling), use more fit rows, leave it out, or pass --force to keep it"
        )
