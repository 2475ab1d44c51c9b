"""Data sets of the Hugging Face hub, streamed, and folders that ``datasets`` saved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from consilience.core.errors import CorpusError
from consilience.core.extras import require
from consilience.corpora.tables import cell_text, passes


def datasets_files(folder: Path) -> list[Path] | None:
    """List the Arrow files of a folder that ``datasets`` saved, in row order; None when it isn't one.

    Raises:
        CorpusError: it holds several splits, or its listing is damaged.
    """
    splits = _json_of(folder / "dataset_dict.json").get("splits")
    if isinstance(splits, list):
        if len(splits) != 1:
            raise CorpusError(f"{folder}: holds the splits {', '.join(splits)}. Give one of them: {folder}/SPLIT")
        folder = folder / str(splits[0])
    entries = _json_of(folder / "state.json").get("_data_files")
    return [folder / str(entry["filename"]) for entry in entries] if isinstance(entries, list) else None


def _json_of(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: can't be read ({error}). Save the data set again") from error
    return value if isinstance(value, dict) else {}


def read_hub(name: str, split: str, column: str | None, where: Mapping[str, str]) -> Iterator[tuple[int, str | None]]:
    """Yield numbered texts of a hub data set, streamed through the ``datasets`` library; None: filtered out.

    Raises:
        MissingExtraError: ``datasets`` isn't installed.
        CorpusError: the hub isn't reachable, or it has no such data set, split or column.
    """
    label = f"hub:{name}:{split}"
    datasets = require("datasets", extra="hub", purpose="to read hub data sets")
    try:
        rows = iter(datasets.load_dataset(name, split=split, streaming=True))
        row = next(rows, None)
    except Exception as error:  # the library raises its own, the hub client's and fsspec's errors
        raise CorpusError(
            f"{label}: can't be opened ({error}). Check the name, the split and the connection"
        ) from error
    if row is None:
        return
    names = list(row)
    chosen = column or ("text" if len(names) != 1 else names[0])
    for wanted in (chosen, *where):
        if wanted not in names:
            raise CorpusError(
                f"{label}: no column {wanted!r}; its columns: {', '.join(names)}. Choose one with "
                f"{'--column' if wanted == chosen else '--where'}"
            )
    number = 1
    while row is not None:
        kept = passes((row.get(key) for key in where), where)
        yield number, cell_text(row.get(chosen), label, number, chosen) if kept else None
        try:
            number, row = number + 1, next(rows, None)
        except Exception as error:  # as above: the connection broke off
            raise CorpusError(
                f"{label}: reading stopped after row {number} ({error}). Run the same command again"
            ) from error
