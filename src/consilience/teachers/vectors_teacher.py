"""``vectors:`` teachers: word vectors; a text is the mean of its known words' vectors.

Texts are lower-cased and accents removed, unless the table has words in capitals (``lowercase`` chooses). Then the
option ``tokens`` decides what a word is: ``words`` (default), every run of letters and digits, punctuation left out;
``bert``, white space and every punctuation mark separate, and a mark is a word; ``whitespace``, only white space
separates. Punctuation has vectors too, but they say little and pull all means together: on the eight STS tasks GloVe
50-d scores .476 with ``words``, .443 with ``bert`` and .420 with ``whitespace`` (measured). Words that the table
doesn't have are left out. For a text without a known word ``unknown`` decides: ``mean`` (default) gives the mean of the
table's vectors, ``zero`` a zero vector, ``refuse`` an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.encoder import takes_texts
from consilience.core.errors import TeacherError
from consilience.core.progress import log
from consilience.teachers.checked import check_embeddings
from consilience.teachers.pooling import normalise_rows
from consilience.teachers.provenance import files_sha256
from consilience.teachers.spec import TeacherSpec
from consilience.teachers.table_mean import mean_rows, text_blocks
from consilience.teachers.word_tables import WordTable, read_word_table

_CASED_SHARE = 0.01  # assumed: a lower-cased table may hold a few odd words
_UNKNOWN = "\x00unknown"  # no text holds it: corpora refuse NUL


class VectorsTeacher:
    """Mean of word vectors.

    Args:
        spec: backend "vectors"; the name is a ``.npy`` matrix (option ``vocabulary``: a text file with one word a
        line or
            a parquet file; ``.txt`` or ``.parquet`` of the same stem by default), a GloVe or a word2vec text file.

    Raises:
        TeacherError: no such file, malformed lines, or words and vectors of different number.
    """

    def __init__(self, spec: TeacherSpec) -> None:
        self.name = spec.canonical()
        path = Path(spec.name).expanduser()
        table, files = read_word_table(path, spec.options.get("vocabulary"), teacher=self.name)
        self._table = table.vectors
        self._lowercase = spec.flag("lowercase", not self._is_cased(table.words))
        self._tokens = spec.options.get("tokens", "words")
        self._unknown = spec.options.get("unknown", "mean")
        self._tokenizer = _make_tokenizer(table, tokens=self._tokens, lowercase=self._lowercase)
        self._unknown_id = len(table.words)
        self.max_length = spec.integer("max_length")
        self.prompt = spec.options.get("prompt", "")
        self.normalise = spec.flag("normalise", False)
        self.dimensions = int(self._table.shape[1])
        self.parameters: int | None = int(self._table.size)
        self._mean = self._table.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._path = path
        self._weights_sha256 = files_sha256(files)

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors; neither batch size nor path."""
        return {
            "backend": "vectors",
            "name": self._path.name,
            "revision": None,
            "weights_sha256": self._weights_sha256,
            "tokenizer_sha256": None,
            "tokens": self._tokens,
            "lowercase": self._lowercase,
            "unknown": self._unknown,
            "prompt": self.prompt,
            "pooling": "mean",
            "max_length": self.max_length,
            "dtype": "fp32",
            "normalise": self.normalise,
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see :class:`consilience.core.encoder.Encoder`."""
        result = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for start, block in text_blocks(texts):
            result[start : start + len(block)] = self._embed(start, [self.prompt + text for text in block])
        checked = check_embeddings(
            result, rows=len(texts), dimensions=self.dimensions, teacher=self.name, allow_zero=self._unknown == "zero"
        )
        return normalise_rows(checked) if self.normalise else checked

    def _is_cased(self, words: Sequence[str]) -> bool:
        """Tell whether the table tells capitals apart, so that lower-cased texts would miss words."""
        known = set(words)
        if sum(word.lower() not in known for word in known) <= _CASED_SHARE * len(known):
            return False
        log(f"teacher {self.name}: its words have capitals, so texts keep theirs (lowercase= chooses)")
        return True

    def _embed(self, start: int, texts: list[str]) -> NDArray[np.float32]:
        ids = []
        for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            words = encoding.ids if self.max_length is None else encoding.ids[: self.max_length]
            ids.append([word for word in words if word != self._unknown_id])
        vectors = mean_rows(self._table, ids)
        empty = np.array([not row for row in ids], dtype=bool)
        if empty.any() and self._unknown == "refuse":
            raise TeacherError(
                f"teacher {self.name}: text {start + int(np.argmax(empty))} (of this call) has no known word. "
                "Drop it or pass unknown=mean"
            )
        if self._unknown == "mean":
            vectors[empty] = self._mean
        return vectors


def _make_tokenizer(table: WordTable, *, tokens: str, lowercase: bool) -> Any:  # noqa: ANN401 - tokenizers.Tokenizer
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    vocabulary: dict[str, int] = {}
    for index, word in enumerate(table.words):
        vocabulary.setdefault(word, index)  # the first of two equal words, as readers of these files do
    vocabulary[_UNKNOWN] = len(table.words)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=tokens != "whitespace")
    tokenizer.pre_tokenizer = {
        "words": pre_tokenizers.Split(Regex(r"[^\W_]+"), behavior="removed", invert=True),
        "bert": pre_tokenizers.BertPreTokenizer(),
        "whitespace": pre_tokenizers.WhitespaceSplit(),
    }[tokens]
    return tokenizer
