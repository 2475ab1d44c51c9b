"""onnxruntime and tokenizers alone: the model card's own snippet, with other texts."""

from client import answer, card_code, run_code, versions


def load(job):
    """Take the snippet; for int8, whose rounding looks at the whole batch, one text at a time."""
    code = card_code(job["folder"], "ONNX Runtime, without torch")
    if not job["file"]:
        return lambda texts: run_code(code, texts)
    code = code.replace("onnx/model.onnx", job["file"])
    return lambda texts: [run_code(code, [text])[0] for text in texts]


answer(load, versions("onnxruntime", "tokenizers"))
