"""Weights of teachers as words on the command line."""

import pytest

from consilience.cli.consensus import parse_weights
from consilience.core.errors import InputError


def test_names_may_hold_an_equals_sign_and_numbers_are_floats():
    assert parse_weights(["st:x?prompt=q=2", "glove=.5"], what="SPEC") == {"st:x?prompt=q": 2.0, "glove": 0.5}


@pytest.mark.parametrize("words", [["glove"], ["=2"], ["glove=much"], ["glove=1", "glove=2"]])
def test_what_is_no_weight_or_one_too_many_is_refused(words):
    with pytest.raises(InputError, match="--weight"):
        parse_weights(words, what="BANK")
