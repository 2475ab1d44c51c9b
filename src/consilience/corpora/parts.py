"""The parts of a corpus: which files a path means, and which of their columns is the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from consilience.core.errors import CorpusError, MissingColumnError
from consilience.core.progress import say_once
from consilience.core.text_files import COMPRESSIONS, iter_lines
from consilience.corpora.hub import datasets_files
from consilience.corpora.tables import (
    SUFFIXES,
    Format,
    Table,
    cell_text,
    format_by_content,
    format_of,
    open_table,
    passes,
)

NumberedRow = tuple[int, str | None]  # the text is None where the filter leaves the row out, so that an item comes soon
Part = tuple[str, Callable[[], Iterator[NumberedRow]]]  # a label, and what starts reading
File = tuple[Path, Format]
_NAME = re.compile(r"[^\W\d][\w.-]*")
_NAMES = frozenset(
    ("text", "texts", "caption", "captions", "sentence", "sentences", "word", "words", "content", "document", "query")
)  # assumed: what people call an only column
_HEADER_ROWS = 100


def find_files(path: Path) -> list[File]:
    """List the files that a path means, in the order of their names, and say what of a folder is left out.

    Raises:
        CorpusError: nothing is there, or a folder without such files.
    """
    if not path.exists():
        raise CorpusError(f"{path}: no such file or folder. Check the path")
    if not path.is_dir():
        return [(path, format_of(path) or _told_by_content(path, str(path)))]
    saved = datasets_files(path)
    if saved is not None:
        return [(file, "arrow") for file in saved]
    found: list[File] = []
    left_out: Counter[str] = Counter()
    for file in _walk(path, left_out, (path.resolve(),)):
        kind = format_of(file)
        if kind is None:
            left_out[file.suffix or "no suffix"] += 1
        else:
            found.append((file, kind))
    if not found:
        raise CorpusError(f"{path}: no corpus files in this folder; expected {', '.join(SUFFIXES)}. Check the path")
    _refuse_twice(file for file, _ in found)
    kinds = Counter[str](kind for _, kind in found)
    if left_out or len(kinds) > 1:
        left = f", leaves out {_counted(left_out)}" if left_out else ""
        say_once(f"{path}: reads files of rows: {_counted(kinds)}{left}")
    return found


def _refuse_twice(files: Iterable[Path]) -> None:
    """Refuse a file that lies beside its own compressed form: its rows would be read twice.

    Raises:
        CorpusError: names both.
    """
    seen: dict[Path, Path] = {}
    for file in files:
        plain = file.with_suffix("") if file.suffix.lower() in COMPRESSIONS else file
        other = seen.setdefault(plain, file)
        if other is not file:
            raise CorpusError(f"{file}: lies beside {other.name}, so rows may be there twice. Move one of them away")


def _walk(folder: Path, left_out: Counter[str], above: tuple[Path, ...]) -> Iterator[Path]:
    """Yield a folder's files by name, through links; hidden ones and Spark's own folders are counted, not read."""
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        is_folder = entry.is_dir()
        if entry.name.startswith(".") or (is_folder and entry.name.startswith("_")):
            left_out["hidden or _folder"] += 1
        elif is_folder:
            real = entry.resolve()
            if real not in above:  # a link to a folder that it lies in adds nothing
                yield from _walk(entry, left_out, (*above, real))
        elif entry.is_file():
            yield entry
        elif entry.is_symlink():
            raise CorpusError(f"{entry}: links to what isn't there. Restore it or remove the link")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} ({what})" for what, count in sorted(counts.items()))


def _told_by_content(path: Path, label: str) -> Format:
    """Tell the format of a file whose name doesn't say it.

    Raises:
        CorpusError: it's JSON, which could be meant as it stands.
    """
    kind = format_by_content(path, label)
    if kind == "json":
        raise CorpusError(
            f"{label}: holds JSON. Name it .jsonl to read a column of it, or .txt to read its lines as they are"
        )
    return kind


def open_standard_input(path: Path, *, columns: bool) -> File:
    """Tell what standard input holds, which was spooled to a file: lines, unless a column was asked for.

    Raises:
        CorpusError: it's JSON and no column was named.
    """
    kind = format_by_content(path, "standard input")
    if kind == "json" and not columns:
        raise CorpusError("standard input: holds JSON. Name a column of it with --column")
    return path, "csv" if kind == "text" and columns else kind


def open_parts(
    files: Sequence[File], column: str | None, where: Mapping[str, str], *, label: str | None = None
) -> list[Part]:
    """Open each file once, so that a wrong column or an unreadable file is an error now and not after hours.

    Args:
        files: from :func:`find_files`.
        column: the text's column; by default "text", or the only one, and then the same in each file.
        where: the filter.
        label: the name of an only file.

    Raises:
        CorpusError: a file can't be read, lacks the column, or the column isn't text.
    """
    parts: dict[Path, Part] = {}
    left_out: list[str] = []
    has_columns = column is not None or bool(where)
    has_tables = any(kind != "text" for _, kind in files)
    notes = {path for path, _ in files if ".json" in path.suffixes}
    if len(notes) == len(files):
        notes = set()
    fix = "Choose one with --column" + (", one that each file has, or move this file away" if len(files) > 1 else "")
    for path, kind in sorted(files, key=lambda file: file[0] in notes):  # by then the column is known
        name = label or str(path)
        if kind == "text" and has_columns and has_tables:
            left_out.append(str(path))
            continue
        try:
            if kind == "text":
                if has_columns:
                    raise CorpusError(
                        f"{name}: text lines have no columns. Leave {'--where' if where else '--column'} out or give a "
                        "csv, jsonl or parquet file"
                    )
                parts[path] = name, partial(iter_lines, path, name)
            else:
                table = open_table(path, kind, label=name, wanted=(column or "text", *where))
                asked = column or ("text" if path in notes else None)
                chosen = _choose(table, asked, where, fix)
                column = column or chosen
                if chosen is not None:
                    parts[path] = (
                        name,
                        partial(_texts, table, chosen, where, is_only=asked is None and chosen != "text"),
                    )
        except MissingColumnError:
            if path not in notes:
                raise
            left_out.append(str(path))
        if path in parts:
            next(parts[path][1](), None)
    if left_out:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        say_once(f"left out, as they lack the text's column: {', '.join(left_out[:3])}{more}")
    return [parts[path] for path, _ in files if path in parts]


def _choose(table: Table, column: str | None, where: Mapping[str, str], fix: str) -> str | None:
    """Choose the column of the text; None for a file with nothing in it.

    Raises:
        CorpusError: a column is missing or isn't text, or none was named and there is neither a "text" nor only one.
    """
    if not table.columns:
        return None
    is_only = column is None and len(table.columns) == 1
    chosen = column or (table.columns[0] if is_only else "text")
    table.require((chosen,), fix)
    table.require(where, "Choose one with --where")
    if is_only:
        _refuse_row_as_name(table, chosen)
    table.require_text(chosen)
    return chosen


def _refuse_row_as_name(table: Table, name: str) -> None:
    """Refuse an only column's name that can as well be the first row of a file without a header.

    Raises:
        CorpusError: it isn't one word, or the rows are single words, too.
    """
    if table.dialect is None or name.casefold() in _NAMES:
        return
    cells = (cell for _, (cell,) in islice(table.rows((name,)), _HEADER_ROWS))
    if not _NAME.fullmatch(name) or all(_NAME.fullmatch(cell) for cell in cells):
        raise CorpusError(
            f"{table.label}: its first line {name[:60]!r} may be a row or the column's name. If it's the name, pass it "
            "as --column; if it's a row, write 'text' above it"
        )


def _texts(table: Table, column: str, where: Mapping[str, str], *, is_only: bool) -> Iterator[NumberedRow]:
    def refuse_others(number: int, names: Sequence[str]) -> None:
        others = [name for name in names if name != column]
        if others:
            raise CorpusError(
                f"{table.label}: row {number} has the columns {', '.join(others)} beside {column!r}, the only one "
                "before it. Choose one with --column"
            )

    for number, (cell, *filters) in table.rows((column, *where), refuse_others if is_only else None):
        kept = not where or passes(filters, where)
        yield number, cell_text(cell, table.label, number, column) if kept else None
