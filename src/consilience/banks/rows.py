"""From a teacher's vectors to rows as they are stored: checked, normalised, cast."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.banks.manifest import STORAGE_DTYPES, DTypeName
from consilience.core.errors import ShapeError, TeacherError

MINIMUM_NORM = 1e-12  # assumed: below it a direction is rounding noise
UNIT_TOLERANCE = 1e-3  # twice the largest norm error of a unit row that was rounded to fp16 (2**-11)


def preprocessing_constants(normalise: bool) -> dict[str, Any]:
    """Return the manifest's ``preprocessing`` field."""
    return {
        "l2_normalise": normalise,
        "computed_in": "fp32",
        "minimum_norm": MINIMUM_NORM,
        "cast": "round to nearest, ties to even",
    }


def prepare_rows(
    embeddings: NDArray[Any], *, dimensions: int, dtype: DTypeName, normalise: bool, first_row: int, where: str
) -> NDArray[np.floating[Any]]:
    """Check vectors, normalise them and cast them to the stored type.

    Args:
        embeddings: rows of floating-point numbers, normalised or not.
        dimensions: width that is expected.
        dtype: stored type.
        normalise: divide each row by its norm, in fp32, before the cast.
        first_row: row number of the first one in the whole bank, for messages.
        where: what the rows belong to, for messages.

    Returns:
        Contiguous array (rows, dimensions) of the stored type.

    Raises:
        ShapeError: not two-dimensional, another width, or not numbers.
        TeacherError: a row is NaN, infinite, zero, or doesn't fit into fp16; the message has its number.

    Example:
        >>> rows = np.array([[3.0, 4.0]])
        >>> prepare_rows(rows, dimensions=2, dtype="fp32", normalise=True, first_row=0, where="demo").tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    if embeddings.ndim != 2 or embeddings.shape[1] != dimensions or embeddings.dtype.kind != "f":
        raise ShapeError(
            f"{where}: expected floating-point rows of {dimensions} dimensions, got {embeddings.dtype} "
            f"of shape {embeddings.shape}. Check the teacher or the source file"
        )

    def refuse_where(faulty: Any, fault: str) -> None:  # noqa: ANN401 - NumPy's stubs lose the mask's type
        if faulty.any():
            raise TeacherError(f"{where}: row {first_row + int(faulty.argmax())} {fault}")

    refuse_where(~np.isfinite(embeddings).all(axis=1), "is NaN or infinite. Check that text and the teacher")
    # Squares of finite fp32 numbers may overflow fp32, not fp64.
    norms = np.sqrt(np.einsum("ij,ij->i", embeddings, embeddings, dtype=np.float64))
    refuse_where(norms < MINIMUM_NORM, "is a zero vector. Check that text and the teacher")
    rows = embeddings
    with np.errstate(over="ignore", under="ignore"):
        if normalise:
            rows = embeddings.astype(np.float32) / norms[:, None].astype(np.float32)
        stored = np.ascontiguousarray(rows, dtype=STORAGE_DTYPES[dtype])
    refuse_where(~np.isfinite(stored).all(axis=1), f"doesn't fit into {dtype}. Use --dtype fp32 or normalise the rows")
    refuse_where(~stored.any(axis=1), f"rounds to a zero vector in {dtype}. Use --dtype fp32 or normalise the rows")
    return stored


def are_unit_rows(stored: NDArray[np.floating[Any]]) -> bool:
    """Return whether all rows have norm one, up to the rounding of fp16."""
    norms = np.sqrt(np.einsum("ij,ij->i", stored, stored, dtype=np.float64))
    return bool(np.abs(norms - 1.0).max() <= UNIT_TOLERANCE)
