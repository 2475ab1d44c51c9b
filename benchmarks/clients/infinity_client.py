"""infinity-emb's server with its torch engine: ``POST /embeddings``."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from client import answer, versions


def load(job):
    """Start a server when the texts are there."""
    return lambda texts: ask(job["folder"], texts)


def ask(folder, texts):
    """Start the server, ask for all texts in one request as soon as it answers, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("infinity_emb")), "v2", "--model-id", folder, "--port", str(port)]
    command += ["--host", "127.0.0.1", "--served-model-name", "student", "--engine", "torch", "--device", "cpu"]
    command += ["--dtype", "float32", "--no-bettertransformer", "--no-model-warmup"]
    server = subprocess.Popen(command, stdout=sys.stderr, env={**os.environ, "DO_NOT_TRACK": "1"})
    body = json.dumps({"model": "student", "input": texts}).encode()
    header = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/embeddings", body, header)
    try:
        while server.poll() is None:
            try:
                with urllib.request.urlopen(request) as reply:
                    rows = sorted(json.load(reply)["data"], key=lambda row: row["index"])
                    return [row["embedding"] for row in rows]
            except urllib.error.HTTPError as error:
                raise RuntimeError(error.read().decode()[:300]) from error
            except urllib.error.URLError:
                time.sleep(0.5)
        raise RuntimeError(f"the server ended with {server.returncode}")
    finally:
        server.terminate()
        server.wait()


answer(load, versions("infinity-emb", "sentence-transformers", "transformers"))
