import pytest

from consilience.core.errors import InputError, TeacherError
from consilience.teachers.registry import load_teacher
from consilience.teachers.spec import parse_teacher_spec


@pytest.mark.parametrize(
    ("text", "backend", "name", "options"),
    [
        ("st:a/b", "st", "a/b", {}),
        ("hf:a/b?pool=cls&max_length=9", "hf", "a/b", {"pool": "cls", "max_length": "9"}),
        ("st:a/b?prompt=q%3A%20%26%3D", "st", "a/b", {"prompt": "q: &="}),
        ("onnx:/x/a%3Fb.onnx", "onnx", "/x/a?b.onnx", {}),
        ("parquet:x.parquet#vec", "parquet", "x.parquet", {"column": "vec"}),
        ("npy:x.npy", "npy", "x.npy", {}),
        ("http://h:80/v1/embeddings?model=a/b", "http", "http://h:80/v1/embeddings", {"model": "a/b"}),
    ],
)
def test_parses_and_round_trips(text, backend, name, options):
    spec = parse_teacher_spec(text)
    assert (spec.backend, spec.name, dict(spec.options)) == (backend, name, options)
    assert parse_teacher_spec(spec.canonical()) == spec


def test_overrides_win_and_none_is_not_given():
    spec = parse_teacher_spec("st:a?max_length=9&prompt=x", max_length=5, prompt=None)
    assert spec.options == {"max_length": "5", "prompt": "x"}


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("nonsense", TeacherError, "st:, hf:"),
        ("foo:bar", TeacherError, "packaged:NAME"),
        ("st:", TeacherError, "empty"),
        ("st:a?pool=mean", InputError, "Valid options: batch_tokens, device"),
        ("hf:a?pool=median", InputError, "mean, cls, last, max"),
        ("hf:a?max_length=-1", InputError, "positive whole number"),
        ("hf:a?max_length", InputError, "no value"),
        ("hf:a?dtype=fp32&dtype=fp16", InputError, "twice"),
        ("https://user:secret@h/v1?model=x", InputError, "key_env"),
        ("http://[secret/v1?model=x", TeacherError, "isn't a URL"),
    ],
)
def test_faults_are_named(text, error, match):
    with pytest.raises(error, match=match) as caught:
        parse_teacher_spec(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["bank:x", "parquet:x#c", "npy:x.npy"])
def test_stored_embeddings_are_no_encoders(text):
    with pytest.raises(TeacherError, match="embed"):
        load_teacher(text)


@pytest.mark.parametrize(
    "text", ["st:./missing", "hf:/no/such", "onnx:no.onnx", "static:no", "vectors:no.txt", "packaged:no"]
)
def test_missing_models_are_one_line(text):
    with pytest.raises(TeacherError) as caught:
        load_teacher(text)
    assert "\n" not in str(caught.value)
