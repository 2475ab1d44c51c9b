"""``http(s)://`` teachers: any endpoint that speaks OpenAI's embeddings protocol."""

from __future__ import annotations

import base64
import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.extras import require
from consilience.core.progress import log
from consilience.teachers.boundary import model_call
from consilience.teachers.checked import check_embeddings
from consilience.teachers.pooling import normalise_rows
from consilience.teachers.spec import TeacherSpec

# Assumed: the usual servers accept 2,048 rows and about 300k tokens a request; these stay well below.
_BATCH_ROWS = 128
_BATCH_CHARACTERS = 200_000
_RETRIES = 6
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 60.0
_TIMEOUT_SECONDS = 60.0
_REASON_CHARACTERS = 300
# How servers speak of too many texts in one request; a text of too many tokens isn't helped by fewer of them.
_OF_BATCH = re.compile(
    r"batch|too many (inputs|texts|items)|(list|array|input) (is )?too (long|large)|at most \d+ (items|texts|inputs)",
    re.I,
)


class HttpTeacher:
    """An OpenAI-compatible embeddings endpoint.

    Requests hold up to ``batch_rows`` texts and ``batch_characters`` characters. Rate limits (429), server errors
    (5xx) and broken connections are tried again with exponential backoff and jitter, or when the server's
    ``Retry-After`` says. A request that is too large for the server (413, 422, or 400 that speaks of the batch) is sent
    in halves, and so are those after it. The key comes from the environment variable ``key_env`` (default
    OPENAI_API_KEY); it is in no message and no identity.

    Args:
        spec: backend "http"; the name is the URL, the option ``model`` names the model.
        sleep: how to wait, in seconds.
        clock: monotonic seconds, for the rate limit.

    Raises:
        InputError: the option ``model`` is missing, ``key_env`` names a variable that isn't set, or the key can't be
            sent.
        TeacherError: the endpoint refuses or answers something else.
        MissingExtraError: httpx isn't installed.
    """

    def __init__(
        self,
        spec: TeacherSpec,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        httpx = require("httpx", extra="http", purpose="to use an embeddings endpoint")
        self.name = spec.canonical()
        self.model = spec.options.get("model", "")
        if not self.model:
            raise InputError(f"teacher {self.name}: the model isn't named. Add ?model=NAME to the URL")
        variable = spec.options.get("key_env")
        key = os.environ.get(variable or "OPENAI_API_KEY", "")
        if variable is not None and not key:
            raise InputError(
                f"teacher {self.name}: the environment variable {variable} isn't set. Set it to the API key"
            )
        if not (key.isascii() and key.isprintable()):
            raise InputError(
                f"teacher {self.name}: the key in {variable or 'OPENAI_API_KEY'} holds characters that no HTTP header "
                "takes (a line break, a letter with an accent). Set the variable to the key alone"
            )
        self.prompt = spec.options.get("prompt", "")
        self.normalise = spec.flag("normalise", False)
        self.parameters: int | None = None
        self._spec = spec
        self._wanted = spec.integer("dimensions")
        self._rows = spec.integer("batch_rows") or _BATCH_ROWS
        self._refusal: str | None = None  # of a batch size that the server didn't take and that isn't said yet
        self._characters = spec.integer("batch_characters") or _BATCH_CHARACTERS
        self._interval_seconds = 60 / spec.number("requests_per_minute", float("inf"))
        retries = spec.integer("retries")
        self._retries = _RETRIES if retries is None else retries
        self._sleep, self._clock = sleep, clock
        self._next_seconds = 0.0
        self._turns = threading.Lock()
        # Jitter alone draws from it: no vector depends on it.
        self._jitter = random.Random()
        self._errors: type[Exception] = httpx.HTTPError
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=spec.number("timeout_seconds", _TIMEOUT_SECONDS),
            follow_redirects=False,  # a redirect would carry the key elsewhere
        )
        self._dimensions: int | None = None

    @property
    def dimensions(self) -> int:
        """Width of the vectors; the first use asks the endpoint for one vector."""
        if self._dimensions is None:
            with model_call(self.name, "ask for the width of its vectors", "Check URL, model and key"):
                self._embed([self.prompt + "a"], 0, 1)
        if self._dimensions is None:
            raise TeacherError(f"teacher {self.name}: the endpoint gave no vector. Check it")
        return self._dimensions

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors, as far as a client knows; never the key."""
        return {
            "backend": "http",
            "name": self._spec.name,
            "model": self.model,
            "revision": self._spec.options.get("revision"),
            "weights_sha256": None,
            "tokenizer_sha256": None,
            "prompt": self.prompt,
            "pooling": "server",
            "requested_dimensions": self._wanted,
            "max_length": None,
            "dtype": "server",
            "normalise": self.normalise,
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        blocks: list[NDArray[np.float32]] = []
        start = 0
        with model_call(self.name, f"embed {len(texts)} texts", "Check URL, model and key"):
            while start < len(texts):
                batch = self._next_batch(texts, start)
                block = self._embed(batch, start, len(texts))
                if block is not None:
                    blocks.append(block)
                    start += len(batch)
        vectors = np.concatenate(blocks)
        return normalise_rows(vectors) if self.normalise else vectors

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _next_batch(self, texts: Sequence[str], start: int) -> list[str]:
        batch: list[str] = []
        characters = 0
        for text in texts[start : start + self._rows]:
            row = self.prompt + text
            if batch and characters + len(row) > self._characters:
                break
            batch.append(row)
            characters += len(row)
        return batch

    def _embed(self, batch: list[str], start: int, rows: int) -> NDArray[np.float32] | None:
        """Return the vectors of a batch, or None after fewer rows a request were settled on.

        Args:
            batch: the texts, prompts included.
            start: number of the first, for messages.
            rows: texts of the whole call, for messages.
        """
        body: dict[str, Any] = {"model": self.model, "input": batch, "encoding_format": "float"}
        if self._wanted is not None:
            body["dimensions"] = self._wanted
        response = self._post(body)
        if response is None:
            self._rows = min(self._rows, len(batch) // 2)
            return None
        if self._refusal is not None:
            log(
                f"teacher {self.name}: {self._rows} texts a request from now on ({self._refusal}); batch_rows="
                f"{self._rows} says so from the start"
            )
            self._refusal = None
        vectors = check_embeddings(
            self._read(response, len(batch)),
            rows=len(batch),
            dimensions=self._dimensions or self._wanted,
            teacher=self.name,
            first=start,
            total=rows,
        )
        self._dimensions = int(vectors.shape[1])
        return vectors

    def _post(self, body: dict[str, Any]) -> Any:  # noqa: ANN401 - an httpx.Response
        """Return the answer, or None when the server takes fewer texts a request."""
        fault = ""
        for attempt in range(self._retries + 1):
            self._wait_for_turn()
            asked = None
            try:
                response = self._client.post(self._spec.name, json=body)
            except self._errors as error:
                fault = f"{type(error).__name__}"  # its text may hold headers of the request
            else:
                status = response.status_code
                if status == 200:
                    return response
                fault = f"HTTP {status}{self._reason(response)}"
                if status not in (408, 409, 429) and status < 500:
                    self._refuse(fault, status, len(body["input"]))
                    return None
                asked = _retry_after_seconds(response.headers.get("retry-after"))
            if attempt < self._retries:
                self._sleep(self._pause_seconds(attempt, asked))
        raise TeacherError(
            f"teacher {self.name}: no answer after {self._retries + 1} tries ({fault}). "
            "Run the command again later: finished shards are kept"
        )

    def _refuse(self, fault: str, status: int, rows: int) -> None:
        """Take note of a batch that is too large for the server; raise for every other refusal.

        Raises:
            TeacherError: fewer texts wouldn't help.
        """
        if rows > 1 and (status in (413, 422) or (status == 400 and _OF_BATCH.search(fault))):
            self._refusal = self._refusal or f"{rows} were too many: {fault}"
            return
        if rows == 1 and status in (413, 422):
            fix = "Check the model's name, or leave long texts out (--max-characters N --on-fault drop)"
        else:
            fix = "Check URL, model and key" + (", or find the text with batch_rows=1" if rows > 1 else "")
        raise TeacherError(f"teacher {self.name}: the endpoint refused: {fault}. {fix}")

    def _pause_seconds(self, attempt: int, asked: float | None) -> float:
        if asked is not None:
            return min(asked, _LONGEST_WAIT_SECONDS)
        longest = min(_FIRST_WAIT_SECONDS * 2**attempt, _LONGEST_WAIT_SECONDS)
        return float(longest * (0.5 + 0.5 * self._jitter.random()))

    def _wait_for_turn(self) -> None:
        with self._turns:
            now = self._clock()
            turn = max(now, self._next_seconds)
            self._next_seconds = turn + self._interval_seconds
        if turn > now:
            self._sleep(turn - now)

    def _reason(self, response: Any) -> str:  # noqa: ANN401 - an httpx.Response
        """Return what the server says of a refusal, in brackets, or nothing.

        OpenAI and vLLM answer {"error": {"message": ...}}, TEI {"error": ...}, Infinity and FastAPI {"detail": ...}
        with a text or a list of {"loc", "msg"}, others {"message": ...} or plain text.
        """
        try:
            said: Any = response.json()
        except ValueError:
            said = response.text
        for key in ("error", "detail", "message", "msg"):
            if isinstance(said, list) and said:
                said = said[0]
            if isinstance(said, dict) and said.get(key):
                said = said[key]
        shown = " ".join(str(said or "").split())
        secret = self._client.headers.get("authorization", "").removeprefix("Bearer ")
        # Servers quote the key they were given, whole or shortened; neither is repeated.
        hidden = secret and (secret in shown or secret[:4] in shown[:_REASON_CHARACTERS])
        return "" if hidden or not shown else f" ({shown[:_REASON_CHARACTERS].rstrip('. ')})"

    def _read(self, response: Any, rows: int) -> NDArray[np.float32]:  # noqa: ANN401 - an httpx.Response
        try:
            data = response.json()["data"]
            indices = [int(item["index"]) for item in data]
            lists = [_floats(item["embedding"]) for item in data]
        except (ValueError, KeyError, TypeError) as error:
            raise TeacherError(
                f"teacher {self.name}: malformed answer{self._reason(response)}: expected an object with data[].index "
                "and data[].embedding. Check that the URL is an embeddings endpoint"
            ) from error
        if sorted(indices) != list(range(rows)):
            raise TeacherError(
                f"teacher {self.name}: expected indices 0..{rows - 1} once each, got {len(indices)} items. Check the "
                "server, or send fewer texts with batch_rows="
            )
        ordered = [lists[position] for position in np.argsort(indices)]
        if any(isinstance(value, list) for row in ordered if isinstance(row, list) for value in row):
            raise TeacherError(
                f"teacher {self.name}: a text has a vector for each token. Start the server with a pooling (mean, cls "
                "or last)"
            )
        widths = {len(row) if isinstance(row, list) else -1 for row in ordered}
        if len(widths) != 1:
            raise TeacherError(f"teacher {self.name}: vectors of different widths {sorted(widths)} in one answer")
        try:
            return np.array(ordered, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise TeacherError(f"teacher {self.name}: an embedding holds something other than numbers") from error


def _floats(embedding: Any) -> Any:  # noqa: ANN401 - whatever the server sent
    """Return an embedding as a list; base64 is that of little-endian fp32, as OpenAI's clients read it."""
    if not isinstance(embedding, str):
        return embedding
    return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").tolist()


def _retry_after_seconds(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
