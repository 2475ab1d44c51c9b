"""Rows that a standard writer wrote come back equal, or the file is refused; they are never merged, split or cut."""

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consilience.core.errors import CorpusError
from consilience.corpora.tables import open_table

QUOTING = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL]
AMBIGUOUS = ("one cell or several rows", "is in quotes")
printable = st.characters(codec="utf-8", exclude_categories=["Cc"])
cells = st.text(st.one_of(st.sampled_from('"\t,;|\n\r ab'), printable), max_size=6)
tables = st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), max_size=5))
literal = st.text(st.one_of(st.sampled_from('" ab'), printable), min_size=1, max_size=6).filter(lambda t: '""' not in t)
objects = st.dictionaries(st.sampled_from(["c0", "c1"]), st.one_of(cells, st.none()), min_size=1)


def read(name, data, columns):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return [list(row) for _, row in open_table(path, wanted=columns).rows(columns)]


@settings(deadline=None)
@given(tables, st.sampled_from(",;\t|"), st.sampled_from(QUOTING), st.sampled_from(["\n", "\r\n"]))
@example([['say "no"', "a\nb"], ["", "x\ty"]], "\t", csv.QUOTE_MINIMAL, "\n")
@example([["a\n1\tb"]], "\t", csv.QUOTE_MINIMAL, "\n")
def test_csv_and_quoted_tsv(rows, delimiter, quoting, end):
    if end == "\n":  # Python's writer leaves a carriage return unquoted then
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    columns = [f"c{i}" for i in range(len(rows[0]))] if rows else ["c0"]
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows([columns, *rows])
    try:
        found = read("x.tsv" if delimiter == "\t" else "x.csv", stream.getvalue().encode(), columns)
    except CorpusError as error:
        found = str(error)
    refused = isinstance(found, str) and any(words in found for words in AMBIGUOUS)
    # With the header in quotes, or other delimiters than tabs, nothing is ambiguous.
    assert found == rows or (refused and delimiter == "\t" and quoting == csv.QUOTE_MINIMAL)


@settings(deadline=None)
@given(st.lists(st.tuples(literal, literal), min_size=1, max_size=5))
@example([("1", '"a'), ("2", "b"), ("3", '"c')])
def test_literal_tsv(rows):
    data = "".join(f"{a}\t{b}\n" for a, b in [("c0", "c1"), *rows]).encode()
    try:
        found = read("x.tsv", data, ["c0", "c1"])
    except CorpusError as error:
        found = str(error)
    assert found == [list(row) for row in rows] or any(words in found for words in AMBIGUOUS)


@settings(deadline=None)
@given(st.lists(objects, min_size=1, max_size=5))
def test_json_and_parquet(rows):
    columns = sorted({name for row in rows for name in row})
    expected = [[row.get(name) for name in columns] for row in rows]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for data in (lines, json.dumps(rows), json.dumps(rows, indent=2), "\ufeff" + lines):
        assert read("x.json", data.encode(), columns) == expected
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in columns])), sink)
    assert read("x.parquet", sink.getvalue(), columns) == expected
