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


REFUSALS = {
    "tei": (
        422,
        {"error": "batch size 9 > maximum allowed batch size 4", "error_type": "Validation"},
        "maximum allowed",
    ),
    "infinity": (422, {"detail": [{"loc": ["body", "input"], "msg": "List should have at most 4 items"}]}, "at most 4"),
    "fastapi": (422, {"detail": "list too long: at most 4"}, "list too long"),
    "vllm": (400, {"object": "error", "message": "batch too large", "code": 400}, "batch too large"),
    "dashscope": (400, {"error": {"message": "batch size is invalid, not larger than 4"}}, "not larger than 4"),
    "nginx": (413, "<h1>Request Entity Too Large</h1>", "Request Entity Too Large"),
}


def refusing(status, body, most=4):
    sizes = []

    def handler(request):
        texts = texts_of(request)
        sizes.append(len(texts))
        if len(texts) > most:
            return httpx.Response(status, **({"text": body} if isinstance(body, str) else {"json": body}))
        return answer(texts)

    handler.sizes = sizes
    return handler


@pytest.mark.parametrize("server", REFUSALS)
def test_a_batch_that_is_too_large_is_halved_for_good_and_said_once(server, capsys):
    status, body, reason = REFUSALS[server]
    handler = refusing(status, body)
    teacher, waits = make(handler)
    texts = ["x" * n for n in range(1, 19)]
    vectors = teacher.encode(texts)
    assert vectors[:, 0].tolist() == list(range(1, 19))
    assert handler.sizes == [18, 9, 4, 4, 4, 4, 2]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert reason in said
    assert "batch_rows=4" in said
    teacher.encode(texts)
    assert max(handler.sizes[7:]) == 4
    assert capsys.readouterr().err == ""
    assert waits == []
    told, _ = make(refusing(status, body), "&batch_rows=4")  # the fix that was named
    assert told.encode(texts).tobytes() == vectors.tobytes()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("status", "body", "match"),
    [
        (400, {"object": "error", "message": "This model's maximum context length is 512 tokens"}, "maximum context"),
        (404, {"detail": "model 'm' not found"}, r"HTTP 404 \(model 'm' not found\)\. Check URL"),
        (401, "Unauthorized", r"HTTP 401 \(Unauthorized\)"),
        (400, {"error": "bad input"}, r"bad input.*find the text with batch_rows=1"),
        (403, {}, "HTTP 403. Check"),
    ],
)
def test_other_refusals_show_the_reason(status, body, match):
    given = {"text": body} if isinstance(body, str) else {"json": body}
    teacher, _ = make(lambda request: httpx.Response(status, **given))
    with pytest.raises(TeacherError, match=match):
        teacher.encode(["a", "b"])


def test_one_text_that_is_too_large_names_the_option():
    teacher, _ = make(lambda request: httpx.Response(413, text="too large"))
    with pytest.raises(TeacherError, match=r"413 \(too large\).*--max-characters"):
        teacher.encode(["a", "b"])


def test_a_reason_is_shown_when_tries_run_out_and_for_errors_with_status_200():
    teacher, _ = make(lambda request: httpx.Response(503, json={"error": "Model is overloaded"}), "&retries=1")
    with pytest.raises(TeacherError, match=r"HTTP 503 \(Model is overloaded\)"):
        teacher.encode(["a"])
    teacher, _ = make(lambda request: httpx.Response(200, json={"error": {"message": "no such model"}}))
    with pytest.raises(TeacherError, match=r"malformed answer \(no such model\)"):
        teacher.encode(["a"])
    teacher, _ = make(lambda request: httpx.Response(200, text="<html>hello</html>"))
    with pytest.raises(TeacherError, match="malformed answer"):
        teacher.encode(["a"])


def test_base64_is_read_as_little_endian_fp32():
    import base64

    def handler(request):
        rows = [np.array([len(text), 0.25], dtype="<f4").tobytes() for text in texts_of(request)]
        data = [{"index": i, "embedding": base64.b64encode(row).decode()} for i, row in enumerate(rows)]
        return httpx.Response(200, json={"data": data})

    teacher, _ = make(handler)
    assert teacher.encode(["abc", "a"]).tolist() == [[3, 0.25], [1, 0.25]]


@pytest.mark.parametrize("tokens", [1, 2])
def test_vectors_of_tokens_are_refused(tokens):
    data = [{"index": 0, "embedding": [[1.0, 2.0]] * tokens}]
    teacher, _ = make(lambda request: answer(texts_of(request), data=data))
    with pytest.raises(TeacherError, match="vector for each token"):
        teacher.encode(["a"])


def test_a_bad_row_is_counted_in_the_whole_call():
    def handler(request):
        texts = texts_of(request)
        rows = [{"index": i, "embedding": [None if text == "bad" else 1.0]} for i, text in enumerate(texts)]
        return httpx.Response(200, json={"data": rows})

    teacher, _ = make(handler, "&batch_rows=2")
    with pytest.raises(TeacherError, match=r"text 3 \(of 5 in this call\) holds NaN"):
        teacher.encode(["a", "b", "c", "bad", "e"])


def test_a_change_of_width_in_mid_run_is_refused():
    def handler(request):
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [1.0] * len(texts_of(request)[0])}]})

    teacher, _ = make(handler, "&batch_rows=1")
    with pytest.raises(TeacherError, match=r"\(1, 2\), got \(1, 3\)"):
        teacher.encode(["ab", "abc"])


def test_whatever_the_client_raises_is_one_line():
    def handler(request):
        raise RuntimeError("surprise\nwith lines")

    teacher, _ = make(handler)
    with pytest.raises(TeacherError, match=r"can't embed 1 texts: RuntimeError: surprise\. Check URL"):
        teacher.encode(["a"])
