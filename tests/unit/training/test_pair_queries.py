"""A retrieval number on pairs is quoted only where its queries vary and it falls as the gallery grows."""

import json

import numpy as np
import pytest

from consilience.cli.adapt_output import show_library
from consilience.gauges.variation import report_variation
from consilience.training.pair_queries import is_refused, judge_retrieval

FALLS = {"equiv/retrieval_at_1_of_16": 0.6, "equiv/retrieval_at_1_of_4": 0.9, "equiv/self_cosine": 0.1}
FLAT = {"equiv/retrieval_at_1_of_16": 1.0, "equiv/retrieval_at_1_of_4": 1.0, "equiv/self_cosine": 0.1}


@pytest.fixture
def varied():
    texts = [f"a query of {'long ' * (i % 30)}length {i}" for i in range(100)]
    return report_variation(texts, np.random.default_rng(0).standard_normal((100, 16)))


@pytest.fixture
def alike():
    noise = np.random.default_rng(0).standard_normal((100, 16))
    return report_variation(["the same"] * 100, np.ones((100, 16)) + 1e-3 * noise)


def test_varied_queries_and_a_falling_score_are_quoted(varied):
    verdict = judge_retrieval("equiv", varied, {"before": FALLS, "after": FALLS})
    assert verdict["refused"] == []
    assert verdict["variation"]["distinct"] == 100
    assert not is_refused("equiv/retrieval_at_1_of_4", {"equiv": verdict})


def test_queries_that_do_not_vary_are_refused(alike):
    (why,) = judge_retrieval("equiv", alike, {"after": FALLS})["refused"]
    assert "1 of 100 queries are distinct" in why


def test_too_few_queries_are_refused():
    assert judge_retrieval("equiv", None, {"after": FALLS}) == {"variation": None, "refused": ["fewer than 5 queries"]}


def test_a_score_that_the_gallery_does_not_lower_is_refused(varied):
    verdict = judge_retrieval("equiv", varied, {"before": FALLS, "after": FLAT})
    (why,) = verdict["refused"]
    assert why.startswith("after: retrieval: expected R@1 to fall as the gallery grows, got 1.000 at 4, 1.000 at 16")
    assert is_refused("equiv/retrieval_at_1_of_4", {"equiv": verdict})
    assert not is_refused("equiv/self_cosine", {"equiv": verdict})
    assert not is_refused("para/retrieval_at_1_of_4", {"equiv": verdict})


@pytest.mark.parametrize("after", [FALLS, FLAT])
def test_the_command_prints_the_number_or_the_reason(varied, tmp_path, capsys, after):
    from consilience.core.artefacts import begin_artefact, finish_artefact
    from consilience.core.files import write_json

    readings = {"before": FALLS, "after": after}
    report = {"gauges": readings, "retrieval": {"equiv": judge_retrieval("equiv", varied, readings)}}
    work, _ = begin_artefact(tmp_path / "out", {})
    write_json(work / "report.json", report)
    finish_artefact(tmp_path / "out", kind="lora", manifest={}, files=["report.json"])
    show_library(tmp_path / "out", as_json=False)
    said = capsys.readouterr().out
    assert "equiv/self_cosine" in said
    assert ("equiv/retrieval_at_1_of_16" in said) == (after is FALLS)
    assert ("R@1 of equiv isn't quoted: after" in said) == (after is FLAT)
    show_library(tmp_path / "out", as_json=True)
    assert json.loads(capsys.readouterr().out)["report"]["gauges"]["after"] == after
