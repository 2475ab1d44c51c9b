"""Hashes, seeds and errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import ConsilienceError, MissingExtraError, RecipeError
from consilience.core.extras import require
from consilience.core.hashing import RowHasher, canonical_json
from consilience.core.seeds import rng_from_name, seed_from_name

rows = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5)


def fingerprint(values):
    hasher = RowHasher()
    for value in values:
        hasher.update(value)
    return hasher.hexdigest()


@given(rows, rows)
def test_the_row_fingerprint_is_injective(first, second):
    assert (fingerprint(first) == fingerprint(second)) == (first == second)


def test_nan_has_no_canonical_form():
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"loss": float("nan")})


def test_seeds_differ_by_name_and_number_and_repeat():
    assert len({seed_from_name(n, s) for n in ("a", "b") for s in range(3)}) == 6
    assert rng_from_name("a").integers(1 << 30) == rng_from_name("a").integers(1 << 30)


def test_an_error_is_one_line():
    assert "\n" not in str(ConsilienceError("first\nsecond"))


def test_all_faults_of_a_recipe_are_in_the_message():
    message = str(RecipeError("r.toml", ["one", "two", "three"]))
    assert message == "r.toml: 3 faults: (1) one; (2) two; (3) three"


def test_a_missing_extra_names_the_command():
    with pytest.raises(MissingExtraError, match=r"pip install 'consilience\[onnx\]'"):
        require("no_such_module_here", extra="onnx", purpose="to run ONNX teachers")
