"""Entry point: the verbs' table, and how errors become one line and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

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

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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

    sys.stdout, sys.stderr = _guarded(sys.stdout, 1), _guarded(sys.stderr, 2)
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
        _leave("interrupted; run the same command again to continue", _INTERRUPTED)
    except OSError as error:
        if error.errno is None:  # a library's, not the operating system's
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        _refuse(f"{where}{os.strerror(error.errno)}. Check the path, its permissions and the disk")
    sys.exit(code or 0)


class _Stream(io.FileIO):
    """A standard stream whose reader (head, less) may leave, which is no fault of ours.

    Without a reader of the results there is nothing more to do; without one of the log, work goes on.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        """Write; what nobody reads goes nowhere."""
        try:
            return super().write(data)
        except BrokenPipeError:
            _discard_output(self.fileno())
            if self.fileno() == 1:
                raise SystemExit(0) from None
            return memoryview(data).nbytes


def _discard_output(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _guarded(stream: TextIO | None, descriptor: int) -> TextIO:
    """Return a standard stream that may be closed, lose its reader, or lack a letter in its encoding."""
    if stream is None:  # closed by whoever called us: what would be printed goes nowhere
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - lives as long as the process
    if not isinstance(stream, io.TextIOWrapper) or stream not in (sys.__stdout__, sys.__stderr__):
        return stream  # somebody's who calls main() from Python
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(descriptor, "wb", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """End as after Ctrl-C, so that temporary copies are removed; what is half written continues the next time."""
    _leave("terminated; run the same command again to continue", _TERMINATED)


def _refuse(message: str) -> NoReturn:
    _leave(f"error: {message}", 2)


def _leave(message: str, code: int) -> NoReturn:
    try:  # results printed before keep their place, and have no say in the exit code
        sys.stdout.flush()
    except OSError:
        _discard_output(1)
    except SystemExit:
        pass
    sys.stderr.write(f"consilience: {message}\n")
    sys.exit(code)


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
