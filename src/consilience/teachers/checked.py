"""Vectors are looked at before anything is built on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import Encoder
from consilience.core.errors import TeacherError


def check_embeddings(
    embeddings: object,
    *,
    rows: int,
    dimensions: int | None,
    teacher: str,
    allow_zero: bool = False,
    first: int = 0,
    total: int | None = None,
) -> NDArray[np.float32]:
    """Return the embeddings as a contiguous float32 array after checking them.

    Args:
        embeddings: what the backend returned.
        rows: number of texts given.
        dimensions: expected width, or None when it isn't known yet.
        teacher: name for the message.
        allow_zero: accept all-zero rows (word vectors with ``unknown=zero``).
        first: number of the first text, for the message.
        total: texts of the call that these are a part of; ``rows`` when not given.

    Raises:
        TeacherError: another shape, or a row that is NaN, infinite or all zero; the message names the first such row.
    """
    array = np.asarray(embeddings)
    if array.ndim != 2 or array.shape[0] != rows or (dimensions is not None and array.shape[1] != dimensions):
        wanted = f"({rows}, {dimensions if dimensions is not None else 'd'})"
        raise TeacherError(
            f"teacher {teacher}: expected embeddings of shape {wanted}, got {array.shape}. Check the model"
        )
    if array.dtype.kind != "f":
        raise TeacherError(f"teacher {teacher}: expected floating-point embeddings, got {array.dtype}. Check the model")
    array = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(array).all(axis=1)
    half = "dtype=fp16" in teacher or "dtype=bf16" in teacher
    remedy = "drop that text, or try " + ("dtype=fp32" if half else "another teacher")
    if not finite.all():
        raise _bad_row(teacher, first + int(np.argmin(finite)), total or rows, "holds NaN or infinity", remedy)
    nonzero = array.any(axis=1)
    if not allow_zero and not nonzero.all():
        remedy = "drop texts that the teacher can't read, or use another teacher"
        raise _bad_row(teacher, first + int(np.argmin(nonzero)), total or rows, "is all zero", remedy)
    return array


def encode_checked(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embed texts and refuse vectors that nothing sound can be built on.

    Args:
        encoder: any encoder, ours or a user's.
        texts: the texts.

    Returns:
        Array (n, d), float32, contiguous, not normalised by this function.

    Raises:
        TeacherError: NaN, infinite, all-zero or misshapen rows.
    """
    from consilience.teachers.boundary import model_call

    with model_call(encoder.name, f"embed {len(texts)} texts", "Check the encoder"):
        vectors = encoder.encode(texts)
    return check_embeddings(vectors, rows=len(texts), dimensions=encoder.dimensions, teacher=encoder.name)


def _bad_row(teacher: str, row: int, rows: int, fault: str, remedy: str) -> TeacherError:
    return TeacherError(f"teacher {teacher}: the vector of text {row} (of {rows} in this call) {fault}: {remedy}")
