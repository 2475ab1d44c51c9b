"""A rotation from one frame into another: fitted on pairs, judged on others, stored, checked when it is loaded.

The consensus frame is nobody's; what serves lives in another. One orthogonal matrix carries a student, an exported
model or a bank there, and changes no cosine between its own vectors.

Source: design, section 6; Schoenemann 1966.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.committee.map_scoring import score_map
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import AlignmentRefusedError, BankIntegrityError, FrameMismatchError
from consilience.core.files import atomic_write
from consilience.core.manifests import partial_path, verify_artefact
from consilience.frames.align import AffineMap
from consilience.frames.fit_report import FitReport
from consilience.frames.procrustes import fit_rotation
from consilience.frames.rows import normalise_rows
from consilience.frames.statistics import CrossStatistics
from consilience.gauges.agreement import paired_cosine
from consilience.gauges.neighbours import recall_at_k

ROTATION_FILE = "rotation.safetensors"
TENSOR = "rotation"
# fp16 rounds each entry by 2^-11 of itself, which moves an entry of Q'Q by far less than this.
ORTHOGONALITY_TOLERANCE = 2e-3
# A rotation of d dimensions isn't determined by fewer pairs; the map would be free in the rest.
PAIRS_PER_DIMENSION = 1.0


@dataclass(frozen=True)
class RotationReport:
    """What a rotation changes on pairs that it wasn't fitted to.

    Attributes:
        fit: the map's report: cosine and R@1 in and out of sample, retention, null, verdict.
        before: cosine and R@1 of the rows as they were, or None when the widths differ.
        recall_at_10: share of held-out rows with their own among the ten nearest, after.
        null: cosine and R@1 of a rotation that was fitted to shuffled pairs.
    """

    fit: FitReport
    before: dict[str, float] | None
    recall_at_10: float
    null: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        m = self.fit.measurements
        return {
            "before": self.before,
            "after": {
                "cosine": m.out_of_sample_cosine,
                "recall_at_1": m.out_of_sample_recall,
                "recall_at_10": self.recall_at_10,
            },
            "null": self.null,
            "retention": self.fit.measurements.retention,
            "gallery": m.gallery,
            "fit": self.fit.to_json(),
            "verdict": self.fit.verdict,
            "reasons": list(self.fit.reasons),
        }


@dataclass(frozen=True)
class Rotation:
    """A stored rotation.

    Attributes:
        path: its folder.
        manifest: JSON: ``source``, ``target`` (label, frame, dimensions), ``rows``, ``report``.
        matrix: (d_from, d_to), float32 values that fp16 holds, orthogonal to the tolerance.
    """

    path: Path
    manifest: dict[str, Any]
    matrix: NDArray[np.float32]

    @property
    def id(self) -> str:
        """Content hash."""
        return str(self.manifest["id"])

    @property
    def source_frame(self) -> str:
        """Frame that it leads out of."""
        return str(self.manifest["source"]["frame"])

    @property
    def target_frame(self) -> str:
        """Frame that it leads into."""
        return str(self.manifest["target"]["frame"])

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.float32]:
        """Rotate rows and L2-normalise them.

        Args:
            rows: (n, d_from).

        Raises:
            ShapeError: another width.
            InputError: a row is zero or not finite.
        """
        return AffineMap(self.matrix, np.zeros(self.matrix.shape[1], dtype=np.float32)).apply(rows)


def solve_rotation(source: NDArray[np.floating], target: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the rotation of paired unit rows, in fp64.

    Args:
        source: (n, d_from), L2-normalised.
        target: (n, d_to), L2-normalised.

    Raises:
        AlignmentRefusedError: fewer pairs than dimensions, or unrelated rows.
    """
    width = max(source.shape[1], target.shape[1])
    if len(source) < PAIRS_PER_DIMENSION * width:
        raise AlignmentRefusedError(
            f"rotate: need at least {width} pairs for {width} dimensions, got {len(source)}. Give more pairs (--pairs)"
        )
    return fit_rotation(_statistics(source, target))


def judge_rotation(
    matrix: NDArray[np.floating],
    *,
    fit: tuple[NDArray[np.floating], NDArray[np.floating]],
    held_out: tuple[NDArray[np.floating], NDArray[np.floating]],
    seed: int = 0,
) -> RotationReport:
    """Measure a rotation on held-out pairs, before and after, beside the null of shuffled pairs.

    Args:
        matrix: the rotation as it is stored.
        fit: unit rows of source and target that it was fitted to.
        held_out: unit rows of source and target that it wasn't.
        seed: of the shuffled pairs.

    Raises:
        ShapeError: fewer than ten held-out rows.
    """
    source, target = (np.asarray(rows, dtype=np.float32) for rows in held_out)
    affine = _as_map(matrix)
    count = min(len(fit[0]), len(source))
    report = score_map(
        affine,
        _statistics(*fit),
        fit=(fit[0][:count], fit[1][:count]),
        held_out=(source, target),
        method="rotation",
    )
    mapped = affine.apply(source)
    order = np.random.default_rng(seed).permutation(len(fit[0]))
    shuffled = _as_map(solve_rotation(fit[0], fit[1][order])).apply(source)
    return RotationReport(
        fit=report,
        before=_pair_gauges(source, target) if source.shape[1] == target.shape[1] else None,
        recall_at_10=recall_at_k(mapped, target, k=min(10, len(target))),
        null={key: value for key, value in _pair_gauges(shuffled, target).items() if key != "recall_at_10"},
    )


def refuse_at_null(report: RotationReport, *, source: str, target: str) -> None:
    """Refuse a rotation that is no better than chance.

    Raises:
        AlignmentRefusedError: its report says refused.
    """
    if report.fit.verdict == "refused":
        raise AlignmentRefusedError(
            f"rotate: the rotation of {source} into {target} is refused: {', '.join(report.fit.reasons)}. Check "
            "that both "
            "sides embed the same rows (prompt, pooling, order), use more pairs, or pass --force to keep it"
        )


def save_rotation(
    out: Path, *, job: dict[str, Any], manifest: dict[str, Any], matrix: NDArray[np.floating], overwrite: bool = False
) -> Rotation:
    """Write a rotation in fp16: complete or absent. 512 x 512 take half a megabyte.

    Args:
        out: final folder.
        job: what identifies the fit.
        manifest: source, target, rows, report.
        matrix: (d_from, d_to).
        overwrite: replace what is there.

    Raises:
        ResumeError: ``out`` exists.
        StorageError: the file system refused.
    """
    from safetensors.numpy import save

    begin_artefact(out, job, overwrite=overwrite)
    with atomic_write(partial_path(out) / ROTATION_FILE) as stream:
        stream.write(save({TENSOR: np.ascontiguousarray(matrix, dtype=np.float16)}))
    finish_artefact(out, kind="rotation", manifest={**manifest, "job": job}, files=[ROTATION_FILE])
    return load_rotation(out)


def load_rotation(path: str | Path) -> Rotation:
    """Open a rotation, check its bytes and that it is orthogonal.

    Args:
        path: its folder.

    Raises:
        InputError: it isn't a rotation.
        BankIntegrityError: it was changed, or its matrix isn't orthogonal.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(path)
    manifest = verify_artefact(folder, "rotation")
    try:
        tensors = load((folder / ROTATION_FILE).read_bytes())
    except SafetensorError as error:
        raise BankIntegrityError(
            f"{folder / ROTATION_FILE}: isn't a safetensors file. Fit the rotation again"
        ) from error
    shape = (manifest["source"]["dimensions"], manifest["target"]["dimensions"])
    if TENSOR not in tensors or tensors[TENSOR].shape != shape:
        raise BankIntegrityError(f"{folder / ROTATION_FILE}: holds no rotation of shape {shape}. Fit it again")
    matrix = tensors[TENSOR].astype(np.float32)
    require_orthogonal(matrix, where=str(folder / ROTATION_FILE))
    return Rotation(folder, manifest, matrix)


def require_orthogonal(matrix: NDArray[np.floating], *, where: str) -> None:
    """Refuse a matrix whose shorter side isn't orthonormal.

    Raises:
        BankIntegrityError: the largest entry of Q'Q - I exceeds the tolerance.

    Example:
        >>> require_orthogonal(np.eye(3), where="here")
    """
    q = np.asarray(matrix, dtype=np.float64)
    gram = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
    error = float(np.abs(gram - np.eye(len(gram))).max())
    if not error <= ORTHOGONALITY_TOLERANCE:  # also catches NaN
        raise BankIntegrityError(
            f"{where}: expected an orthogonal matrix, the largest entry of Q'Q - I is {error:.2e} (at most "
            f"{ORTHOGONALITY_TOLERANCE:.0e}). It isn't a rotation: fit it again with `consilience rotate`"
        )


def require_frame(rotation: Rotation, frame: str | None, *, what: str) -> None:
    """Refuse to rotate vectors of another frame than the rotation was fitted for.

    Raises:
        FrameMismatchError: names both frames.
    """
    if frame != rotation.source_frame:
        raise FrameMismatchError(
            f"{rotation.path} rotates frame {rotation.source_frame} ({rotation.manifest['source']['label']}), and "
            f"{what} is "
            f"in frame {frame}. Fit a rotation for it: consilience rotate {what} --into TARGET --out ROTATION"
        )


def _statistics(source: NDArray[np.floating], target: NDArray[np.floating]) -> CrossStatistics:
    stats = CrossStatistics(source.shape[1], target.shape[1])
    stats.update(source, target)
    return stats


def _as_map(matrix: NDArray[np.floating]) -> AffineMap:
    return AffineMap(matrix, np.zeros(matrix.shape[1]))


def _pair_gauges(source: NDArray[np.float32], target: NDArray[np.float32]) -> dict[str, float]:
    return {
        "cosine": float(paired_cosine(source, target).mean()),
        "recall_at_1": recall_at_k(source, target, k=1),
        "recall_at_10": recall_at_k(source, target, k=min(10, len(target))),
    }


def unit_pairs(
    source: NDArray[np.floating], target: NDArray[np.floating], *, names: tuple[str, str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """L2-normalise both sides in fp64.

    Raises:
        InputError: a row is zero or not finite; the message names the side.
    """
    return (
        normalise_rows(np.asarray(source, dtype=np.float64), where=names[0]),
        normalise_rows(np.asarray(target, dtype=np.float64), where=names[1]),
    )
