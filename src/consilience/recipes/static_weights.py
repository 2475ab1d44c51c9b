"""How much each token of a static student weighs: by its frequency, as a static teacher weighs it, or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from consilience.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from consilience.core.encoder import Encoder
    from consilience.corpora.text import Corpus
    from consilience.teachers.static_teacher import StaticTeacher

_READ_ROWS = 4096
_SMALLEST = 1e-30  # assumed: below it rows of 32 bits lose their digits


def find_weigher(teacher: str | Encoder, encoders: Sequence[Encoder] = ()) -> StaticTeacher:
    """Return the static teacher that a name means: one of those loaded, or another that is loaded now.

    Args:
        teacher: a spec, with or without "packaged:" where it's among the loaded ones, or an encoder.
        encoders: those loaded.

    Raises:
        InputError: it isn't a static teacher: no other kind has a table whose rows' lengths are weights.
        TeacherError: it can't be loaded.
    """
    from consilience.teachers.registry import PackagedTeacher, load_teacher
    from consilience.teachers.static_teacher import StaticTeacher

    found: Encoder
    if isinstance(teacher, str):
        named = [encoder for encoder in encoders if teacher in (encoder.name, encoder.name.partition(":")[2])]
        found = named[0] if named else load_teacher(teacher)
    else:
        found = teacher
    backend = found.inner if isinstance(found, PackagedTeacher) else found
    if not isinstance(backend, StaticTeacher):
        raise InputError(
            f"static: --lengths needs a static teacher, whose rows have lengths that mean something; {found.name} "
            "isn't one. Leave it out, or name one such as packaged:wordllama-l2-supercat-256"
        )
    return backend


def token_factors(
    words: Tokenizer,
    texts: Sequence[str | None],
    frequencies: Corpus | str,
    smoothing: float,
    weigher: StaticTeacher | None,
) -> NDArray[np.float64]:
    """Return the factor of each token that stands for a text.

    Args:
        words: the student's tokenizer.
        texts: as of :func:`consilience.students.token_table.token_texts`.
        frequencies: a corpus to count in, "zipf" or "none".
        smoothing: a of a / (a + p).
        weigher: a static teacher; its lengths, divided by their median, are further factors; 1 for texts that it
            doesn't know.

    Returns:
        (n,), one a text that isn't None.

    Raises:
        InputError: the corpus has none of the tokens, the teacher knows none, or the factors aren't numbers of 32 bits.
    """
    import numpy as np

    from consilience.students.token_table import (
        corpus_probabilities,
        count_tokens,
        smooth_inverse_frequency,
        zipf_probabilities,
    )

    known = np.array([text is not None for text in texts])
    factors = np.ones(int(known.sum()))
    if not isinstance(frequencies, str):
        counts = count_tokens(words, frequencies.batches(_READ_ROWS))
        factors = smooth_inverse_frequency(corpus_probabilities(counts, known)[known], smoothing)
    elif frequencies == "zipf":
        factors = smooth_inverse_frequency(zipf_probabilities(texts)[known], smoothing)
    if weigher is not None:
        lengths = weigher.sum_lengths([text for text in texts if text is not None]).astype(np.float64)
        if not lengths.any():
            raise InputError(f"static: {weigher.name} knows none of the tokenizer's tokens. Leave --lengths out")
        usual = np.median(lengths[lengths > 0])
        factors = factors * np.where(lengths > 0, lengths, usual) / usual
    most = float(factors.max())
    if not _SMALLEST < most < 1 / _SMALLEST:
        raise InputError(
            f"static: the tokens' weights reach {most:.3g}, which 32 bits can't hold. Change --smoothing (0.001 is "
            "usual), --frequencies or --lengths"
        )
    return factors
