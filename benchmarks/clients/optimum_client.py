"""optimum's ``ORTModelForFeatureExtraction``: token states, then their mean and the card's steps behind it."""

from pathlib import Path

from client import answer, card_code, run_code, versions


def load(job):
    """Take the snippet for transformers with optimum's model in AutoModel's place."""
    file = Path(job["file"] or "onnx/model.onnx").name
    code = card_code(job["folder"], "transformers")
    code = code.replace("from transformers import AutoModel, AutoTokenizer", "from transformers import AutoTokenizer")
    code = "from optimum.onnxruntime import ORTModelForFeatureExtraction as AutoModel\n" + code
    code = code.replace("(folder).eval()", f'(folder, subfolder="onnx", file_name="{file}")')
    return lambda texts: run_code(code, texts)


answer(load, versions("optimum", "optimum-onnx", "transformers", "onnxruntime"))
