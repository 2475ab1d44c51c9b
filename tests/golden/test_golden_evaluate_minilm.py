"""all-MiniLM-L6-v2 through the harness: the published scores to four decimals (design, section 10)."""

import os
from pathlib import Path

import pytest

from consilience.evaluation import REPORTED_TASKS
from consilience.evaluation.sts import load_selection_task
from consilience.recipes.evaluate import evaluate

DATA = Path(os.environ.get("CONSILIENCE_DATA", ""))

# Source: the embeddings-benchmark result files; BIOSSES and STS14 as measured on these files (their README).
SCORES = {
    "stsb-test": 0.8203,
    "sick-r": 0.7758,
    "sts12": 0.7237,
    "sts13": 0.8060,
    "sts14": 0.7559,
    "sts15": 0.8539,
    "sts16": 0.7899,
    "biosses": 0.8164,
}
EFFECTIVE_RANK = 86.7
STSB_DEV = 0.8672

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weights,
    pytest.mark.data("sts"),
]


@pytest.fixture(scope="module")
def result():
    return evaluate(["packaged:all-MiniLM-L6-v2"], tasks=("sts",), data=DATA)


def test_scores_to_four_decimals(result):
    found = {name: round(score.score, 4) for name, score in result.models[0].tasks.items()}
    assert found == SCORES
    assert tuple(found) == REPORTED_TASKS


def test_mean_excludes_the_selection_task(result):
    model = result.models[0]
    assert model.mean == pytest.approx(sum(SCORES.values()) / 8, abs=5e-5)
    assert round(model.selection["stsb-dev"].score, 4) == STSB_DEV
    assert model.mean_low < model.mean < model.mean_high


def test_effective_rank_of_the_first_thousand_of_stsb_dev(result):
    geometry = result.models[0].geometry
    assert geometry["rows"] == 1_000
    assert round(geometry["effective_rank"], 1) == EFFECTIVE_RANK


def test_selection_task_has_its_rows():
    assert len(load_selection_task(DATA)) == 1_500
