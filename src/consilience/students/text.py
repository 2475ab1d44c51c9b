"""The text student: a transformer backbone, mean pooling, a head to the target's width, L2 normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from consilience.core.encoder import takes_texts
from consilience.core.errors import InputError, TeacherError
from consilience.core.files import atomic_write, read_json, write_json
from consilience.core.manifests import read_manifest, verify_artefact
from consilience.core.seeds import torch_seed
from consilience.students.adapter_methods import AdapterMethods
from consilience.students.backbones import TOKEN_TYPES, backbone_settings, make_backbone
from consilience.students.presets import (
    CITED_PARAMETERS,
    HeadKind,
    StudentConfig,
    count_from_config,
    resolve_config,
)
from consilience.students.tokenizer import FILE as TOKENIZER_FILE
from consilience.students.tokenizer import load_tokenizer, pad_id, tokenizer_settings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from consilience.students.static import StaticStudent

BATCH_TOKENS = 8192  # measured: larger batches don't encode faster on a CPU
_HEAD_FILE = "head.safetensors"


class StudentOutput(NamedTuple):
    """What a student returns.

    Attributes:
        last_hidden_state: token states (b, s, hidden).
        embedding: (b, d), L2-normalised; also known as ``pooler_output``.
    """

    last_hidden_state: torch.Tensor
    embedding: torch.Tensor

    @property
    def pooler_output(self) -> torch.Tensor:
        """The embedding, under the name that Hugging Face models give it."""
        return self.embedding


def make_head(kind: HeadKind, hidden: int, dimensions: int) -> nn.Module:
    """Make what maps the pooled token states to the embedding, before its normalisation.

    Args:
        kind: "mlp": Linear, GELU, LayerNorm, Linear; "linear": one Linear without bias, the identity where the widths
            agree and semi-orthogonal elsewhere; "none": nothing.
        hidden: width of the token states.
        dimensions: width of the embedding.

    Raises:
        InputError: "none", and the widths differ.

    Source: design, section 4 ("mlp").

    Example:
        >>> make_head("linear", 2, 2).weight.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    if kind == "mlp":
        return nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, dimensions))
    if kind == "linear":
        linear = nn.Linear(hidden, dimensions, bias=False)
        if hidden == dimensions:
            nn.init.eye_(linear.weight)
        else:
            nn.init.orthogonal_(linear.weight)
        return linear
    if hidden != dimensions:
        raise InputError(
            f"student: head none needs an embedding as wide as the token states, got {dimensions} and {hidden}. "
            "Take head linear or mlp"
        )
    return nn.Identity()


class TextStudent(nn.Module):
    """Backbone, mean pooling, head, L2 normalisation.

    Args:
        backbone: a Hugging Face encoder without a pooler.
        dimensions: width of the embedding.
        head: kind of the head; see :func:`make_head`.

    Source: design, section 4.
    """

    def __init__(self, backbone: nn.Module, dimensions: int, head: HeadKind = "mlp") -> None:
        super().__init__()
        hidden = int(backbone.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.backbone = backbone
        self.head = make_head(head, hidden, dimensions)
        self.head_kind: HeadKind = head
        self.dimensions = dimensions

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> StudentOutput:
        """Embed token ids.

        Args:
            input_ids: (b, s).
            attention_mask: (b, s), 1 for tokens and 0 for padding; None says that nothing is padded, which is
                cheaper: attention and pooling then need no mask.
        """
        states = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if attention_mask is None:
            pooled = states.mean(dim=1)
        else:
            weights = attention_mask.to(states.dtype).unsqueeze(-1)
            pooled = (states * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1.0)
        # Half precision lacks the digits that cosines near 1 need, and the head is cheap: one row a text.
        with torch.autocast(pooled.device.type, enabled=False):
            embedding = nn.functional.normalize(self.head(pooled.float()), dim=-1)
        return StudentOutput(states, embedding)


def count_parameters(student: nn.Module) -> int:
    """Return the number of parameters, token-type embeddings (held at zero) not counted."""
    return sum(p.numel() for name, p in student.named_parameters() if not name.endswith(TOKEN_TYPES))


def build_student(
    preset: str | StudentConfig,
    *,
    vocab_size: int,
    dimensions: int,
    seed: int,
    pad: int = 0,
    max_positions: int | None = None,
) -> TextStudent:
    """Build a student with random weights; same arguments, same weights.

    Args:
        preset: a preset's name, or a shape.
        vocab_size: rows of the token table.
        dimensions: width of the embedding, the target's.
        seed: of the initialisation; the global random state is left as it was.
        pad: id of the padding token; its row of the token table stays zero.
        max_positions: learned positions, when they differ from the preset's.

    Raises:
        InputError: no such preset, or a size below one.
    """
    name, config = resolve_config(preset)
    if config.architecture != "bert":
        raise InputError(
            f"student: random weights are those of a BERT, got architecture {config.architecture!r}. "
            "Start from a model of that architecture instead"
        )
    if min(vocab_size, dimensions, max_positions or 1) < 1:
        raise InputError(f"student: expected sizes of at least 1, got vocabulary {vocab_size}, width {dimensions}")
    config = config.for_width(dimensions)
    positions = max_positions or config.max_positions
    bert = {
        "vocab_size": vocab_size,
        "pad_token_id": pad,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.ffn,
        "max_position_embeddings": positions,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
    }
    with torch_seed(seed):
        student = TextStudent(make_backbone(bert), dimensions, cast(HeadKind, config.head))
    _require_count(student, name, config, vocab_size, dimensions, positions)
    return student


def _require_count(
    student: TextStudent, name: str, config: StudentConfig, vocab_size: int, dimensions: int, positions: int
) -> None:
    """Check the parameter count against the formula and, for cited presets, against the document."""
    counted = count_parameters(student)
    expected = count_from_config(config, vocab_size=vocab_size, dimensions=dimensions)
    expected += (positions - config.max_positions) * config.hidden
    if positions == config.max_positions:
        expected = CITED_PARAMETERS.get((name, vocab_size, dimensions), expected)
    if counted != expected:
        raise InputError(
            f"student {name}: expected {expected:,} parameters, the backbone built here has {counted:,}. "
            "This version of transformers builds another architecture; install a supported one"
        )


def save_student_files(
    student: TextStudent | StaticStudent, tokenizer: Tokenizer, folder: Path, *, max_length: int
) -> list[str]:
    """Write a student's files into a folder: config, weights, head where it has weights, tokenizer.

    The backbone's two files load with ``transformers.AutoModel``. The kind of the head isn't in them: the manifest's
    ``config`` holds it.

    Args:
        student: on any device; written in fp32.
        tokenizer: its tokenizer.
        folder: exists.
        max_length: tokens a text is cut to at inference.

    Returns:
        The files' names.
    """
    from safetensors.torch import save

    from consilience.students.static import StaticStudent, save_static_files

    if isinstance(student, StaticStudent):
        return save_static_files(student, tokenizer, folder, max_length=max_length)
    # Without class and type AutoModel wouldn't know what to build; with a pooler it would invent random weights.
    write_json(folder / "config.json", backbone_settings(student.backbone))
    written = []
    for name, module in (("model.safetensors", student.backbone), (_HEAD_FILE, student.head)):
        tensors = {key: value.detach().cpu().float().contiguous() for key, value in module.state_dict().items()}
        if tensors:
            with atomic_write(folder / name) as stream:
                stream.write(save(tensors, metadata={"format": "pt"}))
            written.append(name)
    with atomic_write(folder / TOKENIZER_FILE, "w") as stream:
        stream.write(tokenizer.to_str())
    write_json(folder / "tokenizer_config.json", tokenizer_settings(tokenizer, max_length=max_length))
    return ["config.json", *written, TOKENIZER_FILE, "tokenizer_config.json"]


class StudentEncoder(AdapterMethods):
    """A student as an encoder: texts in, L2-normalised vectors out.

    Args:
        module: the student; set to evaluation mode.
        tokenizer: its tokenizer.
        name: what a person calls it.
        max_length: tokens a text is cut to.
        manifest: the artefact's manifest, {} when it isn't stored.
    """

    def __init__(
        self,
        module: TextStudent | StaticStudent,
        tokenizer: Tokenizer,
        *,
        name: str,
        max_length: int,
        manifest: dict[str, Any],
    ) -> None:
        self.module: Any = module.eval()  # one of two classes: callers know which, or use what both have
        self.tokenizer = tokenizer
        self.name = name
        self.max_length = max_length
        self.manifest = manifest
        self._pad = pad_id(tokenizer)
        # A truncating copy, so that the public tokenizer stays as stored.
        self._cutter = type(tokenizer).from_str(tokenizer.to_str())
        self._cutter.enable_truncation(max_length)

    @property
    def dimensions(self) -> int:
        """Width of the vectors."""
        return int(self.module.dimensions)

    @property
    def parameters(self) -> int:
        """Number of parameters, token-type embeddings not counted."""
        return count_parameters(self.module)

    def identity(self) -> dict[str, Any]:
        """Return what determines the vectors: the stored student, its frame, the length limit."""
        return {
            "backend": "student",
            "name": Path(self.name).absolute().name,  # where it lies doesn't determine the vectors
            "student": self.manifest.get("id"),
            "frame": self.manifest.get("frame"),
            "max_length": self.max_length,
            **self.adapters_identity(),
        }

    @takes_texts
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts, the short and the long ones in batches of their own so that little is padded.

        Returns:
            Rows (n, d), float32, L2-normalised, in the order of the texts.

        Raises:
            TeacherError: a vector isn't finite.
        """
        encodings = self._cutter.encode_batch_fast(list(texts))
        ids = [np.asarray(encoding.ids, dtype=np.int64) for encoding in encodings]
        embeddings = encode_ids(self.module, ids, pad=self._pad)
        if not np.isfinite(embeddings).all():
            row = int(np.flatnonzero(~np.isfinite(embeddings).all(axis=1))[0])
            raise TeacherError(
                f"{self.name}: the vector of row {row} isn't finite. The weights are damaged; retrain it"
            )
        return embeddings


@torch.inference_mode()
def encode_ids(
    student: nn.Module, ids: Sequence[NDArray[np.integer]], *, pad: int, batch_tokens: int = BATCH_TOKENS
) -> NDArray[np.float32]:
    """Embed rows of token ids with a student, sorted by length and cut by a token budget.

    Args:
        student: a student of any kind in evaluation mode, on any device.
        ids: one array a row, special tokens included.
        pad: id of the padding token.
        batch_tokens: tokens a batch, padding included.

    Returns:
        Rows (n, d), float32, L2-normalised, in the order given.
    """
    embeddings = np.empty((len(ids), int(student.dimensions)), dtype=np.float32)  # type: ignore[arg-type]
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    device = next(student.parameters()).device
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        rows = order[start : start + max(batch_tokens // longest, 1)]
        input_ids, mask = pad_rows([ids[row] for row in rows], pad)
        mask_there = None if mask is None else mask.to(device)
        embeddings[rows] = student(input_ids.to(device), mask_there).embedding.cpu().numpy()
        start += len(rows)
    return embeddings


def pad_rows(ids: Sequence[NDArray[np.integer]], pad: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Stack rows of ids into one tensor; the mask is None when all have one length.

    Example:
        >>> pad_rows([np.array([5, 6]), np.array([7])], pad=0)[0].tolist()
        [[5, 6], [7, 0]]
    """
    lengths = [len(row) for row in ids]
    width = max(max(lengths), 1)
    if min(lengths) == width:
        return torch.from_numpy(np.stack(ids).astype(np.int64)), None
    stacked = np.full((len(ids), width), pad, dtype=np.int64)
    for row, values in zip(stacked, ids, strict=True):
        row[: len(values)] = values
    mask = np.arange(width)[None, :] < np.asarray(lengths)[:, None]
    return torch.from_numpy(stacked), torch.from_numpy(mask.astype(np.int64))


def load_student(path: str | Path, *, verify: bool = True) -> StudentEncoder:
    """Load a student artefact.

    Args:
        path: its folder.
        verify: check every file's checksum first.

    Raises:
        InputError: no student is there.
        BankIntegrityError: a file is missing or damaged.
    """
    from safetensors.torch import load_file

    from consilience.students.static import is_static, load_static

    folder = Path(path)
    manifest = verify_artefact(folder, "student") if verify else read_manifest(folder, "student")
    if is_static(manifest):
        return load_static(folder, manifest)
    kind: HeadKind = manifest.get("config", {}).get("head", "mlp")
    with torch_seed(0):  # what is drawn is replaced
        backbone = make_backbone(read_json(folder / "config.json"), where=str(path))
        student = TextStudent(backbone, int(manifest["dimensions"]), kind)
    student.backbone.load_state_dict(load_file(folder / "model.safetensors"))
    if kind != "none":
        student.head.load_state_dict(load_file(folder / _HEAD_FILE))
    return StudentEncoder(
        student,
        load_tokenizer(folder),
        name=str(path),
        max_length=int(manifest["max_length"]),
        manifest=manifest,
    )
