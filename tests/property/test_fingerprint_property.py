"""The fingerprint sees row boundaries and order, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from consilience.corpora.fingerprint import fingerprint_corpus
from consilience.corpora.text import fault_of, open_corpus

rows = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda text: fault_of(text, 100) is None)


@given(st.lists(rows, min_size=1, max_size=6), st.lists(rows, min_size=1, max_size=6))
def test_equal_fingerprints_mean_equal_rows(a, b):
    first, second = fingerprint_corpus(open_corpus(a)), fingerprint_corpus(open_corpus(b))
    assert (first == second) == (a == b)
    assert first.rows == len(a)
    assert first.characters == sum(map(len, a))


@given(st.lists(rows, min_size=2, max_size=6))
def test_joining_rows_changes_it(texts):
    joined = ["".join(texts[:2]), *texts[2:]]
    assert fingerprint_corpus(open_corpus(texts)).fingerprint != fingerprint_corpus(open_corpus(joined)).fingerprint


@given(st.lists(rows, min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 7))
def test_batches_are_the_rows(texts, size, start):
    batches = list(open_corpus(texts).batches(size, start=start))
    assert [row for batch in batches for row in batch] == texts[start:]
    assert all(len(batch) == size for batch in batches[:-1])
