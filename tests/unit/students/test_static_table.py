"""Token texts, weights, axes, and the closed-form fit, against values by hand and dense solutions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from consilience.core.errors import InputError, ShapeError
from consilience.students.table_fit import count_matrix, fit_into_frame, refine_table
from consilience.students.token_table import (
    corpus_probabilities,
    count_tokens,
    fill_table,
    shape_table,
    token_texts,
    zipf_probabilities,
)


def wordpiece() -> Tokenizer:
    vocabulary = ["[PAD]", "[unused0]", "[UNK]", "the", "##ing", "##", "!", "é", "\u200d"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    return tokenizer


def test_texts_of_tokens() -> None:
    assert token_texts(wordpiece()) == [None, None, None, "the", "ing", "##", "!", "é", None]
    pieces = Tokenizer(models.BPE({"<s>": 0, "▁the": 1, "ing": 2, "<0x0A>": 3, "▁": 4}, []))
    pieces.decoder = decoders.Metaspace()
    assert token_texts(pieces) == [None, "the", "ing", None, None]
    empty = Tokenizer(models.WordPiece({"[PAD]": 0}, unk_token="[PAD]"))
    empty.add_special_tokens(["[PAD]"])
    with pytest.raises(InputError, match="no token of it stands for a text"):
        token_texts(empty)


def test_frequencies() -> None:
    counts = count_tokens(wordpiece(), [["the the !"], ["the é"]])
    assert counts.tolist() == [0, 0, 0, 3, 0, 0, 1, 1, 0]
    known = np.array([text is not None for text in token_texts(wordpiece())])
    found = corpus_probabilities(counts, known)
    np.testing.assert_allclose(found, np.array([0, 0, 0, 4, 1, 1, 2, 2, 0]) / 10)
    with pytest.raises(InputError, match="none of the tokenizer's tokens"):
        corpus_probabilities(np.zeros(9, dtype=np.int64), known)
    # "the", "ing" and "##" have ranks 1 to 3, "!" rank 10, "é" half the vocabulary.
    guess = zipf_probabilities(token_texts(wordpiece()))
    assert guess.sum() == pytest.approx(1.0)
    assert guess[3] / guess[4] == pytest.approx(4.7 / 3.7)
    assert guess[3] / guess[6] == pytest.approx(12.7 / 3.7)
    assert guess[[0, 1, 2, 8]].tolist() == [0.0] * 4


def vectors(rows: int = 200) -> NDArray[np.float64]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 4)) * np.array([4.0, 2.0, 1.0, 0.5]) + 3.0
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_axes_in_falling_order_are_uncorrelated() -> None:
    table, kept = shape_table(vectors(), dimensions=3)
    covariance = table.T @ table / len(table)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-9)
    assert np.all(np.diff(np.diag(covariance)) < 0)
    np.testing.assert_allclose(table.mean(axis=0), 0.0, atol=1e-12)
    assert 0.9 < kept < 1.0
    whole, _ = shape_table(vectors(), dimensions=4)
    centred = vectors() - vectors().mean(axis=0)
    np.testing.assert_allclose(whole @ whole.T, centred @ centred.T, atol=1e-9)


def test_whitening_evens_and_removal_drops_the_leading_axis() -> None:
    even, _ = shape_table(vectors(2000), dimensions=3, whiten=1.0)
    spread = even.std(axis=0)
    assert spread.max() / spread.min() < 1.01
    first, _ = shape_table(vectors(), dimensions=4)
    without, _ = shape_table(vectors(), dimensions=3, remove=1)
    np.testing.assert_allclose(without, first[:, 1:], atol=1e-12)


def test_reference_axes_are_the_ones_that_came_in() -> None:
    table, kept = shape_table(vectors(), dimensions=4, axes="reference")
    np.testing.assert_allclose(table, vectors() - vectors().mean(axis=0), atol=1e-9)
    assert kept == pytest.approx(1.0)
    removed, _ = shape_table(vectors(), dimensions=4, axes="reference", remove=1)
    assert np.linalg.matrix_rank(removed, tol=1e-9) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dimensions": 5}, "can't give 5 dimensions"),
        ({"dimensions": 4, "remove": 1}, "can't give 4 dimensions"),
        ({"dimensions": 2, "remove": -1}, "can't give"),
        ({"dimensions": 2, "whiten": 1.5}, "--whiten between 0 and 1, got 1.5. Change it"),
        ({"dimensions": 2, "axes": "reference"}, "keeps the width 4"),
    ],
)
def test_options_out_of_range(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        shape_table(vectors(), **options)  # type: ignore[arg-type]


def test_rows_at_their_tokens_places() -> None:
    known = np.array([False, True, False, True])
    table = fill_table(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([1.0, 0.5]), known, pad=0)
    assert table[[0, 1, 3]].tolist() == [[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]
    assert 0 < np.linalg.norm(table[2]) < 0.01


def problem() -> tuple[NDArray[np.float32], list[NDArray[np.int64]], NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    table = rng.standard_normal((12, 3)).astype(np.float32)
    ids = [rng.integers(0, 10, size=rng.integers(1, 6)) for _ in range(80)]  # tokens 10 and 11 are never seen
    targets = rng.standard_normal((80, 3)).astype(np.float32)
    return table, ids, targets / np.linalg.norm(targets, axis=1, keepdims=True)


def test_fit_is_the_ridge_solution() -> None:
    table, ids, targets = problem()
    counts = count_matrix(ids, 12)
    fit = refine_table(table, counts, lambda a, b: targets[a:b], ridge=0.3, iterations=100, block_rows=7)
    dense = counts.toarray().astype(np.float64)
    design = dense / np.linalg.norm(dense @ table, axis=1, keepdims=True)
    squares = (design**2).sum(axis=0)
    penalty = 0.3 * squares[squares > 0].mean()
    expected = table + np.linalg.solve(design.T @ design + penalty * np.eye(12), design.T @ (targets - design @ table))
    np.testing.assert_allclose(fit.table, expected, atol=5e-3)
    np.testing.assert_array_equal(fit.table[10:], table[10:])
    assert fit.iterations < 100
    assert fit.residual <= 1e-3
    held = refine_table(table, counts, lambda a, b: targets[a:b], ridge=1e9)
    np.testing.assert_allclose(held.table, table, atol=1e-5)


def test_fit_refuses_what_does_not_fit() -> None:
    table, ids, targets = problem()
    counts = count_matrix(ids, 12)
    with pytest.raises(InputError, match="ridge above 0"):
        refine_table(table, counts, lambda a, b: targets[a:b], ridge=0.0)
    for ridge in (float("inf"), float("nan"), 1e39):  # 1e39: finite, but not in 32 bits
        with pytest.raises(InputError, match=r"ridge .*--ridge"):
            refine_table(table, counts, lambda a, b: targets[a:b], ridge=ridge)
    with pytest.raises(ShapeError, match="targets of shape"):
        refine_table(table, counts, lambda a, b: targets[a:b, :2], ridge=1.0)
    with pytest.raises(ShapeError, match="a table of 11 rows"):
        refine_table(table[:11], counts, lambda a, b: targets[a:b], ridge=1.0)


def test_map_into_a_frame_recovers_a_planted_one() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 4)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    matrix = rng.standard_normal((4, 6))
    np.testing.assert_allclose(fit_into_frame(x, x @ matrix, shrinkage=1e-9), matrix, atol=1e-5)
    with pytest.raises(ShapeError, match="at least 4 pairs"):
        fit_into_frame(x[:3], x[:3])
