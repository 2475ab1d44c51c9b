"""Texts with ids: both are read as text, whatever they look like."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import CorpusError
from consilience.corpora.id_texts import read_id_texts

IDS = ("007", "1e5", "true", "2020-01-01")
TEXTS = ("12", "2020-01-01", "false", "1.50")


def write(path, ids=IDS, texts=TEXTS):
    rows = list(zip(ids, texts, strict=True))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in rows))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({"id": list(ids), "text": list(texts)}), path)
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        path.write_text("".join(f"{i}{mark}{t}\n" for i, t in [("id", "text"), *rows]))
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_ids_and_texts_stay_as_they_are_written(tmp_path, suffix):
    found = read_id_texts(write(tmp_path / f"sample.{suffix}"))
    assert (found.ids, found.texts, found.duplicates) == (IDS, TEXTS, 0)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_column_of_dates_stays_text(tmp_path, suffix):
    dates = ("2020-01-01", "2020-01-02")
    found = read_id_texts(write(tmp_path / f"sample.{suffix}", dates, ("2021-03-04", "2021-03-05")))
    assert (found.ids, found.texts) == (dates, ("2021-03-04", "2021-03-05"))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_numbers_are_ids_too_and_the_first_of_equal_texts_counts(tmp_path, suffix):
    found = read_id_texts(write(tmp_path / f"sample.{suffix}", ids=(7, 8, 9), texts=("a b", "c d", "a b")))
    assert (found.ids, found.texts, found.duplicates) == (("7", "8"), ("a b", "c d"), 1)


@pytest.mark.parametrize(
    ("ids", "texts", "message"),
    [
        (("1", "1"), ("a", "b"), "id '1' occurs more than once"),
        (("1", "2"), ("a", " "), "row 2 is empty"),
        (("1", "2"), ("a", "x" * 60_000), "row 2 has 60,000 characters"),
    ],
)
def test_faulty_rows_are_named(tmp_path, ids, texts, message):
    with pytest.raises(CorpusError, match=message):
        read_id_texts(write(tmp_path / "sample.csv", ids, texts))


def test_missing_columns_files_and_kinds(tmp_path):
    path = write(tmp_path / "sample.csv")
    with pytest.raises(CorpusError, match="no column 'caption'; its columns: id, text"):
        read_id_texts(path, column="caption")
    (tmp_path / "broken.jsonl").write_text('{"id": 1, "text": "a"}\n[]\n')
    with pytest.raises(CorpusError, match="line 2: expected a JSON object, got list"):
        read_id_texts(tmp_path / "broken.jsonl")
    with pytest.raises(CorpusError, match="no such file"):
        read_id_texts(tmp_path / "absent.csv")
    (tmp_path / "sample.txt").write_text("a\n")
    with pytest.raises(CorpusError, match=r"expected a file with columns \(\.csv.*got \.txt"):
        read_id_texts(tmp_path / "sample.txt")
    assert read_id_texts(path, id_column="none", need_ids=False).ids is None
