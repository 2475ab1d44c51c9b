"""Batches: every row once, little padding, a pure function of seed and epoch."""

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.training.batching import BatchPlan, padding_fraction

ROWS = 20_000


@pytest.fixture(scope="module")
def lengths():
    # Like captions: a bulk around 14 tokens and a long tail.
    rng = np.random.default_rng(0)
    return np.clip(rng.gamma(6.0, 2.4, ROWS).astype(np.int32) + 4, 5, 64)


def test_every_row_once_in_an_epoch_and_held_out_rows_never(lengths):
    rows = np.arange(0, ROWS, 2)
    batches = BatchPlan(128, 0).epoch(lengths, rows, 0)
    assert np.array_equal(np.sort(np.concatenate(batches)), rows)


def test_padding_is_below_two_percent_and_budgets_are_even(lengths):
    batches = BatchPlan(256, 0).epoch(lengths, np.arange(ROWS), 0)
    assert padding_fraction(lengths, batches) < 0.02
    tokens = np.array([lengths[batch].sum() for batch in batches])
    assert tokens.max() < 1.15 * tokens.mean()
    assert len(batches) == pytest.approx(ROWS / 256, rel=0.03)
    random = np.array_split(np.random.default_rng(0).permutation(ROWS), ROWS // 256)
    assert padding_fraction(lengths, random) > 0.4  # what the buckets save


def test_pure_function_of_seed_and_epoch(lengths):
    rows = np.arange(ROWS)

    def flat(seed, epoch):
        return np.concatenate(BatchPlan(256, seed).epoch(lengths, rows, epoch))

    assert np.array_equal(flat(1, 3), flat(1, 3))
    assert not np.array_equal(flat(1, 3), flat(1, 4))
    assert not np.array_equal(flat(1, 3), flat(2, 3))


def test_batches_divide_among_processes(lengths):
    batches = BatchPlan(64, 0, multiple_of=4).epoch(lengths, np.arange(ROWS), 0)
    assert all(len(batch) % 4 == 0 for batch in batches)
    assert sum(map(len, batches)) > 0.97 * ROWS  # at most three rows of each batch of 64 are left over


def test_lengths_come_in_no_order(lengths):
    batches = BatchPlan(256, 0).epoch(lengths, np.arange(ROWS), 0)
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.3


def test_a_batch_of_one_row_is_refused():
    with pytest.raises(InputError, match="at least 2 rows"):
        BatchPlan(1, 0)
