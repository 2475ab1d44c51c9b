"""onnxruntime and tokenizers alone: the model card's own snippet, with other texts."""

import re
import sys
from pathlib import Path

from client import answer, versions

folder, texts, file = sys.argv[1], sys.argv[2], sys.argv[3]
card = Path(folder, "README.md").read_text(encoding="utf-8")
code = re.search(r"### ONNX Runtime, without torch\n.*?```python\n(.*?)```", card, re.DOTALL).group(1)


def encode(given):
    """Run the card's code on these texts, one at a time for int8, whose rounding looks at the whole batch."""
    rows = []
    for part in [[text] for text in given] if file else [given]:
        scope = {}
        code_here = code.replace("path/to/this/folder", folder).replace("onnx/model.onnx", file or "onnx/model.onnx")
        exec(code_here.replace('["a cat sleeps", "a kitten is asleep"]', repr(part)), scope)
        rows += scope["embeddings"].tolist()
    return rows


answer(encode, texts, versions("onnxruntime", "tokenizers"))
