import json

import httpx
import numpy as np
import pytest

from consilience.core.errors import InputError, TeacherError
from consilience.teachers.http_teacher import HttpTeacher
from consilience.teachers.spec import parse_teacher_spec

KEY = "sk-very-secret"


def answer(texts, **change):
    data = [{"index": i, "embedding": [float(len(t)), 1.0]} for i, t in enumerate(texts)]
    return httpx.Response(200, json={"data": change.get("data", data)})


def make(handler, options="", **kwargs):
    waits = []
    teacher = HttpTeacher(
        parse_teacher_spec(f"http://host/v1/embeddings?model=m{options}"), sleep=waits.append, **kwargs
    )
    headers = teacher._client.headers
    teacher._client.close()
    teacher._client = httpx.Client(transport=httpx.MockTransport(handler), headers=headers)
    return teacher, waits


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def texts_of(request):
    return json.loads(request.content)["input"]


def test_batches_by_rows_and_characters():
    seen = []

    def handler(request):
        seen.append(texts_of(request))
        return answer(seen[-1])

    teacher, _ = make(handler, "&batch_rows=2&batch_characters=5")
    vectors = teacher.encode(["aa", "bb", "c", "dddddddd", "e"])
    assert seen == [["aa", "bb"], ["c"], ["dddddddd"], ["e"]]
    assert vectors[:, 0].tolist() == [2, 2, 1, 8, 1]


def test_retries_honour_retry_after_then_back_off():
    replies = [httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(503), None]

    def handler(request):
        reply = replies.pop(0) if replies else None
        if reply is None and len(replies) == 0 and not handler.timed_out:
            handler.timed_out = True
            raise httpx.ReadTimeout("slow")
        return reply or answer(texts_of(request))

    handler.timed_out = False
    teacher, waits = make(handler)
    assert teacher.encode(["abc"]).tolist() == [[3, 1]]
    assert waits[0] == 7
    assert 0.5 <= waits[1] <= 1
    assert 1 <= waits[2] <= 2


def test_gives_up_with_a_count():
    teacher, waits = make(lambda request: httpx.Response(500), "&retries=2")
    with pytest.raises(TeacherError, match=r"3 tries \(HTTP 500\)"):
        teacher.encode(["a"])
    assert len(waits) == 2


def test_rate_limit_spaces_requests():
    now = [0.0]
    teacher, waits = make(
        lambda request: answer(texts_of(request)), "&requests_per_minute=30&batch_rows=1", clock=lambda: now[0]
    )
    teacher.encode(["a", "b", "c"])
    assert waits == [2.0, 4.0]  # the clock stands still, so each turn is two seconds after the last


def test_key_is_sent_and_never_shown(key):
    def handler(request):
        assert request.headers["authorization"] == f"Bearer {KEY}"
        return httpx.Response(401, json={"error": {"message": f"Incorrect API key provided: {KEY}"}})

    teacher, _ = make(handler)
    with pytest.raises(TeacherError, match="HTTP 401") as caught:
        teacher.encode(["a"])
    assert KEY not in str(caught.value)
    assert KEY not in json.dumps(teacher.identity())
    assert KEY not in teacher.name


def test_named_variable_must_be_set(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(InputError, match="NO_SUCH_KEY"):
        HttpTeacher(parse_teacher_spec("http://h/v1?model=m&key_env=NO_SUCH_KEY"))
    with pytest.raises(InputError, match="model"):
        HttpTeacher(parse_teacher_spec("http://h/v1"))


@pytest.mark.parametrize("unsendable", ["sk-very-secret\n", "sk-very-secrét"])
def test_a_key_that_no_header_takes_is_refused_unseen(monkeypatch, unsendable):
    monkeypatch.setenv("OPENAI_API_KEY", unsendable)
    with pytest.raises(InputError, match="OPENAI_API_KEY") as caught:
        HttpTeacher(parse_teacher_spec("http://h/v1?model=m"))
    assert "sk-very" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ([], "indices"),
        ([{"index": 0, "embedding": [1.0]}], "indices"),
        ([{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}], "indices"),
        ([{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}], "widths"),
        ([{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": ["y"]}], "numbers"),
        ([{"index": 0, "embedding": [0.0]}, {"index": 1, "embedding": [1.0]}], "all zero"),
        ([{"index": 0}, {"index": 1}], "malformed"),
        ("text", "malformed"),
    ],
)
def test_answers_are_checked(data, match):
    teacher, _ = make(lambda request: answer(texts_of(request), data=data))
    with pytest.raises(TeacherError, match=match):
        teacher.encode(["a", "b"])


def test_nan_in_the_answer_is_refused():
    body = b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'
    teacher, _ = make(lambda request: httpx.Response(200, content=body))
    with pytest.raises(TeacherError, match="NaN"):
        teacher.encode(["a"])


def test_order_by_index():
    def handler(request):
        rows = [{"index": i, "embedding": [float(i), 1.0]} for i in range(3)]
        return httpx.Response(200, json={"data": [rows[2], rows[0], rows[1]]})

    teacher, _ = make(handler)
    np.testing.assert_array_equal(teacher.encode(["a", "b", "c"])[:, 0], [0, 1, 2])
