"""A frame's id is a hash of what defines it; refitting on anything else gives a new one (design, section 2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.hashing import content_id
from consilience.frames.align import AffineMap


def array_sha256(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's dtype, shape and bytes (little-endian, C order)."""
    ordered = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest = hashlib.sha256(f"{ordered.dtype.str}{ordered.shape}".encode())
    digest.update(ordered.tobytes())
    return digest.hexdigest()


def frame_id(
    *,
    reference_teacher: str,
    corpus_fingerprint: str,
    fit_rows: NDArray[np.int64],
    method: str,
    shrinkage: float | str,
    maps: Mapping[str, AffineMap],
) -> str:
    """Return the id of the frame that these maps lead into.

    Args:
        reference_teacher: id of the reference teacher.
        corpus_fingerprint: of the rows that the maps were fitted to.
        fit_rows: row numbers of the fit sample.
        method: name of the method.
        shrinkage: its regularisation.
        maps: by teacher id; hashed as the float32 numbers that are stored and applied.
    """
    return content_id(
        {
            "reference": reference_teacher,
            "corpus": corpus_fingerprint,
            "fit_rows": array_sha256(fit_rows),
            "method": method,
            "shrinkage": shrinkage,
            "maps": {
                teacher: [array_sha256(m.matrix.astype(np.float32)), array_sha256(m.bias.astype(np.float32))]
                for teacher, m in maps.items()
            },
        },
        prefix="frame-",
    )
