"""Sizes of text students: named presets and the dataclass for other sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from consilience.core.errors import InputError

HeadKind = Literal["mlp", "linear", "none"]
HEADS: tuple[HeadKind, ...] = ("mlp", "linear", "none")
ARCHITECTURES = ("bert", "mpnet", "roberta", "distilbert")
_ABSENT = {"head": "mlp", "architecture": "bert"}  # what a manifest that doesn't say means: students made before these


@dataclass(frozen=True)
class StudentConfig:
    """The shape of a text student: a transformer encoder, mean pooling, a head.

    Attributes:
        layers: transformer blocks.
        hidden: width of the token states.
        heads: attention heads; divides ``hidden``.
        ffn: width of the feed-forward layers.
        max_positions: learned positions, the longest text in tokens.
        dropout: probability in the backbone while training.
        batch_rows: rows a training step, unless the person says otherwise.
        max_length: tokens a text is cut to in training and inference, unless the person says otherwise.
        head: "mlp" (Linear, GELU, LayerNorm, Linear), "linear" (one Linear without bias), or "none" (the embedding is
            as wide as ``hidden``); None is "none" where it can be, else "linear": an "mlp" learns more slowly
            (measured), and few other libraries have its layers.
        architecture: "bert", or of a warm start also "mpnet", "roberta", "distilbert".
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    max_positions: int = 512
    dropout: float = 0.0
    batch_rows: int = 256
    max_length: int = 128
    head: HeadKind | None = "mlp"
    architecture: str = "bert"

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.heads, self.ffn, self.batch_rows, self.max_length)
        if min(sizes) < 1 or self.max_positions < self.max_length:
            raise InputError(
                "student: expected sizes of at least 1 and max_positions >= max_length, got "
                f"{asdict(self)}. Change the student's configuration"
            )
        if self.hidden % self.heads:
            raise InputError(
                f"student: expected heads that divide hidden, got {self.heads} heads and hidden {self.hidden}. "
                "Change one of them"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"student: expected dropout in [0, 1), got {self.dropout}. Change it")
        if self.head not in (None, *HEADS) or self.architecture not in ARCHITECTURES:
            raise InputError(
                f"student: expected a head among {', '.join(HEADS)} and an architecture among "
                f"{', '.join(ARCHITECTURES)}, got {self.head!r} and {self.architecture!r}. Change the configuration"
            )

    def for_width(self, dimensions: int) -> StudentConfig:
        """Return the shape with its head decided, for an embedding of so many dimensions."""
        plain: HeadKind = "none" if self.hidden == dimensions else "linear"
        return self if self.head is not None else replace(self, head=plain)

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name; head and architecture only where they aren't "mlp" and "bert"."""
        return {key: value for key, value in asdict(self).items() if _ABSENT.get(key) != value}


PRESETS = {
    # Source: design, section 4; the batch is the reference documents' (section 5).
    "captionbert-8192": StudentConfig(
        layers=12, hidden=512, heads=8, ffn=2048, max_positions=8192, batch_rows=2048, max_length=256
    ),
    "mini": StudentConfig(layers=4, hidden=384, heads=12, ffn=1536, head=None),
    "micro": StudentConfig(layers=2, hidden=256, heads=8, ffn=1024, head=None),
}

# By (preset, vocabulary, width of the embedding), token-type embeddings not counted. Source: design, section 4.
CITED_PARAMETERS = {("captionbert-8192", 30_522, 768): 58_308_864}


def resolve_config(student: str | StudentConfig) -> tuple[str, StudentConfig]:
    """Return a student's name and shape.

    Args:
        student: name of a preset, or a shape of one's own, which is named "custom".

    Raises:
        InputError: there is no such preset.

    Example:
        >>> resolve_config("micro")[1].hidden
        256
    """
    if isinstance(student, StudentConfig):
        return "custom", student
    if student not in PRESETS:
        raise InputError(f"student {student!r}: no such preset. Choose {', '.join(sorted(PRESETS))} or a StudentConfig")
    return student, PRESETS[student]


def count_from_config(config: StudentConfig, *, vocab_size: int, dimensions: int) -> int:
    """Return how many parameters a student of this shape has, token-type embeddings not counted.

    Args:
        config: the shape.
        vocab_size: rows of the token table.
        dimensions: width of the embedding.

    Example:
        >>> count_from_config(PRESETS["captionbert-8192"], vocab_size=30522, dimensions=768)
        58308864
    """
    h, f = config.hidden, config.ffn
    embeddings = (vocab_size + config.max_positions) * h + 2 * h
    attention = 4 * (h * h + h) + 2 * h
    feed_forward = (h * f + f) + (f * h + h) + 2 * h
    heads = {"mlp": (h * h + h) + 2 * h + (h * dimensions + dimensions), "linear": h * dimensions, "none": 0}
    # MPNet and RoBERTa keep two position rows that no text uses; MPNet has a bias by head and bucket of distance.
    rows = 2 * h if config.architecture in ("mpnet", "roberta") else 0
    bias = 32 * config.heads if config.architecture == "mpnet" else 0
    head = heads[str(config.for_width(dimensions).head)]
    return embeddings + rows + bias + config.layers * (attention + feed_forward) + head


def non_embedding_flops_per_token(config: StudentConfig, *, tokens: int = 0) -> int:
    """Return the floating-point operations of one forward pass through the layers, by token.

    A multiplication and its addition count as two: 2 (4 h^2 + 2 h f) a layer for the weights of attention and
    feed-forward, and 4 h a layer and attended token for scores and weighted values. Token table, normalisations,
    activations and the head, which runs once a text, aren't counted.

    Args:
        config: the shape.
        tokens: length of the text, for the attention to all of its tokens; 0 counts the weights alone, as Kaplan et
            al.'s 2N does, and depends on no corpus.

    Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1; here attention isn't causal.

    Example:
        >>> minilm = StudentConfig(layers=6, hidden=384, heads=12, ffn=1536)
        >>> non_embedding_flops_per_token(minilm)
        21233664
        >>> non_embedding_flops_per_token(PRESETS["mini"]) / non_embedding_flops_per_token(minilm)
        0.6666666666666666
    """
    h, f = config.hidden, config.ffn
    return config.layers * (2 * (4 * h * h + 2 * h * f) + 4 * h * tokens)
