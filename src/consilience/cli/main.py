"""Entry point: the verbs' table, and how errors become one line and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from consilience._version import __version__
from consilience.cli import (
    adapt,
    align,
    consensus,
    corpus,
    distill,
    embed,
    evaluate,
    export,
    frames,
    grammar,
    inspect,
    migrate,
    rotate,
    run,
    static,
    study,
)

_INTERRUPTED, _TERMINATED = 130, 143
_UsageError: Any = typer.BadParameter.__mro__[1]  # click's own; newer typers carry click inside

app = typer.Typer(
    name="consilience",
    help="Distil one small embedding model from the agreement of several teachers, and prove whether it worked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    corpus, grammar, embed, align, consensus, static, distill, rotate, migrate, evaluate, export, run, study, inspect,
)  # fmt: skip
for verb in VERBS:
    app.command(name=verb.__name__.rsplit(".", 1)[-1])(verb.command)


app.add_typer(adapt.app, name="adapt")
app.add_typer(frames.app, name="frames")


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"consilience {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: exit code 0 done, 2 bad input or refusal, 130 interrupted, 143 terminated."""
    signal.signal(signal.SIGTERM, _terminate)
    # Heavy libraries chatter on import and look for hubs; both are off unless the person asks for them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    from consilience.core.errors import ConsilienceError

    if sys.stdout is None:  # closed by whoever called us: what would be printed goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal's encoding lacks is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        if code == _INTERRUPTED:  # typer turns the signal into this code
            raise KeyboardInterrupt
    except ConsilienceError as error:
        _refuse(str(error))
    except _UsageError as error:
        _refuse_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("consilience: interrupted; run the same command again to continue\n")
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our standard output (head, less) left; that's no fault of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno is None:  # a library's, not the operating system's
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        _refuse(f"{where}{os.strerror(error.errno)}. Check the path, its permissions and the disk")
    sys.exit(code or 0)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """End as after Ctrl-C, so that temporary copies are removed; what is half written continues the next time."""
    sys.stderr.write("consilience: terminated; run the same command again to continue\n")
    sys.exit(_TERMINATED)


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(f"consilience: error: {message}\n")
    sys.exit(2)


def _refuse_usage(error: Any) -> NoReturn:  # noqa: ANN401 - click's or typer's class
    """Say in one line what is wrong with the command line; without any arguments, show the help."""
    message = " ".join(error.format_message().split())
    context = error.ctx
    if context is None or not sys.argv[1:]:
        error.show()
        sys.exit(2)
    verbs: list[str] = []
    while context.parent is not None:
        verbs.insert(0, context.info_name)
        context = context.parent
    command = " ".join(["consilience", *verbs, "--help"])
    _refuse(f"{message}{'' if message.endswith(('.', '?')) else '.'} Run: {command}")
