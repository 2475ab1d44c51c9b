"""Each distinct sentence is embedded once per model, however many tasks and pairs it is in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import Encoder
from consilience.core.errors import TeacherError
from consilience.core.progress import progress_bar
from consilience.evaluation.result import Speed

_BLOCK = 2_048


class SentenceTable:
    """Unit vectors of sentences, by sentence; a sentence without a direction (a zero vector) stays zero."""

    def __init__(self, index: dict[str, int], vectors: NDArray[np.float32]) -> None:
        self._index = index
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._index)

    def rows(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Return the unit (or zero) vectors of sentences, in their order."""
        return self._vectors[[self._index[sentence] for sentence in sentences]]

    def cosines(self, sentence1: Sequence[str], sentence2: Sequence[str]) -> NDArray[np.float64]:
        """Return the cosine of each pair; a pair with a zero vector scores 0, as "nothing in common is known"."""
        first = self.rows(sentence1).astype(np.float64)
        return np.asarray(np.einsum("nd,nd->n", first, self.rows(sentence2).astype(np.float64)))


def embed_distinct(encoder: Encoder, sentences: Iterable[str]) -> SentenceTable:
    """Embed the distinct sentences, longest first, in blocks of similar length.

    Raises:
        TeacherError: the encoder returns vectors of another shape, or NaN or infinite ones.
    """
    distinct = sorted(set(sentences), key=lambda text: (-len(text), text))
    vectors = np.zeros((len(distinct), encoder.dimensions), dtype=np.float32)
    with progress_bar(f"embed with {encoder.name}", len(distinct)) as bar:
        for start in range(0, len(distinct), _BLOCK):
            block = distinct[start : start + _BLOCK]
            vectors[start : start + len(block)] = _unit(encoder, encoder.encode(block), len(block))
            bar.advance(len(block))
    return SentenceTable({text: i for i, text in enumerate(distinct)}, vectors)


def _unit(encoder: Encoder, raw: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    if raw.shape != (count, encoder.dimensions):
        raise TeacherError(
            f"{encoder.name}: {count} vectors of width {encoder.dimensions} expected, got shape {raw.shape}. "
            "The model's declared width is wrong or it drops texts"
        )
    if not np.isfinite(raw).all():
        raise TeacherError(f"{encoder.name}: a vector is NaN or infinite. Check the model's weights and dtype")
    wide = raw.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0), dtype=np.float32)


def measure_speed(encoder: Encoder, sentences: Sequence[str], *, repeats: int = 5) -> Speed:
    """Return sentences per second over a few passes over one sample, after a warm-up.

    Loading isn't counted; tokenising is.

    Args:
        encoder: the model.
        sentences: the same sample for every model.
        repeats: timed passes.
    """
    encoder.encode(list(sentences[: max(1, len(sentences) // 4)]))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        encoder.encode(list(sentences))
        seconds.append(time.perf_counter() - start)
    return Speed(
        *(round(len(sentences) / float(taken), 1) for taken in (np.median(seconds), max(seconds), min(seconds)))
    )
