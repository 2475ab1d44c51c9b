"""Tokens of two vocabularies matched by what they say, whatever the way they mark words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ROLES = {
    **dict.fromkeys(("[PAD]", "<pad>"), "pad"),
    **dict.fromkeys(("[UNK]", "<unk>"), "unknown"),
    **dict.fromkeys(("[CLS]", "<s>"), "first"),
    **dict.fromkeys(("[SEP]", "</s>"), "last"),
    **dict.fromkeys(("[MASK]", "<mask>"), "mask"),
}


def spell_tokens(vocabulary: Mapping[str, int]) -> dict[tuple[str, str], int]:
    r"""Return a vocabulary's ids by text and kind: "word" begins a word, "piece" continues one, or a special's role.

    WordPiece marks continuations with "##"; SentencePiece marks beginnings with U+2581, byte-level BPE with U+0120.

    Args:
        vocabulary: ids by token, as a tokenizer has them.

    Example:
        >>> spell_tokens({"cat": 0, "##s": 1, "[PAD]": 2})
        {('cat', 'word'): 0, ('s', 'piece'): 1, ('', 'pad'): 2}
        >>> spell_tokens({"\u2581cat": 0, "s": 1})
        {('cat', 'word'): 0, ('s', 'piece'): 1}
    """
    marks = [mark for mark in ("\u2581", "\u0120") if any(len(t) > 1 and t.startswith(mark) for t in vocabulary)]
    spelled: dict[tuple[str, str], int] = {}
    for token, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        if token in _ROLES:
            name = ("", _ROLES[token])
        elif marks:
            begins = token.startswith(marks[0]) and len(token) > 1
            name = (token[1:], "word") if begins else (token, "piece")
        elif token.startswith("##") and len(token) > 2:
            name = (token[2:], "piece")
        else:
            name = (token, "word")
        spelled.setdefault(name, number)
    return spelled


def shared_tokens(ours: Tokenizer, theirs: Tokenizer) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of the tokens that two vocabularies share, the padding token left out.

    Returns:
        Ids in the first, ascending, and the ids of the same tokens in the second.
    """
    mine, other = spell_tokens(ours.get_vocab()), spell_tokens(theirs.get_vocab())
    pairs = sorted((number, other[name]) for name, number in mine.items() if name in other and name[1] != "pad")
    table = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
