"""Consensus: aligned banks in, the bank of their normalised centroid out, with its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import output_path, settle_artefact
from consilience.core.errors import ResumeError
from consilience.core.manifests import read_manifest
from consilience.core.placing import require_apart

if TYPE_CHECKING:
    from consilience.banks.reader import Bank
    from consilience.committee.frame_set import FrameSet


def consensus(
    banks: Sequence[str | Path | Bank],
    *,
    frames: str | Path | FrameSet,
    out: str | Path,
    weights: Mapping[str, float] | None = None,
    leave_out: Sequence[str] = (),
    dtype: Literal["fp16", "fp32"] = "fp16",
    overwrite: bool = False,
) -> Bank:
    """Write the consensus target of several teachers: per row, the normalised mean of their aligned embeddings.

    Killed at any moment, the same call continues and the finished bank has the same bytes.

    Args:
        banks: banks of one corpus, one a teacher that ``frames`` has a map of.
        frames: the frame set, or its folder.
        out: folder of the consensus bank.
        weights: by bank path, bank folder name or teacher name; 1 for those not named.
        leave_out: teachers that don't count (named likewise); they are still reported on.
        dtype: stored type.
        overwrite: replace what is there.

    Returns:
        The bank, in the frame of ``frames``; its manifest's ``extra`` has the members and the report.

    Raises:
        BankIntegrityError: a bank or the frame set is damaged.
        FrameMismatchError: banks of different corpora, or a teacher that wasn't aligned.
        InputError: a bank or selector isn't valid.
        ResumeError: ``out`` is another job's.

    Source: design, section 3.
    """
    from consilience.banks.reader import Bank, open_bank
    from consilience.committee.consensus_report import report_consensus
    from consilience.committee.frame_set import FrameSet, load_frames
    from consilience.committee.members import (
        check_members,
        member_labels,
        member_weights,
        require_known_teachers,
        verify_members,
    )
    from consilience.committee.targets import open_writer, stream_consensus

    folder = output_path(out, overwrite=overwrite)
    opened = [bank if isinstance(bank, Bank) else open_bank(bank) for bank in banks]
    frame_set = frames if isinstance(frames, FrameSet) else load_frames(frames)
    check_members(opened)
    require_known_teachers(opened, frame_set.maps, frames=frame_set.path, frame=frame_set.frame)
    shares = member_weights(opened, weights, leave_out)
    labels = member_labels(opened)
    teacher = {
        "backend": "consensus",
        "name": "consensus",
        "frame": frame_set.frame,
        "members": [
            {"teacher_id": bank.teacher_id, "weight": share} for bank, share in zip(opened, shares, strict=True)
        ],
    }
    reference = frame_set.manifest["reference"]
    extra: dict[str, Any] = {
        "frames_id": frame_set.id,
        # A GPA frame is nobody's: no student of it has absolute gauges before it is rotated.
        **({"without_axes": True} if reference is None else {"reference": reference["teacher"]}),
        "members": [
            {"label": label, "bank_id": bank.id, "teacher": bank.teacher, "weight": share}
            for bank, label, share in zip(opened, labels, shares, strict=True)
        ],
    }
    require_apart(folder, *(bank.path for bank in opened), frame_set.path)

    def is_result(manifest: Mapping[str, Any]) -> bool:
        found = manifest.get("extra") if manifest["kind"] == "bank" else None
        same_members = isinstance(found, dict) and {k: v for k, v in found.items() if k != "report"} == members
        return same_members and manifest["teacher"] == teacher and bool(manifest["dtype"] == dtype)

    members = dict(extra)
    if settle_artefact(folder, is_result, overwrite=overwrite):
        return open_bank(folder)
    if folder.exists() and not overwrite:
        if is_result(read_manifest(folder)):
            return open_bank(folder)
        raise ResumeError(
            f"{folder}: exists and isn't the result of this command. Choose another --out or pass --overwrite"
        )
    verify_members(opened)
    # The report is a function of fixed rows; an interrupted run of this job already has it.
    extra["report"] = _interrupted_report(folder, extra) or report_consensus(frame_set, opened, shares, labels)
    with open_writer(
        folder,
        opened,
        frame=frame_set.frame,
        dimensions=frame_set.dimensions,
        dtype=dtype,
        teacher=teacher,
        extra=extra,
        overwrite=overwrite,
    ) as writer:
        return stream_consensus(writer, opened, [frame_set.maps[bank.teacher_id] for bank in opened], shares)


def _interrupted_report(folder: Path, extra: dict[str, Any]) -> dict[str, Any] | None:
    from consilience.core.artefacts import read_plan
    from consilience.core.manifests import partial_path

    found = (read_plan(partial_path(folder)) or {}).get("extra")
    if not isinstance(found, dict) or {k: v for k, v in found.items() if k != "report"} != extra:
        return None
    report = found.get("report")
    return report if isinstance(report, dict) else None
