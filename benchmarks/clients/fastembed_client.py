"""fastembed with the folder as a custom model: no pooling, since the graph pools."""

import sys

from client import answer, versions
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

folder, texts, file, dimensions = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
TextEmbedding.add_custom_model(
    model="mine/student",
    pooling=PoolingType.DISABLED,
    normalization=True,
    sources=ModelSource(hf="mine/student"),
    dim=dimensions,
    model_file=file or "onnx/model.onnx",
)
model = TextEmbedding(model_name="mine/student", specific_model_path=folder, threads=1)
answer(lambda given: list(model.embed(given)), texts, versions("fastembed", "onnxruntime"))
