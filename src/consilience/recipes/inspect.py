"""Say what a file or folder is, and verify it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.core.artefacts import PLAN, read_plan
from consilience.core.errors import BankIntegrityError, InputError
from consilience.core.files import read_json
from consilience.core.manifests import MANIFEST, verify_artefact
from consilience.core.manifests import read_manifest as read_artefact_manifest


def inspect(path: str | Path, *, verify: bool = True) -> dict[str, Any]:
    """Describe an artefact, an unfinished one, or an npy, parquet, safetensors or ONNX file.

    Args:
        path: a folder or file.
        verify: also check every checksum of an artefact; without it only its manifest and file sizes.

    Returns:
        JSON: ``path``, ``kind`` and the facts of that kind; for artefacts also ``id``, ``verified``, ``files``
        (names and bytes) and the manifest's own fields.

    Raises:
        InputError: nothing is there, or it's of no known kind.
        BankIntegrityError: it is damaged; the message names the file.
        MissingExtraError: an ONNX file, and onnx isn't installed.
    """
    target = Path(path)
    if target.is_file():
        return _describe_file(target)
    if (target / PLAN).is_file() or (target.name.endswith(".partial") and target.is_dir()):
        return _describe_partial(target)
    return _describe_artefact(target, verify=verify)


def _describe_artefact(folder: Path, *, verify: bool) -> dict[str, Any]:
    manifest = read_artefact_manifest(folder)
    if manifest["kind"] == "bank":
        from consilience.banks.reader import open_bank
        from consilience.banks.verify import verify_bank

        verify_bank(folder) if verify else open_bank(folder)
    elif verify:
        verify_artefact(folder)
    files = []
    for name in manifest["files"]:
        file = folder / name
        if not file.is_file():
            raise BankIntegrityError(f"{file}: listed in the manifest but missing. Rebuild or fetch {folder} again")
        files.append({"name": name, "bytes": file.stat().st_size})
    facts = {
        "path": str(folder),
        "kind": manifest["kind"],
        "id": manifest["id"],
        "verified": verify,
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
    }
    return facts | {name: value for name, value in manifest.items() if name not in {*facts, "shards", "schema_version"}}


def _describe_partial(folder: Path) -> dict[str, Any]:
    """Describe an interrupted job: what it is, how far it came, and what continues it."""
    plan = read_plan(folder) or {}
    facts: dict[str, Any] = {
        "path": str(folder),
        "kind": "partial",
        "plan": plan,
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "continue": "run the command that made it again",
    }
    if (folder / "command.json").is_file():
        facts["continue"] = read_json(folder / "command.json").get("command", facts["continue"])
    if {"rows", "shard_rows", "teacher"} <= set(plan):
        from consilience.banks.journal import finished_shards
        from consilience.banks.manifest import shard_ranges

        shards = shard_ranges(plan["rows"], plan["shard_rows"])
        done = [shards[index] for index in finished_shards(folder) if index < len(shards)]
        facts["of"] = "bank"
        facts["shards_done"] = len(done)
        facts["shards"] = len(shards)
        facts["rows_done"] = sum(stop - start for start, stop in done)
        facts["rows"] = plan["rows"]
    return facts


def _describe_file(path: Path) -> dict[str, Any]:
    describe = {
        ".npy": _describe_npy,
        ".parquet": _describe_parquet,
        ".safetensors": _describe_safetensors,
        ".onnx": _describe_onnx,
    }.get(path.suffix)
    if path.name == MANIFEST:
        raise InputError(f"{path}: is a manifest. Inspect its folder: {path.parent}")
    if describe is None:
        raise InputError(
            f"{path}: expected an artefact's folder or an .npy, .parquet, .safetensors or .onnx file. "
            f"If it is a corpus, run: consilience corpus {path}"
        )
    return {"path": str(path), "kind": path.suffix[1:], "bytes": path.stat().st_size, **describe(path)}


def _describe_npy(path: Path) -> dict[str, Any]:
    import numpy as np

    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: not a whole .npy file of numbers ({error}). Write it with numpy.save") from error
    return {"shape": list(array.shape), "dtype": str(array.dtype)}


def _describe_parquet(path: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = {field.name: str(field.type) for field in file.schema_arrow}
            return {"rows": file.metadata.num_rows, "row_groups": file.metadata.num_row_groups, "columns": columns}
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: can't be read as parquet ({error}). Fetch the file again") from error


def _describe_safetensors(path: Path) -> dict[str, Any]:
    from consilience.banks.safetensors_header import read_safetensors_header

    header = read_safetensors_header(path)
    tensors = {name: {"dtype": info.get("dtype"), "shape": info.get("shape")} for name, info in header.tensors.items()}
    end = max((info.get("data_offsets", [0, 0])[1] for info in header.tensors.values()), default=0)
    if path.stat().st_size != header.data_start + end:
        raise BankIntegrityError(
            f"{path}: has {path.stat().st_size} bytes, its header promises {header.data_start + end}. Fetch it again"
        )
    return {"tensors": tensors, "metadata": header.metadata}


def _describe_onnx(path: Path) -> dict[str, Any]:
    from consilience.core.extras import require

    onnx = require("onnx", extra="onnx", purpose="to inspect ONNX files")
    protobuf = require("google.protobuf.message", extra="onnx", purpose="to inspect ONNX files")
    try:
        model = onnx.load(path, load_external_data=False)
    except protobuf.DecodeError as error:
        raise InputError(f"{path}: can't be read as ONNX ({error}). Fetch the file again") from error

    def shapes(values: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - protobuf
        return {
            value.name: [axis.dim_param or axis.dim_value or None for axis in value.type.tensor_type.shape.dim]
            for value in values
        }

    constants = {tensor.name for tensor in model.graph.initializer}
    return {
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opset": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "inputs": {k: v for k, v in shapes(model.graph.input).items() if k not in constants},
        "outputs": shapes(model.graph.output),
        "nodes": len(model.graph.node),
    }
