"""optimum's ``ORTModelForFeatureExtraction``: token states, then their mean and the card's steps behind it."""

import re
import sys
from pathlib import Path

from client import answer, versions

folder, texts, file = sys.argv[1], sys.argv[2], sys.argv[3]
card = Path(folder, "README.md").read_text(encoding="utf-8")
code = re.search(r"### transformers\n.*?```python\n(.*?)```", card, re.DOTALL).group(1)
code = code.replace("from transformers import AutoModel, AutoTokenizer", "from transformers import AutoTokenizer")
code = "from optimum.onnxruntime import ORTModelForFeatureExtraction as AutoModel\n" + code
code = code.replace(
    "AutoModel.from_pretrained(folder).eval()",
    f'AutoModel.from_pretrained(folder, subfolder="onnx", file_name="{Path(file or "model.onnx").name}")',
)


def encode(given):
    """Run the card's code with optimum's model in AutoModel's place."""
    scope = {}
    code_here = code.replace("path/to/this/folder", folder)
    exec(code_here.replace('["a cat sleeps", "a kitten is asleep"]', repr(given)), scope)
    return scope["embeddings"].tolist()


answer(encode, texts, versions("optimum", "optimum-onnx", "transformers", "onnxruntime"))
