"""What every client's program shares: read the jobs, embed the texts for each, print the answers as JSON."""

import importlib.metadata
import json
import sys
from pathlib import Path


def versions(*packages):
    """Name the packages with their versions."""
    return {name: importlib.metadata.version(name) for name in packages}


def answer(load, found):
    """Print vectors and versions for the jobs of the file that the first argument names.

    ``load(job)`` gives what embeds a list of texts with the export in ``job["folder"]``; ``job["file"]`` is the graph
    to read, "" for the usual one. What one job fails of is its answer, and the others go on.
    """
    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = []
    for job in content["jobs"]:
        try:
            rows = load(job)(content["texts"])
            answers.append({"vectors": [[float(value) for value in row] for row in rows]})
        except Exception as error:  # whatever somebody else's library raises is what the table shows
            answers.append({"error": f"{type(error).__name__}: {error}"[:300]})
    sys.stdout.write("\n" + json.dumps({"versions": found, "answers": answers}) + "\n")


def card_code(folder, section):
    """Return the model card's snippet of a section, with the folder filled in."""
    card = Path(folder, "README.md").read_text(encoding="utf-8")
    code = card.split(f"### {section}\n")[1].split("```python\n")[1].split("```")[0]
    return code.replace("path/to/this/folder", folder)


def run_code(code, texts):
    """Run a card's snippet on other texts than its own and return its embeddings."""
    scope = {}
    exec(code.replace('["a cat sleeps", "a kitten is asleep"]', repr(texts)), scope)
    return scope["embeddings"].tolist()
