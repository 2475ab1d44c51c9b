"""The model card's section on use: snippets for the layers that the folder really has. Tests run them."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.exporters.student_parts import StudentParts
from consilience.students.tokenizer import pad_id

USAGE_ST = """### sentence-transformers

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")  # stock modules only, no remote code
embeddings = model.encode(["a cat sleeps", "a kitten is asleep"])
print(model.similarity(embeddings, embeddings))
```

Needs sentence-transformers 5.0 or newer.
"""

_USAGE_TRANSFORMERS = """### transformers

```python
import torch
@LOADER@from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

folder = "path/to/this/folder"
tokenizer = AutoTokenizer.from_pretrained(folder)
backbone = AutoModel.from_pretrained(folder).eval()
@LAYERS@
inputs = tokenizer(["a cat sleeps", "a kitten is asleep"], padding=True, truncation=True, return_tensors="pt")
with torch.no_grad():
    states = backbone(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    x = (states * mask).sum(1) / mask.sum(1)
@STEPS@    embeddings = F.normalize(x)
print(embeddings @ embeddings.T)
```
"""

_USAGE_ONNX = """### ONNX Runtime, without torch

```python
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = "path/to/this/folder"
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.enable_truncation(@MAX_LENGTH@)
tokenizer.enable_padding(pad_id=@PAD_ID@, pad_token="@PAD_TOKEN@")
session = onnxruntime.InferenceSession(f"{folder}/onnx/model.onnx")

encoded = tokenizer.encode_batch(["a cat sleeps", "a kitten is asleep"])
ids = np.array([row.ids for row in encoded], dtype=np.int64)
mask = np.array([row.attention_mask for row in encoded], dtype=np.int64)
embeddings = session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": mask})[0]
print(embeddings @ embeddings.T)
```
"""

_USAGE_INT8 = """### int8

`onnx/model_int8.onnx` (@SMALL@ MB; `onnx/model.onnx` has @LARGE@ MB) takes the same inputs and gives the same output,
rounded: the layers' weights and the tables of tokens and positions are int8, and activations are rounded when they
come, together with those of their batch, so that a vector depends a little on its neighbours. Load it as above:

```python
session = onnxruntime.InferenceSession(f"{folder}/onnx/model_int8.onnx")
```
"""

_USAGE_WIDTHS = """### Fewer dimensions

The student was trained at the widths @WIDTHS@ together: the first coordinates are an embedding of their own. Cut, then
bring back to length 1:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder", truncate_dim=@WIDTH@)
embeddings = model.encode(["a cat sleeps", "a kitten is asleep"], normalize_embeddings=True)
print(embeddings @ embeddings.T)
```

`consilience export --truncate-dim @WIDTH@` makes a folder that gives the cut embedding in every form.
"""


def usage_sections(
    parts: StudentParts,
    formats: Sequence[str],
    *,
    widths: Sequence[int] = (),
    onnx_bytes: tuple[int, int] | None = None,
) -> list[str]:
    """Write the sections on use.

    Args:
        parts: what the folder holds.
        formats: "sentence-transformers", "onnx".
        widths: smaller widths that the embedding may be cut to.
        onnx_bytes: sizes of the fp32 and the int8 ONNX file, or None without an int8 file.
    """
    sections = []
    if "sentence-transformers" in formats:
        sections += [USAGE_ST, _automodel_snippet(parts)]
        if widths:
            sections.append(widths_usage(widths, parts.dimensions))
    if "onnx" in formats:
        padding = pad_id(parts.tokenizer)
        sections.append(onnx_usage(parts.max_length, (padding, str(parts.tokenizer.id_to_token(padding)))))
    if onnx_bytes is not None:
        large, small = (f"{size / 1e6:.1f}" for size in onnx_bytes)
        sections.append(_USAGE_INT8.replace("@SMALL@", small).replace("@LARGE@", large))
    return sections


def widths_usage(widths: Sequence[int], dimensions: int) -> str:
    """Write the section on a student trained at nested widths.

    Args:
        widths: the smaller ones, ascending.
        dimensions: the whole embedding's.
    """
    text = _USAGE_WIDTHS.replace("@WIDTHS@", ", ".join(map(str, [*widths, dimensions])))
    return text.replace("@WIDTH@", str(widths[-1]))


def onnx_usage(max_length: int, padding: tuple[int, str]) -> str:
    """Write the section on ONNX Runtime.

    Args:
        max_length: tokens.
        padding: id and text of the padding token.
    """
    text = _USAGE_ONNX.replace("@MAX_LENGTH@", str(max_length)).replace("@PAD_ID@", str(padding[0]))
    return text.replace("@PAD_TOKEN@", padding[1])


def _automodel_snippet(parts: StudentParts) -> str:
    loads, steps = [], []
    names = ("first", "second", "third", "fourth", "fifth")
    for stage, folder, name in zip(parts.stages, parts.folders, names, strict=False):
        loads.append(f'{name} = load_file(f"{{folder}}/{folder}/model.safetensors")\n')
        if stage.kind == "LayerNorm":
            steps.append(f'    x = F.layer_norm(x, x.shape[-1:], {name}["norm.weight"], {name}["norm.bias"])\n')
            continue
        bias = "" if stage.bias is None else f', {name}["linear.bias"]'
        step = f'F.linear(x, {name}["linear.weight"]{bias})'
        steps.append(f"    x = {f'F.gelu({step})' if stage.gelu else step}\n")
    text = _USAGE_TRANSFORMERS.replace("@LAYERS@\n", "".join(loads) + "\n")
    text = text.replace("@LOADER@", "from safetensors.torch import load_file\n" if loads else "")
    return text.replace("@STEPS@", "".join(steps))
