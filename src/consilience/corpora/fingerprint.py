"""A corpus' identity: what banks, targets and students of it are matched by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from consilience.core.hashing import RowHasher
from consilience.corpora.text import Corpus


@dataclass(frozen=True)
class CorpusIdentity:
    """Identity and size of a corpus' rows, whatever file format they came from.

    Args:
        fingerprint: SHA-256 over the rows in order, each with its length.
        rows: number of rows.
        characters: their characters, added up.
    """

    fingerprint: str
    rows: int
    characters: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


def fingerprint_corpus(corpus: Corpus) -> CorpusIdentity:
    """Compute a corpus' identity in one streaming pass.

    Raises:
        CorpusError: a row is faulty and the corpus refuses such rows (the message has file, row, fault and fix), the
            corpus is empty, or a file can't be parsed.

    Example:
        >>> from consilience.corpora.text import open_corpus
        >>> identity = fingerprint_corpus(open_corpus(["a cat", "a dog"]))
        >>> identity.rows, identity.characters, len(identity.fingerprint)
        (2, 10, 64)
    """
    hasher = RowHasher()
    characters = 0
    for text in corpus:
        hasher.update(text)
        characters += len(text)
    return CorpusIdentity(fingerprint=hasher.hexdigest(), rows=hasher.rows, characters=characters)
