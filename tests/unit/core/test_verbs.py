"""One value for a list, and what is refused; on the public functions themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import consilience
from consilience.core.errors import InputError
from consilience.core.verbs import lenient_lists


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("distill", {"layers": "0,2,5"}, "layers: expected whole numbers, as [64, 128], got '0,2,5'"),
        ("distill", {"layers": ["0", "2"]}, "layers: expected whole numbers"),
        ("distill", {"matryoshka": "64"}, "matryoshka: expected whole numbers"),
        ("distill", {"matryoshka": {64, 128}}, "matryoshka: expected whole numbers"),
        ("distill", {"where": "lang=en"}, "where: expected names and values, as {'name': value}, got 'lang=en'"),
        ("embed", {"where": ["lang=en"]}, "where: expected names and values"),
        ("embed", {"corpus": {"a cat", "a dog"}}, "corpus: expected a text or a list of texts, got set"),
        ("embed", {"corpus": {"text": ["a cat"]}}, "corpus: expected a text or a list of texts, got dict"),
        ("embed", {"corpus": np.array([["a cat"]])}, "corpus: expected a text or a list of texts, got ndarray"),
        ("consensus", {"weights": "a=2"}, "weights: expected names and values"),
        ("consensus", {"banks": [None]}, "banks: expected one or several, in an order, got [None]"),
        ("consensus", {"leave_out": [3]}, "leave_out: expected names, got [3]"),
        ("align", {"banks": {"a", "b"}}, "banks: expected one or several, in an order"),
        ("evaluate", {"tasks": b"sts"}, "tasks: expected names"),
        ("adapt_sweep", {"temperatures": "0.1"}, "temperatures: expected numbers, as [0.1, 0.05]"),
        ("adapt_align", {"pairs": "pairs.tsv"}, "pairs: expected names and values"),
    ],
)
def test_what_an_option_excludes_is_refused_in_one_line(name, given, message):
    required = {
        "distill": {"corpus": "c", "target": "t", "out": "o"},
        "embed": {"corpus": "c", "teacher": "packaged:glove", "out": "o"},
        "consensus": {"banks": ["b"], "frames": "f", "out": "o"},
        "align": {"out": "o"},
        "evaluate": {"models": "m"},
        "adapt_sweep": {"library": "l", "student": "s", "pairs": {}, "out": "o"},
        "adapt_align": {"anchors": "a", "student": "s", "out": "o"},
    }[name]
    with pytest.raises(InputError) as caught:
        getattr(consilience, name)(**{**required, **given})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@lenient_lists
def verb(
    names: Sequence[str] = (), numbers: Sequence[int] | None = None, *, any_: Sequence[str | Path] = (), text: str = ""
) -> tuple[object, ...]:
    return names, numbers, any_, text


def test_one_value_stands_for_a_list_of_one():
    assert verb("sts", 64, any_=Path("x"), text="abc") == (["sts"], [64], [Path("x")], "abc")
    assert verb(("a", "b"), np.array([8, 16]), any_=iter(["x"])) == (["a", "b"], [8, 16], ["x"], "")
    assert verb() == ((), None, (), "")
    with pytest.raises(InputError, match="no such file or folder"):  # of the folder, not of its first letter
        consilience.consensus("banks/x", frames="f", out="c")
    with pytest.raises(InputError, match="'nonsense': unknown"):
        consilience.evaluate("packaged:glove", tasks="nonsense")


def test_a_verb_keeps_its_name_and_signature():
    import inspect

    from consilience.recipes.embed import embed

    assert inspect.signature(consilience.embed) == inspect.signature(embed)
    assert consilience.embed is consilience.embed
    assert consilience.embed.__doc__ == embed.__doc__
