"""What recipe and study files have in common: reading TOML, and saying what is wrong with a table."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.recipes.recipe_values import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}


def read_toml(path: Path, *, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: the file.
        what: what it should be, for errors: "recipe" or "study".

    Raises:
        InputError: it's missing, a folder, or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such {what}. Check the path") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a folder, expected a TOML file. Give the {what} file itself") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: isn't valid TOML ({error}). Fix that line") from error


def describe_fault(detail: ErrorDetails, tables: Mapping[str, type[BaseModel]], whole: type[BaseModel]) -> str:
    """Turn one pydantic error into a clause: the key, what was expected, what was found.

    Args:
        detail: the error.
        tables: models of the document's tables by name, for suggestions.
        whole: the model of the whole document.
    """
    location = detail["loc"]
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")
    kind = detail["type"]
    if kind == "extra_forbidden":
        table = next((step for step in reversed(location[:-1]) if step in tables), None)
        model = whole if table is None else tables[str(table)]
        return f"{key}: unknown key{did_you_mean(str(location[-1]), list(model.model_fields))}"
    if kind == "missing":
        return f"{key}: required and missing"
    if kind in _EXPECTED:
        return f"{key}: expected {_EXPECTED[kind]}, got {detail['input']!r}"
    said = detail["msg"]
    return f"{key}: {said[:1].lower()}{said[1:]}, got {detail['input']!r}"
