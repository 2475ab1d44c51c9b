"""sentence-transformers with its torch, ONNX or OpenVINO backend: ``SentenceTransformer(FOLDER, backend=...)``."""

import os
import shutil
import sys
import tempfile

from client import answer, versions
from sentence_transformers import SentenceTransformer

folder, texts, backend, file = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]
packages = {"torch": [], "onnx": ["optimum-onnx", "onnxruntime"], "openvino": ["optimum-intel", "openvino"]}
settings = {"file_name": file} if file and backend == "onnx" else {}
with tempfile.TemporaryDirectory() as copy:  # OpenVINO converts the weights when it loads; the export stays as it is
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    model = SentenceTransformer(copy, backend=backend, device="cpu", model_kwargs=settings, local_files_only=True)
    answer(model.encode, texts, versions("sentence-transformers", "transformers", *packages[backend]))
