"""The static student: a table of token vectors; a text is the mean of its tokens' rows at length 1."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.files import atomic_write, write_json
from consilience.core.manifests import verify_artefact
from consilience.students.chunk_sums import ChunkSums, splits_at_blanks
from consilience.students.text import StudentEncoder, StudentOutput
from consilience.students.tokenizer import FILE as TOKENIZER_FILE
from consilience.students.tokenizer import load_tokenizer, tokenizer_settings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ARCHITECTURE = "static"
TABLE_FILE = "model.safetensors"
TABLE_NAME = "embedding.weight"  # as sentence-transformers' StaticEmbedding names it
_BLOCK_CHARACTERS = 1 << 18  # assumed: bounds the memory of a call at long texts; flat in speed from 2^16 on


class StaticStudent(nn.Module):
    """Token table, mean over tokens, L2 normalisation; the rows' lengths are the tokens' weights.

    Args:
        table: (V, d) token vectors, not normalised, or the embedding that holds them.

    Raises:
        InputError: the table isn't a matrix.

    Source: design, section 4; Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings".

    Example:
        >>> student = StaticStudent(torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]))
        >>> [round(x, 3) for x in student(torch.tensor([[1, 2]])).embedding[0].tolist()]
        [0.6, 0.8]
    """

    def __init__(self, table: nn.Embedding | torch.Tensor) -> None:
        super().__init__()
        if isinstance(table, nn.Embedding):
            self.embedding = table
        else:
            if table.ndim != 2 or min(table.shape) < 1:
                raise InputError(f"static student: expected a table (V, d), got shape {tuple(table.shape)}")
            self.embedding = nn.Embedding.from_pretrained(table.detach().clone().float(), freeze=False)

    @property
    def dimensions(self) -> int:
        """Width of the embedding."""
        return self.embedding.embedding_dim

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> StudentOutput:
        """Embed token ids.

        Args:
            input_ids: (b, s).
            attention_mask: (b, s), 1 for tokens and 0 for padding; None says that nothing is padded.
        """
        states = self.embedding(input_ids)
        # Half precision lacks the digits that cosines near 1 need.
        with torch.autocast(states.device.type, enabled=False):
            if attention_mask is None:
                pooled = states.float().mean(dim=1)
            else:
                mask = attention_mask.to(torch.float32).unsqueeze(-1)
                pooled = (states.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp_min(1.0)
            embedding = nn.functional.normalize(pooled, dim=-1)
        return StudentOutput(states, embedding)


def build_static(vocab_size: int, dimensions: int, seed: int) -> StaticStudent:
    """Build a static student with random rows, N(0, 1/d); same arguments, same rows.

    Args:
        vocab_size: rows of the table.
        dimensions: width of the embedding, the target's.
        seed: of the rows; the global random state is left as it was.

    Raises:
        InputError: a size below one.
    """
    if min(vocab_size, dimensions) < 1:
        raise InputError(f"static student: expected sizes of at least 1, got {vocab_size} tokens, width {dimensions}")
    generator = torch.Generator().manual_seed(seed)
    return StaticStudent(torch.randn((vocab_size, dimensions), generator=generator) / dimensions**0.5)


def plain_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of a tokenizer that adds no special tokens, cuts nothing and pads nothing.

    Args:
        tokenizer: any; left as it is.
    """
    settings = json.loads(tokenizer.to_str())
    settings |= {"post_processor": None, "truncation": None, "padding": None}
    plain: Tokenizer = type(tokenizer).from_str(json.dumps(settings))
    return plain


def save_static_files(student: StaticStudent, tokenizer: Tokenizer, folder: Path, *, max_length: int) -> list[str]:
    """Write a static student's files into a folder: config, table, tokenizer without special tokens.

    Args:
        student: on any device; written in fp32.
        tokenizer: its tokenizer.
        folder: exists.
        max_length: tokens a text is cut to at inference.

    Returns:
        The files' names.

    Raises:
        InputError: the table has NaN or infinity in it, or nothing but zeros; nothing is written.
    """
    from safetensors.torch import save

    table = student.embedding.weight.detach().cpu().float().contiguous()
    bad = int((~torch.isfinite(table).all(dim=1)).sum())
    if bad or not table.any():
        found = f"{bad} of {len(table)} rows have NaN or infinity" if bad else "all of it is zero"
        raise InputError(
            f"{folder}: a finite table of token vectors expected, but {found}. Nothing was stored: use less extreme "
            "settings (--smoothing, --ridge, --weight, --lr)"
        )
    shape = {"vocab_size": table.shape[0], "dimensions": table.shape[1]}
    write_json(folder / "config.json", {"architectures": ["StaticStudent"], "model_type": ARCHITECTURE, **shape})
    with atomic_write(folder / TABLE_FILE) as stream:
        stream.write(save({TABLE_NAME: table}, metadata={"format": "pt"}))
    plain = plain_tokenizer(tokenizer)
    with atomic_write(folder / TOKENIZER_FILE, "w") as stream:
        stream.write(plain.to_str())
    write_json(folder / "tokenizer_config.json", tokenizer_settings(plain, max_length=max_length))
    return ["config.json", TABLE_FILE, TOKENIZER_FILE, "tokenizer_config.json"]


class StaticEncoder(StudentEncoder):
    """A static student as an encoder.

    Tokenising takes nearly all of the time. Where a tokenizer never looks across blanks (WordPiece as in BERT), a
    stretch between two blanks is tokenised once, and its rows' sum is kept for the texts that follow.

    Args:
        module: the student; set to evaluation mode.
        tokenizer: its tokenizer; special tokens that it would add are left out.
        name: what a person calls it.
        max_length: tokens a text is cut to.
        manifest: the artefact's manifest, {} when it isn't stored.
    """

    def __init__(
        self, module: StaticStudent, tokenizer: Tokenizer, *, name: str, max_length: int, manifest: dict[str, Any]
    ) -> None:
        super().__init__(module, plain_tokenizer(tokenizer), name=name, max_length=max_length, manifest=manifest)
        self._table = module.embedding
        self._chunks = ChunkSums(self.tokenizer) if splits_at_blanks(self.tokenizer) else None

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts.

        Returns:
            Rows (n, d), float32, L2-normalised, in the order of the texts.

        Raises:
            TeacherError: a vector isn't finite, or is zero because the text has no token.
        """
        embeddings = np.empty((len(texts), self.dimensions), dtype=np.float32)
        with torch.inference_mode():
            for start, stop in _blocks(texts):
                sums = self._sum(list(texts[start:stop]))
                embeddings[start:stop] = nn.functional.normalize(sums, dim=-1).numpy()
        self._check(embeddings)
        return embeddings

    def _sum(self, texts: list[str]) -> torch.Tensor:
        """Return the sums of the texts' token rows, (n, d)."""
        table = self._table.weight.detach().cpu().float()
        if self._chunks is None:
            return self._sum_cut(texts, table)
        weight = self._table.weight
        version = 0 if weight.is_inference() else weight._version
        sums, tokens = self._chunks.sum_texts(texts, table, source=(weight.data_ptr(), version))
        long = np.flatnonzero(tokens > self.max_length)
        if len(long):
            sums[torch.from_numpy(long)] = self._sum_cut([texts[row] for row in long], table)
        return sums

    def _sum_cut(self, texts: list[str], table: torch.Tensor) -> torch.Tensor:
        ids = [encoding.ids for encoding in self._cutter.encode_batch_fast(texts, add_special_tokens=False)]
        return sum_rows(table, ids)

    def _check(self, embeddings: NDArray[np.float32]) -> None:
        length = np.einsum("nd,nd->n", embeddings, embeddings)
        bad = np.flatnonzero(~(length > 0.5))  # also catches NaN
        if not len(bad):
            return
        row = int(bad[0])
        if np.isfinite(embeddings[row]).all():
            raise TeacherError(f"{self.name}: the text of row {row} has no token, so no vector. Leave it out")
        raise TeacherError(f"{self.name}: the vector of row {row} isn't finite. The table is damaged; make it again")


def sum_rows(table: torch.Tensor, ids: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return for each list of ids the sum of the table's rows, (n, d).

    Example:
        >>> sum_rows(torch.eye(2), [[0, 0, 1], []]).tolist()
        [[2.0, 1.0], [0.0, 0.0]]
    """
    counts = np.fromiter((len(row) for row in ids), dtype=np.int64, count=len(ids))
    flat = np.fromiter((token for row in ids for token in row), dtype=np.int64, count=int(counts.sum()))
    offsets = np.cumsum(counts) - counts
    bag: torch.Tensor = nn.functional.embedding_bag(
        torch.from_numpy(flat), table, torch.from_numpy(offsets), mode="sum"
    )
    return bag


def _blocks(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Cut texts into runs of at most so many characters, or of one longer text."""
    blocks: list[tuple[int, int]] = []
    start, characters = 0, 0
    for row, text in enumerate(texts):
        if characters and characters + len(text) > _BLOCK_CHARACTERS:
            blocks.append((start, row))
            start, characters = row, 0
        characters += len(text)
    return [*blocks, (start, len(texts))] if len(texts) > start else blocks


def load_static(folder: Path, manifest: dict[str, Any]) -> StaticEncoder:
    """Load a static student from its folder.

    Args:
        folder: of the artefact.
        manifest: its manifest, checked.

    Raises:
        InputError: the table, the tokenizer and the manifest don't belong together.
    """
    table, tokenizer = _read_table(folder)
    if table.shape[1] != manifest["dimensions"]:
        raise InputError(
            f"{folder}: a table of {table.shape[1]} dimensions, its manifest says {manifest['dimensions']}. "
            "Make the student again"
        )
    return StaticEncoder(
        StaticStudent(table),
        tokenizer,
        name=str(folder),
        max_length=int(manifest["max_length"]),
        manifest=manifest,
    )


def load_table(path: str | Path) -> tuple[torch.Tensor, Tokenizer]:
    """Read a static student's table, for starts from it.

    Args:
        path: its folder.

    Returns:
        The rows (V, d), not normalised: their lengths are weights; and its tokenizer, which adds no special tokens.

    Raises:
        InputError: no student is there, or it isn't static.
        BankIntegrityError: a file is missing or damaged.
    """
    folder = Path(path)
    manifest = verify_artefact(folder, "student")
    if not is_static(manifest):
        raise InputError(f"{folder}: expected a static student, got one with layers. Make one: consilience static")
    return _read_table(folder)


def is_static(manifest: dict[str, Any]) -> bool:
    """Say whether a student's manifest is a static student's.

    Example:
        >>> is_static({"config": {"architecture": "static"}}), is_static({"config": {"layers": 4}})
        (True, False)
    """
    return bool(manifest.get("config", {}).get("architecture") == ARCHITECTURE)


def _read_table(folder: Path) -> tuple[torch.Tensor, Tokenizer]:
    from safetensors.torch import load_file

    tensors = load_file(folder / TABLE_FILE)
    tokenizer = load_tokenizer(folder)
    table = tensors.get(TABLE_NAME)
    if table is None or table.ndim != 2 or tokenizer.get_vocab_size(with_added_tokens=True) > len(table):
        shown = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in sorted(tensors.items()))
        raise InputError(
            f"{folder}: expected {TABLE_NAME} with a row for each of the tokenizer's "
            f"{tokenizer.get_vocab_size(with_added_tokens=True)} tokens, got {shown}. Make the student again"
        )
    return table, tokenizer
