"""Parquet files and folders: column choice, all list types, all other columns copied."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import InputError
from consilience.indexes.open import open_index, write_index

ROWS, WIDTH = 60, 5
VECTORS = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
ROTATION = np.linalg.qr(np.random.default_rng(2).standard_normal((WIDTH, WIDTH)))[0].astype(np.float32)


def rotated(vectors):
    return vectors @ ROTATION


def table(list_type=None, vectors=VECTORS, ids=None):
    list_type = list_type or pa.list_(pa.float32(), WIDTH)
    rows = len(vectors)
    return pa.table(
        {
            "id": pa.array(ids if ids is not None else [1000 + i for i in range(rows)]),
            "text": pa.array([None if i % 7 == 0 else f"text {i}" for i in range(rows)]),
            "vector": pa.array(vectors.tolist(), type=list_type),
            "tags": pa.array([[f"t{i}", "x"] for i in range(rows)]),
            "meta": pa.array(
                [{"a": i, "b": None} for i in range(rows)], pa.struct([("a", pa.int8()), ("b", pa.string())])
            ),
            "when": pa.array(np.arange(rows), pa.timestamp("us", tz="UTC")),
            "group": pa.array(["g"] * rows).dictionary_encode(),
        }
    ).replace_schema_metadata({"owner": "somebody"})


@pytest.mark.parametrize(
    "list_type",
    [
        pa.list_(pa.float32(), WIDTH),
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float16(), WIDTH),
        pa.list_(pa.field("number", pa.float32(), nullable=False)),
    ],
)
def test_a_rewritten_file_differs_in_its_vectors_alone(tmp_path, list_type):
    source = tmp_path / "v.parquet"
    pq.write_table(table(list_type), source, compression="zstd", row_group_size=25)
    before = source.read_bytes()
    index = open_index(str(source))
    assert (index.kind, index.rows, index.dimensions) == ("parquet", ROWS, WIDTH)
    write_index(
        index,
        str(tmp_path / "w.parquet"),
        lambda v: np.concatenate([rotated(v), v[:, :1]], axis=1),
        dimensions=6,
        block_rows=16,
    )
    old, new = pq.read_table(source), pq.read_table(tmp_path / "w.parquet")
    assert new.drop_columns("vector").equals(old.drop_columns("vector"))
    assert new.schema.remove(2).equals(old.schema.remove(2), check_metadata=True)
    assert new.schema.field("vector").type.value_type == old.schema.field("vector").type.value_type
    stored = np.array(old["vector"].to_pylist(), dtype=np.float32)
    tolerance = 2e-3 if "halffloat" in str(list_type) else 1e-6
    np.testing.assert_allclose(np.array(new["vector"].to_pylist())[:, :5], stored @ ROTATION, atol=tolerance)
    assert pq.ParquetFile(tmp_path / "w.parquet").metadata.row_group(0).column(0).compression == "ZSTD"
    assert source.read_bytes() == before


def test_a_folder_is_rewritten_file_by_file(tmp_path):
    whole = table()
    source = tmp_path / "rows"
    for name, part in (
        ("year=1/a.parquet", whole[:20]),
        ("year=2/b.parquet", whole[20:20]),
        ("year=2/c.parquet", whole[20:]),
    ):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, source / name)
    (source / "_metadata.parquet").write_text("Spark's own")
    index = open_index(str(source))
    assert index.rows == ROWS
    np.testing.assert_array_equal(index.lookup(["1059", "1000"]), VECTORS[[59, 0]])
    write_index(index, str(tmp_path / "new"), rotated, dimensions=WIDTH, block_rows=7)
    new = open_index(f"parquet:{tmp_path / 'new'}")
    found = np.concatenate([vectors for _, vectors in new.iter_blocks(9)])
    np.testing.assert_allclose(found, VECTORS @ ROTATION, atol=1e-6)
    assert sorted(p.relative_to(tmp_path / "new").as_posix() for p in (tmp_path / "new").rglob("*.parquet")) == [
        "year=1/a.parquet",
        "year=2/b.parquet",
        "year=2/c.parquet",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "rows"]


def columns(**more):
    return pa.table({"id": [1, 2], "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)), **more})


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (columns().drop_columns("id"), {}, "no column can hold ids; its columns are vector"),
        (columns().drop_columns("vector"), {}, "no column can hold vectors; its columns are id"),
        (columns().rename_columns(["a", "v"]).append_column("b", pa.array(["x", "y"])), {}, "can hold the ids: a, b"),
        (
            columns().rename_columns(["id", "v"]).append_column("w", pa.array([[1.0], [2.0]])),
            {},
            "several columns can hold the vectors: v, w. Choose one with --vector-column",
        ),
        (columns(), {"id_column": "nope"}, "no column 'nope'; these can: id"),
        (columns(), {"vector_column": "id"}, "column 'id' can't hold vectors; these can: vector"),
        (columns()[:0], {}, "has no vectors"),
        (columns().set_column(1, "vector", pa.array([[], [1.0]])), {}, "first vector is empty or missing"),
    ],
)
def test_which_columns_are_meant(tmp_path, data, options, message):
    pq.write_table(data, tmp_path / "v.parquet")
    with pytest.raises(InputError, match=message):
        open_index(str(tmp_path / "v.parquet"), **options)


def test_a_usual_name_decides_and_a_chosen_one_overrides(tmp_path):
    other = pa.array([[9.0], [8.0]], pa.list_(pa.float32()))
    pq.write_table(columns(code=["x", "y"], dense=other), tmp_path / "v.parquet")
    assert next(open_index(str(tmp_path / "v.parquet")).iter_blocks())[0] == ["1", "2"]
    chosen = open_index(f"parquet:{tmp_path / 'v.parquet'}#dense", id_column="code")
    assert chosen.dimensions == 1
    assert next(chosen.iter_blocks())[0] == ["x", "y"]


@pytest.mark.parametrize(
    ("ids", "vectors", "message"),
    [
        ([1, 1], [[1.0, 2.0], [3.0, 4.0]], "id '1' occurs more than once"),
        ([1, None], [[1.0, 2.0], [3.0, 4.0]], "1 rows of one block have no id"),
        ([1, 2], [[1.0, 2.0], None], "id '2' has no vector"),
        ([1, 2], [[1.0, 2.0], [1.0, None]], "the vector of id '2' lacks a number"),
        ([1, 2], [[1.0, 2.0], [1.0]], "id '2' has a vector of width 1, the first has 2"),
        ([1, 2], [[1.0, 2.0], [0.0, 0.0]], "all zero: id '2'"),
        ([1, 2], [[1.0, 2.0], [float("inf"), 0.0]], "NaN or infinite: id '2'"),
    ],
)
def test_faulty_rows_are_refused_and_nothing_is_written(tmp_path, ids, vectors, message):
    pq.write_table(pa.table({"id": ids, "vector": pa.array(vectors, pa.list_(pa.float32()))}), tmp_path / "v.parquet")
    index = open_index(str(tmp_path / "v.parquet"))
    with pytest.raises(InputError, match=message):
        list(index.iter_blocks())
    with pytest.raises(InputError, match=message):
        write_index(index, str(tmp_path / "w.parquet"), lambda v: v, dimensions=2, block_rows=1)
    assert [path.name for path in tmp_path.iterdir()] == ["v.parquet"]


def test_files_of_one_folder_that_differ(tmp_path):
    pq.write_table(columns(), tmp_path / "a.parquet")
    pq.write_table(columns().drop_columns("id"), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: its column 'id' is missing"):
        open_index(f"parquet:{tmp_path}")
    (tmp_path / "b.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="can't be read as parquet"):
        open_index(f"parquet:{tmp_path}")


def test_any_index_can_be_written_as_parquet_or_npy(tmp_path):
    pq.write_table(table(ids=[f"d{i}" for i in range(ROWS)]), tmp_path / "v.parquet")
    index = open_index(str(tmp_path / "v.parquet"))
    write_index(index, str(tmp_path / "w.npy"), rotated, dimensions=WIDTH)
    array = open_index(str(tmp_path / "w.npy"))
    np.testing.assert_array_equal(array.lookup(["d3"]), rotated(VECTORS)[[3]])
    write_index(array, str(tmp_path / "x.parquet"), lambda v: v @ ROTATION.T, dimensions=WIDTH, block_rows=16)
    again = open_index(str(tmp_path / "x.parquet"))
    np.testing.assert_allclose(again.lookup(["d9", "d0"]), VECTORS[[9, 0]], atol=1e-5)
    write_index(array, str(tmp_path / "same.parquet"), lambda v: v, dimensions=WIDTH)
    assert open_index(str(tmp_path / "same.parquet")).fingerprint() == array.fingerprint() != again.fingerprint()
