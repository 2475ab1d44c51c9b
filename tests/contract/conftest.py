"""What every encoder is asked: from threads, and with whatever a person hands it."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from consilience.core.errors import InputError

THREADS, ROUNDS = 8, 4


def _batches(words):
    """Other texts for each call, of other lengths, so that a mixed-up call can't pass for another."""
    rng = np.random.default_rng(0)
    return [
        [" ".join(rng.choice(words, size=rng.integers(1, 12))) for _ in range(rng.integers(1, 8))]
        for _ in range(THREADS * ROUNDS)
    ]


@pytest.fixture
def thread_safe():
    """Compare an encoder's bits under eight threads with another's, or its own, under one; and its own afterwards."""

    def check(reference, encoder, words):
        batches = _batches(words)
        barrier = Barrier(THREADS)

        def work(first):
            barrier.wait()
            return [(i, encoder.encode(batches[i]).tobytes()) for i in range(first, len(batches), THREADS)]

        def compare(pairs, when):
            wrong = [i for i, found in pairs if found != expected[i]]
            assert not wrong, f"{len(wrong)} of {len(batches)} calls give other bits {when}"

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-4)
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                found = [pair for pairs in pool.map(work, range(THREADS)) for pair in pairs]
        finally:
            sys.setswitchinterval(interval)
        expected = [reference.encode(batch).tobytes() for batch in batches]
        compare(found, "from threads")
        compare(
            [(i, encoder.encode(batch).tobytes()) for i, batch in enumerate(batches)], "afterwards, from one thread"
        )

    return check


@pytest.fixture
def one_rule_for_texts():
    """Hand an encoder what people hand encoders."""

    def check(encoder, one, other):
        rows = encoder.encode([one, other])
        assert rows.shape == (2, encoder.dimensions)
        alone = encoder.encode(one)
        assert alone.shape == (encoder.dimensions,)
        assert alone.dtype == np.float32
        assert alone.tobytes() == encoder.encode([one])[0].tobytes()
        for several in ((one, other), np.array([one, other]), iter([one, other])):
            assert encoder.encode(several).tobytes() == rows.tobytes()
        for nothing in ([], (), np.array([], dtype=str)):
            assert encoder.encode(nothing).shape == (0, encoder.dimensions)
        for faulty, shown in (
            ([one, None], "text 1 isn't a str but NoneType"),
            ([one, other, 7], "text 2 isn't a str but int 7"),
            ([one.encode()], "text 0 isn't a str but bytes"),
            ([[one]], "text 0 isn't a str but list"),
            ([one, "\ud83d"], "text 1 holds half a character"),
            (one.encode(), "expected a text or a list of texts, got bytes"),
            (None, "got NoneType"),
            (3.5, "got float"),
            ({one: other}, "got dict"),
            ({one, other}, "got set"),
            (np.array([[one], [other]]), "got ndarray"),
            (np.array(one), "got ndarray"),
        ):
            with pytest.raises(InputError, match=shown) as caught:
                encoder.encode(faulty)
            assert "\n" not in str(caught.value)

    return check
