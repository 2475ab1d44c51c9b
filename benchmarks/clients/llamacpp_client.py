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

folder, texts, converter, kind = sys.argv[1:5]


def encode(given):
    """Ask the server for one text after another; one that it refuses as too long counts as absent."""
    rows = []
    for text in given:
        body = json.dumps({"input": text}).encode()
        request = urllib.request.Request(address + "/v1/embeddings", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as reply:
                rows.append(json.load(reply)["data"][0]["embedding"])
        except urllib.error.HTTPError as error:
            sys.stderr.write(f"{text[:20]!r}: {error.read().decode()[:200]}\n")
            rows.append([])
    return rows


with tempfile.TemporaryDirectory() as place:
    model = Path(place, "model.gguf")
    command = [sys.executable, converter, folder, "--outfile", str(model), "--outtype", kind]
    subprocess.run(command, check=True, stdout=sys.stderr)
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.embedding = True
    settings.port = 0
    settings.n_ctx = settings.n_batch = settings.n_ubatch = 512
    settings.n_parallel = 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    address = server.listening_address
    answer(encode, texts, {**versions("xllamacpp"), "llama-cpp-python": Path(converter).parent.name})
