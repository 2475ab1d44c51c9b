"""sentence-transformers with its torch, ONNX or OpenVINO backend: ``SentenceTransformer(FOLDER, backend=...)``."""

import sys

from client import answer, versions
from sentence_transformers import SentenceTransformer

backend = sys.argv[2]
packages = {"torch": [], "onnx": ["optimum-onnx", "onnxruntime"], "openvino": ["optimum-intel", "openvino"]}


def load(job):
    """Load as its documentation says; OpenVINO converts the weights in memory."""
    settings = {"file_name": job["file"]} if job["file"] else {}
    model = SentenceTransformer(
        job["folder"], backend=backend, device="cpu", model_kwargs=settings, local_files_only=True
    )
    return model.encode


answer(load, versions("sentence-transformers", "transformers", *packages[backend]))
