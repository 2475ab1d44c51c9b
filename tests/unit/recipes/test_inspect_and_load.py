"""``inspect`` says what a thing is, also when it is unfinished or damaged; ``load`` opens it by its kind."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import consilience
from consilience.banks.reader import Bank
from consilience.banks.writer import BankWriter
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import BankIntegrityError, InputError
from consilience.core.files import write_json
from consilience.core.manifests import partial_path


def writer_for(out, rows=10):
    return BankWriter(
        out,
        rows=rows,
        dimensions=3,
        dtype="fp16",
        corpus={"fingerprint": "c" * 64, "rows": rows},
        teacher={"backend": "test", "name": "t"},
        frame=None,
        shard_rows=4,
    )


def vectors(start, stop):
    return np.arange(start * 3 + 1, stop * 3 + 1, dtype=np.float32).reshape(-1, 3)


@pytest.fixture
def bank(tmp_path):
    with writer_for(tmp_path / "bank") as writer:
        for start, stop in writer.missing():
            writer.write_shard(start, vectors(start, stop))
        return writer.finish()


def other_artefact(out, kind):
    work, _ = begin_artefact(out, {"job": kind})
    (work / "report.md").write_text("# report")
    finish_artefact(out, kind=kind, manifest={"recipe": "r"}, files=["report.md"])
    return out


def test_a_bank_is_described_and_verified(bank):
    facts = consilience.inspect(bank.path)
    assert (facts["kind"], facts["rows"], facts["dimensions"], facts["dtype"]) == ("bank", 10, 3, "fp16")
    assert facts["verified"]
    assert facts["id"] == bank.id
    assert len(facts["files"]) == 3
    json.dumps(facts)


def test_damage_is_found_by_checksum_and_truncation_without(bank):
    shard = bank.path / "shard-00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(BankIntegrityError, match="shard-00002"):
        consilience.inspect(bank.path)
    assert consilience.inspect(bank.path, verify=False)["verified"] is False
    shard.write_bytes(content[:-1])
    with pytest.raises(BankIntegrityError, match="shard-00002"):
        consilience.inspect(bank.path, verify=False)


def test_any_other_kind_is_described_too(tmp_path):
    facts = consilience.inspect(other_artefact(tmp_path / "run", "run"))
    assert (facts["kind"], facts["recipe"], facts["files"][0]["name"]) == ("run", "r", "report.md")
    (tmp_path / "run" / "report.md").unlink()
    for verify in (True, False):
        with pytest.raises(BankIntegrityError, match="missing"):
            consilience.inspect(tmp_path / "run", verify=verify)


def test_an_unfinished_bank_says_how_far_it_is_and_what_continues_it(tmp_path):
    with writer_for(tmp_path / "bank") as writer:
        writer.write_shard(4, vectors(4, 8))
        write_json(writer.work / "command.json", {"command": "consilience embed again"})
    facts = consilience.inspect(partial_path(tmp_path / "bank"))
    assert (facts["kind"], facts["of"], facts["rows_done"], facts["rows"]) == ("partial", "bank", 4, 10)
    assert facts["continue"] == "consilience embed again"


def test_an_unfinished_artefact_of_any_kind_is_described(tmp_path):
    begin_artefact(tmp_path / "student", {"preset": "mini"})
    facts = consilience.inspect(tmp_path / "student.partial")
    assert facts["plan"] == {"preset": "mini"}
    assert "again" in facts["continue"]


def test_plain_files_are_described(tmp_path, bank):
    from consilience.banks.interchange import export_bank

    npy = consilience.inspect(export_bank(bank, tmp_path / "x.npy"))
    assert (npy["shape"], npy["dtype"]) == ([10, 3], "float16")
    parquet = consilience.inspect(export_bank(bank, tmp_path / "x.parquet"))
    assert (parquet["rows"], list(parquet["columns"])) == (10, ["embedding"])
    tensors = consilience.inspect(bank.path / "shard-00000.safetensors")["tensors"]
    assert tensors == {"embeddings": {"dtype": "F16", "shape": [4, 3]}}


def test_an_onnx_file_is_described(tmp_path):
    onnx = pytest.importorskip("onnx")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    facts = consilience.inspect(tmp_path / "m.onnx")
    assert facts["inputs"] == {"x": ["batch", 4]}
    assert facts["outputs"] == {"y": ["batch", 4]}
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff\xff no protobuf")
    with pytest.raises(InputError, match="ONNX"):
        consilience.inspect(tmp_path / "bad.onnx")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"text", "consilience corpus"),
        ("x.npy", b"text", r"\.npy"),
        ("x.npy", b"PK\x05\x06" + bytes(18), r"\.npy"),  # an empty zip, which numpy opens as an archive
        ("x.parquet", b"text", "parquet"),
        ("x.safetensors", b"text", "safetensors"),
        ("x.safetensors", (2**62).to_bytes(8, "little") + b"{}", "safetensors"),
        ("x.safetensors", (2).to_bytes(8, "little") + b"[]", "malformed"),
        ("x.safetensors", (2).to_bytes(8, "little") + b"{}extra", "promises"),
        ("manifest.json", b"{}", "Inspect its folder"),
    ],
)
def test_what_is_not_what_its_name_says_is_one_clear_error(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((InputError, BankIntegrityError), match=message):
        consilience.inspect(tmp_path / name)


def test_load_opens_by_kind(tmp_path, bank):
    assert isinstance(consilience.load(bank.path), Bank)
    with pytest.raises(InputError, match="a run can't be loaded"):
        consilience.load(other_artefact(tmp_path / "run", "run"))
    with pytest.raises(InputError, match="no such file"):
        consilience.load(tmp_path / "absent")


def cli(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "consilience", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_the_command_prints_json_or_lines_and_exits_2_on_damage(bank):
    result = cli("inspect", bank.path, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 10
    result = cli("inspect", bank.path)
    assert "kind: bank\n" in result.stdout
    assert "verified: yes\n" in result.stdout
    shard = bank.path / "shard-00000.safetensors"
    shard.write_bytes(b"\0" * shard.stat().st_size)
    result = cli("inspect", bank.path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "shard-00000" in result.stderr
