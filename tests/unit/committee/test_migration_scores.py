"""Maps between an old and a new frame, judged by the neighbours that re-embedding would find."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.committee.mapped_encoder import MappedEncoder
from consilience.committee.migration import score_maps
from consilience.core.errors import AlignmentRefusedError, FrameMismatchError, InputError, ShapeError
from consilience.frames.align import identity_map
from consilience.frames.rows import normalise_rows
from consilience.gauges.neighbours import nearest, retained


def frames(noise, *, rows=1_500, d=16, seed=0):
    rng = np.random.default_rng(seed)
    new = normalise_rows(rng.standard_normal((rows, d)), where="t")
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    old = normalise_rows(new @ turn + noise * rng.standard_normal((rows, d)), where="t")
    return old.astype(np.float32), new.astype(np.float32)


def score(old, new, queries=None, **options):
    rows = np.arange(len(new))
    return score_maps(old, new, queries, fit_rows=rows[:1_000], held_out=rows[1_000:], metric="cosine", **options)


def test_a_rotated_frame_is_moved_without_loss_both_ways_and_as_it_is_finds_chance():
    found = score(*frames(0.0))
    for way in ("rewrite", "adapter"):
        best = found.best(way)
        assert best.retention[10].score == pytest.approx(1.0)
        assert best.fit.verdict == "ok"
    assert found.unmapped[10] < 0.1
    assert found.queries == 250  # the other half chose the method


def test_noise_costs_neighbours_and_the_interval_holds_the_score():
    found = score(*frames(0.1)).best("rewrite")
    assert 0.2 < found.retention[10].score < 0.95
    assert found.retention[10].low < found.retention[10].score < found.retention[10].high
    assert found.retention[1].score != found.retention[100].score


def test_unrelated_frames_are_refused():
    old, _ = frames(0.0)
    _, new = frames(0.0, seed=9)
    with pytest.raises(AlignmentRefusedError, match="every map"):
        score(old, new).best("rewrite")
    with pytest.raises(AlignmentRefusedError, match="rows per dimension"):
        score_maps(old, new, None, fit_rows=np.arange(40), held_out=np.arange(100, 300), metric="cosine")
    with pytest.raises(InputError, match="more than 10"):
        score_maps(old, new, None, fit_rows=np.arange(100), held_out=np.arange(100, 110), metric="cosine")


def test_different_widths_have_no_unmapped_line():
    old, new = frames(0.05)
    found = score(old, new[:, :8])
    assert found.unmapped is None
    assert found.best("adapter").affine.matrix.shape == (8, 16)


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_nearest_is_exact(metric):
    rng = np.random.default_rng(1)
    q, g = rng.standard_normal((700, 5)), rng.standard_normal((300, 5))
    scores = {
        "cosine": (q / np.linalg.norm(q, axis=1, keepdims=True)) @ (g / np.linalg.norm(g, axis=1, keepdims=True)).T,
        "dot": q @ g.T,
        "l2": -((q[:, None] - g[None]) ** 2).sum(axis=2),
    }[metric]
    np.testing.assert_array_equal(nearest(q, g, k=7, metric=metric), np.argsort(-scores, axis=1)[:, :7])
    own = nearest(g, g, k=3, metric=metric, own=np.arange(300))
    assert not (own == np.arange(300)[:, None]).any()
    with pytest.raises(ShapeError):
        nearest(q, g[:, :4], k=1, metric=metric)


def test_retained_counts_what_is_shared():
    np.testing.assert_allclose(retained(np.array([[1, 2], [3, 4]]), np.array([[2, 9], [4, 3]]), 2), [0.5, 1.0])


class Constant:
    name, dimensions, parameters = "constant", 3, 5

    def __init__(self, prompt=None):
        self.prompt = prompt

    def identity(self):
        return {"backend": "test", "name": "constant", "prompt": self.prompt}

    def encode(self, texts):
        return np.ones((len(texts), 3), dtype=np.float32)


def test_a_query_map_refuses_another_prompt():
    mapped = MappedEncoder(Constant("q: "), identity_map(3), identity=Constant("q: ").identity(), map_id="m")
    assert np.linalg.norm(mapped.encode(["a"])[0]) == pytest.approx(1.0)
    assert mapped.parameters == 5 + 12
    with pytest.raises(FrameMismatchError, match=r"prompt: 'q: ' there, None here"):
        MappedEncoder(Constant(), identity_map(3), identity=Constant("q: ").identity(), map_id="m")
