"""One string names a teacher and everything that changes its vectors: ``backend:name?option=value&...``.

| spec | what it is |
|---|---|
| ``st:NAME_OR_FOLDER`` | a sentence-transformers model |
| ``hf:NAME_OR_FOLDER?pool=mean`` | a transformers backbone and a pooling |
| ``onnx:FILE`` | an ONNX graph and a ``tokenizer.json`` beside it |
| ``static:FILE_OR_FOLDER`` | a table of token vectors and a tokenizer (model2vec folders too) |
| ``vectors:FILE`` | word vectors: .npy with a vocabulary, GloVe or word2vec text |
| ``packaged:NAME`` | pretrained weights that a Python package carries |
| ``http(s)://HOST/v1/embeddings?model=NAME`` | an OpenAI-compatible endpoint |
| ``bank:FOLDER``, ``parquet:FILE#COLUMN``, ``npy:FILE`` | embeddings that exist already |

A ``?``, ``#``, ``&`` or ``%`` that belongs to a name or a value is written percent-encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from consilience.core.errors import InputError, TeacherError

POOLINGS = ("mean", "cls", "last", "max")
DTYPES = ("fp32", "fp16", "bf16")
UNKNOWN_WORDS = ("mean", "zero", "refuse")
STORED = ("bank", "parquet", "npy")

_TORCH = {"revision", "prompt", "max_length", "dtype", "device", "batch_tokens", "normalise"}
_OPTIONS: dict[str, frozenset[str]] = {
    "st": frozenset(_TORCH | {"route"}),
    "hf": frozenset(_TORCH | {"pool"}),
    "onnx": frozenset({"prompt", "max_length", "batch_tokens", "normalise", "pool", "tokenizer", "output"}),
    "static": frozenset({"prompt", "max_length", "normalise", "tokenizer", "tensor", "special_tokens"}),
    "vectors": frozenset({"prompt", "max_length", "normalise", "vocabulary", "tokens", "lowercase", "unknown"}),
    "packaged": frozenset(
        {"prompt", "max_length", "batch_tokens", "normalise", "dtype", "device", "tokens", "unknown"}
    ),
    "http": frozenset(
        {
            "model",
            "prompt",
            "dimensions",
            "key_env",
            "batch_rows",
            "batch_characters",
            "requests_per_minute",
            "timeout_seconds",
            "retries",
            "normalise",
            "revision",
        }
    ),
    "bank": frozenset(),
    "parquet": frozenset({"column"}),
    "npy": frozenset(),
}


def _one_of(*values: str) -> Callable[[str], str | None]:
    return lambda value: None if value in values else f"one of {', '.join(values)}"


def _positive_integer(value: str) -> str | None:
    return None if value.isascii() and value.isdigit() and int(value) > 0 else "a positive whole number"


def _not_negative_integer(value: str) -> str | None:
    return None if value.isascii() and value.isdigit() else "a whole number, 0 or more"


def _positive_number(value: str) -> str | None:
    try:
        return None if 0 < float(value) < float("inf") else "a positive number"
    except ValueError:
        return "a positive number"


_CHECKS: dict[str, Callable[[str], str | None]] = {
    "pool": _one_of(*POOLINGS),
    "dtype": _one_of(*DTYPES),
    "unknown": _one_of(*UNKNOWN_WORDS),
    "tokens": _one_of("words", "bert", "whitespace"),
    "normalise": _one_of("true", "false"),
    "lowercase": _one_of("true", "false"),
    "special_tokens": _one_of("true", "false"),
    "max_length": _positive_integer,
    "batch_tokens": _positive_integer,
    "batch_rows": _positive_integer,
    "batch_characters": _positive_integer,
    "dimensions": _positive_integer,
    "retries": _not_negative_integer,
    "requests_per_minute": _positive_number,
    "timeout_seconds": _positive_number,
}


@dataclass(frozen=True)
class TeacherSpec:
    """A parsed teacher spec.

    Args:
        backend: "st", "hf", "onnx", "static", "vectors", "packaged", "http", "bank", "parquet" or "npy".
        name: model name, path, or the endpoint's URL without options; decoded.
        options: the options as text, decoded and checked.
    """

    backend: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    def canonical(self) -> str:
        """Return the spec string with sorted, encoded options; parsing it gives an equal spec.

        Example:
            >>> parse_teacher_spec("hf:some/model?pool=cls&max_length=64").canonical()
            'hf:some/model?max_length=64&pool=cls'
        """
        head = self.name if self.backend == "http" else f"{self.backend}:{quote(self.name, safe='/:@~+, ')}"
        options = dict(self.options)
        column = options.pop("column", None) if self.backend == "parquet" else None
        tail = "&".join(f"{key}={quote(options[key], safe='/:')}" for key in sorted(options))
        return head + (f"#{quote(column, safe='')}" if column is not None else "") + (f"?{tail}" if tail else "")

    def integer(self, option: str) -> int | None:
        """Return an option as a whole number, or None when it isn't given."""
        value = self.options.get(option)
        return None if value is None else int(value)

    def number(self, option: str, default: float) -> float:
        """Return an option as a number."""
        return float(self.options.get(option, default))

    def flag(self, option: str, default: bool) -> bool:
        """Return a true/false option."""
        value = self.options.get(option)
        return default if value is None else value == "true"


def parse_teacher_spec(spec: str | TeacherSpec, **overrides: object) -> TeacherSpec:
    """Parse and check a teacher spec.

    Args:
        spec: the string; a TeacherSpec only takes the overrides.
        **overrides: options that win over the string's (``prompt``, ``max_length``, ...); None means not given.

    Raises:
        TeacherError: an unknown backend, or a known one without a name.
        InputError: an unknown option, or a value that the option doesn't take.

    Example:
        >>> parse_teacher_spec("hf:some/model?prompt=query%3A%20", max_length=64).options
        {'prompt': 'query: ', 'max_length': '64'}
    """
    if isinstance(spec, TeacherSpec):
        backend, name, options = spec.backend, spec.name, dict(spec.options)
    else:
        backend, name, options = _split(spec)
    shown = spec if isinstance(spec, str) else spec.canonical()
    for key, value in overrides.items():
        if value is not None:
            options[key] = str(value).lower() if isinstance(value, bool) else str(value)
    known = _OPTIONS[backend]
    for key, text in options.items():
        if key not in known:
            valid = ", ".join(sorted(known)) or "none"
            raise InputError(
                f"teacher {shown!r}: unknown option {key!r} of backend {backend!r}. Valid options: {valid}"
            )
        wanted = _CHECKS[key](text) if key in _CHECKS else None
        if wanted is not None:
            raise InputError(f"teacher {shown!r}: option {key!r} must be {wanted}, got {text!r}")
    return TeacherSpec(backend, name, options)


def _split(spec: str) -> tuple[str, str, dict[str, str]]:
    backends = ", ".join(f"{name}:" for name in _OPTIONS if name != "http") + ", http(s)://"
    head, question, query = spec.partition("?")
    scheme, colon, rest = head.partition(":")
    if scheme in ("http", "https"):
        return "http", _checked_url(head), _options(spec, query)
    if not colon or scheme not in _OPTIONS:
        raise TeacherError(
            f"teacher {spec!r}: expected BACKEND:NAME with one of the backends {backends}. "
            f"Packaged teachers are written packaged:NAME, e.g. packaged:all-MiniLM-L6-v2"
        )
    options = _options(spec, query if question else "")
    if scheme == "parquet":
        rest, hash_sign, column = rest.partition("#")
        if not hash_sign:  # also PATH?column=NAME
            column = ""
        if column:
            options["column"] = unquote(column)
    if not rest:
        raise TeacherError(f"teacher {spec!r}: the name after {scheme + ':'!r} is empty. Write {scheme}:NAME")
    return scheme, unquote(rest), options


def _options(spec: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"teacher {spec!r}: option {part!r} has no value. Write {part}=VALUE")
        if key in options:
            raise InputError(f"teacher {spec!r}: option {key!r} is given twice. Keep one")
        options[unquote(key)] = unquote(value)
    return options


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise TeacherError("teacher URL: it isn't a URL. Write https://HOST/v1/embeddings?model=NAME") from error
    if "@" in parts.netloc:
        # Not repeated in the message: it holds a password.
        raise InputError(
            "teacher URL: it holds a user name or password. Put the key into an environment variable (key_env=NAME)"
        )
    if not parts.hostname:
        raise TeacherError(f"teacher {url!r}: the URL has no host. Write https://HOST/v1/embeddings?model=NAME")
    return url


def valid_options(backend: str) -> frozenset[str]:
    """Return the options that a backend takes."""
    return _OPTIONS[backend]
