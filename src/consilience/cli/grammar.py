"""``consilience grammar``: a corpus, or a similarity task, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    count: Annotated[int, typer.Argument(metavar="N", help="How many captions, or pairs.")],
    out: Annotated[Path, typer.Option(help="File to write: .txt, .jsonl, .csv or .parquet; with --pairs .tsv.")],
    pairs: Annotated[bool, typer.Option("--pairs", help="Write pairs graded 0 to 5 by what they share.")] = False,
    seed: Annotated[int, typer.Option(help="Number of the random stream.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Write N distinct captions of the scene grammar, or graded pairs; no sentence of a pair is ever a caption."""
    from consilience.core.progress import log
    from consilience.recipes.grammar import grammar

    written = grammar(count, out, pairs=pairs, seed=seed, overwrite=overwrite)
    log(f"{written}: {count:,} {'pairs' if pairs else 'captions'}")
