"""A static student's exported forms: sentence-transformers' own StaticEmbedding, and an ONNX graph of eight nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.extras import require
from consilience.core.files import atomic_write, storage_errors, write_json
from consilience.exporters.card_usage import USAGE_ST, onnx_usage, widths_usage
from consilience.exporters.huggingface import write_tensors
from consilience.exporters.int8 import INT8_FILE, embed_with_int8, write_int8
from consilience.exporters.onnx import EMBEDDING, ONNX_FILE, STATES, embed_with_onnx
from consilience.exporters.parity import (
    PROBE,
    TOLERANCE,
    compare_cosines,
    compare_vectors,
    embed_with_sentence_transformers,
)
from consilience.exporters.student_parts import trained_widths
from consilience.students.static import TABLE_NAME, StaticEncoder, StaticStudent, is_static
from consilience.students.tokenizer import pad_id, tokenizer_settings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from consilience.students.text import StudentEncoder

_OPSET = 18  # as the other exporter's
_IR_VERSION = 8  # cited: onnx's table of versions; the lowest that has opset 18
_SMALLEST = 1e-12  # as torch.nn.functional.normalize

_USAGE_WIDTHS = """### Fewer dimensions

The coordinates are principal axes in falling order, so any prefix is an embedding:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder", truncate_dim=@WIDTH@)
embeddings = model.encode(["a cat sleeps", "a kitten is asleep"], normalize_embeddings=True)
print(embeddings @ embeddings.T)
```
"""

_USAGE_INT8 = """### int8

`onnx/model_int8.onnx` has the table in int8 with one scale a row; same inputs, same output, rounded.
"""


@dataclass(frozen=True)
class StaticParts:
    """What is exported.

    Attributes:
        table: (V, d) rows, not normalised; a rotation and a cut to fewer dimensions are in them already.
        tokenizer: the student's; adds no special tokens.
        max_length: tokens that a text is cut to.
        ordered: the coordinates are principal axes, so any prefix is an embedding.
        widths: smaller widths that it was trained at too, ascending.
    """

    table: NDArray[np.float32]
    tokenizer: Tokenizer
    max_length: int
    ordered: bool
    widths: tuple[int, ...] = ()

    @property
    def dimensions(self) -> int:
        """Width of the embedding."""
        return int(self.table.shape[1])


def static_parts(
    student: StudentEncoder, rotation: NDArray[np.float32] | None = None, truncate_dim: int | None = None
) -> StaticParts:
    """Take a static student apart; what follows the mean is linear, so it moves into the rows.

    Args:
        student: as loaded.
        rotation: (d, d_to), into the frame that serves; None leaves the student in its own.
        truncate_dim: leading dimensions to keep; all when not given.

    Raises:
        InputError: the student isn't static, both a rotation and a width are given, or its leading dimensions aren't an
            embedding of their own.
    """
    if not is_static(student.manifest):
        raise InputError(f"export: {student.name} isn't a static student")
    table = student.module.embedding.weight.detach().cpu().float().numpy()
    ordered = student.manifest.get("axes") == "principal"
    widths = [] if rotation is not None else trained_widths(student.manifest)
    if rotation is not None and truncate_dim is not None:
        raise InputError(
            "export: a rotation and a width exclude each other: the leading dimensions of another frame mean nothing. "
            "Leave --rotation or --truncate-dim out"
        )
    if rotation is not None:
        table, ordered = table @ rotation.astype(np.float32), False
    if truncate_dim is not None and truncate_dim != table.shape[1]:
        if not 1 <= truncate_dim <= table.shape[1] or not (ordered or truncate_dim in widths):
            known = "it was trained at no smaller width, and its coordinates aren't in falling order"
            if ordered:
                known = f"any width up to {table.shape[1]}"
            elif widths:
                known = f"it was trained at {', '.join(map(str, widths))}"
            raise InputError(
                f"export: can't cut {table.shape[1]} dimensions to {truncate_dim}: {known}. Change --truncate-dim"
                + ("" if ordered else ", or distil with --matryoshka")
            )
        table = table[:, :truncate_dim]
    smaller = tuple(width for width in widths if width < table.shape[1])
    return StaticParts(np.ascontiguousarray(table), student.tokenizer, student.max_length, ordered, smaller)


def write_static_forms(
    parts: StaticParts, formats: Sequence[str], folder: Path, quantize: str | None = None
) -> dict[str, Any]:
    """Write the forms asked for and compare each with the student on the fixed probe.

    Args:
        parts: the student.
        formats: "sentence-transformers", "onnx".
        folder: the export's, empty.
        quantize: "int8" adds ``onnx/model_int8.onnx``.

    Returns:
        What the manifest says of parity.

    Raises:
        ParityError: a form differs from the student.
        MissingExtraError: a library of a format isn't installed.
    """
    _write_tokenizer(parts, folder)
    if "sentence-transformers" in formats:
        _write_modules(parts, folder)
    if "onnx" in formats:
        _write_onnx(parts, folder)
    if quantize is not None:
        write_int8(folder)
    return _check(parts, folder)


def static_usage(parts: StaticParts, formats: Sequence[str], *, int8: bool = False) -> list[str]:
    """Write the card's sections on use.

    Args:
        parts: what the folder holds.
        formats: "sentence-transformers", "onnx".
        int8: the int8 file is there.
    """
    sections = []
    if "sentence-transformers" in formats:
        sections.append(USAGE_ST)
        if parts.ordered and parts.dimensions > 1:
            sections.append(_USAGE_WIDTHS.replace("@WIDTH@", str(max(parts.dimensions // 2, 1))))
        elif parts.widths:
            sections.append(widths_usage(parts.widths, parts.dimensions))
    if "onnx" in formats:
        padding = pad_id(parts.tokenizer)
        sections.append(onnx_usage(parts.max_length, (padding, str(parts.tokenizer.id_to_token(padding)))))
    if int8:
        sections.append(_USAGE_INT8)
    return sections


def _write_tokenizer(parts: StaticParts, folder: Path) -> None:
    """Write the tokenizer with its limit in it: StaticEmbedding reads no other file."""
    cutting = type(parts.tokenizer).from_str(parts.tokenizer.to_str())
    cutting.enable_truncation(parts.max_length)
    with atomic_write(folder / "tokenizer.json", "w") as stream:
        stream.write(cutting.to_str(pretty=True))
    settings = tokenizer_settings(parts.tokenizer, max_length=parts.max_length)
    write_json(folder / "tokenizer_config.json", settings)


def _write_modules(parts: StaticParts, folder: Path) -> None:
    import torch

    write_tensors(folder / "model.safetensors", {TABLE_NAME: torch.from_numpy(parts.table)})
    with storage_errors(folder / "1_Normalize"):
        (folder / "1_Normalize").mkdir()
    write_json(folder / "1_Normalize" / "config.json", {})
    modules = [
        {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for i, (place, kind) in enumerate((("", "StaticEmbedding"), ("1_Normalize", "Normalize")))
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})


def _write_onnx(parts: StaticParts, folder: Path) -> None:
    """Write the graph: rows, mask, sum, length 1. A sum has the direction of the mean."""
    onnx = require("onnx", extra="onnx", purpose="to export to ONNX")
    helper, types = onnx.helper, onnx.TensorProto
    constants = [
        onnx.numpy_helper.from_array(parts.table, "table"),
        onnx.numpy_helper.from_array(np.array([2], dtype=np.int64), "last_axis"),
        onnx.numpy_helper.from_array(np.array([1], dtype=np.int64), "token_axis"),
        onnx.numpy_helper.from_array(np.array(_SMALLEST, dtype=np.float32), "smallest"),
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], [STATES], axis=0),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=types.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last_axis"], ["column"]),
        helper.make_node("Mul", [STATES, "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "token_axis"], ["sum"], keepdims=0),
        helper.make_node("ReduceL2", ["sum", "token_axis"], ["length"], keepdims=1),
        helper.make_node("Max", ["length", "smallest"], ["divisor"]),
        helper.make_node("Div", ["sum", "divisor"], [EMBEDDING]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, types.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [
        helper.make_tensor_value_info(EMBEDDING, types.FLOAT, ["batch", parts.dimensions]),
        helper.make_tensor_value_info(STATES, types.FLOAT, ["batch", "tokens", parts.dimensions]),
    ]
    graph = helper.make_graph(nodes, "static_student", inputs, outputs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION, producer_name="consilience"
    )
    target = folder / ONNX_FILE
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        onnx.save_model(model, str(target), save_as_external_data=False)
    onnx.checker.check_model(str(target), full_check=True)


def _check(parts: StaticParts, folder: Path) -> dict[str, Any]:
    import torch

    encoder = StaticEncoder(
        StaticStudent(torch.from_numpy(parts.table)),
        parts.tokenizer,
        name="student",
        max_length=parts.max_length,
        manifest={},
    )
    expected = encoder.encode(PROBE)
    forms: dict[str, NDArray[np.float32]] = {}
    if (folder / "modules.json").is_file():
        forms["sentence-transformers"] = embed_with_sentence_transformers(folder, PROBE)
    if (folder / ONNX_FILE).is_file():
        forms["onnx-batch-1"] = embed_with_onnx(folder, PROBE, batch=1)
        forms["onnx-batch-7"] = embed_with_onnx(folder, PROBE, batch=7)
    found = {name: compare_vectors(name, expected, vectors) for name, vectors in forms.items()}
    parity: dict[str, Any] = {"tolerance": TOLERANCE, "probe_texts": len(PROBE), "max_abs_difference": found}
    if (folder / INT8_FILE).is_file():
        parity["int8"] = compare_cosines("onnx-int8", expected, embed_with_int8(folder, PROBE))
    return parity
