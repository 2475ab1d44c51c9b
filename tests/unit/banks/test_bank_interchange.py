"""Embeddings that someone already has become a bank, raw, or are refused with the place of the fault."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.banks.interchange import (
    export_bank,
    import_embeddings,
    open_bank_source,
    open_npy,
    open_parquet,
)
from consilience.banks.reader import open_bank
from consilience.core.errors import BankIntegrityError, FrameMismatchError, InputError, TeacherError
from consilience.recipes.embed import embed

ROWS = np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)


def corpus(rows=20, mark="c"):
    return {"fingerprint": mark * 64, "rows": rows}


def parquet(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_float_type_and_order(tmp_path, kind, order):
    np.save(tmp_path / "x.npy", np.asarray(ROWS, dtype=kind, order=order))
    bank = import_embeddings(
        open_npy(tmp_path / "x.npy"), tmp_path / "bank", corpus=corpus(), dtype="fp32", shard_rows=7
    )
    np.testing.assert_array_equal(bank[:], ROWS.astype(kind).astype(np.float32))
    assert not bank.normalised
    assert bank.teacher["backend"] == "npy"
    assert bank.teacher["name"] == "x.npy"


def test_npy_with_objects_is_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="not a whole"):
        open_npy(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "content", [np.arange(6), np.zeros((3, 2), dtype=np.int64), np.zeros((0, 3)), np.zeros((2, 2, 2))]
)
def test_npy_of_another_shape_is_refused(tmp_path, content):
    np.save(tmp_path / "x.npy", content)
    with pytest.raises(InputError, match="expected rows of floating-point numbers"):
        open_npy(tmp_path / "x.npy")


def test_a_truncated_npy_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-5])
    with pytest.raises(InputError, match=r"x\.npy: not a whole"):
        open_npy(tmp_path / "x.npy")
    with pytest.raises(InputError, match="no such file"):
        open_npy(tmp_path / "absent.npy")


@pytest.mark.parametrize("width", [4, -1])
def test_parquet_lists_of_fixed_and_variable_size_across_row_groups(tmp_path, width):
    lists = pa.array(list(ROWS), type=pa.list_(pa.float32(), width))
    path = parquet(tmp_path / "x.parquet", {"id": list(range(20)), "vector": lists}, row_group_size=6)
    source = open_parquet(path)
    bank = import_embeddings(source, tmp_path / "bank", corpus=corpus(), dtype="fp32", shard_rows=9)
    np.testing.assert_array_equal(bank[:], ROWS)
    assert bank.teacher["name"] == "x.parquet#vector"


def test_parquet_faults_name_the_row(tmp_path):
    lists = [list(map(float, row)) for row in ROWS]
    lists[12] = lists[12][:3]
    path = parquet(tmp_path / "x.parquet", {"v": lists})
    with pytest.raises(InputError, match="row 12 isn't a list of 4 numbers"):
        import_embeddings(open_parquet(path), tmp_path / "bank", corpus=corpus(), shard_rows=4)
    lists[12] = None
    path = parquet(tmp_path / "y.parquet", {"v": lists})
    with pytest.raises(InputError, match="row 12"):
        import_embeddings(open_parquet(path), tmp_path / "bank2", corpus=corpus(), shard_rows=4)
    lists[12] = [1.0, None, 2.0, 3.0]
    path = parquet(tmp_path / "z.parquet", {"v": lists})
    with pytest.raises(InputError, match="row 12 holds a null"):
        import_embeddings(open_parquet(path), tmp_path / "bank3", corpus=corpus(), shard_rows=4)


def test_parquet_columns_are_chosen_or_listed(tmp_path):
    two = parquet(tmp_path / "two.parquet", {"a": [[1.0]], "b": [[2.0]], "text": ["x"]})
    with pytest.raises(InputError, match="a, b"):
        open_parquet(two)
    assert open_parquet(two, "b").dimensions == 1
    with pytest.raises(InputError, match="'text' doesn't hold lists of floats"):
        open_parquet(two, "text")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="can't be read as parquet"):
        open_parquet(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="no such file"):
        open_parquet(tmp_path / "absent.parquet")


def test_another_number_of_rows_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    with pytest.raises(InputError, match="has 20 rows, the corpus 21"):
        import_embeddings(open_npy(tmp_path / "x.npy"), tmp_path / "bank", corpus=corpus(21))
    assert not (tmp_path / "bank").exists()


def test_fp16_overflow_is_refused_by_row(tmp_path):
    big = ROWS.copy()
    big[17, 2] = 7e4
    np.save(tmp_path / "x.npy", big)
    with pytest.raises(TeacherError, match="row 17 doesn't fit into fp16"):
        import_embeddings(open_npy(tmp_path / "x.npy"), tmp_path / "bank", corpus=corpus(), shard_rows=8)


def test_a_bank_imports_into_another_type_with_its_teacher_and_frame(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    first = import_embeddings(open_npy(tmp_path / "x.npy"), tmp_path / "one", corpus=corpus(), dtype="fp32")
    second = import_embeddings(open_bank_source(first.path), tmp_path / "two", corpus=corpus(), shard_rows=3)
    assert (second.teacher, second.frame) == (first.teacher, first.frame)
    np.testing.assert_array_equal(second[:], ROWS.astype(np.float16))
    with pytest.raises(FrameMismatchError, match=r"cccccccccccc.*dddddddddddd"):
        import_embeddings(open_bank_source(first.path), tmp_path / "three", corpus=corpus(mark="d"))


def test_a_finished_import_is_recognised(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    source = open_npy(tmp_path / "x.npy")
    first = import_embeddings(source, tmp_path / "bank", corpus=corpus())
    assert import_embeddings(source, tmp_path / "bank", corpus=corpus()).id == first.id


def test_exports_read_as_plain_files(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    bank = import_embeddings(open_npy(tmp_path / "x.npy"), tmp_path / "bank", corpus=corpus(), shard_rows=6)
    exported = np.load(export_bank(bank, tmp_path / "deep" / "y.npy"))
    assert exported.dtype == np.float16
    np.testing.assert_array_equal(exported, bank[:])
    table = pq.read_table(export_bank(bank.path, tmp_path / "y.parquet"))
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), dtype=np.float16), bank[:])
    with pytest.raises(InputError, match="already exists"):
        export_bank(bank, tmp_path / "y.parquet")
    with pytest.raises(InputError, match=r"\.npy or \.parquet"):
        export_bank(bank, tmp_path / "y.csv")


def test_an_export_of_a_damaged_bank_leaves_no_file(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    bank = import_embeddings(open_npy(tmp_path / "x.npy"), tmp_path / "bank", corpus=corpus(), shard_rows=6)
    shard = bank.path / "shard-00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-2] ^= 4
    shard.write_bytes(content)
    for name in ("y.npy", "y.parquet"):
        with pytest.raises(BankIntegrityError, match="shard-00002"):
            export_bank(open_bank(bank.path), tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bank", "x.npy"]


def test_embeddings_with_their_texts_beside_them_in_another_order_are_refused(tmp_path):
    texts = [f"text {row}" for row in range(20)]
    path = parquet(tmp_path / "e.parquet", {"text": texts, "e": ROWS.tolist()})
    bank = embed(texts, teacher=f"parquet:{path}", out=tmp_path / "bank", dtype="fp32")
    np.testing.assert_array_equal(bank[:], ROWS)
    with pytest.raises(InputError, match="row 0 was made of 'text 0', the corpus has 'text 19' there"):
        embed(texts[::-1], teacher=f"parquet:{path}", out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    parquet(path, {"text": list(range(20)), "e": ROWS.tolist()})  # no texts, whatever the column is called
    np.testing.assert_array_equal(embed(texts, teacher=f"parquet:{path}", out=tmp_path / "b", dtype="fp32")[:], ROWS)
