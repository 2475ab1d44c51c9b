"""What each client of an exported folder can hold: layers behind the pooling, files, tokenizer.

A client that can't hold a head mostly drops it without a word and serves other vectors. ``docs/export.md`` has the
table of what each gives; ``benchmarks/client_table.py`` measures it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.exporters.static_folder import StaticParts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from consilience.exporters.student_parts import StudentParts

_ST, _ONNX = "sentence-transformers", "onnx"
# Assumed: of the median length. An unknown token beside a known one then costs at most 2e-6 of cosine.
_UNKNOWN_SHARE = 2e-3
# Of bert-base-uncased's 30,522 tokens in their order, each followed by a line feed.
_BERT_VOCABULARY = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"


@dataclass(frozen=True)
class Client:
    """What a client reads.

    Attributes:
        how: to use the folder there; LIMIT stands for the student's in tokens.
        formats: of the export, all needed.
        kind: of students.
        head: the layers that it applies behind the pooling: "any", "dense" (Linear without activation), or "none".
        lack: what it can't do with other heads, or with layers, for the message.
    """

    how: str
    formats: tuple[str, ...]
    kind: Literal["layers", "static", "both"] = "both"
    head: Literal["any", "dense", "none"] = "any"
    lack: str = ""


CLIENTS = {
    "sentence-transformers": Client("`SentenceTransformer(folder)`", (_ST,)),
    "sentence-transformers-onnx": Client('`SentenceTransformer(folder, backend="onnx")`', (_ST, _ONNX)),
    "sentence-transformers-openvino": Client('`SentenceTransformer(folder, backend="openvino")`', (_ST,)),
    "transformers": Client("`AutoModel` and the steps on the card", (_ST,), "layers"),
    "onnxruntime": Client("the snippet on the card", (_ONNX,)),
    "optimum": Client("`ORTModelForFeatureExtraction`, the steps on the card", (_ST, _ONNX), "layers"),
    "fastembed": Client("a custom model of `onnx/model.onnx`, `PoolingType.DISABLED`", (_ONNX,)),
    "infinity": Client("`--engine torch`", (_ST,), "layers"),
    "transformers.js": Client("`AutoModel`, output `sentence_embedding`", (_ST, _ONNX), "layers"),
    "text-embeddings-inference": Client(
        "`--model-id folder`", (_ST,), "layers", "dense", "knows no LayerNorm and no GELU behind the pooling"
    ),
    "llama.cpp": Client(
        "`convert_hf_to_gguf.py folder`, then its server", (_ST,), "layers", "none", "has no layer behind the pooling"
    ),
    "model2vec": Client(
        "`StaticModel.from_pretrained(folder, max_length=LIMIT)`", (_ST,), "static", lack="has no layers"
    ),
}


def check_clients(names: Sequence[str], parts: StudentParts | StaticParts, formats: Sequence[str]) -> None:
    """Refuse an export that a client would read as another model, or not at all.

    Args:
        names: of clients.
        parts: what is exported, a rotation included.
        formats: of the export.

    Raises:
        InputError: an unknown client, or one that can't serve this student; the message says what would.
    """
    for name in names:
        if name not in CLIENTS:
            raise InputError(f"export: a client among {', '.join(CLIENTS)} expected, got {name!r}. Fix --for")
        missing = [form for form in CLIENTS[name].formats if form not in formats]
        if missing:
            raise InputError(f"export: {name} reads the format {missing[0]} too. Add it to --format, or leave it out")
        reason = cannot_serve(name, parts)
        if reason:
            raise InputError(f"export: {reason}, or leave {name} out of --for")


def cannot_serve(name: str, parts: StudentParts | StaticParts) -> str | None:
    """Say why a client can't serve a student and what mends it; None when it can.

    Args:
        name: of the client.
        parts: the student.
    """
    client = CLIENTS[name]
    if isinstance(parts, StaticParts):
        if client.kind == "layers":
            return (
                f"{name} asks for a transformer's config.json, and this student is a token table. "
                "Distil one with layers (--student mini)"
            )
        return _unknown_counts(parts) if name == "model2vec" else None
    if client.kind == "static":
        return f"{name} {client.lack}, and this student has. Make a static one (consilience static)"
    linear = all(stage.kind == "Dense" and not stage.gelu for stage in parts.stages)
    if (client.head == "none" and parts.stages) or (client.head == "dense" and not linear):
        heads = "--head none" if client.head == "none" else "--head none or linear"
        rotated = " and export without --rotation and --truncate-dim" if client.head == "none" else ""
        return f"{name} {client.lack} and would leave the head out. Distil with {heads}{rotated}"
    return _unknown_tokenizer(parts) if name == "llama.cpp" else None


def clients_usage(parts: StudentParts | StaticParts, formats: Sequence[str]) -> str:
    """Write the card's section on other clients: which serve the folder and how, and which don't and why.

    Args:
        parts: what is exported.
        formats: of the export.
    """
    lines = ["### Other clients", "", "These give the same vectors:", ""]
    refused = []
    for name, client in CLIENTS.items():
        reason = cannot_serve(name, parts)
        if reason:
            refused.append(f"- {reason.split('. ')[0]}")
        elif set(client.formats) <= set(formats):
            lines.append(f"- {name}: {client.how.replace('LIMIT', str(parts.max_length))}")
    return "\n".join([*lines, "", "These can't:", "", *refused, ""]) if refused else "\n".join([*lines, ""])


def _unknown_counts(parts: StaticParts) -> str | None:
    """Model2vec leaves unknown tokens out: they must weigh next to nothing in the student too."""
    token = getattr(parts.tokenizer.model, "unk_token", None)
    row = None if token is None else parts.tokenizer.token_to_id(token)
    lengths = np.linalg.norm(parts.table, axis=1)
    if row is None or lengths[row] <= _UNKNOWN_SHARE * np.median(lengths):
        return None
    return (
        f"model2vec leaves unknown tokens out, and this student's row for {token} counts. Make one with consilience "
        "static, whose row for them is next to nothing"
    )


def _unknown_tokenizer(parts: StudentParts) -> str | None:
    """llama.cpp's converter recognises tokenizers by what they make of a text of its own, and refuses all others."""
    if parts.backbone.config.model_type == "bert" and vocabulary_hash(parts.tokenizer) == _BERT_VOCABULARY:
        return None
    return (
        "llama.cpp's converter knows published tokenizers only, and this one isn't bert-base-uncased's. Distil with "
        "--init packaged:all-MiniLM-L6-v2"
    )


def vocabulary_hash(tokenizer: Tokenizer) -> str:
    """Return the SHA-256 of a vocabulary's tokens in their order, each followed by a line feed."""
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256("".join(f"{token}\n" for token, _ in tokens).encode()).hexdigest()
