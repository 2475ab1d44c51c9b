"""What a study measures, with encoders that one can compute by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from consilience.banks.writer import BankWriter
from consilience.core.artefacts import begin_artefact
from consilience.core.errors import CorpusError, InputError
from consilience.core.files import read_json
from consilience.core.manifests import partial_path, verify_artefact
from consilience.evaluation.geometry import GeometrySample
from consilience.evaluation.sts import StsTask
from consilience.recipes.recipe_file import CorpusPart
from consilience.recipes.study_file import LawPart, RetrievalPart
from consilience.recipes.study_measure import (
    Bench,
    describe_target,
    make_law_target,
    make_retrieval,
    measure_encoder,
    read_measures,
    write_failure,
)
from consilience.training.loop import DivergedError

WORDS = [f"w{i}" for i in range(40)]


class WordBag:
    """Each word has a fixed random direction; a text is the sum of its words, turned by a rotation."""

    name = "test:bag"
    parameters = 0

    def __init__(self, dimensions=16, *, turn=None, scale=1.0):
        self.dimensions = dimensions
        rng = np.random.default_rng(3)
        self.table = {word: rng.standard_normal(dimensions) * scale for word in WORDS}
        self.turn = np.eye(dimensions) if turn is None else turn

    def identity(self):
        return {"backend": "test", "name": "bag"}

    def encode(self, texts):
        rows = [sum(self.table[word] for word in text.split()) @ self.turn for text in texts]
        return np.asarray(rows, dtype=np.float32)


class Collapsed(WordBag):
    def encode(self, texts):
        return np.ones((len(texts), self.dimensions), dtype=np.float32)


def texts(count, seed=0, words=4):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=words)) for _ in range(count)]


def task(name="sts12", pairs=60):
    first, second = texts(pairs, 1), texts(pairs, 2)
    shared = [len(set(a.split()) & set(b.split())) for a, b in zip(first, second, strict=True)]
    return StsTask(name, tuple(first), tuple(second), np.asarray(shared, dtype=np.float64), "0" * 64, "test")


def bench(**options):
    sample = GeometrySample(tuple(texts(50, 5)), "test")
    return Bench(tasks=[task()], selection=task("stsb-dev", 40), sample=sample, seed=0, resamples=200, **options)


@pytest.fixture
def corpus(tmp_path):
    """Texts in groups: two of a group share three of their words."""
    rows = [(a, str(i)) for i, a in enumerate(texts(200, 11, words=6))]
    rows += [(" ".join(a.split()[:3]) + " " + b, group) for (a, group), b in zip(rows, texts(200, 12), strict=True)]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "group": group}) + "\n" for text, group in rows))
    return CorpusPart(path=str(path), column="text")


def rows_of(part):
    return [json.loads(line) for line in Path(part.path).read_text().splitlines()]


def test_scores_have_the_intervals_of_their_own_replicates(tmp_path):
    measure_encoder(WordBag(), bench(), out=tmp_path / "m", plan={"student": "s"}, student=None)
    found, arrays = read_measures(tmp_path / "m")
    assert verify_artefact(tmp_path / "m")["student"] == "s"
    assert set(found["tasks"]) == {"sts12"}
    assert set(found["selection"]) == {"stsb-dev"}
    assert found["mean"] == found["tasks"]["sts12"]["score"] > 0.2
    assert arrays["sts12"].shape == (200,)
    assert found["mean_low"] == pytest.approx(np.percentile(arrays["mean"], 2.5), rel=1e-5)
    assert "law" not in found
    assert "retrieval" not in found


def test_two_models_share_the_draws(tmp_path):
    for name, model in (("a", WordBag()), ("b", WordBag(scale=3.0))):
        measure_encoder(model, bench(), out=tmp_path / name, plan={}, student=None)
    one, other = (read_measures(tmp_path / name)[1]["sts12"] for name in "ab")
    np.testing.assert_allclose(one, other, atol=1e-9)  # cosine doesn't see the scale


def test_a_collapsed_model_is_a_row_that_says_so(tmp_path):
    measure_encoder(Collapsed(), bench(), out=tmp_path / "m", plan={}, student=None)
    found, arrays = read_measures(tmp_path / "m")
    assert "it has collapsed" in found["fault"]
    assert arrays == {}


def test_the_law_is_read_on_texts_that_no_student_knows(tmp_path, corpus):
    everything = [row["text"] for row in rows_of(corpus)]
    known = frozenset(everything[:150])
    law = LawPart(into="bag", corpus=corpus, pairs=100, held_out=60)
    make_law_target(WordBag(), law, known, seed=0, out=tmp_path / "law", plan={"pairs": 100})
    chosen = read_json(tmp_path / "law" / "texts.json")
    assert (len(chosen["fit"]), len(chosen["held_out"])) == (100, 60)
    used = chosen["fit"] + chosen["held_out"]
    assert len(set(used)) == len(used)
    assert not known & set(used)


def turned_bag():
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((16, 16)))[0]
    return WordBag(turn=rotation)


def student_manifest(objective):
    return {"training": {"objective": objective, "seed": 4}, "target": {"teacher": {"name": "bag"}}, "frame": "x"}


@pytest.mark.parametrize(("objective", "unrotated"), [("mimicry", False), ("affinity", False), ("affinity", True)])
def test_the_rotation_recovers_a_turned_student_and_free_ones_refuse_the_before(tmp_path, corpus, objective, unrotated):
    law = LawPart(into="bag", corpus=corpus, pairs=150, held_out=60)
    make_law_target(WordBag(), law, frozenset(), seed=0, out=tmp_path / "law", plan={})
    where = bench(law=tmp_path / "law", unrotated=unrotated)
    measure_encoder(turned_bag(), where, out=tmp_path / "m", plan={}, student=student_manifest(objective))
    found, arrays = read_measures(tmp_path / "m")
    assert found["law"]["after"]["cosine"] == pytest.approx(1.0, abs=1e-4)
    assert arrays["rotated"].shape == (60, 16)
    if objective == "affinity" and not unrotated:
        assert found["law"]["before"] == "refused"
    else:
        assert found["law"]["before"]["cosine"] < 0.5


def test_retrieval_pairs_fresh_texts_of_one_group(tmp_path, corpus):
    everything = rows_of(corpus)
    known = frozenset([everything[0]["text"]])
    part = RetrievalPart(corpus=corpus, group="group", queries=120)
    make_retrieval(part, known, seed=0, out=tmp_path / "r", plan={})
    pairs = read_json(tmp_path / "r" / "texts.json")
    group = {row["text"]: row["group"] for row in everything}
    assert len(pairs["queries"]) == 120
    assert all(group[a] == group[b] and a != b for a, b in zip(pairs["queries"], pairs["gallery"], strict=True))
    assert everything[0]["group"] not in {group[text] for text in pairs["queries"]}

    measure_encoder(WordBag(), bench(retrieval=tmp_path / "r"), out=tmp_path / "m", plan={}, student=None)
    found, arrays = read_measures(tmp_path / "m")
    score = found["retrieval"]["recall_at_1"]
    assert 0.1 < score["low"] <= score["score"] <= score["high"]
    assert found["retrieval"]["recall_at_10"]["score"] >= score["score"]
    assert arrays["recall_at_1"].mean() == pytest.approx(score["score"], abs=0.02)


def test_a_score_that_does_not_fall_with_the_gallery_is_refused_and_the_rest_stands(tmp_path):
    (tmp_path / "r").mkdir()
    same = list(dict.fromkeys(texts(60, 3)))
    (tmp_path / "r" / "texts.json").write_text(json.dumps({"queries": same, "gallery": same}))
    measure_encoder(WordBag(), bench(retrieval=tmp_path / "r"), out=tmp_path / "m", plan={}, student=None)
    found, arrays = read_measures(tmp_path / "m")
    assert "fall as the gallery grows" in found["retrieval"]["refused"]
    assert found["tasks"]
    assert "recall_at_1" not in arrays


def test_too_few_groups_are_refused(tmp_path, corpus):
    part = RetrievalPart(corpus=corpus, group="group", queries=201)
    with pytest.raises(CorpusError, match=r"expected 201 groups .* got 200"):
        make_retrieval(part, frozenset(), seed=0, out=tmp_path / "r", plan={})


def test_texts_that_do_not_vary_are_refused(tmp_path):
    path = tmp_path / "same.txt"
    path.write_text("".join(f"{' '.join(['w1'] * i)}\n" for i in range(1, 80)))
    law = LawPart(into="bag", corpus=CorpusPart(path=str(path)), pairs=40, held_out=30)
    with pytest.raises(InputError, match="queries that vary"):
        make_law_target(WordBag(), law, frozenset(), seed=0, out=tmp_path / "law", plan={})


def test_a_target_is_described_before_any_training(tmp_path):
    rows = np.vstack([np.eye(4), -np.eye(4)] * 8).astype(np.float32)  # four directions, evenly
    bank = BankWriter(
        tmp_path / "bank", rows=64, dimensions=4, dtype="fp32", corpus={"fingerprint": "c" * 64, "rows": 64},
        teacher={"backend": "test", "name": "axes"}, frame=None,
    )  # fmt: skip
    for start, stop in bank.missing():
        bank.write_shard(start, rows[start:stop])
    bank.finish()
    describe_target(tmp_path / "bank", out=tmp_path / "facts", plan={"target": "t"})
    found, _ = read_measures(tmp_path / "facts")
    assert found["effective_rank"]["participation"] == pytest.approx(4.0)
    assert found["self_cosine"] == pytest.approx(-1 / 63)
    assert (found["members"], found["agreement"], found["frame_free"]) == ([], None, False)


def test_a_failed_training_keeps_its_log_and_leaves_nothing_else(tmp_path):
    work, _ = begin_artefact(tmp_path / "student", {"job": 1})
    (work / "log.jsonl").write_text('{"step": 1}\n')
    error = DivergedError(f"{work}: the loss became nan in step 3, at --lr 1. Run again with a lower --lr")
    write_failure(error, tmp_path / "student", out=tmp_path / "failed", plan={"job": 1})
    manifest = verify_artefact(tmp_path / "failed", "failure")
    assert manifest["error"].startswith("the loss became nan in step 3")
    assert str(tmp_path) not in json.dumps(manifest)
    assert (tmp_path / "failed" / "log.jsonl").read_text() == '{"step": 1}\n'
    assert not partial_path(tmp_path / "student").exists()
