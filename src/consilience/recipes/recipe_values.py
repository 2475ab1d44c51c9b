"""Values of a recipe that come from outside it: environment variables and ``--set key.path=value``."""

from __future__ import annotations

import copy
import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Keys of which a recipe gives one: setting one of them on the command line replaces the others.
_ALTERNATIVES = {"train": ("steps", "epochs", "minutes"), "corpus": ("path", "grammar")}


def expand_environment(
    value: Any,  # noqa: ANN401 - any TOML value
    faults: list[str],
    *,
    environment: Mapping[str, str] | None = None,
) -> Any:  # noqa: ANN401 - any TOML value
    """Replace ``${NAME}`` and ``${NAME:-default}`` in every string of a TOML value.

    Args:
        value: string, number, list or table.
        faults: collects a clause for every variable that is unset and has no default; its value stays as written.
        environment: the variables; the process's own when None.

    Example:
        >>> expand_environment({"path": "${DATA:-data}/a.txt"}, [], environment={})
        {'path': 'data/a.txt'}
    """
    unset: dict[str, list[str]] = {}
    expanded = _expand(value, os.environ if environment is None else environment, "", unset)
    faults += [
        f"{', '.join(dict.fromkeys(keys))}: environment variable {name} is not set. Set it or write "
        f"${{{name}:-default}}"
        for name, keys in unset.items()
    ]
    return expanded


def follows_unset(fault: str) -> bool:
    """Return whether a fault cites a value that still has a variable in it, which is a fault of its own."""
    return _VARIABLE.search(fault) is not None


def _expand(value: Any, variables: Mapping[str, str], key: str, unset: dict[str, list[str]]) -> Any:  # noqa: ANN401
    if isinstance(value, str):

        def substitute(match: re.Match[str]) -> str:
            found = variables.get(match[1])
            if found:
                # A recipe's paths are relative to its file, but the environment's to where the person is.
                starts = match.start() == 0 and not Path(found).is_absolute() and Path(found).exists()
                return str(Path(found).resolve()) if starts else found
            if match[2] is None:
                unset.setdefault(match[1], []).append(key)
                return match[0]
            return match[2]

        return _VARIABLE.sub(substitute, value)
    if isinstance(value, list):
        return [_expand(item, variables, f"{key}[{i}]", unset) for i, item in enumerate(value)]
    if isinstance(value, dict):
        prefix = f"{key}." if key else ""
        return {name: _expand(item, variables, prefix + name, unset) for name, item in value.items()}
    return value


def parse_setting(text: str) -> tuple[list[str], Any]:
    """Split ``key.path=value``; the value is TOML where it parses as TOML, else a plain string.

    Raises:
        ValueError: there is no ``=`` or no key.

    Example:
        >>> parse_setting("train.minutes=5"), parse_setting("corpus.path=a.txt")
        ((['train', 'minutes'], 5), (['corpus', 'path'], 'a.txt'))
    """
    key, equals, raw = text.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise ValueError(f"--set {text}: expected key=value, e.g. train.minutes=5")
    try:
        value = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        return steps, raw.strip()
    # A line break could smuggle further keys into the one-line document.
    return steps, value["value"] if len(value) == 1 else raw.strip()


def apply_settings(document: Mapping[str, Any], settings: Sequence[str], faults: list[str]) -> dict[str, Any]:
    """Return a copy of the document with the settings applied in order.

    Args:
        document: the parsed recipe.
        settings: ``key.path=value`` strings; list items by number, e.g. ``teachers.0.spec``.
        faults: collects a clause for every setting that can't be applied.

    Example:
        >>> apply_settings({"train": {"steps": 9}}, ["train.minutes=5"], [])
        {'train': {'minutes': 5}}
    """
    result = copy.deepcopy(dict(document))
    for text in settings:
        try:
            steps, value = parse_setting(text)
            _assign(result, steps, value)
        except ValueError as error:
            faults.append(str(error))
            continue
        if len(steps) == 2 and steps[1] in _ALTERNATIVES.get(steps[0], ()):
            for other in _ALTERNATIVES[steps[0]]:
                if other != steps[1] and not _sets(settings, [steps[0], other]):
                    result[steps[0]].pop(other, None)
    return result


def _sets(settings: Sequence[str], steps: list[str]) -> bool:
    return any(text.partition("=")[0].strip().split(".") == steps for text in settings)


def _assign(document: dict[str, Any], steps: list[str], value: Any) -> None:  # noqa: ANN401 - any TOML value
    name = ".".join(steps)
    node: Any = document
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        if isinstance(node, list):
            if not step.isdigit() or int(step) >= len(node):
                raise ValueError(f"--set {name}: {'.'.join(steps[:i])} has items 0 to {len(node) - 1}, got {step!r}")
            if last:
                node[int(step)] = value
            else:
                node = node[int(step)]
        elif isinstance(node, dict):
            if last:
                node[step] = value
            else:
                node = node.setdefault(step, {})
        else:
            raise ValueError(f"--set {name}: {'.'.join(steps[:i])} is a value, not a table. Set it itself")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return a suffix that offers the nearest known word, or lists the known ones.

    Example:
        >>> did_you_mean("stepz", ["steps", "epochs"])
        '; did you mean steps?'
        >>> did_you_mean("x", ["steps", "epochs"])
        '; known: steps, epochs'
    """
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
