"""Indexes as people have them: odd ids, damaged files, full disks, databases with a will of their own."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import InputError
from consilience.indexes.open import open_index, plan_target, write_index

ROWS, WIDTH, NEW_WIDTH = 120, 16, 24
RNG = np.random.default_rng(3)
VECTORS = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
ROTATION = np.linalg.qr(RNG.standard_normal((NEW_WIDTH, WIDTH)))[0].T.astype(np.float32)
LISTS = pa.array(list(VECTORS), pa.list_(pa.float32(), WIDTH))


def rotated(vectors):
    return vectors @ ROTATION


def everything(index):
    blocks = list(index.iter_blocks(31))
    return dict(zip((name for ids, _ in blocks for name in ids), np.concatenate([v for _, v in blocks]), strict=True))


def moved(spec, out):
    """Move an index; return its ids. The new one holds the same, rotated."""
    index = open_index(spec)
    write_index(index, out, rotated, dimensions=NEW_WIDTH, block_rows=50)
    old, new = everything(index), everything(open_index(out))
    assert old.keys() == new.keys()
    for name, vector in old.items():
        np.testing.assert_allclose(new[name], rotated(vector), atol=1e-4)
    some = list(old)[:3]
    np.testing.assert_allclose(index.lookup(some), np.stack([old[name] for name in some]))
    return list(old)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([f'it\'s "{i}"\n\\ é' for i in range(ROWS)], pa.string_view()),
        pa.array([f"k{i}" for i in range(ROWS)]).dictionary_encode(),
        pa.array([uuid.UUID(int=i).bytes for i in range(ROWS)], pa.uuid()),
        pa.array([2**64 - 1 - i for i in range(ROWS)], pa.uint64()),
    ],
    ids=["string view", "categories", "uuid", "uint64"],
)
def test_parquet_with_odd_ids_and_columns_of_one_name(ids, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    note = pa.array([f"n{i}" for i in range(ROWS)])
    table = pa.Table.from_arrays([ids, note, note, LISTS], names=["id", "note", "note", "vector"])
    pq.write_table(table, "old.parquet", row_group_size=40)
    found = moved("old.parquet", "new.parquet")
    if "uuid" in str(ids.type):
        assert found[7] == str(uuid.UUID(int=7))
    assert pq.read_schema("new.parquet").names == table.schema.names


def test_parquet_faults_are_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(
        pa.Table.from_arrays([LISTS, LISTS, pa.array(range(ROWS))], names=["vector", "vector", "id"]), "two.parquet"
    )
    with pytest.raises(InputError, match="2 columns are called 'vector'"):
        open_index("two.parquet")
    table = pa.table({"id": range(ROWS), "vector": LISTS})
    pq.write_table(table, "whole.parquet", compression="none", use_dictionary=False)
    damaged = bytearray((tmp_path / "whole.parquet").read_bytes())
    damaged[4:40] = b"\xff" * 36  # the header of the first page; the footer is whole
    (tmp_path / "old.parquet").write_bytes(damaged)
    with pytest.raises(InputError, match=r"old\.parquet: is damaged"):
        write_index(open_index("old.parquet"), "new.parquet", rotated, dimensions=NEW_WIDTH)
    huge = pa.array([[1e300] * WIDTH] * ROWS, pa.list_(pa.float64()))
    pq.write_table(pa.table({"id": range(ROWS), "vector": huge}), "huge.parquet")
    with pytest.raises(InputError, match="NaN or infinite: id '0'"):
        everything(open_index("huge.parquet"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "huge.parquet", "old.parquet", "two.parquet", "whole.parquet",
    ]  # fmt: skip


def test_npy_ids_with_a_mark_at_their_start_and_absurd_ones(tmp_path):
    np.save(tmp_path / "old.npy", VECTORS)
    index = open_index(str(tmp_path / "old.npy"))
    with pytest.raises(InputError, match="aren't in the index"):
        index.lookup(["9" * 5000])
    with pytest.raises(InputError, match="can't be read as a list of ids"):
        open_index(f"npy:{tmp_path / 'old.npy'}#ids={tmp_path}")
    (tmp_path / "old.npy.ids.txt").write_text("".join(f"é{i}\n" for i in range(ROWS)), encoding="utf-8-sig")
    assert open_index(str(tmp_path / "old.npy")).lookup(["é0"]).shape == (1, WIDTH)


# FAISS


def built(structure, faiss, ids=None):
    vectors = np.tile(VECTORS, (5, 1)) + 0.1 * RNG.standard_normal((5 * ROWS, WIDTH)).astype(np.float32)
    index = faiss.index_factory(WIDTH, structure)
    index.train(vectors)
    if ids is None:
        index.add(vectors)
    else:
        index.add_with_ids(vectors, ids)
    return index, vectors


@pytest.mark.parametrize("structure", ["RR16,IVF4,Flat", "RR16,Flat"])
def test_faiss_behind_a_transform_gives_each_id_its_own_vector(structure, tmp_path):
    faiss = pytest.importorskip("faiss")
    ids = np.arange(600) + 7_000 if "IVF" in structure else None
    index, vectors = built(structure, faiss, ids)
    faiss.write_index(index, str(tmp_path / "old.faiss"))
    found = everything(open_index(str(tmp_path / "old.faiss")))
    for name, vector in zip(range(600) if ids is None else ids, vectors, strict=True):
        np.testing.assert_allclose(found[str(name)], vector, atol=1e-4)


def test_faiss_indexes_without_vectors_or_enough_of_them_are_refused_before_any_work(tmp_path):
    faiss = pytest.importorskip("faiss")
    scanning, _ = built("IVF4,PQ4x4fs", faiss)
    faiss.write_index(scanning, str(tmp_path / "scan.faiss"))
    with pytest.raises(InputError, match="can't give its vectors back"):  # FAISS itself would crash the process
        everything(open_index(str(tmp_path / "scan.faiss")))
    few, _ = built("IVF16,Flat", faiss, np.arange(600))
    few.remove_ids(np.arange(9, 600))
    faiss.write_index(few, str(tmp_path / "few.faiss"))
    with pytest.raises(InputError, match="16 inverted lists and 9 vectors"):
        plan_target(open_index(str(tmp_path / "few.faiss")), str(tmp_path / "new.faiss"))
    lossy, _ = built("PQ4", faiss)
    faiss.write_index(lossy, str(tmp_path / "lossy.faiss"))
    with pytest.raises(InputError, match="can't be built from new vectors"):
        plan_target(open_index(str(tmp_path / "lossy.faiss")), str(tmp_path / "new.faiss"))


def make(kind, folder):
    """Build an index of each kind that is files; return its spec and the new one's."""
    if kind == "npy":
        np.save(folder / "old.npy", VECTORS)
    elif kind == "parquet":
        pq.write_table(pa.table({"id": range(ROWS), "vector": LISTS}), folder / "old.parquet", compression="none")
    elif kind == "faiss":
        faiss = pytest.importorskip("faiss")
        index = faiss.IndexFlatIP(WIDTH)
        index.add(VECTORS)
        faiss.write_index(index, str(folder / "old.faiss"))
    elif kind == "lancedb":
        lancedb = pytest.importorskip("lancedb")
        lancedb.connect(str(folder / "old")).create_table("items", pa.table({"id": range(ROWS), "vector": LISTS}))
    else:
        qdrant = pytest.importorskip("qdrant_client")
        client = qdrant.QdrantClient(path=str(folder / "old"))
        client.create_collection("items", vectors_config=qdrant.models.VectorParams(size=WIDTH, distance="Dot"))
        points = [qdrant.models.PointStruct(id=i, vector=v, payload={"n": i}) for i, v in enumerate(VECTORS.tolist())]
        client.upsert("items", points=points)
        client.close()
    if kind in ("lancedb", "qdrant"):
        return f"{kind}:old#items", f"{kind}:new#items"
    return f"old.{kind}", f"new.{kind}"


FULL = """
import resource, sys
import numpy as np
from consilience.core.errors import StorageError
from consilience.indexes.open import open_index, write_index
index, rotation = open_index(sys.argv[1]), np.load("rotation.npy")
index.fingerprint()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    write_index(index, sys.argv[2], lambda rows: rows @ rotation, dimensions=rotation.shape[1], block_rows=50)
except StorageError:
    sys.exit(2)
"""


@pytest.mark.parametrize("kind", ["npy", "parquet", "faiss", "lancedb", "qdrant"])
def test_a_disk_that_fills_up_at_the_last_bytes_leaves_no_new_index(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, out = make(kind, tmp_path)
    np.save("rotation.npy", ROTATION)
    moved(spec, out)
    path = tmp_path / ("new" if "#" in out else out)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = max(file.stat().st_size for file in files)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    # LanceDB's files of the same rows differ by some bytes.
    limit = size - (2_000 if kind == "lancedb" else 10)
    assert subprocess.run([sys.executable, "-c", FULL, spec, out, str(limit)], check=False).returncode == 2
    left = [entry.relative_to(tmp_path).as_posix() for entry in tmp_path.rglob("*new*/*")] + [
        p.name for p in tmp_path.glob("new*")
    ]
    assert left in ([], ["new"])  # LanceDB's folder may stay, empty
    assert moved(spec, out)


# LanceDB


def test_lancedb_damage_and_names_are_one_line(tmp_path, monkeypatch):
    lancedb = pytest.importorskip("lancedb")
    monkeypatch.chdir(tmp_path)
    spec, _ = make("lancedb", tmp_path)
    index = open_index(spec)
    for name in ("../x", "a b", "..", "é"):
        with pytest.raises(InputError, match="can't be the name of a LanceDB table"):
            plan_target(index, f"lancedb:new#{name}")
    with pytest.raises(InputError, match="is the source index"):
        plan_target(index, "#items")
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("vector", LISTS.type), blob])
    blobs = pa.table([pa.array(range(ROWS)), LISTS, pa.array([b"b"] * ROWS, pa.large_binary())], schema=schema)
    lancedb.connect("old").create_table("blobs", blobs)
    with pytest.raises(InputError, match="'blob' holds blobs"):
        plan_target(open_index("lancedb:old#blobs"), "#new")
    moved("lancedb:old#blobs", "blobs.parquet")
    for file in (tmp_path / "old" / "items.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="LanceDB can't read it") as caught:
        everything(index)
    assert ".rs:" not in str(caught.value)


def test_lancedb_passes_an_interrupt_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, out = make("lancedb", tmp_path)

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_index(open_index(spec), out, interrupted, dimensions=NEW_WIDTH)
    assert not list(tmp_path.glob("new/*"))


# Qdrant

KILLED_WRITER = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA cache_size=1")
database.execute("UPDATE points SET point = zeroblob(9000)")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_qdrant_after_a_killed_writer_is_read_as_it_was_before_and_not_touched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, out = make("qdrant", tmp_path)
    storage = tmp_path / "old" / "collection" / "items"
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(storage / "storage.sqlite")], check=False)
    before = {path.name: path.read_bytes() for path in storage.iterdir()}
    assert len(before) == 2  # the journal is there
    assert len(moved(spec, out)) == ROWS
    assert {path.name: path.read_bytes() for path in storage.iterdir()} == before


def test_qdrant_damage_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, _ = make("qdrant", tmp_path)
    meta = tmp_path / "old" / "meta.json"
    whole = meta.read_text()
    for text in (
        "[]",
        "{}",
        '{"collections": {"items": 3}}',
        '{"collections": {"items": {"vectors": {"size": "x", "distance": "Dot"}}}}',
    ):
        meta.write_text(text)
        with pytest.raises(InputError, match="doesn't list collections"):
            open_index(spec)
    meta.write_text(whole.replace('"vectors"', '"of_another_version": 1, "vectors"', 1))
    with pytest.raises(InputError, match="Qdrant can't open it"):
        everything(open_index(spec))
    meta.write_text(whole)
    with pytest.raises(InputError, match="can't be the name of a collection"):
        plan_target(open_index(spec), "qdrant:new#a/b")
    holder = sqlite3.connect(tmp_path / "old" / "collection" / "items" / "storage.sqlite")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InputError, match="another process is writing to it"):
        open_index(spec)
    holder.close()


# PostgreSQL


@pytest.fixture(scope="module")
def postgres(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        yield postgres, connection


def fill(connection, table, definition, *, after=()):
    connection.execute(f"CREATE TABLE {table} ({definition})")
    with connection.cursor() as cursor:
        rows = [(i, str(v.tolist())) for i, v in enumerate(VECTORS)]
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", rows)
    for statement in after:
        connection.execute(statement)


PLAIN = "id int PRIMARY KEY, embedding vector(16)"


def test_pgvector_indexes_on_expressions_get_the_new_width(postgres):
    dsn, connection = postgres
    fill(
        connection, "casts", PLAIN,
        after=[
            "CREATE INDEX ON casts USING hnsw ((embedding::halfvec(16)) halfvec_ip_ops)",
            "CREATE INDEX ON casts USING hnsw ((binary_quantize(embedding)::bit(16)) bit_hamming_ops)",
        ],
    )  # fmt: skip
    assert open_index(f"pgvector:{dsn}#casts").metric == "dot"
    moved(f"pgvector:{dsn}#casts", f"pgvector:{dsn}#casts_new")
    query = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'casts_new'::regclass"
    definitions = " ".join(definition for (definition,) in connection.execute(query))
    assert "halfvec(24)" in definitions
    assert "bit(24)" in definitions


def test_pgvector_names_with_quotes_capitals_and_percents(postgres):
    dsn, connection = postgres
    connection.execute('CREATE SCHEMA "My Schema"')
    fill(connection, '"My Schema"."It""ems"', '"The%s" int PRIMARY KEY, "V%%" vector(16)'.replace("%%", "%"))
    moved(f"""pgvector:{dsn}#"My Schema"."It""ems\"""", f'pgvector:{dsn}#"My Schema"."New"')
    assert open_index(f"pgvector:{dsn}#My Schema.New").rows == ROWS


def test_pgvector_refuses_before_any_work_what_cannot_be_copied(postgres, capsys):
    dsn, connection = postgres
    fill(connection, "norms", f"{PLAIN}, norm float8 GENERATED ALWAYS AS (vector_norm(embedding)) STORED")
    source = open_index(f"pgvector:{dsn}#norms")
    cases = [
        ("#norms_new", "'norm' is generated from 'embedding'"),
        ("#nowhere.norms_new", "there is no schema 'nowhere'"),
        ("#norms", "is the source table"),
    ]
    for out, message in cases:
        with pytest.raises(InputError, match=message):
            plan_target(source, out)
    fill(connection, "checked", f"{PLAIN} CHECK (vector_dims(embedding) = 16)")
    with pytest.raises(InputError, match="already exists"):
        plan_target(source, "#checked")
    moved(f"pgvector:{dsn}#checked", f"pgvector:{dsn}#checked_new")
    assert "the check 'checked_embedding_check' of the vectors isn't copied" in capsys.readouterr().err
    connection.execute("CREATE VIEW seen AS SELECT * FROM checked")
    with pytest.raises(InputError, match="seen is a view"):
        open_index(f"pgvector:{dsn}#seen")
    for operators in ("ip", "l2"):
        connection.execute(f"CREATE INDEX ON checked USING hnsw (embedding vector_{operators}_ops)")
    with pytest.raises(InputError, match=r"vector_ip_ops, vector_l2_ops.*--metric"):
        open_index(f"pgvector:{dsn}#checked")
    assert open_index(f"pgvector:{dsn}#checked", metric="l2").metric == "l2"


def test_pgvector_that_loses_its_connection_says_so_and_the_next_run_finishes(postgres, capfd):
    dsn, connection = postgres
    fill(connection, "lost", PLAIN)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'consilience'"

    def ended(vectors):
        connection.execute(others)
        return rotated(vectors)

    with pytest.raises(InputError, match="See that the server runs, then run the command again"):
        write_index(open_index(f"pgvector:{dsn}#lost"), "#lost_new", ended, dimensions=NEW_WIDTH, block_rows=20)
    assert capfd.readouterr().err == ""
    assert connection.execute("SELECT to_regclass('lost_new')").fetchone() == (None,)
    moved(f"pgvector:{dsn}#lost", f"pgvector:{dsn}#lost_new")
    left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'lost%partial%'").fetchall()
    assert left == []
