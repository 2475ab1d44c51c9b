"""A bank gives back what was written, in any order of access, and refuses what no reader should trust."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest

from consilience.banks.journal import JOURNAL
from consilience.banks.reader import open_bank, require_same_corpus
from consilience.banks.verify import verify_bank
from consilience.banks.writer import BankWriter
from consilience.core.errors import (
    BankIntegrityError,
    FrameMismatchError,
    InputError,
    ResumeError,
    ShapeError,
    TeacherError,
)
from consilience.core.hashing import content_id
from consilience.core.manifests import partial_path

TEACHER = {"backend": "test", "name": "rows"}


def random_rows(rows, dimensions=5, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, dimensions)).astype(np.float32)


def options(rows, **changes):
    return {
        "rows": rows,
        "dimensions": 5,
        "dtype": "fp16",
        "corpus": {"fingerprint": "f" * 64, "rows": rows},
        "teacher": TEACHER,
        "frame": None,
        "shard_rows": 4,
        **changes,
    }


def write_bank(out, x, **changes):
    with BankWriter(out, **options(len(x), dimensions=x.shape[1], **changes)) as writer:
        for start, stop in writer.missing():
            writer.write_shard(start, x[start:stop])
        return writer.finish()


def files_of(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "timing.json"}


@pytest.fixture
def bank(tmp_path):
    return write_bank(tmp_path / "bank", random_rows(11))


def test_rows_are_normalised_and_rounded(bank):
    x = random_rows(11)
    expected = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float16)
    np.testing.assert_allclose(bank[:].astype(np.float32), expected.astype(np.float32), atol=1e-3)
    assert bank[:].dtype == np.float16
    assert bank.normalised
    assert bank.manifest["preprocessing"]["l2_normalise"] is True
    assert bank.frame == "teacher:" + content_id(TEACHER)
    assert len(bank) == bank.rows == 11


def test_raw_rows_are_kept_and_the_manifest_says_so(tmp_path):
    x = random_rows(6)
    raw = write_bank(tmp_path / "raw", x, dtype="fp32", normalise=False)
    np.testing.assert_array_equal(raw[:], x)
    assert not raw.normalised
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert write_bank(tmp_path / "unit", unit, normalise=False).normalised


def test_slices_within_a_shard_are_views_and_all_views_are_read_only(bank):
    view = bank[1:4]
    assert not view.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    assert bank[2:9].shape == (7, 5)
    np.testing.assert_array_equal(bank[2:9], bank[np.arange(2, 9)])


@pytest.mark.parametrize("index", [11, -12])
def test_a_row_out_of_range_is_an_index_error(bank, index):
    with pytest.raises(IndexError, match=str(index)):
        bank[index]
    with pytest.raises(IndexError, match=str(index)):
        bank[np.array([0, index])]


def test_odd_indices(bank):
    assert bank[[]].shape == (0, 5)
    assert bank[5:2].shape == (0, 5)
    np.testing.assert_array_equal(bank[np.int64(3)], bank[3])
    with pytest.raises(ShapeError, match="one-dimensional"):
        bank[np.zeros((2, 2), dtype=int)]
    with pytest.raises(ShapeError, match="mask"):
        bank[np.ones(3, dtype=bool)]
    with pytest.raises(ShapeError, match="float64"):
        bank[np.array([0.5])]


def test_a_bank_of_many_shards_is_read_the_same_way(tmp_path):
    x = random_rows(150)
    bank = write_bank(tmp_path / "bank", x, dtype="fp32", normalise=False, shard_rows=1)
    index = np.random.default_rng(0).integers(-150, 150, 400)
    np.testing.assert_array_equal(bank[index], x[index])
    np.testing.assert_array_equal(bank[::-7], x[::-7])
    np.testing.assert_array_equal(bank[3:140], x[3:140])
    (bank.path / "shard-00007.safetensors").write_bytes((bank.path / "shard-00007.safetensors").read_bytes()[:-4])
    with pytest.raises(BankIntegrityError, match="shard-00007"):
        bank[[7, 8]]


def test_torch_shares_memory_and_never_writes_to_the_file(bank):
    torch = pytest.importorskip("torch")
    tensor = bank.torch(4, 8)
    before = files_of(bank.path)
    np.testing.assert_array_equal(tensor.numpy(), bank[4:8])
    tensor += 1
    assert files_of(bank.path) == before
    assert bank.torch(2, 9).shape == (7, 5)
    assert tensor.dtype == torch.float16
    with pytest.raises(IndexError):
        bank.torch(5, 12)


def test_a_bank_travels_to_another_process_by_its_path(bank):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bank))[3:9], bank[3:9])


@pytest.mark.parametrize(
    ("value", "dtype", "normalise", "fault"),
    [
        (np.nan, "fp16", True, "row 6 is NaN"),
        (np.inf, "fp32", True, "row 6 is NaN or infinite"),
        (0.0, "fp16", True, "row 6 is a zero vector"),
        (1e6, "fp16", False, "row 6 doesn't fit into fp16"),
        (1e-9, "fp16", False, "row 6 rounds to a zero vector"),
    ],
)
def test_rows_that_no_bank_should_hold_are_refused_by_number(tmp_path, value, dtype, normalise, fault):
    x = random_rows(9)
    x[6] = value
    with pytest.raises(TeacherError, match=fault):
        write_bank(tmp_path / "bank", x, dtype=dtype, normalise=normalise)
    assert not (tmp_path / "bank").exists()


def test_misshapen_rows_are_refused(tmp_path):
    with BankWriter(tmp_path / "bank", **options(9)) as writer:
        with pytest.raises(ShapeError, match="needs 4 rows, got 3"):
            writer.write_shard(0, random_rows(3))
        with pytest.raises(ShapeError, match="no shard starts at row 3"):
            writer.write_shard(3, random_rows(4))
        with pytest.raises(ShapeError, match="5 dimensions"):
            writer.write_shard(0, random_rows(4, 6))
        with pytest.raises(ShapeError, match="int64"):
            writer.write_shard(0, np.ones((4, 5), dtype=np.int64))
        with pytest.raises(BankIntegrityError, match="3 of 3 shards are missing"):
            writer.finish()


@pytest.mark.parametrize(
    "changes",
    [{"rows": 0}, {"dimensions": 0}, {"shard_rows": 0}, {"dtype": "int8"}, {"teacher": {"a": object()}}, {"rows": 8}],
)
def test_options_out_of_range_are_refused(tmp_path, changes):
    with pytest.raises(InputError):
        BankWriter(tmp_path / "bank", **{**options(9), **changes})
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_writer_continues_to_the_same_bytes(tmp_path):
    x = random_rows(11)
    whole = write_bank(tmp_path / "whole", x)
    with BankWriter(tmp_path / "bank", **options(11)) as writer:
        writer.write_shard(4, x[4:8])
    (partial_path(tmp_path / "bank") / ".shard-00000.safetensors.1.tmp").write_bytes(b"half")
    with BankWriter(tmp_path / "bank", **options(11)) as writer:
        assert writer.resumed
        assert writer.missing() == [(0, 4), (8, 11)]
        for start, stop in writer.missing():
            writer.write_shard(start, x[start:stop])
        continued = writer.finish()
    assert files_of(continued.path) == files_of(whole.path)
    assert continued.id == whole.id


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "tear the journal"])
def test_a_damaged_shard_is_written_again(tmp_path, damage):
    x = random_rows(11)
    with BankWriter(tmp_path / "bank", **options(11)) as writer:
        writer.write_shard(0, x[:4])
        writer.write_shard(4, x[4:8])
    work = partial_path(tmp_path / "bank")
    shard = work / "shard-00001.safetensors"
    if damage == "flip":
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
    elif damage == "truncate":
        shard.write_bytes(shard.read_bytes()[:-3])
    elif damage == "remove":
        shard.unlink()
    else:
        (work / JOURNAL).write_bytes((work / JOURNAL).read_bytes()[:-9])
    with BankWriter(tmp_path / "bank", **options(11)) as writer:
        assert writer.missing() == [(4, 8), (8, 11)]
        for start, stop in writer.missing():
            writer.write_shard(start, x[start:stop])
        continued = writer.finish()
    assert files_of(continued.path) == files_of(write_bank(tmp_path / "whole", x).path)


def test_two_writers_of_one_bank_do_not_mix(tmp_path):
    with BankWriter(tmp_path / "bank", **options(9)), pytest.raises(ResumeError, match="another process"):
        BankWriter(tmp_path / "bank", **options(9))
    BankWriter(tmp_path / "bank", **options(9)).close()


def test_overwrite_does_not_discard_what_another_process_is_writing(tmp_path):
    with BankWriter(tmp_path / "bank", **options(9)) as writer:
        with pytest.raises(ResumeError, match="another process"):
            BankWriter(tmp_path / "bank", **options(9, teacher={"other": 1}), overwrite=True)
        assert writer.work.is_dir()


def test_overwrite_discards_another_job_and_continues_this_one(tmp_path):
    x = random_rows(11)
    with BankWriter(tmp_path / "bank", **options(11)) as writer:
        writer.write_shard(0, x[:4])
    with BankWriter(tmp_path / "bank", **options(11), overwrite=True) as writer:
        assert len(writer.missing()) == 2
    with pytest.raises(ResumeError, match="differs in frame, teacher"):
        BankWriter(tmp_path / "bank", **options(11, teacher={"other": 1}, frame="f"))
    with BankWriter(tmp_path / "bank", **options(11, teacher={"other": 1}), overwrite=True) as writer:
        assert len(writer.missing()) == 3


def test_banks_of_different_corpora_are_refused(tmp_path):
    x = random_rows(5)
    one = write_bank(tmp_path / "one", x)
    two = write_bank(tmp_path / "two", x, corpus={"fingerprint": "a" * 64, "rows": 5})
    require_same_corpus([one, one])
    with pytest.raises(FrameMismatchError, match=r"ffffffffffff.*aaaaaaaaaaaa"):
        require_same_corpus([one, two])


# ----------------------------------------------------------------------------------------- damaged banks


def edit_manifest(folder, change, *, forge_id=True):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    if forge_id:
        manifest["id"] = content_id({k: v for k, v in manifest.items() if k != "id"}, prefix="bank-")
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(rows=12), "rows"),
        (lambda m: m.pop("teacher"), "teacher"),
        (lambda m: m.update(dtype="int8"), "dtype"),
        (lambda m: m["shards"][0].update(stop=3), "expected it to start at 3"),
        (lambda m: m["shards"].pop(), "cover 8 rows"),
        (lambda m: m["shards"][0].update(file="../../etc/passwd"), "pattern"),
        (lambda m: m["shards"][0].update(file="shard-00009.safetensors"), "listed files"),
        (lambda m: m["files"].update({"../x": "0"}), "leaves the folder"),
        (lambda m: m["corpus"].update(rows=4), "corpus has 4 rows"),
        (lambda m: m.update(surprise=1), "surprise"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(bank, change, message):
    edit_manifest(bank.path, change)
    with pytest.raises(BankIntegrityError, match=message):
        open_bank(bank.path)


def test_an_edited_manifest_is_refused(bank):
    edit_manifest(bank.path, lambda m: m.update(frame="mine"), forge_id=False)
    with pytest.raises(BankIntegrityError, match="edited"):
        open_bank(bank.path)


def test_a_truncated_or_missing_shard_is_found_on_opening(bank):
    shard = bank.path / "shard-00001.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(BankIntegrityError, match=rf"shard-00001.*has {len(whole) - 1} bytes, expected {len(whole)}"):
        open_bank(bank.path)
    with pytest.raises(BankIntegrityError, match="shard-00001"):  # a bank that was open before
        list(bank.iter_shards())
    shard.unlink()
    with pytest.raises(BankIntegrityError, match="is missing"):
        open_bank(bank.path)


def test_a_header_of_another_shape_is_refused(bank, tmp_path):
    from safetensors.numpy import save_file

    shard = bank.path / "shard-00000.safetensors"
    size = shard.stat().st_size
    save_file({"embeddings": np.zeros((5, 4), dtype=np.float16)}, shard)
    assert shard.stat().st_size == size
    with pytest.raises(BankIntegrityError, match="expected the tensor"):
        open_bank(bank.path)[0]


def test_other_folders_are_not_banks(tmp_path, bank):
    with pytest.raises(InputError, match="no such file"):
        open_bank(tmp_path / "absent")
    with pytest.raises(InputError, match="not a Consilience artefact"):
        open_bank(tmp_path)
    moved = tmp_path / "moved"
    shutil.copytree(bank.path, moved)
    assert verify_bank(moved).id == bank.id
