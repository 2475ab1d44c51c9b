"""What the Python functions of the verbs do with one value where several are expected, and with a wrong kind."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from consilience.core.errors import InputError

_Verb = TypeVar("_Verb", bound=Callable[..., Any])
_ITEMS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "int": (Integral, "whole numbers, as [64, 128]"),
    "float": (Real, "numbers, as [0.1, 0.05]"),
    "str": (str, "names"),
}
_NEVER = (bool, bytes, Mapping, set, frozenset)


def lenient_lists(verb: _Verb) -> _Verb:
    """Let one value stand for a list of one, and refuse in one line what a parameter's annotation excludes.

    A str is a sequence of its characters, so ``tasks="sts"`` would be read as three tasks, and ``layers="0,2,5"`` as
    five layers. Parameters annotated ``Sequence[...]`` get a list; those annotated ``Mapping[...]`` get a mapping.

    Args:
        verb: a function whose annotations are strings (``from __future__ import annotations``).
    """
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the verb's own types
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = str(signature.parameters[name].annotation)
            if value is not None and kind.startswith("Sequence["):
                bound.arguments[name] = _listed(name, value, kind)
            elif value is not None and kind.startswith("Mapping[") and not isinstance(value, Mapping):
                raise InputError(
                    f"{name}: expected names and values, as {{'name': value}}, got {value!r:.60}. Change it"
                )
        return verb(*bound.args, **bound.kwargs)

    return called  # type: ignore[return-value]


def _listed(name: str, value: object, annotation: str) -> list[Any]:
    many = isinstance(value, Iterable) and not isinstance(value, str | bytes | Path | Mapping | set | frozenset)
    items = list(value) if many else [value]  # type: ignore[call-overload]
    named = re.match(r"Sequence\[(\w+)\]", annotation)
    kind, shown = _ITEMS.get(named[1] if named else "", (object, "one or several, in an order"))
    if any(not isinstance(item, kind) or isinstance(item, _NEVER) or item is None for item in items):
        raise InputError(f"{name}: expected {shown}, got {value!r:.60}. Change it")
    return items
