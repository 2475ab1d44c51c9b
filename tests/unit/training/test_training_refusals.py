"""What a training refuses before anything is written, and batches that no long row falls out of."""

import json

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.objectives.names import require_objective
from consilience.training.batching import BatchPlan
from consilience.training.loop import require_trainable
from consilience.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": "3"}, "steps to be a whole number, got '3'"),
        ({"steps": 2.5}, "steps to be a whole number"),
        ({"steps": True}, "steps to be a whole number"),
        ({"steps": 3, "lr": "x"}, "lr to be a number"),
        ({"steps": 3, "cache_rows": 2.5}, "cache_rows to be a whole number"),
        ({"steps": 3, "batch_rows": "x"}, "batch_rows to be a whole number"),
        ({"steps": 3, "checkpoint_seconds": "x"}, "checkpoint_seconds to be a number"),
        ({"steps": 3, "objective": None}, "objective to be a name or terms"),
    ],
)
def test_values_of_another_kind_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        TrainingSettings(**given)


def test_numpy_s_numbers_are_numbers():
    settings = TrainingSettings(steps=np.int64(3), lr=np.float32(0.5))
    assert json.dumps(settings.identity()) == json.dumps(TrainingSettings(steps=3, lr=0.5).identity())


def test_batches_too_small_for_the_objective_are_refused_at_once():
    assert require_objective("composite+spread").least_rows == 5
    with pytest.raises(InputError, match="expected at least 5 rows, got 4"):
        require_trainable(TrainingSettings(steps=1, batch_rows=4, objective="composite+spread"), rows=100, processes=1)
    with pytest.raises(InputError, match="expected at least 10 rows, got 9"):
        require_trainable(TrainingSettings(steps=1, batch_rows=9, objective="composite+spread"), rows=100, processes=2)
    require_trainable(TrainingSettings(steps=1, batch_rows=5, objective="composite+spread"), rows=100, processes=1)
    with pytest.raises(InputError, match="at least 64 rows, got 63"):
        require_trainable(TrainingSettings(steps=1), rows=63, processes=1)


@pytest.mark.parametrize(("longest", "batch_rows"), [(128, 8), (512, 8), (512, 32)])
@pytest.mark.parametrize("least", [2, 5])
def test_a_few_very_long_rows_are_in_batches_too(longest, batch_rows, least):
    lengths = np.full(400, 12, dtype=np.int32)
    lengths[[7, 300]] = longest
    batches = BatchPlan(batch_rows, seed=0, least_rows=least).epoch(lengths, np.arange(400), epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(400))
    assert min(len(batch) for batch in batches) >= least
