"""Entry point: the verbs' table, and how errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from consilience._version import __version__
from consilience.cli import (
    align,
    consensus,
    corpus,
    distill,
    embed,
    evaluate,
    export,
    grammar,
    inspect,
    run,
)

app = typer.Typer(
    name="consilience",
    help="Distil one small embedding model from the agreement of several teachers, and prove whether it worked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (corpus, grammar, embed, align, consensus, distill, evaluate, export, run, inspect):
    app.command(name=verb.__name__.rsplit(".", 1)[-1])(verb.command)


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
    """Run the command line: exit code 0 done, 2 bad input or refusal, 130 interrupted."""
    # Heavy libraries chatter on import and look for hubs; both are off unless the person asks for them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from consilience.core.errors import ConsilienceError

    try:
        app(standalone_mode=True)
    except ConsilienceError as error:
        sys.stderr.write(f"consilience: error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("consilience: interrupted; run the same command again to continue\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our standard output (head, less) left; that's no fault of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
