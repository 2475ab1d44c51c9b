"""What every client's program shares: read the texts, embed them one by one and together, print the answer as JSON."""

import importlib.metadata
import json
import sys
from pathlib import Path


def versions(*packages):
    """Name the packages with their versions."""
    return {name: importlib.metadata.version(name) for name in packages}


def answer(encode, texts, found):
    """Embed the texts of a JSON file as one batch and print vectors and versions as the last line."""
    vectors = encode(json.loads(Path(texts).read_text(encoding="utf-8")))
    rows = [[float(value) for value in row] for row in vectors]
    sys.stdout.write("\n" + json.dumps({"versions": found, "vectors": rows}) + "\n")
