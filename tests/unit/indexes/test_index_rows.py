"""Rows of any index: what is refused, and that a fingerprint is of the content alone."""

import numpy as np
import pytest

from consilience.core.errors import InputError, ShapeError
from consilience.indexes.index import (
    RowChecks,
    checked_blocks,
    fingerprint_blocks,
    lookup_by_scan,
    transformed,
)


class Rows:
    """An index in memory."""

    kind, label, metric = "npy", "memory", "cosine"

    def __init__(self, ids, vectors):
        self.ids, self.vectors = ids, np.asarray(vectors, dtype=np.float32)
        self.rows, self.dimensions = self.vectors.shape

    def blocks(self, rows=2):
        for start in range(0, self.rows, rows):
            yield self.ids[start : start + rows], self.vectors[start : start + rows]

    def iter_blocks(self, rows=8192):
        return checked_blocks(self, lambda: self.blocks(rows))


def test_an_id_that_occurs_in_two_blocks_is_found_and_named():
    with pytest.raises(InputError, match="id 'a' occurs more than once"):
        list(Rows(["a", "b", "c", "a"], np.eye(4)).iter_blocks(2))


def test_ids_that_differ_pass():
    assert [ids for ids, _ in Rows(["a", "b", "c"], np.eye(3)).iter_blocks(2)] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("row", "message"),
    [([np.nan, 1], "1 vector of one block is NaN or infinite: id 'b'"), ([0, 0], "is all zero: id 'b'")],
)
def test_a_faulty_vector_is_named_by_its_id(row, message):
    with pytest.raises(InputError, match=message):
        list(Rows(["a", "b"], [[1, 0], row]).iter_blocks())


def test_only_the_first_faulty_ids_are_named():
    with pytest.raises(InputError, match=r"5 vectors .*: id '0', '1', '2', \.\.\.\. Delete"):
        RowChecks("x", 2).check([str(i) for i in range(5)], np.zeros((5, 2), dtype=np.float32))


def test_a_fingerprint_depends_on_rows_and_not_on_blocks():
    ids, vectors = ["a", "b", "c"], np.arange(6).reshape(3, 2)
    whole = fingerprint_blocks(Rows(ids, vectors).blocks(3))
    assert fingerprint_blocks(Rows(ids, vectors).blocks(1)) == whole
    assert fingerprint_blocks(Rows(["a", "bc", ""], vectors).blocks(3)) != whole
    assert fingerprint_blocks(Rows(["b", "a", "c"], vectors).blocks(3)) != whole
    assert fingerprint_blocks(Rows(ids, vectors + 1).blocks(3)) != whole


def test_lookup_keeps_the_order_asked_for_and_repeats():
    index = Rows(["a", "b", "c"], np.diag([1, 2, 3]))
    found = lookup_by_scan(index, index.blocks(), ["c", "a", "c"])
    np.testing.assert_array_equal(found, index.vectors[[2, 0, 2]])
    assert lookup_by_scan(index, index.blocks(), []).shape == (0, 3)


def test_lookup_names_the_first_unknown_ids_and_counts_them():
    index = Rows(["a", "b"], np.eye(2))
    with pytest.raises(InputError, match=r"4 of 5 ids asked for aren't in the index, the first: 'p', 'q', 'r', \.\.\."):
        lookup_by_scan(index, index.blocks(), ["p", "q", "a", "r", "s"])


def test_a_transform_of_another_width_is_refused_and_so_are_its_faulty_rows():
    vectors = np.ones((2, 3), dtype=np.float32)
    with pytest.raises(ShapeError, match=r"\(2, 4\), it returned \(2, 3\)"):
        transformed("x", lambda v: v, ["a", "b"], vectors, 4)
    with pytest.raises(InputError, match="transformed: 2 vectors"):
        transformed("x", lambda v: v * np.float32(np.nan), ["a", "b"], vectors, 3)
