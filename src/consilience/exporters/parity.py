"""The exported forms must give the student's own vectors; an export that doesn't is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import ConsilienceError
from consilience.exporters.huggingface import embed_with_automodel
from consilience.exporters.int8 import INT8_FILE, LEAST_COSINE, embed_with_int8
from consilience.exporters.onnx import ONNX_FILE, embed_with_onnx
from consilience.exporters.student_parts import StudentParts
from consilience.students.tokenizer import pad_id

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-4  # cited: the bound that an export promises, maximal absolute difference of unit vectors in fp32

PROBE = (
    "a cat",
    "Cat",
    "cats and dogs",
    "Two children in red coats run across a snowy field while a brown dog watches them from the fence.",
    "A man is playing the guitar on a street corner.",
    "a red cube on a blue sphere, and a blue cube on a red sphere",
    "The committee's report, published on 3 March 1998, runs to 1,024 pages (without annexes).",
    "naïve façade, coöperation, Ærø, Łódź, straße, ΑΒΓ δεζ",
    "猫がマットの上に座っている。",
    "Кошка сидит на коврике",
    "القط على السجادة",
    "emoji: 🐈‍⬛ 🐕 🏳️‍🌈",
    "x",
    "?!... --- ***",
    "tabs\tand  double  spaces and a no-break\u00a0space",
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    " ".join(f"clause {i} says that the {i}th dog chased the cat around the old oak tree," for i in range(120)),
    " ".join(["word"] * 3_000),
)
"""Fixed texts: short, one-word, long beyond any limit, punctuation, several scripts."""


class ParityError(ConsilienceError):
    """An exported form of a student gives other vectors than the student."""


def check_parity(parts: StudentParts, folder: Path, *, tolerance: float = TOLERANCE) -> dict[str, Any]:
    """Compare every exported form in a folder with the student on the fixed probe.

    Args:
        parts: the student as trained.
        folder: with a sentence-transformers folder, ``onnx/model.onnx``, or both.
        tolerance: largest absolute difference of any coordinate.

    Returns:
        ``tolerance``, ``probe_texts``, and ``max_abs_difference`` by form. ONNX is run with batches of 1 and of 7.
        With ``onnx/model_int8.onnx`` also ``int8``: its least and mean cosine to the student.

    Raises:
        ParityError: a form differs by more.
    """
    expected = embed_with_student(parts, PROBE)
    forms: dict[str, NDArray[np.float32]] = {}
    if (folder / "modules.json").is_file():
        forms["sentence-transformers"] = embed_with_sentence_transformers(folder, PROBE)
        forms["automodel"] = embed_with_automodel(folder, PROBE)
    if (folder / ONNX_FILE).is_file():
        forms["onnx-batch-1"] = embed_with_onnx(folder, PROBE, batch=1)
        forms["onnx-batch-7"] = embed_with_onnx(folder, PROBE, batch=7)
    found = {name: compare_vectors(name, expected, vectors, tolerance) for name, vectors in forms.items()}
    parity = {"tolerance": tolerance, "probe_texts": len(PROBE), "max_abs_difference": found}
    if (folder / INT8_FILE).is_file():
        parity["int8"] = compare_cosines("onnx-int8", expected, embed_with_int8(folder, PROBE))
    return parity


def compare_cosines(
    form: str, expected: NDArray[np.float32], found: NDArray[np.float32], least: float = LEAST_COSINE
) -> dict[str, float]:
    """Return the least and the mean cosine of unit rows that rounding moved.

    Raises:
        ParityError: shapes differ, a value isn't finite, or a cosine is below ``least``.
    """
    if expected.shape != found.shape:
        raise ParityError(f"export: {form} gives shape {found.shape}, the student {expected.shape}. Don't ship it")
    cosines = (expected.astype(np.float64) * found.astype(np.float64)).sum(axis=1)
    if not cosines.min() >= least:  # also catches NaN
        row = int(cosines.argmin())
        raise ParityError(
            f"export: {form} has cosine {cosines.min():.4f} to the student on probe text {row} "
            f"({PROBE[row][:30]!r}...), at least {least} expected. Nothing was exported; leave --quantize out"
        )
    return {"least_allowed": least, "min_cosine": float(cosines.min()), "mean_cosine": float(cosines.mean())}


def compare_vectors(
    form: str, expected: NDArray[np.float32], found: NDArray[np.float32], tolerance: float = TOLERANCE
) -> float:
    """Return the largest absolute difference of two arrays.

    Raises:
        ParityError: shapes differ, a value isn't finite, or the difference exceeds the tolerance.
    """
    if expected.shape != found.shape:
        raise ParityError(f"export: {form} gives shape {found.shape}, the student {expected.shape}. Don't ship it")
    difference = float(np.abs(expected.astype(np.float64) - found.astype(np.float64)).max())
    if not difference <= tolerance:  # also catches NaN
        row = int(np.abs(expected - found).max(axis=1).argmax())
        raise ParityError(
            f"export: {form} differs from the student by {difference:.2e} on probe text {row} "
            f"({PROBE[row][:30]!r}...), at most {tolerance:.0e} expected. Nothing was exported; report this as a bug"
        )
    return difference


def embed_with_student(parts: StudentParts, texts: Sequence[str], *, batch: int = 8) -> NDArray[np.float32]:
    """Embed texts with the student's own module, in fp32 on the CPU."""
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(parts.tokenizer.to_str())  # a copy: the student's own stays as it is
    tokenizer.enable_truncation(parts.max_length)
    tokenizer.enable_padding(pad_id=pad_id(tokenizer))

    def embed(chunk: list[str]) -> torch.Tensor:
        encoded = tokenizer.encode_batch(chunk)
        ids = torch.tensor([row.ids for row in encoded])
        mask = torch.tensor([row.attention_mask for row in encoded])
        embedding: torch.Tensor = parts.module(ids, mask).embedding
        return embedding

    with torch.no_grad():
        rows = [embed(list(texts[i : i + batch])).numpy() for i in range(0, len(texts), batch)]
    return np.concatenate(rows)


def embed_with_sentence_transformers(folder: Path, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embed texts with ``SentenceTransformer(folder)``, without remote code."""
    from consilience.core.extras import require

    library = require("sentence_transformers", extra="st", purpose="to check a sentence-transformers export")
    model = library.SentenceTransformer(str(folder), device="cpu", trust_remote_code=False, local_files_only=True)
    vectors = model.encode(list(texts), batch_size=8, convert_to_numpy=True, show_progress_bar=False)
    return np.asarray(vectors, dtype=np.float32)
