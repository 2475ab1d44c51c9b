"""``http(s)://`` teachers: any endpoint that speaks OpenAI's embeddings protocol."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.extras import require
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


class HttpTeacher:
    """An OpenAI-compatible embeddings endpoint.

    Requests hold up to ``batch_rows`` texts and ``batch_characters`` characters. Rate limits (429), server errors
    (5xx) and broken connections are tried again with exponential backoff and jitter, or when the server's
    ``Retry-After`` says. The key comes from the environment variable ``key_env`` (default OPENAI_API_KEY); it is in
    no message and no identity.

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
            self._embed(["a"])
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
        vectors = np.concatenate([self._embed(batch) for batch in self._batches(texts)])
        return normalise_rows(vectors) if self.normalise else vectors

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        characters = 0
        for text in texts:
            row = self.prompt + text
            if batch and (len(batch) == self._rows or characters + len(row) > self._characters):
                yield batch
                batch, characters = [], 0
            batch.append(row)
            characters += len(row)
        if batch:
            yield batch

    def _embed(self, batch: list[str]) -> NDArray[np.float32]:
        body: dict[str, Any] = {"model": self.model, "input": batch, "encoding_format": "float"}
        if self._wanted is not None:
            body["dimensions"] = self._wanted
        rows = self._read(self._post(body), len(batch))
        vectors = check_embeddings(
            rows, rows=len(batch), dimensions=self._dimensions or self._wanted, teacher=self.name
        )
        self._dimensions = int(vectors.shape[1])
        return vectors

    def _post(self, body: dict[str, Any]) -> Any:  # noqa: ANN401 - an httpx.Response
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
                fault = f"HTTP {status}"
                if status not in (408, 409, 429) and status < 500:
                    raise TeacherError(
                        f"teacher {self.name}: the endpoint refused: {fault} {self._reason(response)}. "
                        "Check URL, model and key"
                    )
                asked = _retry_after_seconds(response.headers.get("retry-after"))
            if attempt < self._retries:
                self._sleep(self._pause_seconds(attempt, asked))
        raise TeacherError(
            f"teacher {self.name}: no answer after {self._retries + 1} tries ({fault}). "
            "Run the command again later: finished shards are kept"
        )

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
        try:
            message = response.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            return ""
        key = self._client.headers.get("authorization", "").removeprefix("Bearer ")
        shown = str(message)[:200]
        # Servers quote the key they were given, whole or shortened; neither is repeated.
        return "" if key and (key in str(message) or key[:4] in shown) else f"({shown})"

    def _read(self, response: Any, rows: int) -> NDArray[np.float32]:  # noqa: ANN401 - an httpx.Response
        try:
            data = response.json()["data"]
            indices = [int(item["index"]) for item in data]
            lists = [item["embedding"] for item in data]
        except (ValueError, KeyError, TypeError) as error:
            raise TeacherError(
                f"teacher {self.name}: malformed answer: expected an object with data[].index and data[].embedding. "
                "Check that the URL is an embeddings endpoint"
            ) from error
        if sorted(indices) != list(range(rows)):
            raise TeacherError(
                f"teacher {self.name}: expected indices 0..{rows - 1} once each, got {len(indices)} items"
            )
        ordered = [lists[position] for position in np.argsort(indices)]
        widths = {len(row) if isinstance(row, list) else -1 for row in ordered}
        if len(widths) != 1:
            raise TeacherError(f"teacher {self.name}: vectors of different widths {sorted(widths)} in one answer")
        try:
            return np.array(ordered, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise TeacherError(f"teacher {self.name}: an embedding holds something other than numbers") from error


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
