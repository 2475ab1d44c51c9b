"""fastembed with the folder as a custom model: no pooling, since the graph pools."""

from client import answer, versions
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType


def load(job):
    """Name the folder's graph as a model and load it."""
    name = f"mine/{job['name']}"
    TextEmbedding.add_custom_model(
        model=name,
        pooling=PoolingType.DISABLED,
        normalization=True,
        sources=ModelSource(hf=name),
        dim=job["dimensions"],
        model_file=job["file"] or "onnx/model.onnx",
    )
    model = TextEmbedding(model_name=name, specific_model_path=job["folder"], threads=1)
    return lambda texts: list(model.embed(texts))


answer(load, versions("fastembed", "onnxruntime"))
