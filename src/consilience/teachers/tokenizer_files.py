"""Tokenizer files of the ``tokenizers`` library: found beside the weights, loaded with clear errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.core.errors import TeacherError


def find_tokenizer(weights: Path, chosen: str | None, *, teacher: str) -> Path:
    """Return the tokenizer file of a weights file.

    Args:
        weights: the weights file; looked beside and one folder above.
        chosen: the option ``tokenizer``, a file or a folder with ``tokenizer.json``; None to look.
        teacher: name for the message.

    Raises:
        TeacherError: there is none.
    """
    if chosen is not None:
        path = Path(chosen).expanduser()
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            raise TeacherError(f"teacher {teacher}: tokenizer {path}: no such file. Check the option tokenizer=")
        return path
    for folder in (weights.parent, weights.parent.parent):
        if (folder / "tokenizer.json").is_file():
            return folder / "tokenizer.json"
    raise TeacherError(
        f"teacher {teacher}: no tokenizer.json beside {weights.name}. Put it there or pass the option tokenizer=PATH"
    )


def load_tokenizer(path: Path, *, teacher: str) -> Any:  # noqa: ANN401 - tokenizers.Tokenizer is untyped
    """Load a tokenizer file.

    Raises:
        TeacherError: it isn't one.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the Rust library raises bare Exception
        raise TeacherError(f"teacher {teacher}: {path} isn't a tokenizer file: {str(error)[:200]}") from error
