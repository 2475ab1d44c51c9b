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

folder, texts = sys.argv[1], sys.argv[2]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [str(Path(sys.executable).with_name("infinity_emb")), "v2", "--model-id", folder, "--port", str(port)]
command += ["--host", "127.0.0.1", "--served-model-name", "student", "--engine", "torch", "--device", "cpu"]
command += ["--dtype", "float32", "--no-bettertransformer", "--no-model-warmup"]
environment = {**os.environ, "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
server = subprocess.Popen(command, stdout=sys.stderr, env=environment)
address = f"http://127.0.0.1:{port}"


def encode(given):
    """Ask for all texts in one request, as soon as the server answers."""
    body = json.dumps({"model": "student", "input": given}).encode()
    request = urllib.request.Request(address + "/embeddings", body, {"Content-Type": "application/json"})
    while server.poll() is None:
        try:
            with urllib.request.urlopen(request) as reply:
                return [row["embedding"] for row in sorted(json.load(reply)["data"], key=lambda row: row["index"])]
        except urllib.error.HTTPError as error:
            raise SystemExit(f"infinity: {error.read().decode()[:300]}") from error
        except urllib.error.URLError:
            time.sleep(0.5)
    raise SystemExit(f"infinity: the server ended with {server.returncode}")


try:
    answer(encode, texts, versions("infinity-emb", "sentence-transformers", "transformers"))
finally:
    server.terminate()
    server.wait()
