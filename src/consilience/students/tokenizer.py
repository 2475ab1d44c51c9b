"""The student's tokenizer: somebody else's, or WordPiece trained on the corpus."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.core.errors import InputError
from consilience.core.hashing import canonical_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "tokenizer.json"
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_NAMES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def load_tokenizer(source: str | Path) -> Tokenizer:
    """Load a tokenizer, without the truncation and padding that its file may ask for.

    Args:
        source: a ``tokenizer.json``, a folder with one, or a name on the Hugging Face hub.

    Raises:
        InputError: it can't be found or read, or it has no padding token.
    """
    from tokenizers import Tokenizer

    path = Path(source)
    path = path / FILE if path.is_dir() else path
    if path.is_file():
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception on a malformed file
            raise InputError(
                f"{path}: isn't a tokenizer of the tokenizers library ({error}). Fetch it again"
            ) from error
    else:
        named = str(source)
        if isinstance(source, Path) or Path(named).is_dir() or named.count("/") > 1 or named.endswith(".json"):
            raise InputError(f"{path}: no such tokenizer. Give a tokenizer.json, its folder or a hub name")
        try:
            tokenizer = Tokenizer.from_pretrained(str(source))
        except Exception as error:  # the hub's client has many errors, all of them mean the same here
            raise InputError(
                f"tokenizer {source!r}: neither a file nor to be had from the hub ({type(error).__name__}). "
                "Give a tokenizer.json or its folder"
            ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pad_id(tokenizer)
    return tokenizer


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = 30_522) -> Tokenizer:
    """Train a lower-casing WordPiece tokenizer on a corpus; the same texts give the same tokenizer.

    Args:
        texts: re-iterable; read twice, in order.
        vocab_size: size of the vocabulary at most, special tokens included.

    Raises:
        InputError: the vocabulary is too small for the special tokens and the corpus's characters.

    Source: Wu et al. 2016, arXiv:1609.08144; normalisation as bert-base-uncased.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    normalizer = normalizers.BertNormalizer(lowercase=True)
    alphabet = sorted({character for text in texts for character in normalizer.normalize_str(text)} - set(" "))
    # The library numbers the pieces "##x" in the order of a hash map, which differs from run to run and decides ties
    # between merges. Given as special tokens they are numbered in our order; the vocabulary alone is kept.
    given = [*SPECIAL_TOKENS, *alphabet, *(f"##{character}" for character in alphabet)]
    if vocab_size <= len(given):
        raise InputError(
            f"tokenizer: expected a vocabulary of more than {len(given)} (special tokens and characters of the "
            f"corpus), got {vocab_size}. Raise --vocab-size"
        )
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=given, show_progress=False, min_frequency=2
    )
    trained.train_from_iterator(texts, trainer)
    return _wordpiece(trained.get_vocab())


def _wordpiece(vocabulary: dict[str, int]) -> Tokenizer:
    """Return bert-base-uncased's pipeline around a vocabulary."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def pad_id(tokenizer: Tokenizer) -> int:
    """Return the id of the padding token.

    Raises:
        InputError: the tokenizer has none.
    """
    for name in _NAMES["pad_token"]:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    raise InputError("tokenizer: it has no padding token ([PAD] or <pad>). Use one that has")


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """Return the SHA-256 of a tokenizer's content."""
    return hashlib.sha256(canonical_json(json.loads(tokenizer.to_str()))).hexdigest()


def tokenizer_settings(tokenizer: Tokenizer, *, max_length: int) -> dict[str, object]:
    """Return what ``tokenizer_config.json`` says, so that ``AutoTokenizer`` loads the folder.

    Args:
        tokenizer: the tokenizer.
        max_length: tokens a text is cut to.
    """
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "padding_side": "right",
        "truncation_side": "right",
    }
    for key, names in _NAMES.items():
        for name in names:
            if tokenizer.token_to_id(name) is not None:
                settings[key] = name
                break
    return settings
