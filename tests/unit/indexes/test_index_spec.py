"""Specs of indexes, and that a password in one is never shown."""

import pytest

from consilience.core.errors import InputError
from consilience.indexes.open import open_index
from consilience.indexes.pgvector_index import without_password
from consilience.indexes.spec import IndexSpec, parse_index_spec


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("a/v.npy", ("npy", "a/v.npy", None)),
        ("npy:v", ("npy", "v", None)),
        ("npy:v.npy#ids=names.txt", ("npy", "v.npy", "ids=names.txt")),
        ("v.parquet", ("parquet", "v.parquet", None)),
        ("parquet:folder#dense", ("parquet", "folder", "dense")),
        ("v.faiss", ("faiss", "v.faiss", None)),
        ("v.INDEX", ("faiss", "v.INDEX", None)),
        ("lancedb:store#t", ("lancedb", "store", "t")),
        ("qdrant:a#b#c", ("qdrant", "a#b", "c")),
        ("pgvector:postgresql://u:p#q@h/d#s.t", ("pgvector", "postgresql://u:p#q@h/d", "s.t")),
    ],
)
def test_kind_location_and_name(spec, expected):
    parsed = parse_index_spec(spec)
    assert (parsed.kind, parsed.location, parsed.fragment) == expected


def test_a_new_index_is_of_the_sources_kind_and_may_lie_in_its_place():
    source = IndexSpec("lancedb", "store", "old")
    assert parse_index_spec("#new", default=source) == IndexSpec("lancedb", "store", "new")
    assert parse_index_spec("other#new", default=source) == IndexSpec("lancedb", "other", "new")
    assert parse_index_spec("new.parquet", default=source) == IndexSpec("parquet", "new.parquet", None)
    assert parse_index_spec("folder", default=IndexSpec("parquet", "old", None)) == IndexSpec("parquet", "folder", None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("store", "can't tell what kind"),
        ("lancedb:store", "expected lancedb:FOLDER#TABLE"),
        ("pgvector:postgresql://u:secret@h/d", "expected pgvector:DSN#TABLE"),
        ("postgresql://u:secret@h/d#t", "this address: can't tell what kind"),
        ("faiss:", "its location is empty"),
        ("qdrant:#c", "its location is empty"),
    ],
)
def test_specs_that_say_too_little(spec, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_index_spec(spec)
    assert "secret" not in str(caught.value)


def test_a_location_is_not_in_the_representation():
    assert "secret" not in repr(parse_index_spec("pgvector:postgresql://u:secret@h/d#t"))


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:se@c:ret@h:1/d",
        "postgresql://u:se/c?ret@h/d?sslmode=require",
        "postgresql://h/d?user=u&password=se@c:ret",
        "postgresql://h:5432/d?password=se@c:ret&user=u",
        "host=h password='se@c ret' user=u",
        "user=u password = se@c:ret host=h",
        "user=u password='it\\'s se@c ret' host=h",
    ],
)
def test_a_dsn_without_its_password(dsn):
    shown = without_password(dsn)
    assert not [part for part in ("se@c", "se/c", "c:ret", "ret") if part in shown]
    assert "h" in shown
    assert "u" in shown


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("missing.npy", "no such file"),
        ("missing.parquet", "no such file or folder"),
        ("missing.faiss", "no such file"),
        ("lancedb:missing#t", "no such folder"),
        ("qdrant:missing#c", "no folder of Qdrant's local mode"),
    ],
)
def test_what_is_not_there(spec, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        open_index(spec)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_metric_and_columns_that_a_kind_lacks():
    with pytest.raises(InputError, match="expected one of cosine, dot, l2, got 'angle'"):
        open_index("v.npy", metric="angle")
    with pytest.raises(InputError, match="a faiss index has no id or vector column"):
        open_index("v.faiss", id_column="id", vector_column="v")
