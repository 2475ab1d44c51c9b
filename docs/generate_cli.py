"""Write ``docs/cli.md`` from the command line's own declarations, or check that it is current (``--check``)."""

from __future__ import annotations

import enum
import inspect
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("cli.md")
HEADER = """# Command line

*This page is written by `docs/generate_cli.py` from what `consilience COMMAND --help` declares; don't edit it.*

Exit codes: 0 done, 2 bad input or refusal (one line on standard error), 130 interrupted, 143 terminated. `--json`
prints exactly one JSON object on standard output; progress and logs go to standard error. A killed command continues
when it's given again.
"""


def render() -> str:
    """Return the page."""
    import typer.main

    from consilience.cli.main import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return HEADER + "".join(_sections(name, command) for name, command in commands.items())


def _sections(name: str, command: Any) -> str:  # noqa: ANN401 - click's or typer's own command class
    inner = getattr(command, "commands", None)
    if inner is None:
        return _section(name, command)
    return "".join(_sections(f"{name} {below}", verb) for below, verb in inner.items())


def _section(name: str, command: Any) -> str:  # noqa: ANN401 - click's or typer's own command class
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in ("help",)]
    words = " ".join((p.metavar or p.name.upper()) for p in arguments)
    lines = [
        f"\n## {name}\n",
        inspect.cleandoc(command.help or ""),
        "",
        f"    consilience {name} {words} [OPTIONS]",
        "",
    ]
    lines += ["| argument or option | default | meaning |", "|---|---|---|"]
    for parameter in [*arguments, *options]:
        flags = ", ".join(f"`{text}`" for text in [*parameter.opts, *parameter.secondary_opts])
        label = f"`{parameter.metavar or parameter.name.upper()}`" if parameter in arguments else flags
        lines.append(f"| {label} | {_default(parameter)} | {_cell(parameter.help or '')} |")
    return "\n".join(lines) + "\n"


def _default(parameter: Any) -> str:  # noqa: ANN401 - click's or typer's own parameter class
    if parameter.required:
        return "required"
    value = parameter.default
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or value is False or value == () or value == [] or callable(value):
        return ""
    return f"`{value}`" if isinstance(value, str | int | float) else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write or check the page."""
    page = render()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page:
        sys.exit(f"{PAGE}: not current. Run: python docs/generate_cli.py")


if __name__ == "__main__":
    main()
