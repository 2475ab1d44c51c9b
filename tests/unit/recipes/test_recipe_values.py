"""Environment variables and --set."""

import pytest

from consilience.recipes.recipe_values import apply_settings, did_you_mean, expand_environment, parse_setting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.minutes=5", (["train", "minutes"], 5)),
        ("train.lr=6e-4", (["train", "lr"], 6e-4)),
        ("evaluate.compare=false", (["evaluate", "compare"], False)),
        ('evaluate.tasks=["sts"]', (["evaluate", "tasks"], ["sts"])),
        ("corpus.path=a=b.txt", (["corpus", "path"], "a=b.txt")),
        ("teachers.0.spec=packaged:glove", (["teachers", "0", "spec"], "packaged:glove")),
        ("name=x\nseed = 3", (["name"], "x\nseed = 3")),
    ],
)
def test_setting_values_are_toml_or_strings(text, expected):
    assert parse_setting(text) == expected


@pytest.mark.parametrize("text", ["train.minutes", "=5", "train..minutes=5", ""])
def test_malformed_settings_are_refused(text):
    with pytest.raises(ValueError, match="key=value"):
        parse_setting(text)


def test_settings_reach_list_items_and_new_tables():
    faults = []
    document = {"teachers": [{"spec": "a"}, {"spec": "b"}]}
    changed = apply_settings(document, ["teachers.1.spec=c", "train.steps=3"], faults)
    assert changed == {"teachers": [{"spec": "a"}, {"spec": "c"}], "train": {"steps": 3}}
    assert document == {"teachers": [{"spec": "a"}, {"spec": "b"}]}
    assert faults == []


def test_every_bad_setting_is_a_fault():
    faults = []
    apply_settings({"teachers": [{"spec": "a"}], "seed": 0}, ["nonsense", "teachers.4.spec=c", "seed.x=1"], faults)
    assert len(faults) == 3
    assert "teachers has items 0 to 0, got '4'" in faults[1]
    assert "seed is a value" in faults[2]


def test_a_set_budget_replaces_the_recipes():
    assert apply_settings({"train": {"steps": 9, "lr": 1.0}}, ["train.minutes=5"], []) == {
        "train": {"minutes": 5, "lr": 1.0}
    }
    # Two on the command line are the person's own contradiction, and stay for the check to find.
    both = apply_settings({"train": {"steps": 9}}, ["train.minutes=5", "train.steps=3"], [])
    assert both == {"train": {"minutes": 5, "steps": 3}}


def test_environment_variables_expand_everywhere(tmp_path, monkeypatch):
    faults = []
    document = {"a": ["${X}/b", "${Y:-z}"], "n": 3, "t": {"p": "${MISSING}"}}
    expanded = expand_environment(document, faults, environment={"X": "/data"})
    assert expanded == {"a": ["/data/b", "z"], "n": 3, "t": {"p": "${MISSING}"}}
    assert len(faults) == 1
    assert faults[0].startswith("t.p: environment variable MISSING is not set")
    # One variable is one fault, wherever it stands.
    faults.clear()
    expand_environment({"a": ["${X}", "${X}${X}"], "t": {"p": "${Y}"}}, faults, environment={"X": ""})
    assert [fault.partition(". ")[0] for fault in faults] == [
        "a[0], a[1]: environment variable X is not set",
        "t.p: environment variable Y is not set",
    ]
    # A relative path from the environment means: relative to where the person is.
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert expand_environment("${X}/b", [], environment={"X": "data"}) == f"{tmp_path.resolve()}/data/b"


def test_did_you_mean_offers_the_nearest_or_all():
    assert did_you_mean("minuts", ["steps", "minutes"]) == "; did you mean minutes?"
    assert did_you_mean("zzz", ["steps", "minutes"]) == "; known: steps, minutes"
