"""Each kind of index, built and searched by its own library: rewritten under a known rotation, killed on the way."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import InputError, MissingExtraError
from consilience.indexes.open import open_index, write_index
from consilience.indexes.qdrant_index import flush_at_the_end

ROWS, WIDTH, NEW_WIDTH, BLOCK = 500, 16, 24, 64
RNG = np.random.default_rng(11)
VECTORS = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
# Semi-orthogonal: lengths and angles, and so the neighbours under every metric, stay.
ROTATION = np.linalg.qr(RNG.standard_normal((NEW_WIDTH, WIDTH)))[0].T.astype(np.float32)
QUERIES = VECTORS[::50] + 0.1 * RNG.standard_normal((10, WIDTH)).astype(np.float32)
IDS = [10_000 + 3 * i for i in range(ROWS)]


def rotated(vectors):
    return vectors @ ROTATION


def bytes_of(path: Path) -> str:
    """Names and bytes of a file or of a whole folder."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        digest.update(file.relative_to(path.parent).as_posix().encode())
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


def everything(index, rows=97):
    blocks = list(index.iter_blocks(rows))
    return dict(zip((name for ids, _ in blocks for name in ids), np.concatenate([v for _, v in blocks]), strict=True))


def agrees(index, vectors=VECTORS, ids=IDS):
    """The index holds exactly these rows, and lookup and the fingerprint agree with reading it whole."""
    found = everything(index)
    assert sorted(found) == sorted(map(str, ids))
    assert index.rows == len(ids)
    assert index.dimensions == vectors.shape[1]
    for name, vector in zip(ids, vectors, strict=True):
        np.testing.assert_allclose(found[str(name)], vector, atol=1e-5)
    some = [str(ids[-1]), str(ids[0]), str(ids[7])]
    np.testing.assert_allclose(index.lookup(some), vectors[[-1, 0, 7]], atol=1e-5)
    with pytest.raises(InputError, match="1 of 2 ids asked for aren't in the index, the first: '777777'"):
        index.lookup([some[0], "777777"])
    assert index.fingerprint() == index.fingerprint()


# FAISS


def faiss_index(structure, faiss, metric=None):
    metric = faiss.METRIC_INNER_PRODUCT if metric is None else metric
    if structure == "IVFFlat":
        index = faiss.IndexIVFFlat(faiss.IndexFlat(WIDTH, metric), WIDTH, 8, metric)
        index.train(VECTORS)
        index.nprobe = 8
        index.add_with_ids(VECTORS, np.array(IDS))
        return index
    inner = {
        "Flat": lambda: faiss.IndexFlat(WIDTH, metric),
        "FlatL2": lambda: faiss.IndexFlatL2(WIDTH),
        "HNSW": lambda: faiss.IndexHNSWFlat(WIDTH, 24, metric),
        "SQ8": lambda: faiss.IndexScalarQuantizer(WIDTH, faiss.ScalarQuantizer.QT_8bit, metric),
        "IVFPQ": lambda: faiss.IndexIVFPQ(faiss.IndexFlatL2(WIDTH), WIDTH, 4, 4, 4),
    }[structure.rpartition(",")[2]]()
    if not inner.is_trained:
        inner.train(VECTORS)
    if "," in structure:
        index = getattr(faiss, f"Index{structure.partition(',')[0]}")(inner)
        index.add_with_ids(VECTORS, np.array(IDS))
        return index
    inner.add(VECTORS)
    return inner


@pytest.mark.parametrize("structure", ["Flat", "FlatL2", "HNSW", "IVFFlat", "IDMap,Flat", "IDMap2,HNSW"])
def test_faiss(tmp_path, structure):
    faiss = pytest.importorskip("faiss")
    faiss.write_index(faiss_index(structure, faiss), str(tmp_path / "old.faiss"))
    old = faiss.read_index(str(tmp_path / "old.faiss"))
    ids = IDS if structure == "IVFFlat" or "," in structure else list(range(ROWS))
    before = bytes_of(tmp_path / "old.faiss")
    index = open_index(str(tmp_path / "old.faiss"))
    assert index.metric == ("l2" if structure == "FlatL2" else "dot")
    agrees(index, ids=ids)
    write_index(index, str(tmp_path / "new.faiss"), rotated, dimensions=NEW_WIDTH, block_rows=BLOCK)
    new = faiss.read_index(str(tmp_path / "new.faiss"))
    assert type(new) is type(old)
    assert new.metric_type == old.metric_type
    if structure == "IVFFlat":
        assert (new.nlist, new.nprobe) == (8, 8)
    if structure == "HNSW":
        assert new.hnsw.nb_neighbors(1) == 24
    agrees(open_index(str(tmp_path / "new.faiss")), VECTORS @ ROTATION, ids)
    expected, found = old.search(QUERIES, 5)[1], new.search(QUERIES @ ROTATION, 5)[1]
    np.testing.assert_array_equal(found[:, 0], expected[:, 0])
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(expected, found, strict=True)]) > 0.95
    assert bytes_of(tmp_path / "old.faiss") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.faiss", "old.faiss"]


@pytest.mark.parametrize("structure", ["SQ8", "IDMap,IVFPQ"])
def test_faiss_with_loss_is_read_with_a_note_and_written_as_parquet_only(tmp_path, capsys, structure):
    faiss = pytest.importorskip("faiss")
    faiss.write_index(faiss_index(structure, faiss), str(tmp_path / "old.index"))
    index = open_index(str(tmp_path / "old.index"))
    assert "stores its vectors with loss" in capsys.readouterr().err
    found = everything(index)
    ids = IDS if "," in structure else range(ROWS)
    error = np.linalg.norm(np.stack([found[str(name)] for name in ids]) - VECTORS) / np.linalg.norm(VECTORS)
    assert 0 < error < (0.7 if "PQ" in structure else 0.02)
    with pytest.raises(InputError, match=r"can't be built from new vectors here.*--rewrite parquet:FILE"):
        write_index(index, str(tmp_path / "new.index"), rotated, dimensions=NEW_WIDTH)
    write_index(index, str(tmp_path / "new.parquet"), rotated, dimensions=NEW_WIDTH)
    assert open_index(str(tmp_path / "new.parquet")).rows == ROWS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.parquet", "old.index"]


def test_faiss_refusals(tmp_path):
    faiss = pytest.importorskip("faiss")
    (tmp_path / "text.faiss").write_text("no index")
    with pytest.raises(InputError, match="FAISS can't read it"):
        open_index(str(tmp_path / "text.faiss"))
    faiss.write_index(faiss.IndexFlatL2(4), str(tmp_path / "empty.faiss"))
    with pytest.raises(InputError, match="has no vectors"):
        open_index(str(tmp_path / "empty.faiss"))
    faiss.write_index(faiss_index("Flat", faiss, faiss.METRIC_L1), str(tmp_path / "l1.faiss"))
    with pytest.raises(InputError, match="neither inner product nor L2"):
        open_index(str(tmp_path / "l1.faiss"))
    assert open_index(str(tmp_path / "l1.faiss"), metric="l2").metric == "l2"
    doubled = faiss.IndexIDMap(faiss.IndexFlatL2(WIDTH))
    doubled.add_with_ids(VECTORS[:2], np.array([5, 5]))
    faiss.write_index(doubled, str(tmp_path / "twice.faiss"))
    with pytest.raises(InputError, match="id '5' occurs more than once"):
        everything(open_index(str(tmp_path / "twice.faiss")))


# LanceDB


def lance_rows(vectors=VECTORS, numeric=True):
    rows = len(vectors)
    return pa.table(
        {
            "id": pa.array(IDS[:rows] if numeric else [f"it's {i}" for i in IDS[:rows]]),
            "caption": pa.array([None if i % 9 == 0 else f"caption {i}" for i in range(rows)]),
            "vector": pa.array(list(vectors), pa.list_(pa.float32(), vectors.shape[1])),
            "tags": pa.array([[f"t{i}"] for i in range(rows)]),
        }
    )


def make_lance(folder, **options):
    lancedb = pytest.importorskip("lancedb")
    return lancedb.connect(str(folder)).create_table("items", lance_rows(**options))


@pytest.mark.parametrize("numeric", [True, False])
def test_lancedb(tmp_path, numeric):
    lancedb = pytest.importorskip("lancedb")
    store = tmp_path / "store"
    table = make_lance(store, numeric=numeric)
    table.delete(f"caption = 'caption {ROWS - 1}'")
    table.add(lance_rows(numeric=numeric)[-1:])  # a second fragment, and a deletion in the first
    table.create_index("vector", config=lancedb.index.IvfFlat(distance_type="dot", num_partitions=2))
    table.create_index("id", config=lancedb.index.BTree())
    before = bytes_of(store)
    index = open_index(f"lancedb:{store}#items")
    assert index.metric == "dot"
    agrees(index, ids=IDS if numeric else [f"it's {i}" for i in IDS])
    write_index(index, f"lancedb:{tmp_path / 'new'}#items", rotated, dimensions=NEW_WIDTH, block_rows=BLOCK)
    assert bytes_of(store) == before
    new = lancedb.connect(str(tmp_path / "new")).open_table("items")
    old_rows, new_rows = table.to_arrow().sort_by("id"), new.to_arrow().sort_by("id")
    assert new_rows.drop_columns("vector").equals(old_rows.drop_columns("vector"))
    kinds = [{(config.name, config.index_type, *config.columns) for config in t.list_indices()} for t in (table, new)]
    assert kinds[0] == kinds[1]
    assert len(kinds[0]) == 2
    assert open_index(f"lancedb:{tmp_path / 'new'}#items").metric == "dot"
    for query in QUERIES:
        expected = table.search(query).distance_type("dot").nprobes(20).limit(5).to_list()
        found = new.search(query @ ROTATION).distance_type("dot").nprobes(20).limit(5).to_list()
        assert [row["id"] for row in found] == [row["id"] for row in expected]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["items.lance"]


def test_lancedb_beside_the_source_and_its_refusals(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    make_lance(tmp_path)
    before = bytes_of(tmp_path / "items.lance")
    index = open_index(f"lancedb:{tmp_path}#items")
    assert index.metric == "cosine"
    write_index(index, "#moved", rotated, dimensions=NEW_WIDTH)
    assert lancedb.connect(str(tmp_path)).open_table("moved").count_rows() == ROWS
    assert bytes_of(tmp_path / "items.lance") == before
    with pytest.raises(InputError, match="has no table 'other'; it has items, moved"):
        open_index(f"lancedb:{tmp_path}#other")
    with pytest.raises(InputError, match="already exists"):
        write_index(index, "#moved", rotated, dimensions=NEW_WIDTH)
    with pytest.raises(InputError, match="is the source index"):
        write_index(index, "#items", rotated, dimensions=NEW_WIDTH)
    with pytest.raises(InputError, match="no column 'nope'; these can: id, caption"):
        open_index(f"lancedb:{tmp_path}#items", id_column="nope")
    faulty = VECTORS[:3].copy()
    faulty[1] = 0
    lancedb.connect(str(tmp_path / "faulty")).create_table("items", lance_rows(faulty))
    with pytest.raises(InputError, match=f"all zero: id '{IDS[1]}'"):
        write_index(open_index(f"lancedb:{tmp_path / 'faulty'}#items"), "#new", rotated, dimensions=NEW_WIDTH)
    assert [path.name for path in (tmp_path / "faulty").iterdir()] == ["items.lance"]


def test_lancedb_that_embeds_by_itself_stops_doing_so(tmp_path, capsys):
    lancedb = pytest.importorskip("lancedb")
    function = '[{"name": "openai", "model": {}, "source_column": "caption", "vector_column": "vector"}]'
    rows = lance_rows().replace_schema_metadata({"embedding_functions": function, "owner": "somebody"})
    lancedb.connect(str(tmp_path)).create_table("items", rows)
    write_index(open_index(f"lancedb:{tmp_path}#items"), "#new", rotated, dimensions=NEW_WIDTH)
    assert "its vectors are another model's" in capsys.readouterr().err
    assert lancedb.connect(str(tmp_path)).open_table("new").schema.metadata == {b"owner": b"somebody"}


# Qdrant


def make_qdrant(folder, *, named=False, distance="DOT"):
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    client = qdrant.QdrantClient(path=str(folder))
    params = models.VectorParams(size=WIDTH, distance=getattr(models.Distance, distance))
    other = models.VectorParams(size=2, distance=models.Distance.COSINE)
    client.create_collection("items", vectors_config={"text": params, "image": other} if named else params)
    flush_at_the_end(client, "items")
    points = []
    for i, vector in enumerate(VECTORS.tolist()):
        point = str(uuid.UUID(int=IDS[i])) if named else IDS[i]
        value = {"text": vector, "image": [1.0, i + 1.0]} if named else vector
        points.append(models.PointStruct(id=point, vector=value, payload={"n": i, "deep": {"list": [i, None, "é"]}}))
    client.upsert("items", points=points)
    client.close()


@pytest.mark.parametrize(("named", "distance", "metric"), [(False, "DOT", "dot"), (True, "EUCLID", "l2")])
def test_qdrant(tmp_path, named, distance, metric):
    qdrant = pytest.importorskip("qdrant_client")
    make_qdrant(tmp_path / "store", named=named, distance=distance)
    before = bytes_of(tmp_path / "store")
    spec = f"qdrant:{tmp_path / 'store'}#items"
    index = open_index(spec, vector_column="text" if named else None)
    assert index.metric == metric
    agrees(index, ids=[str(uuid.UUID(int=i)) for i in IDS] if named else IDS)
    write_index(index, f"qdrant:{tmp_path / 'new'}#moved", rotated, dimensions=NEW_WIDTH, block_rows=BLOCK)
    assert bytes_of(tmp_path / "store") == before
    old, new = qdrant.QdrantClient(path=str(tmp_path / "store")), qdrant.QdrantClient(path=str(tmp_path / "new"))
    using = {"using": "text"} if named else {}
    for query in QUERIES:
        expected = old.query_points("items", query=query.tolist(), limit=5, **using).points
        found = new.query_points("moved", query=(query @ ROTATION).tolist(), limit=5, **using).points
        assert [point.id for point in found] == [point.id for point in expected]
    payloads = [{r.id: r.payload for r in c.scroll(n, limit=ROWS)[0]} for c, n in ((old, "items"), (new, "moved"))]
    assert payloads[0] == payloads[1]
    if named:
        images = [
            {r.id: r.vector["image"] for r in c.scroll(n, limit=ROWS, with_vectors=True)[0]}
            for c, n in ((old, "items"), (new, "moved"))
        ]
        assert images[0].keys() == images[1].keys()
        np.testing.assert_allclose([images[0][i] for i in images[1]], list(images[1].values()), atol=1e-6)
    old.close()
    new.close()


def test_qdrant_is_read_while_another_client_holds_it(tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    make_qdrant(tmp_path, distance="COSINE")
    holder = qdrant.QdrantClient(path=str(tmp_path))
    index = open_index(f"qdrant:{tmp_path}#items")
    agrees(index)
    assert index.metric == "cosine"
    holder.close()


def test_qdrant_refusals(tmp_path):
    pytest.importorskip("qdrant_client")
    make_qdrant(tmp_path / "store", named=True, distance="MANHATTAN")
    spec = f"qdrant:{tmp_path / 'store'}#items"
    with pytest.raises(InputError, match="no collection 'other'; it has items"):
        open_index(spec.replace("items", "other"))
    with pytest.raises(InputError, match="several columns can hold the vectors: text, image"):
        open_index(spec)
    with pytest.raises(InputError, match="neither Cosine, Dot nor Euclid"):
        open_index(spec, vector_column="text")
    with pytest.raises(InputError, match="a qdrant index has no id column"):
        open_index(spec, id_column="n")
    index = open_index(spec, vector_column="text", metric="l2")
    with pytest.raises(InputError, match="is the source's folder"):
        write_index(index, "#moved", rotated, dimensions=NEW_WIDTH)


# pgvector


def make_pgvector(dsn, table, *, kind="vector", index="hnsw", operators="cosine"):
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}, {table}_new, {table}_new__partial CASCADE")
        connection.execute(
            f"CREATE TABLE {table} (item bigint PRIMARY KEY, serial serial, other int GENERATED ALWAYS AS IDENTITY, "
            f"caption text NOT NULL DEFAULT 'none', embedding {kind}({WIDTH}) NOT NULL, meta jsonb, "
            "twice bigint GENERATED ALWAYS AS (item * 2) STORED, tags text[] CHECK (cardinality(tags) > 0))"
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table} (item, caption, embedding, meta, tags) VALUES (%s, %s, %s, %s, %s)",
                [
                    (
                        name,
                        f"tab\t'{name}'\\ é\n",
                        str(vector.tolist()),
                        '{"a": [1, null]}' if i % 3 else None,
                        ["x", "{"],
                    )
                    for i, (name, vector) in enumerate(zip(IDS, VECTORS, strict=True))
                ],
            )
        if index:
            options = " WITH (lists = 4)" if index == "ivfflat" else ""
            connection.execute(f"CREATE INDEX ON {table} USING {index} (embedding {kind}_{operators}_ops){options}")
        connection.execute(f"CREATE INDEX ON {table} (caption)")
        connection.execute(f"COMMENT ON TABLE {table} IS 'mine'")


def rows_of(dsn, table, columns):
    import psycopg

    with psycopg.connect(dsn) as connection:
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY item").fetchall()


def tables_of(dsn, table):
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE %s ORDER BY 1", [f"{table}%"])
        return [name for (name,) in found]


KEPT = "item, serial, other, caption, meta, twice, tags"


@pytest.mark.parametrize(
    ("kind", "index", "operators", "metric"),
    [("vector", "hnsw", "cosine", "cosine"), ("vector", "ivfflat", "l2", "l2"), ("halfvec", "hnsw", "ip", "dot")],
)
def test_pgvector(postgres, kind, index, operators, metric):
    import psycopg

    make_pgvector(postgres, "items", kind=kind, index=index, operators=operators)
    before = rows_of(postgres, "items", "*")
    source = open_index(f"pgvector:{postgres}#items")
    assert source.metric == metric
    stored = VECTORS.astype(np.float16).astype(np.float32) if kind == "halfvec" else VECTORS
    agrees(source, stored)
    write_index(source, "#items_new", rotated, dimensions=NEW_WIDTH, block_rows=BLOCK)
    assert rows_of(postgres, "items", "*") == before
    assert rows_of(postgres, "items_new", KEPT) == rows_of(postgres, "items", KEPT)
    new = open_index(f"pgvector:{postgres}#public.items_new")
    assert new.metric == metric
    tolerance = 2e-3 if kind == "halfvec" else 1e-6
    found = everything(new)
    for name, row in zip(IDS, stored @ ROTATION, strict=True):
        np.testing.assert_allclose(found[str(name)], row, atol=tolerance)
    operator = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}[metric]
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SET enable_indexscan = off")
        for query in QUERIES:
            nearest = [
                [
                    name
                    for (name,) in connection.execute(
                        f"SELECT item FROM {table} ORDER BY embedding {operator} %s::{kind} LIMIT 3", [str(q.tolist())]
                    )
                ]
                for table, q in (("items", query), ("items_new", query @ ROTATION))
            ]
            assert nearest[0][0] == nearest[1][0]
            assert kind == "halfvec" or nearest[0] == nearest[1]
        connection.execute("DROP TABLE items")  # nothing of the new table depends on the old
        embedding = str(np.ones(NEW_WIDTH).tolist())
        fresh = connection.execute(
            "INSERT INTO items_new (item, embedding, tags) VALUES (1, %s, ARRAY['a']) RETURNING serial, other",
            [embedding],
        ).fetchone()
        assert fresh == (ROWS + 1, ROWS + 1)
        (comment,) = connection.execute("SELECT obj_description('items_new'::regclass, 'pg_class')").fetchone()
        assert comment == "mine"
    assert not [name for name in tables_of(postgres, "items") if "partial" in name]


def test_pgvector_refusals_name_what_is_wrong_and_never_the_password(postgres):
    import psycopg

    make_pgvector(postgres, "shop", index=None)
    source = open_index(f"pgvector:{postgres}#shop")
    assert source.metric == "cosine"
    for out, message in (("#shop", "is the source table"), ("#" + "n" * 60, "at most 54 bytes")):
        with pytest.raises(InputError, match=message):
            write_index(source, out, rotated, dimensions=NEW_WIDTH)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE shop_new__partial (mine int)")
        with pytest.raises(InputError, match="taken by a table that isn't ours"):
            write_index(source, "#shop_new", rotated, dimensions=NEW_WIDTH)
        connection.execute("DROP TABLE shop_new__partial")
        connection.execute("CREATE TABLE shop_new (mine int)")
        with pytest.raises(InputError, match="already exists"):
            write_index(source, "#shop_new", rotated, dimensions=NEW_WIDTH)
        with pytest.raises(InputError, match=r"no table 'nope'; tables with vectors: .*shop"):
            open_index(f"pgvector:{postgres}#nope")
        with pytest.raises(InputError, match="no column can hold vectors; its columns are mine"):
            open_index(f"pgvector:{postgres}#shop_new")
        connection.execute("ALTER TABLE shop ALTER COLUMN embedding DROP NOT NULL")
        connection.execute("UPDATE shop SET embedding = NULL WHERE item = 10006")
        with pytest.raises(InputError, match="1 of 500 rows have no vector, the first: id '10006'"):
            open_index(f"pgvector:{postgres}#shop")
        connection.execute("CREATE ROLE ann LOGIN PASSWORD 'se#cret'")
    for dsn in (
        "postgresql://ann:se%23cret@localhost:1/nowhere",
        "host=localhost port=1 user=ann password='se#cret'",
        "postgresql://ann:se#cret@[nowhere/x",
    ):
        with pytest.raises(InputError, match="can't connect") as caught:
            open_index(f"pgvector:{dsn}#shop")
        shown = repr(caught.value) + str(caught.value.__cause__)
        assert "se#cret" not in shown
        assert "se%23cret" not in shown


def test_pgvector_that_fails_on_the_way_leaves_nothing(postgres):
    make_pgvector(postgres, "late")
    source = open_index(f"pgvector:{postgres}#late")
    with pytest.raises(InputError, match="2000 dimensions"):
        write_index(source, "#late_new", lambda v: np.repeat(v, 200, axis=1), dimensions=3200)
    with pytest.raises(InputError, match="transformed: 500 vectors of one block are NaN"):
        write_index(source, "#late_new", lambda v: rotated(v) * np.float32("nan"), dimensions=NEW_WIDTH)
    assert not [name for name in tables_of(postgres, "late") if "new" in name]


# All kinds


KILLED = """
import os, signal, sys
import numpy as np
from consilience.indexes.open import open_index, write_index
rotation = np.load(sys.argv[1])
calls = 0
def transform(vectors):
    global calls
    calls += 1
    if calls == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    return vectors @ rotation
write_index(open_index(sys.argv[2]), sys.argv[3], transform, dimensions=rotation.shape[1], block_rows=64)
"""


def make(kind, folder, postgres=None):
    """Build an index; return its spec, the spec of the new one, and the paths of both."""
    if kind == "npy":
        np.save(folder / "old.npy", VECTORS)
        (folder / "old.npy.ids.txt").write_text("".join(f"{i}\n" for i in IDS))
        return "old.npy", "new.npy"
    if kind == "parquet":
        pq.write_table(lance_rows(), folder / "old.parquet")
        return "old.parquet", "new.parquet"
    if kind == "faiss":
        import faiss

        faiss.write_index(faiss_index("IVFFlat", faiss), str(folder / "old.faiss"))
        return "old.faiss", "new.faiss"
    if kind == "lancedb":
        make_lance(folder / "old")
        return "lancedb:old#items", "lancedb:new#items"
    if kind == "qdrant":
        make_qdrant(folder / "old")
        return "qdrant:old#items", "qdrant:new#items"
    make_pgvector(postgres, "killed")
    return f"pgvector:{postgres}#killed", f"pgvector:{postgres}#killed_new"


def state(kind, folder, postgres):
    """The source's content, and whether something is under the new one's name."""
    if kind == "pgvector":
        return rows_of(postgres, "killed", "*"), "killed_new" in tables_of(postgres, "killed")
    old = sorted(path for path in folder.iterdir() if path.name.startswith("old"))
    path = folder / ("new/items.lance" if kind == "lancedb" else next(iter(old)).name.replace("old", "new"))
    return [bytes_of(path) for path in old], path.exists()


def wait_for_the_killed(postgres):
    """PostgreSQL ends a session some milliseconds after its client died."""
    import psycopg

    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'consilience'"
    with psycopg.connect(postgres, autocommit=True) as connection:
        for _ in range(200):
            if connection.execute(query).fetchone() == (0,):
                return
            time.sleep(0.05)
    pytest.fail("the killed run's sessions are still there")


@pytest.mark.parametrize(
    ("kind", "block"),
    # 500 rows are eight blocks; inverted lists are trained in a first pass over them.
    [
        ("npy", 1),
        ("npy", 8),
        ("parquet", 8),
        ("faiss", 5),
        ("faiss", 15),
        ("lancedb", 5),
        ("qdrant", 5),
        ("pgvector", 8),
    ],
)
def test_a_kill_on_the_way_leaves_the_source_whole_and_the_target_absent(kind, block, tmp_path, request, monkeypatch):
    module = {"lancedb": "lancedb", "qdrant": "qdrant_client", "faiss": "faiss"}.get(kind, "numpy")
    pytest.importorskip(module)
    postgres = request.getfixturevalue("postgres") if kind == "pgvector" else None
    monkeypatch.chdir(tmp_path)
    spec, out = make(kind, tmp_path, postgres)
    np.save(tmp_path / "rotation.npy", ROTATION)
    before, exists = state(kind, tmp_path, postgres)
    assert not exists
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "rotation.npy", spec, out, str(block)],
        capture_output=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if postgres:
        wait_for_the_killed(postgres)
    assert state(kind, tmp_path, postgres) == (before, False)
    write_index(open_index(spec), out, rotated, dimensions=NEW_WIDTH, block_rows=BLOCK)
    assert state(kind, tmp_path, postgres) == (before, True)
    agrees(open_index(out), VECTORS @ ROTATION)
    left = tables_of(postgres, "killed") if postgres else [path.name for path in tmp_path.rglob("*")]
    assert not [name for name in left if "partial" in name]


@pytest.mark.parametrize(
    ("module", "spec", "extra"),
    [
        ("faiss", "v.faiss", "faiss"),
        ("lancedb", "lancedb:.#t", "lancedb"),
        ("qdrant_client", "qdrant:.#c", "qdrant"),
        ("psycopg", "pgvector:postgresql://localhost/d#t", "pgvector"),
    ],
)
def test_a_missing_library_names_its_extra(module, spec, extra, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.faiss").write_text("")
    (tmp_path / "meta.json").write_text("{}")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'consilience\[{extra}\]'"):
        open_index(spec)
