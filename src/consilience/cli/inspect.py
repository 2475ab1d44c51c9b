"""The verb ``inspect``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

_MAXIMUM_LINES = 12  # of a nested field on the terminal; --json has all


def command(
    path: Annotated[
        Path, typer.Argument(help="Any artefact, an unfinished one, or an npy, parquet, safetensors, onnx file.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Don't read the files to check their checksums.")
    ] = False,
) -> None:
    """Say what an artefact is and verify it: a damaged one is an error that names the file."""
    from consilience.recipes.inspect import inspect

    facts = inspect(path, verify=not no_verify)
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    for name, value in facts.items():
        _write(name, value)


def _write(name: str, value: Any) -> None:  # noqa: ANN401 - any JSON value
    if name == "files":
        value = {file["name"]: f"{file['bytes']} bytes" for file in value}
    if not isinstance(value, dict):
        sys.stdout.write(f"{name}: {_plain(value)}\n")
        return
    sys.stdout.write(f"{name}:{'' if value else ' none'}\n")
    for number, (key, item) in enumerate(value.items()):
        if number == _MAXIMUM_LINES:
            sys.stdout.write(f"  ... {len(value) - number} more (--json has all)\n")
            return
        sys.stdout.write(f"  {key}: {_plain(item)}\n")


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
