import pytest

from consilience.exporters.folder import find_teachers
from consilience.exporters.licences import judge_licences, licence_class
from consilience.exporters.model_card import render_card


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("MIT", "permissive"),
        ("Apache-2.0", "permissive"),
        ("BSD-3-Clause", "permissive"),
        ("CC0-1.0", "public domain"),
        ("CC-BY-4.0", "permissive"),
        ("CC-BY-SA-4.0", "share-alike"),
        ("GPL-3.0-only", "share-alike"),
        ("CC-BY-NC-SA-4.0", "non-commercial"),
        ("cc by nc 4.0", "non-commercial"),
        ("CC-BY-ND-4.0", "no derivatives"),
        ("Proprietary", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_classes(licence, expected):
    assert licence_class(licence) == expected


def test_all_permissive():
    verdict = judge_licences({"a": "MIT", "b": "Apache-2.0"})
    assert verdict.metadata == "apache-2.0"
    assert verdict.strictest == "permissive"


def test_the_strictest_rules_and_is_named():
    verdict = judge_licences({"a": "MIT", "b": "CC-BY-NC-4.0", "c": "GPL-3.0"})
    assert (verdict.metadata, verdict.strictest) == ("other", "non-commercial")
    assert "non-commercial (b)" in verdict.statement


@pytest.mark.parametrize("licences", [{}, {"a": "MIT", "b": None}])
def test_unknown_is_said_plainly(licences):
    verdict = judge_licences(licences)
    assert (verdict.metadata, verdict.strictest) == ("other", "unknown")
    assert "no licence is claimed" in verdict.statement


@pytest.mark.parametrize(
    ("identity", "shown"),
    [
        ({"backend": "http", "name": "https://host/v1/embeddings", "model": "m"}, "https://host/v1/embeddings"),
        ({"backend": "mine", "name": "lengths"}, "mine:lengths"),  # an encoder given to the Python API
    ],
)
def test_teachers_that_no_spec_names_are_listed_with_an_unknown_licence(identity, shown):
    assert find_teachers({"target": {"teacher": identity}}) == {shown: None}


def make_card(formats=("onnx",), results=None):
    return render_card(
        title="t", manifest={}, teachers={"a": "MIT"}, dimensions=2, parameters=3, max_length=4, padding=(0, "[PAD]"),
        formats=formats, parity={"max_abs_difference": {}, "probe_texts": 1, "tolerance": 1e-4}, results=results,
        command="c",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("formats", "library"), [(("onnx",), "onnx"), (("sentence-transformers", "onnx"), "sentence-transformers")]
)
def test_the_card_claims_the_library_that_loads_the_folder_and_no_language(formats, library):
    card = make_card(formats=formats)
    front = card.split("---\n")[1]
    assert f"library_name: {library}\n" in front
    assert ("- sentence-transformers\n" in front) == ("sentence-transformers" in formats)
    assert "language" not in front


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("/secret/a/student", "student"),
        ("st:/secret/a/model?max_length=9", "st:model?max_length=9"),
        (
            "onnx:/secret/a/m.onnx?tokenizer=/secret/b/tokenizer.json&output=y",
            "onnx:m.onnx?tokenizer=tokenizer.json&output=y",
        ),
        ("https://host/v1/embeddings?model=a/b", "https://host/v1/embeddings?model=a/b"),
        ("st:org/name", "st:org/name"),
    ],
)
def test_results_name_models_without_this_machine_s_folders(model, shown):
    entry = {"model": model, "tasks": {}, "mean": 0.5, "geometry": {}}
    assert f"| task | `{shown}` |" in make_card(results={"models": [entry]})


def test_a_folder_of_the_same_name_lends_no_licence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    assert find_teachers({"target": {"teacher": {"backend": "st", "name": "model"}}}) == {"st:model": None}
    packaged = {"backend": "packaged", "name": "glove-6b-50d"}
    assert find_teachers({"target": {"teacher": packaged}}) == {"packaged:glove-6b-50d": "PDDL-1.0"}
