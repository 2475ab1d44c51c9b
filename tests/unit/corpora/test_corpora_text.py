"""Every format holds the same rows; faults are named with their place, or left out."""

import gzip
import io
import json
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import CorpusError, InputError
from consilience.corpora.fingerprint import fingerprint_corpus
from consilience.corpora.text import CorpusSpec, open_corpus

ROWS = ["a cat", 'a "quoted", dog', "über café", "line\u2028separator", "a cat"]


def write_formats(folder):
    cells = [{"text": row, "kind": "even" if i % 2 == 0 else "odd"} for i, row in enumerate(ROWS)]
    (folder / "a.txt").write_bytes("\n".join(ROWS).encode() + b"\n")
    (folder / "b.txt").write_bytes("\r\n".join(ROWS).encode())
    (folder / "c.txt.gz").write_bytes(gzip.compress("\n".join(ROWS).encode()))
    (folder / "d.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    quoted = [f'"{row.replace(chr(34), chr(34) * 2)}",{cell["kind"]}' for row, cell in zip(ROWS, cells, strict=True)]
    (folder / "e.csv").write_text("\n".join(["text,kind", *quoted]), encoding="utf-8")
    (folder / "f.tsv").write_text("\n".join(["text\tkind", *(f"{c['text']}\t{c['kind']}" for c in cells)]))
    (folder / "g.csv.gz").write_bytes(gzip.compress((folder / "e.csv").read_bytes()))
    pq.write_table(pa.Table.from_pylist(cells), folder / "h.parquet", row_group_size=2)
    dictionary = pa.table({"text": pa.array(ROWS).dictionary_encode()})
    pq.write_table(dictionary, folder / "i.parquet")
    return sorted(folder.iterdir())


def test_every_format_holds_the_same_rows_and_fingerprint(tmp_path):
    files = write_formats(tmp_path)
    assert len(files) == 9
    expected = fingerprint_corpus(open_corpus(ROWS))
    for file in files:
        corpus = open_corpus(file)
        assert list(corpus) == list(corpus) == ROWS, file
        assert fingerprint_corpus(corpus) == expected, file
    assert list(open_corpus(tmp_path)) == ROWS * 9


def test_datasets_folder_and_hub_folder(tmp_path):
    datasets = pytest.importorskip("datasets")
    saved = datasets.Dataset.from_dict({"text": ROWS, "n": list(range(5))})
    saved.save_to_disk(str(tmp_path / "one"), num_shards=2)
    datasets.DatasetDict({"train": saved, "test": saved}).save_to_disk(str(tmp_path / "two"))
    assert list(open_corpus(tmp_path / "one")) == ROWS
    assert list(open_corpus(tmp_path / "two" / "test")) == ROWS
    with pytest.raises(CorpusError, match="splits train, test"):
        open_corpus(tmp_path / "two")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "train.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in ROWS))
    assert list(open_corpus(f"hub:{tmp_path / 'hub'}:train", limit=3)) == ROWS[:3]
    with pytest.raises(CorpusError, match="can't be opened"):
        list(open_corpus(f"hub:{tmp_path / 'hub'}:nosuch"))


def test_standard_input_is_read_twice(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    corpus = open_corpus("-")
    assert list(corpus) == list(corpus) == ["one", "two"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"t": "one"}\n{"t": "two"}\n')))
    assert list(open_corpus("-", column="t")) == ["one", "two"]


def test_filter_limit_and_batches(tmp_path):
    write_formats(tmp_path)
    for name in ("d.jsonl", "e.csv", "f.tsv", "h.parquet"):
        assert list(open_corpus(tmp_path / name, where={"kind": "odd"})) == ROWS[1::2]
        assert list(open_corpus(tmp_path / name, where={"kind": "odd"}, limit=1)) == ROWS[1:2]
    corpus = open_corpus(tmp_path / "h.parquet")
    assert list(corpus.batches(2)) == [ROWS[:2], ROWS[2:4], ROWS[4:]]
    assert list(corpus.batches(2, start=3)) == [ROWS[3:]]
    assert list(corpus.batches(2, start=5)) == []
    with pytest.raises(InputError):
        next(corpus.batches(0))
    with pytest.raises(CorpusError, match="no row has kind=none"):
        list(open_corpus(tmp_path / "e.csv", where={"kind": "none"}))


@pytest.mark.parametrize("name", ["d.jsonl", "e.csv", "f.tsv", "h.parquet"])
def test_wrong_column_names_those_that_exist(tmp_path, name):
    write_formats(tmp_path)
    for options in ({"column": "nosuch"}, {"where": {"nosuch": "1"}}):
        with pytest.raises(CorpusError, match=r"no column 'nosuch'.*text, kind"):
            open_corpus(tmp_path / name, **options)


FAULTS = {"empty": b"  ", "NUL": b"a\0b", "undecodable": b"caf\xe9", "long": b"x" * 100}
MESSAGES = {"empty": "is empty", "NUL": "NUL byte", "undecodable": "isn't valid UTF-8", "long": "100 characters.*100$"}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl", "parquet"])
def test_faults_are_refused_with_their_place_or_dropped(tmp_path, fault, suffix):
    path = tmp_path / f"x.{suffix}"
    rows = [b"a cat", FAULTS[fault], b"a dog"]
    if suffix == "txt":
        path.write_bytes(b"\n".join(rows))
    elif suffix == "csv":
        path.write_bytes(b"text,n\n" + b"".join(row + b",1\n" for row in rows))
    elif suffix == "jsonl":
        path.write_bytes(b"".join(b'{"text": "' + row.replace(b"\0", b"\\u0000") + b'"}\n' for row in rows))
    else:
        lengths = [0, *(sum(len(r) for r in rows[: i + 1]) for i in range(3))]
        buffers = [
            None,
            pa.py_buffer(b"".join(int(n).to_bytes(4, "little") for n in lengths)),
            pa.py_buffer(b"".join(rows)),
        ]
        pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 3, buffers)}), path)
    refusing = open_corpus(path, max_characters=50)
    for read in (list, fingerprint_corpus):
        with pytest.raises(CorpusError, match=rf"x\.{suffix}: row 2 .*{MESSAGES[fault]}") as error:
            read(refusing)
        assert "--on-fault drop" in str(error.value)
    dropping = open_corpus(path, max_characters=50, on_fault="drop")
    assert list(dropping) == ["a cat", "a dog"]
    assert fingerprint_corpus(dropping) == fingerprint_corpus(open_corpus(["a cat", "a dog"]))


def test_what_cannot_be_read_is_one_clear_error(tmp_path):
    cases = {
        "broken.parquet": (b"PAR1 nonsense", "can't be read as parquet"),
        "bad.jsonl": (b'{"text": "a"}\n{"text": \n', "line 2: isn't JSON"),
        "digits.jsonl": (b'{"text": "a", "n": ' + b"9" * 5000 + b"}\n", "row 1: isn't JSON"),
        "array.json": (b'["a"]\n', "row 1: expected a JSON object, got str"),
        "number.jsonl": (b'{"text": 3}\n', "expected text, got int"),
        "image.txt": (b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG image"),
        "binary.txt": (bytes(range(256)) * 10, "binary file"),
        "cut.txt.gz": (gzip.compress(b"row\n" * 10_000)[:-20], "damaged .gz data"),
        "ragged.csv": (b"text,n\na,1\nb\n", "row 2: expected 2 cells, got 1"),
        "open.csv": (b'text,n\n"a,1\n', "malformed csv"),
        "utf16.txt": ("text".encode("utf-16"), "UTF-16"),
        "empty.txt": (b"", "empty corpus"),
        "empty.csv": (b"", "empty corpus"),
        "header.csv": (b"text\n", "empty corpus"),
    }
    for name, (data, message) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CorpusError, match=message) as error:
            list(open_corpus(tmp_path / name))
        assert name in str(error.value)
    pq.write_table(pa.table({"n": [1], "words": [["a"]]}), tmp_path / "n.parquet")
    for column in ("n", "words"):
        with pytest.raises(CorpusError, match="expected text, got"):
            open_corpus(tmp_path / "n.parquet", column=column)
    with pytest.raises(CorpusError, match="no such file"):
        open_corpus(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CorpusError, match="no corpus files"):
        open_corpus(tmp_path / "folder")
    with pytest.raises(CorpusError, match="all 2 rows"):
        list(open_corpus(["", " "], on_fault="drop"))


def test_nulls_are_empty_rows(tmp_path):
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "n.parquet")
    (tmp_path / "n.jsonl").write_text('{"text": "a"}\n{"text": null}\n{"other": 1}\n')
    for name in ("n.parquet", "n.jsonl"):
        assert list(open_corpus(tmp_path / name, on_fault="drop")) == ["a"]
        with pytest.raises(CorpusError, match="row 2 is empty"):
            list(open_corpus(tmp_path / name))


def test_spec_options_are_checked():
    for options in ({"limit": 0}, {"max_characters": 0}, {"on_fault": "ignore"}):
        with pytest.raises(InputError):
            CorpusSpec(path="x", **options)
    with pytest.raises(CorpusError, match="row 2: column 'text': expected text"):
        open_corpus(["a", 3])


def test_a_hub_that_breaks_off_is_one_clear_error(monkeypatch):
    def rows():
        yield {"text": "a"}
        yield {"text": "b"}
        raise ConnectionError("reset by peer")

    library = types.ModuleType("datasets")
    library.load_dataset = lambda name, split, streaming: rows()
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises(CorpusError, match=r"hub:owner/name:train: reading stopped after row 2 \(reset by peer\)"):
        list(open_corpus("hub:owner/name"))
