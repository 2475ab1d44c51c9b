"""What each client makes of an export, against the student's own vectors: the table in docs/export.md.

    python benchmarks/client_table.py --cache FOLDER [--only fastembed,llama.cpp] [--write]

FOLDER keeps an environment for each client (a few GB, made when absent; `--fresh` makes them anew), the students and
their exports. A client that can't serve a student shows the reason that `consilience export --for CLIENT` gives. With
`--write`, the table goes between its marks in docs/export.md and every number into docs/clients.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).resolve().parent / "clients"
sys.path.insert(0, str(PROGRAMS))

from students import KINDS, TEXTS, Made, beyond_limit, make_exports  # noqa: E402
from tei_rules import read_as_tei  # noqa: E402

from consilience.core.files import write_json  # noqa: E402
from consilience.exporters.clients import cannot_serve  # noqa: E402
from consilience.exporters.int8 import INT8_FILE  # noqa: E402

TORCH = os.environ.get("TORCH", "torch==2.13.0")  # from disk or an index of CPU builds: never the newest for CUDA
BEGIN, END = "<!-- clients: begin -->", "<!-- clients: end -->"
LEAST = 0.99999
LLAMA_SOURCE = "llama-cpp-python==0.3.36"
INT8_OF = "none"  # the student whose int8 file is measured
TEI = "text-embeddings-inference"


@dataclass(frozen=True)
class Environment:
    """Packages of a client: `torch` first and alone, so that no package brings another build of it."""

    packages: tuple[str, ...]
    torch: bool = False
    without: tuple[str, ...] = ()


ENVIRONMENTS = {
    "current": Environment(("sentence-transformers==6.2.0", "transformers==5.24.0"), torch=True),
    "onnx": Environment(("sentence-transformers==5.7.0", "optimum-onnx==0.1.0", "onnxruntime==1.32.0"), torch=True),
    # Comes with nncf, but for CUDA; text models don't need it.
    "openvino": Environment(
        ("sentence-transformers==6.2.0", "optimum-intel==2.2.0", "openvino==2026.4.1"), torch=True,
        without=("torchvision",),
    ),
    "onnxruntime": Environment(("onnxruntime==1.32.0", "tokenizers==0.23.3", "numpy")),
    "fastembed": Environment(("fastembed==0.9.1",)),
    "infinity": Environment(("infinity-emb[server,torch]==0.0.78",), torch=True),
    "llama": Environment(("xllamacpp==2026.10.11549", "transformers", "sentencepiece", "protobuf"), torch=True),
    "model2vec": Environment(("model2vec==0.10.0",)),
}  # fmt: skip
NODE_PACKAGE = "@huggingface/transformers@4.3.2"


@dataclass(frozen=True)
class Row:
    """A client as the table shows it.

    Attributes:
        name: in the table.
        client: in ``CLIENTS``.
        environment: in ``ENVIRONMENTS``, or "node".
        program: in benchmarks/clients.
        arguments: behind the jobs; CACHE is filled in.
        int8: it can be told to read the int8 file.
        headless: why no layers may follow the pooling in this way of use.
    """

    name: str
    client: str
    environment: str
    program: str
    arguments: tuple[str, ...] = ()
    int8: bool = False
    headless: str = ""


_ST = "sentence_transformers_client.py"
_JS = "transformersjs_client.mjs"
_GGUF = "CACHE/llama/convert_hf_to_gguf.py"
ROWS = (
    Row("sentence-transformers", "sentence-transformers", "current", _ST, ("torch",)),
    Row("sentence-transformers, onnx", "sentence-transformers-onnx", "onnx", _ST, ("onnx",), int8=True),
    Row("sentence-transformers, openvino", "sentence-transformers-openvino", "openvino", _ST, ("openvino",)),
    Row("AutoModel, the card's snippet", "transformers", "current", "automodel_client.py"),
    Row("onnxruntime, the card's snippet", "onnxruntime", "onnxruntime", "onnxruntime_client.py", int8=True),
    Row("optimum", "optimum", "onnx", "optimum_client.py", int8=True),
    Row("fastembed", "fastembed", "fastembed", "fastembed_client.py", int8=True),
    Row("infinity, torch engine", "infinity", "infinity", "infinity_client.py"),
    Row("transformers.js, AutoModel", "transformers.js", "node", _JS, ("CACHE/node", "model"), int8=True),
    Row(
        "transformers.js, pipeline", "transformers.js", "node", _JS, ("CACHE/node", "pipeline"), int8=True,
        headless="the pipeline pools the token states itself. Take AutoModel's `sentence_embedding`",
    ),
    Row("llama.cpp, f32", "llama.cpp", "llama", "llamacpp_client.py", (_GGUF, "f32")),
    Row("llama.cpp, f16", "llama.cpp", "llama", "llamacpp_client.py", (_GGUF, "f16")),
    Row("model2vec", "model2vec", "model2vec", "model2vec_client.py"),
)  # fmt: skip


def make_environment(cache: Path, name: str) -> Path:
    """Make a client's environment unless it is there, and return the program that runs its scripts."""
    place = cache / name
    done = place / ".complete"
    if name == "node":
        if not done.exists():
            place.mkdir(parents=True, exist_ok=True)
            # Its install step would fetch GPU libraries; those for the CPU are in the package.
            npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place)]
            _run([*npm, NODE_PACKAGE], place / "install.log")
            done.touch()
        return Path(shutil.which("node") or "node")
    python = place / "bin" / "python"
    if done.exists():
        return python
    environment = ENVIRONMENTS[name]
    log = cache / f"{name}.log"
    _run([sys.executable, "-m", "venv", "--clear", str(place)], log)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    installer = pip
    if name == "infinity":  # its pins are old; uv finds in seconds what fits them
        _run([*pip, "uv"], log)
        installer = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        if "PIP_FIND_LINKS" in os.environ:
            installer += ["--find-links", os.environ["PIP_FIND_LINKS"]]
    constraints = []
    if environment.torch:
        _run([*pip, TORCH], log)
        version = subprocess.run(
            [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
        ).stdout.strip()
        (place / "torch.txt").write_text(f"torch=={version}\n", encoding="utf-8")
        constraints = ["-c", str(place / "torch.txt")]
    _run([*installer, *constraints, *environment.packages], log)
    for package in environment.without:
        _run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", package], log)
    if name == "llama":
        _unpack_converter(place, log)
    done.touch()
    return python


def _unpack_converter(place: Path, log: Path) -> None:
    """Take llama.cpp's converter and its gguf package out of the source of llama-cpp-python."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    _run([*download, "--dest", str(place), LLAMA_SOURCE], log)
    (archive,) = place.glob("llama_cpp_python-*.tar.gz")
    unpacked = place / "source"
    shutil.unpack_archive(archive, unpacked, filter="data")
    (source,) = unpacked.glob("*/vendor/llama.cpp")
    for name in ("convert_hf_to_gguf.py", "conversion", "gguf-py"):
        (source / name).rename(place / name)
    shutil.rmtree(unpacked)


def _run(command: list[str], log: Path) -> None:
    with log.open("a", encoding="utf-8") as stream:
        done = subprocess.run(command, stdout=stream, stderr=stream, check=False)
    if done.returncode:
        raise SystemExit(f"client_table: {command[0]} ended with {done.returncode}, see {log}")


def ask(row: Row, program: Path, cache: Path, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Run one client on its exports: versions, and vectors or an error for each."""
    given = cache / f"{row.client}.json"
    given.write_text(json.dumps({"texts": list(TEXTS), "jobs": jobs}), encoding="utf-8")
    arguments = [word.replace("CACHE", str(cache)) for word in row.arguments]
    command = [str(program), str(PROGRAMS / row.program), str(given), *arguments]
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    environment = {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=cache, env=environment)
    if done.returncode:
        raise SystemExit(f"client_table: {row.name} ended with {done.returncode}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def compare(vectors: list[list[float]], made: Made) -> dict[str, Any]:
    """The least cosine on texts within the length limit and on longer ones; None where a client refuses the latter."""
    found: dict[str, Any] = {}
    longer, expected = beyond_limit(made), made.vectors
    for name, chosen in (("within", ~longer), ("longer", longer)):
        rows = [(vectors[i], expected[i]) for i in np.flatnonzero(chosen)]
        if not all(vector for vector, _ in rows):
            found[name] = None
            continue
        pairs = [(np.asarray(vector), row.astype(np.float64)) for vector, row in rows]
        found[name] = min(float(v @ e / np.linalg.norm(v) / np.linalg.norm(e)) for v, e in pairs)
    return found


def measure(cache: Path, only: list[str]) -> dict[str, Any]:
    """Every cell of the table by client and column, and each client's versions."""
    students = make_exports(cache / "students")
    results: dict[str, Any] = {}
    for row in ROWS:
        if only and row.client not in only:
            continue
        cells: dict[str, Any] = {}
        jobs = []
        for label, file in [*((kind.label, "") for kind in KINDS), (INT8_OF, INT8_FILE)]:
            made, column = students[label], f"int8, {label}" if file else label
            reason = cannot_serve(row.client, made.parts)
            if not reason and row.headless and getattr(made.parts, "stages", ()):
                reason = row.headless
            if not reason and file and not row.int8:
                reason = "it reads the weights, not the graph"
            cells[column] = {"not": reason}
            if not reason:
                sizes = {"dimensions": made.vectors.shape[1], "limit": made.parts.max_length}
                about = {"name": f"student-{len(jobs)}", "folder": str(made.folder), "file": file, **sizes}
                jobs.append((column, made, about))
        answer = ask(row, make_environment(cache, row.environment), cache, [about for _, _, about in jobs])
        for (column, made, _), found in zip(jobs, answer["answers"], strict=True):
            cells[column] = found if "error" in found else compare(found["vectors"], made)
        sys.stderr.write(f"{row.name}: {cells}\n")
        results[row.name] = {"client": row.client, "versions": answer["versions"], "cells": cells}
    return results if only and TEI not in only else {**results, **_tei(students)}


def _tei(students: dict[str, Made]) -> dict[str, Any]:
    """Judge each export by the server's own rules; its backends can't be built here."""
    results = {}
    for backend in ("onnx", "candle"):
        cells: dict[str, Any] = {}
        for label, made in students.items():
            static = cannot_serve(TEI, made.parts) if label == "static" else None
            cells[label] = {"not": static} if static else {"rules": read_as_tei(made.folder)[backend]}
        cells[f"int8, {INT8_OF}"] = {"not": "it reads onnx/model.onnx or the weights"}
        results[f"{TEI}, {backend} backend"] = {"client": TEI, "versions": {}, "cells": cells}
    return results


def render(results: dict[str, Any]) -> str:
    """The table in Markdown, reasons as numbered lines below it."""
    columns = [*(kind.label for kind in KINDS), f"int8, {INT8_OF}"]
    reasons: list[str] = []
    lines = ["| client | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in results.items():
        cells = [_cell(row["cells"].get(column, {"not": "not measured"}), reasons) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {reason}." for number, reason in enumerate(reasons, 1)), ""]
    by_row = [
        f"{name}: " + ", ".join(f"{package} {version}" for package, version in row["versions"].items())
        for name, row in results.items()
        if row["versions"]
    ]
    return "\n".join([*lines, "Measured with " + "; ".join(by_row) + "."])


def _cell(cell: dict[str, Any], reasons: list[str]) -> str:
    if "error" in cell:
        return "fails: " + cell["error"].replace("|", "\\|")
    if "rules" in cell:
        return str(cell["rules"])
    if "not" in cell:
        if cell["not"] not in reasons:
            reasons.append(cell["not"])
        return f"n/a ({reasons.index(cell['not']) + 1})"
    shown = _cosine(cell["within"])
    if cell["longer"] is None:
        return f"{shown}, longer texts refused"
    return shown if cell["longer"] >= min(LEAST, cell["within"]) else f"{shown}, longer texts {_cosine(cell['longer'])}"


def _cosine(value: float) -> str:
    return "1.00000" if value >= LEAST else f"{value:.5f}"


def wrong_cells(results: dict[str, Any]) -> list[str]:
    """The cells of fp32 with other vectors than the student's, and all with an error."""
    return [
        f"{name}, {column}"
        for name, row in results.items()
        for column, cell in row["cells"].items()
        if "error" in cell or ("within" in cell and not column.startswith("int8") and not cell["within"] >= LEAST)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", default="", help="clients, comma-separated, as of export --for")
    parser.add_argument("--fresh", action="store_true", help="make the environments anew")
    parser.add_argument("--write", action="store_true", help="write docs/export.md and docs/clients.json")
    options = parser.parse_args()
    for name in (*ENVIRONMENTS, "node") if options.fresh else ():
        if (options.cache / name / ".complete").exists():
            shutil.rmtree(options.cache / name)
    options.cache.mkdir(parents=True, exist_ok=True)
    results = measure(options.cache.resolve(), [name for name in options.only.split(",") if name])
    table = render(results)
    sys.stdout.write(table + "\n")
    if options.write:
        write_json(ROOT / "docs" / "clients.json", results)
        page = ROOT / "docs" / "export.md"
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        page.write_text(before + f"{BEGIN}\n\n{table}\n\n" + END + rest.split(END)[1], encoding="utf-8")
    wrong = wrong_cells(results)
    if wrong:
        sys.stderr.write(f"client_table: other vectors, or none: {'; '.join(wrong)}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
