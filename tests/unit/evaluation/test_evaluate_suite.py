import hashlib
import json
from functools import cache

import numpy as np
import pytest
from scipy.stats import spearmanr

from consilience.core.errors import InputError, TeacherError
from consilience.evaluation import REPORTED_TASKS, StsTask, evaluate_encoders
from consilience.evaluation.embed_once import embed_distinct, measure_speed
from consilience.evaluation.geometry import geometry_sample
from consilience.evaluation.grammar_task import GRAMMAR_PAIRS, grammar_task
from consilience.evaluation.resampling import paired_difference, task_replicates
from consilience.evaluation.suite import mean_tasks


@cache
def hashed_vector(text, dimensions):
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))
    return rng.standard_normal(dimensions)


class AngleEncoder:
    """Texts are angles in degrees ("30"), vectors points on the unit circle: cosines are known by hand."""

    name = "angles"
    dimensions = 2
    parameters = 0

    def __init__(self):
        self.seen = []

    def identity(self):
        return {"backend": "test", "name": self.name}

    def encode(self, texts):
        self.seen += texts
        angles = np.radians([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32) * 3.0


class HashedWords:
    """Sums of one random vector a word; ``noise`` spoils it, so that two of them differ in quality."""

    dimensions = 48
    parameters = 0

    def __init__(self, name, noise=0.0, scale=1.0):
        self.name, self.noise, self.scale = name, noise, scale

    def identity(self):
        return {"backend": "test", "name": self.name}

    def _vector(self, text):
        return hashed_vector(text, self.dimensions)

    def encode(self, texts):
        clean = [np.sum([self._vector(word) for word in text.split()], axis=0) for text in texts]
        spoilt = [self.noise * self._vector("!" + text) for text in texts]
        return (self.scale * (np.asarray(clean) + np.asarray(spoilt))).astype(np.float32)


class Fixed:
    """Gives the vectors that it was made with."""

    name = "fixed"
    parameters = None

    def __init__(self, vectors, dimensions=2):
        self.vectors, self.dimensions = vectors, dimensions

    def identity(self):
        return {}

    def encode(self, texts):
        return np.asarray([self.vectors[text] for text in texts], dtype=np.float32)


def task(name, pairs):
    first, second, score = zip(*pairs, strict=True)
    return StsTask(name, first, second, np.asarray(score, dtype=np.float64), "0" * 64, "by hand")


@pytest.fixture(scope="module")
def words_task():
    rng = np.random.default_rng(5)
    vocabulary = [f"w{i}" for i in range(60)]
    pairs = []
    for _ in range(120):
        shared = int(rng.integers(0, 6))
        words = rng.choice(vocabulary, 10, replace=False)
        pairs.append((" ".join(words[:5]), " ".join([*words[:shared], *words[5 : 10 - shared]]), shared))
    return task("words", pairs)


@pytest.fixture(scope="module")
def words_result(words_task):
    encoders = [HashedWords("good"), HashedWords("same", scale=7.0), HashedWords("bad", noise=3.0)]
    return evaluate_encoders(encoders, [words_task], selection=words_task_as("stsb-dev", words_task), resamples=300)


def words_task_as(name, source):
    return StsTask(name, source.sentence1, source.sentence2, source.score, source.sha256, source.source)


def test_hand_computed_spearman():
    # cosines of 0, 30, 60, 90 degrees fall; gold has one exchange: rho = 1 - 6 * 2 / (4 * 15) = 0.8
    by_hand = task("hand", [("0", "0", 5), ("0", "30", 3), ("0", "60", 4), ("10", "100", 0)])
    table = embed_distinct(AngleEncoder(), [*by_hand.sentence1, *by_hand.sentence2])
    cosines = table.cosines(by_hand.sentence1, by_hand.sentence2)
    np.testing.assert_allclose(cosines, [1, np.sqrt(3) / 2, 0.5, 0], atol=1e-7)
    encoder = WithGrammar(AngleEncoder())
    result = evaluate_encoders([encoder], [by_hand], resamples=100)
    assert result.models[0].tasks["hand"].score == pytest.approx(0.8)


class WithGrammar:
    """An angle encoder that also takes sentences (their length is the angle), for geometry and speed."""

    def __init__(self, inner):
        self.inner = inner
        self.name, self.dimensions, self.parameters = inner.name, inner.dimensions, inner.parameters

    def identity(self):
        return self.inner.identity()

    def encode(self, texts):
        return self.inner.encode([text if text.isdigit() else str(len(text)) for text in texts])


def test_each_distinct_sentence_is_embedded_once():
    encoder = AngleEncoder()
    table = embed_distinct(encoder, ["1", "20", "1", "300", "20"])
    assert sorted(encoder.seen) == ["1", "20", "300"]
    assert len(table) == 3
    np.testing.assert_allclose(np.linalg.norm(table.rows(["1", "300"]), axis=1), 1, atol=1e-6)


def test_a_zero_vector_scores_cosine_zero():
    table = embed_distinct(Fixed({"a": [0, 0], "b": [2, 0], "c": [-1, 0]}), ["a", "b", "c"])
    assert table.cosines(["a", "b", "a"], ["b", "c", "a"]).tolist() == [0.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("vectors", "dimensions", "message"),
    [({"a": [np.nan, 1]}, 2, "NaN"), ({"a": [np.inf, 1]}, 2, "infinite"), ({"a": [1, 1, 1]}, 2, "shape")],
)
def test_unusable_vectors_are_refused(vectors, dimensions, message):
    with pytest.raises(TeacherError, match=message):
        embed_distinct(Fixed(vectors, dimensions), ["a"])


def test_score_equals_scipy_and_lies_in_its_interval(words_task, words_result):
    encoder = HashedWords("bad", noise=3.0)
    first, second = encoder.encode(words_task.sentence1), encoder.encode(words_task.sentence2)
    cosines = np.sum(first * second, axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    score = words_result.models[2].tasks["words"]
    assert score.score == pytest.approx(
        spearmanr(cosines, words_task.score).statistic, abs=2e-3
    )  # equal sentences tie only up to rounding
    assert score.low < score.score < score.high
    assert score.pairs == 120


def test_paired_comparison_finds_the_better_model(words_result):
    by_pair = {(c.first, c.second, c.task): c for c in words_result.comparisons}
    assert len(by_pair) == 3 * 2
    better = by_pair["good", "bad", "words"]
    assert better.difference > 0.1
    assert better.low > 0
    assert better.p_value < 0.01
    same = by_pair["good", "same", "mean"]  # the same directions, another scale
    assert same.difference == pytest.approx(0, abs=1e-3)
    assert same.p_value > 0.05


def test_selection_task_is_apart_and_never_in_the_mean(words_result):
    model = words_result.models[0]
    assert set(model.tasks) == {"words"}
    assert set(model.selection) == {"stsb-dev"}
    assert model.mean == model.tasks["words"].score
    assert model.mean_of == ("words",)


def test_selection_task_among_the_reported_ones_is_refused(words_task):
    with pytest.raises(InputError, match="stsb-dev"):
        evaluate_encoders([HashedWords("x")], [words_task_as("stsb-dev", words_task)])


def test_mean_is_over_the_eight_when_present():
    assert mean_tasks([*reversed(REPORTED_TASKS), "grammar"]) == REPORTED_TASKS
    assert mean_tasks(["sts12", "grammar"]) == ("sts12", "grammar")


def test_mean_of_eight_leaves_grammar_out(words_task):
    tasks = [words_task_as(name, words_task) for name in REPORTED_TASKS] + [grammar_task(300)]
    model = evaluate_encoders([HashedWords("x", noise=1.0)], tasks, resamples=100).models[0]
    assert "grammar" in model.tasks
    assert model.mean == pytest.approx(np.mean([model.tasks[name].score for name in REPORTED_TASKS]))
    # equal tasks, each with its own draws: the mean's interval is narrower than one task's
    assert model.mean_high - model.mean_low < model.tasks["sts12"].high - model.tasks["sts12"].low


def test_json_has_the_contract_shape(words_result):
    found = json.loads(json.dumps(words_result.to_json(), allow_nan=False))
    model = found["models"][0]
    assert {"model", "parameters", "dimensions", "tasks", "mean", "geometry", "sentences_per_second"} <= set(model)
    assert set(model["tasks"]["words"]) == {"score", "low", "high", "pairs"}
    assert {"effective_rank", "self_cosine", "spread_cv"} <= set(model["geometry"])
    assert model["geometry"]["sample"].startswith("stsb-dev")
    assert found["data"]["words"]["pairs"] == 120
    speed = model["sentences_per_second"]
    assert 0 < speed["low"] <= speed["median"] <= speed["high"]


def test_results_are_reproducible_and_seeds_matter(words_task):
    def low(seed):
        return evaluate_encoders([HashedWords("x", noise=2.0)], [words_task], seed=seed, resamples=200).models[0]

    assert low(1).tasks == low(1).tasks
    assert low(1).tasks["words"].low != low(2).tasks["words"].low


@pytest.mark.parametrize(
    ("names", "message"), [((), "at least one model"), (("a", "a"), "given twice"), (("a",), "at least one task")]
)
def test_senseless_requests(words_task, names, message):
    tasks = [] if "task" in message else [words_task]
    with pytest.raises(InputError, match=message):
        evaluate_encoders([HashedWords(name) for name in names], tasks)


def test_a_collapsed_model_is_named(words_task):
    class Constant(HashedWords):
        def encode(self, texts):
            return np.ones((len(texts), self.dimensions), dtype=np.float32)

    with pytest.raises(InputError, match="collapsed: gives every pair of task words"):
        evaluate_encoders([Constant("collapsed")], [words_task])


def test_geometry_falls_back_to_the_grammar(words_task):
    grammar = grammar_task(50)
    assert geometry_sample(None, grammar).source.startswith("grammar")
    assert geometry_sample(words_task_as("stsb-dev", words_task), grammar).texts == words_task.sentence1


def test_grammar_task_is_fixed():
    assert grammar_task(40).sha256 == grammar_task(40).sha256
    assert grammar_task(40, seed=1).sha256 != grammar_task(40).sha256
    full = grammar_task()
    assert len(full) == GRAMMAR_PAIRS
    assert len(np.unique(full.score)) > 5
    assert full.score.min() >= 0
    assert full.score.max() <= 5


def test_speed_excludes_the_warm_up():
    encoder = AngleEncoder()
    speed = measure_speed(encoder, [str(i) for i in range(40)], repeats=2)
    assert 0 < speed.low <= speed.median <= speed.high
    assert len(encoder.seen) == 10 + 2 * 40


def test_draws_are_shared_between_models_and_independent_of_company():
    rng = np.random.default_rng(0)
    gold, good, bad = (rng.standard_normal(50) for _ in range(3))
    together = task_replicates([good, bad], gold, task="t", seed=0, resamples=100)
    alone = task_replicates([bad], gold, task="t", seed=0, resamples=100)
    np.testing.assert_allclose(together[1], alone[0], atol=1e-12)


def test_paired_difference_by_hand():
    zeros = np.zeros(99)
    ahead = paired_difference(0.6, 0.5, zeros + 0.6, zeros + 0.5)
    assert ahead.difference == pytest.approx(0.1)
    assert ahead.p_value == pytest.approx(2 / 100)
    assert paired_difference(0.5, 0.5, zeros, zeros).p_value == 1.0


def test_too_few_resamples_for_an_interval(words_task):
    with pytest.raises(InputError, match="resamples"):
        evaluate_encoders([HashedWords("x")], [words_task], resamples=10)
