"""Agreement: cosine of paired embeddings in one frame, labelled with whose frame it is (design, section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ShapeError
from consilience.gauges.isotropy import unit_rows

FrameLabel = Literal["own", "deployment"]


@dataclass(frozen=True)
class AgreementGauge:
    """Distribution of the cosine between paired rows.

    Attributes:
        mean: mean cosine.
        p01: 1st percentile: the rows that agree least.
        p50: median.
        frame: whose frame the cosine was read in.
    """

    mean: float
    p01: float
    p50: float
    frame: FrameLabel

    def to_json(self) -> dict[str, Any]:
        """Return the numbers and the label."""
        return asdict(self)


def paired_cosine(x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the cosine of row i of x with row i of y.

    Args:
        x: rows (n, d); normalised here.
        y: rows (n, d).

    Raises:
        ShapeError: shapes differ.

    Example:
        >>> paired_cosine(np.array([[1.0, 0.0]]), np.array([[3.0, 4.0]]))
        array([0.6])
    """
    if x.shape != y.shape:
        raise ShapeError(f"paired_cosine: expected two arrays of one shape, got {x.shape} and {y.shape}. Align first")
    return np.asarray(np.einsum("nd,nd->n", unit_rows(x, where="paired_cosine"), unit_rows(y, where="paired_cosine")))


def agreement(x: NDArray[np.floating], y: NDArray[np.floating], *, frame: FrameLabel) -> AgreementGauge:
    """Measure how closely paired rows agree.

    Args:
        x: rows (n, d).
        y: rows (n, d), paired with x, in the same frame.
        frame: "own" (the frame x lives in) or "deployment" (the frame of the serving model).
    """
    cosine = paired_cosine(x, y)
    low, middle = np.percentile(cosine, [1, 50])
    return AgreementGauge(float(cosine.mean()), float(low), float(middle), frame)


def agreement_matrix(members: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Return the mean cosine of every pair of members, (k, k), ones on the diagonal.

    Args:
        members: k arrays (n, d) of the same rows in one frame.
    """
    units = [unit_rows(m, where="agreement_matrix") for m in members]
    matrix = np.eye(len(units))
    for i, left in enumerate(units):
        for j in range(i + 1, len(units)):
            if left.shape != units[j].shape:
                raise ShapeError(
                    f"agreement_matrix: expected members of one shape, got {left.shape}, {units[j].shape}. Align first"
                )
            matrix[i, j] = matrix[j, i] = float(np.einsum("nd,nd->n", left, units[j]).mean())
    return matrix
