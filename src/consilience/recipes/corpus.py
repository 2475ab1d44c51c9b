"""Report on a corpus, and compare it with another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.core.errors import InputError

if TYPE_CHECKING:
    from consilience.corpora.corpus_report import CorpusComparison, CorpusReport, CountTokens
    from consilience.corpora.text import CorpusSpec


def corpus(
    spec: CorpusSpec | str | Path, *, tokenizer: str | None = None, against: str | None = None
) -> tuple[CorpusReport, CorpusComparison | None]:
    """Report on a corpus' lengths and faults.

    Args:
        spec: the corpus.
        tokenizer: a ``tokenizer.json``, a folder with one, or ``packaged:NAME``; without it, tokens aren't counted.
        against: path of a corpus to compare with, read with the same options (but no filter by column value).

    Returns:
        The report, and how the corpus' lengths differ from those of ``against``, if given.

    Raises:
        CorpusError: the corpus is missing, empty or can't be parsed.
        InputError: the tokenizer can't be read.
    """
    from consilience.corpora.corpus_report import compare_reports, report_corpus
    from consilience.corpora.text import open_corpus

    counter = None if tokenizer is None else token_counter(tokenizer)
    opened = open_corpus(spec)
    other = None if against is None else open_corpus(replace(opened.spec, path=against, where={}))
    report = report_corpus(opened, counter)
    if other is None:
        return report, None
    return report, compare_reports(report_corpus(other, counter), report)


def token_counter(tokenizer: str) -> CountTokens:
    """Load a tokenizer and return what counts its tokens, special ones included, without truncation.

    Raises:
        InputError: there is no such tokenizer, or its file can't be read.
    """
    from tokenizers import Tokenizer

    if tokenizer.startswith("packaged:"):
        from consilience.teachers.packaged import packaged_files

        files = packaged_files(tokenizer.removeprefix("packaged:"))
        found = [path for name, path in sorted(files.items()) if Path(name).name == "tokenizer.json"]
        if not found:
            raise InputError(f"{tokenizer}: has no tokenizer.json. Choose another tokenizer")
        path = found[0]
    else:
        path = Path(tokenizer)
        path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{path}: no such tokenizer file. Give a tokenizer.json, its folder or packaged:NAME")
    try:
        loaded = Tokenizer.from_file(str(path))
    except Exception as error:  # the Rust library raises bare Exception
        raise InputError(
            f"{path}: isn't a tokenizer ({error}). Give a tokenizer.json of the tokenizers library"
        ) from error
    loaded.no_truncation()
    loaded.no_padding()
    return lambda texts: [len(encoding.ids) for encoding in loaded.encode_batch(texts)]
