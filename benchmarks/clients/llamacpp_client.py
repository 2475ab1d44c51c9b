"""llama.cpp: its own converter to GGUF, then its server's ``/v1/embeddings``.

The converter comes with the source of llama-cpp-python, the server with xllamacpp.
"""

import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import xllamacpp
from client import answer, versions

converter, kind = Path(sys.argv[2]), sys.argv[3]


def load(job):
    """Convert the folder and start the server, which ends with this program."""
    with tempfile.TemporaryDirectory() as place:
        model = Path(place, "model.gguf")
        command = [sys.executable, converter, job["folder"], "--outfile", model, "--outtype", kind]
        subprocess.run(command, check=True, stdout=sys.stderr)
        settings = xllamacpp.CommonParams()
        settings.model.path = str(model)
        settings.embedding = True
        settings.port = 0
        settings.n_ctx = settings.n_batch = settings.n_ubatch = 512
        settings.n_parallel = 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        server = xllamacpp.Server(settings)
    return lambda texts: [ask(server.listening_address, text) for text in texts]


def ask(address, text):
    """Return the server's vector of a text; [] for one that it refuses as too long."""
    body = json.dumps({"input": text}).encode()
    request = urllib.request.Request(address + "/v1/embeddings", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)["data"][0]["embedding"]
    except urllib.error.HTTPError as error:
        said = error.read().decode()
        if "too large" in said:
            return []
        raise RuntimeError(said[:300]) from error


(archive,) = converter.parent.glob("llama_cpp_python-*.tar.gz")
source = {"llama-cpp-python": archive.name.removesuffix(".tar.gz").split("-")[1]}
answer(load, {**versions("xllamacpp"), **source})
