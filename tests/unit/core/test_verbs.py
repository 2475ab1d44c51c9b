"""One value for a list, and what is refused; on the public functions themselves."""

import numpy as np
import pytest

import consilience
from consilience.core.errors import ConsilienceError, InputError


@pytest.mark.parametrize(
    ("verb", "given", "message"),
    [
        ("distill", {"layers": "0,2,5"}, "layers: expected whole numbers, as [64, 128], got '0,2,5'"),
        ("distill", {"layers": ["0", "2"]}, "layers: expected whole numbers"),
        ("distill", {"matryoshka": "64"}, "matryoshka: expected whole numbers"),
        ("distill", {"matryoshka": {64, 128}}, "matryoshka: expected whole numbers"),
        ("distill", {"where": "lang=en"}, "where: expected names and values, as {'name': value}, got 'lang=en'"),
        ("embed", {"where": ["lang=en"]}, "where: expected names and values"),
        ("consensus", {"weights": "a=2"}, "weights: expected names and values"),
        ("consensus", {"banks": [None]}, "banks: expected one or several, in an order, got [None]"),
        ("consensus", {"leave_out": [3]}, "leave_out: expected names, got [3]"),
        ("align", {"banks": {"a", "b"}}, "banks: expected one or several, in an order"),
        ("evaluate", {"tasks": b"sts"}, "tasks: expected names"),
        ("adapt_sweep", {"temperatures": "0.1"}, "temperatures: expected numbers, as [0.1, 0.05]"),
        ("adapt_align", {"pairs": "pairs.tsv"}, "pairs: expected names and values"),
    ],
)
def test_what_an_option_excludes_is_refused_in_one_line(verb, given, message):
    required = {
        "distill": {"corpus": "c", "target": "t", "out": "o"},
        "embed": {"corpus": "c", "teacher": "t", "out": "o"},
        "consensus": {"banks": ["b"], "frames": "f", "out": "o"},
        "align": {"out": "o"},
        "evaluate": {"models": "m"},
        "adapt_sweep": {"library": "l", "student": "s", "pairs": {}, "out": "o"},
        "adapt_align": {"anchors": "a", "student": "s", "out": "o"},
    }[verb]
    with pytest.raises(InputError) as caught:
        getattr(consilience, verb)(**{**required, **given})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_value_stands_for_a_list_of_one(tmp_path):
    text = ["a cat", "two dogs", "a bird sang"] * 40
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(120, 4)).astype(np.float32))
    bank = consilience.embed(text, teacher=f"npy:{tmp_path / 'x.npy'}", out=tmp_path / "bank", dtype="fp32")
    frames = [
        consilience.align(banks, method="gpa", fit_rows=60, held_out_rows=40, force=True, out=tmp_path / name)
        for name, banks in (("one", bank), ("two", str(bank.path)), ("three", [bank.path]))
    ]
    assert len({frame.id for frame in frames}) == 1
    with pytest.raises(ConsilienceError, match=r"no such file|nothing is there|banks/x"):
        consilience.consensus("banks/x", frames=frames[0], out=tmp_path / "c")
    with pytest.raises(InputError, match="'nonsense': unknown"):
        consilience.evaluate("packaged:glove", tasks="nonsense")


def test_a_verb_keeps_its_name_and_signature():
    import inspect

    from consilience.recipes.embed import embed

    assert inspect.signature(consilience.embed) == inspect.signature(embed)
    assert consilience.embed is consilience.embed
    assert consilience.embed.__doc__ == embed.__doc__
