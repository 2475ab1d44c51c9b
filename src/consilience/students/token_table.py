"""From token vectors to a static student's table: which text a token stands for, its weight, the table's axes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Axes = Literal["principal", "reference"]

_RESERVED = re.compile(r"\[unused\d+\]|<0x[0-9A-F]{2}>|<unk>|<s>|</s>|<pad>")
_ZIPF_OFFSET = 2.7  # cited: Mandelbrot's correction for English, Piantadosi 2014
_SHORT_RANK = 10.0  # assumed: punctuation and single ASCII letters are about as frequent as the tenth word
_UNKNOWN_LENGTH = 1e-3  # assumed: an unknown token decides only the direction of texts that have no other
_SHRINKAGE = 1e-3  # as the whitened alignment's: of the mean eigenvalue


def token_texts(tokenizer: Tokenizer) -> list[str | None]:
    """Return what a person would write for each token; None for tokens that stand for no text.

    A piece inside a word ("##ing") is its letters; a piece that starts one ("▁the", "Ġthe") is the word. Special,
    reserved and unused tokens, single bytes and blanks are None.

    Args:
        tokenizer: of any kind that the tokenizers library has.

    Raises:
        InputError: no token stands for a text.
    """
    settings = json.loads(tokenizer.to_str())
    special = {token["id"] for token in settings["added_tokens"] if token["special"]}
    prefix = settings["model"].get("continuing_subword_prefix") if settings["model"]["type"] == "WordPiece" else None
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    texts: list[str | None] = [None] * size
    for token in range(size):
        piece = tokenizer.id_to_token(token)
        if piece is None or token in special or _RESERVED.fullmatch(piece):
            continue
        if prefix is not None:
            text = piece[len(prefix) :] if piece.startswith(prefix) and len(piece) > len(prefix) else piece
        else:
            text = tokenizer.decode([token], skip_special_tokens=False)
        text = text.strip()
        if text and text.isprintable() and "\ufffd" not in text:
            texts[token] = text
    if not any(texts):
        raise InputError("tokenizer: no token of it stands for a text. Choose another --tokenizer")
    return texts


def count_tokens(tokenizer: Tokenizer, blocks: Iterable[Sequence[str]]) -> NDArray[np.int64]:
    """Count a corpus's tokens, special ones not added.

    Args:
        tokenizer: cuts and pads nothing.
        blocks: lists of texts.

    Returns:
        (V,) counts.
    """
    counts = np.zeros(tokenizer.get_vocab_size(with_added_tokens=True), dtype=np.int64)
    for texts in blocks:
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        flat = np.fromiter((token for row in ids for token in row), dtype=np.int64)
        counts += np.bincount(flat, minlength=len(counts))
    return counts


def zipf_probabilities(texts: Sequence[str | None]) -> NDArray[np.float64]:
    """Guess the tokens' frequencies from their order in the vocabulary, without a corpus.

    Vocabularies list longer tokens by falling frequency, behind blocks of single characters: those get a fixed rank,
    high for ASCII and low for others.

    Args:
        texts: as of :func:`token_texts`.

    Returns:
        (V,) probabilities; 0 for tokens without a text.

    Source: Zipf-Mandelbrot law; Arora et al. 2017 weigh by frequency, model2vec by rank.
    """
    ranks = np.full(len(texts), np.inf)
    rank = 0
    for token, text in enumerate(texts):
        if text is None:
            continue
        if len(text) > 1:
            rank += 1
            ranks[token] = rank
        else:
            ranks[token] = _SHORT_RANK if text.isascii() else len(texts) / 2
    shares = 1.0 / (ranks + _ZIPF_OFFSET)
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def corpus_probabilities(counts: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Turn counts into probabilities, one added to each so that an unseen token isn't impossible.

    Args:
        counts: (V,).
        known: tokens that stand for a text; the others get 0.

    Raises:
        InputError: the corpus has none of the tokens.
    """
    if not counts[known].any():
        raise InputError("frequencies: the corpus has none of the tokenizer's tokens. Give a corpus of its language")
    shares = np.where(known, counts + 1.0, 0.0)
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def smooth_inverse_frequency(probabilities: NDArray[np.float64], smoothing: float) -> NDArray[np.float64]:
    """Return a / (a + p): near 1 for rare tokens, near 0 for frequent ones.

    Source: Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings", equation 3.

    Example:
        >>> smooth_inverse_frequency(np.array([0.0, 0.5, 1.5]), 0.5).tolist()
        [1.0, 0.5, 0.25]
    """
    return smoothing / (smoothing + probabilities)


def check_shape(tokens: int, width: int, *, dimensions: int, axes: Axes, remove: int, whiten: float) -> None:
    """Refuse what :func:`shape_table` can't do, before anything is embedded.

    Args:
        tokens: rows of the vectors.
        width: their dimensions.
        dimensions: as of :func:`shape_table`, like the rest.
        axes: likewise.
        remove: likewise.
        whiten: likewise.

    Raises:
        InputError: a width, a count or an exponent out of range.
    """
    if not 0.0 <= whiten <= 1.0:
        raise InputError(f"static: expected --whiten between 0 and 1, got {whiten}. Change it")
    if axes == "reference" and dimensions != width:
        raise InputError(
            f"static: --axes reference keeps the width {width}, got --dimensions {dimensions}. Leave one out"
        )
    most = min(tokens, width) - (remove if axes == "principal" else 0)
    if not 0 <= remove < width or not 1 <= dimensions <= most:
        raise InputError(
            f"static: {tokens} tokens of {width} dimensions, {remove} removed, can't give {dimensions} dimensions. "
            "Change --dimensions or --remove"
        )


def shape_table(
    vectors: NDArray[np.floating],
    *,
    dimensions: int,
    axes: Axes = "principal",
    remove: int = 0,
    whiten: float = 0.0,
) -> tuple[NDArray[np.float64], float]:
    """Centre token vectors, take common components out, even the axes' variances, and cut to the leading axes.

    Args:
        vectors: (n, d) unit rows, one a token.
        dimensions: width of the result.
        axes: "principal", in falling order of variance; or "reference": back in the coordinates that the vectors came
            in, which needs ``dimensions`` equal d.
        remove: leading principal axes that are taken out: what most tokens share and sentences shouldn't.
        whiten: exponent e in 0..1: an axis of variance v is divided by v^(e/2).

    Returns:
        (n, dimensions), and the share of the variance, as it was before, that the kept axes have.

    Raises:
        InputError: a width, a count or an exponent out of range.

    Source: Mu and Viswanath 2018, arXiv:1702.01417 (removal); Su et al. 2021, arXiv:2103.15316 (whitening).
    """
    n, d = vectors.shape
    check_shape(n, d, dimensions=dimensions, axes=axes, remove=remove, whiten=whiten)
    centred = np.asarray(vectors, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred / n)
    variances, directions = variances[::-1].clip(min=0.0), directions[:, ::-1]
    # The sign of an eigenvector is nobody's: the largest entry is made positive, so that equal inputs agree.
    directions = directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(d)])
    kept = slice(remove, remove + dimensions if axes == "principal" else d)
    scales = (variances + _SHRINKAGE * variances.mean()) ** (-whiten / 2)
    scales = scales / scales.max()  # the overall length is free: rows stay of the order of 1
    table = centred @ (directions[:, kept] * scales[kept])
    if axes == "reference":
        table = table @ directions[:, kept].T
    return table, float(variances[kept].sum() / max(variances.sum(), np.finfo(np.float64).tiny))


def fill_table(
    rows: NDArray[np.float64], weights: NDArray[np.float64], known: NDArray[np.bool_], *, pad: int
) -> NDArray[np.float32]:
    """Put weighted rows at their tokens' places.

    Tokens without a text (unknown, special) share one short row, so that a text of nothing else still has a direction
    and any other text hardly notices. Padding is zero.

    Args:
        rows: (n, d), one a known token.
        weights: (n,).
        known: (V,), n of them true.
        pad: id of the padding token.

    Returns:
        (V, d) fp32.
    """
    weighted = rows * weights[:, None]
    common = weighted.mean(axis=0)
    if not np.linalg.norm(common) > 0:
        common = np.eye(1, rows.shape[1])[0]
    length = np.median(np.linalg.norm(weighted, axis=1))
    table = np.tile(common / np.linalg.norm(common) * length * _UNKNOWN_LENGTH, (len(known), 1))
    table[known] = weighted
    table[pad] = 0.0
    return table.astype(np.float32)
