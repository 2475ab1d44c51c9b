"""However a table is written, its rows come back, or one line says what to decide; each fix it names is tried."""

import bz2
import gzip
import io
import json
import lzma
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import ConsilienceError, CorpusError
from consilience.core.text_files import COMPRESSIONS
from consilience.corpora.contamination import read_held_out
from consilience.corpora.id_texts import read_id_texts
from consilience.corpora.pairs import open_pairs
from consilience.corpora.tables import SUFFIXES
from consilience.corpora.text import open_corpus
from consilience.evaluation.sts import load_sts_folder, read_sts_file

ROWS = ["a cat sat", "a dog ran", "a cow stood", "über café"]


def packed(path, data):
    """Write compressed bytes as a file's suffix says."""
    suffix = path.suffix.lower()
    if suffix in (".zst", ".lz4"):
        with pa.CompressedOutputStream(str(path), {".zst": "zstd", ".lz4": "lz4"}[suffix]) as stream:
            stream.write(data)
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(data))


def json_lines(texts=ROWS):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_compressed_parts_are_read_beside_plain_ones(tmp_path, suffix, capsys):
    (tmp_path / "00.jsonl").write_bytes(json_lines(ROWS[:2]))
    packed(tmp_path / f"01.JSONL{suffix.upper()}", json_lines(ROWS[2:]))
    assert list(open_corpus(tmp_path)) == ROWS
    assert capsys.readouterr().err == ""
    packed(tmp_path / f"cut{suffix}", json_lines(ROWS * 500))
    whole = (tmp_path / f"cut{suffix}").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(whole[: len(whole) // 2])  # also found without its suffix
    with pytest.raises(CorpusError, match=re.escape(f"cut.jsonl: damaged {suffix} data")):
        list(open_corpus(tmp_path / "cut.jsonl"))


def test_sidecars_are_left_out_and_said(tmp_path, capsys):
    for part in range(2):
        pq.write_table(pa.table({"caption": ROWS, "url": ["u"] * 4}), tmp_path / f"{part:05d}.parquet")
        (tmp_path / f"{part:05d}_stats.json").write_text(json.dumps({"count": 4, "status": {"ok": 4}}, indent=4))
        (tmp_path / f"{part:05d}.tar").write_bytes(bytes(1024))
    (tmp_path / "LICENSE.txt").write_text("MIT\n")
    (tmp_path / "vocabulary.json").write_text('["a", "b"]')
    (tmp_path / ".gitattributes").write_text("x")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "half.parquet").write_text("")
    assert list(open_corpus(tmp_path, column="caption")) == ROWS * 2
    said = capsys.readouterr().err
    for words in (
        "2 (parquet)",
        "2 (.tar)",
        "2 (hidden or _folder)",
        "00000_stats.json",
        "00001_stats.json",
        "LICENSE.txt",
        " and 1 more",
    ):
        assert words in said
    (tmp_path / "other.csv").write_text("n\n1\n")
    with pytest.raises(CorpusError, match=r"other\.csv: no column 'caption'.*or move this file away"):
        open_corpus(tmp_path, column="caption")
    (tmp_path / "other.csv").rename(tmp_path.parent / f"{tmp_path.name}.csv")
    assert len(list(open_corpus(tmp_path, column="caption"))) == 8


def test_a_hub_snapshot_and_json_parts(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": ROWS}), tmp_path / "data" / "train.parquet")
    (tmp_path / "dataset_infos.json").write_text('{"default": {"features": {}}}')
    (tmp_path / "README.md").write_text("# data")
    assert list(open_corpus(tmp_path)) == ROWS
    assert "dataset_infos.json" in capsys.readouterr().err
    (tmp_path / "data" / "more.json").write_text(json.dumps([{"text": "one more"}]))
    assert list(open_corpus(tmp_path)) == ["one more", *ROWS]


def test_folder_order_links_empty_parts_and_one_column_for_all(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"")
    (folder / "b.csv").write_text("text\n")
    (folder / "c.TSV").write_text("id\ttext\n1\ta cat sat\n\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.txt").write_text("a dog ran\n")
    (folder / "d").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(folder)
    assert list(open_corpus(folder)) == ROWS[:2]
    (folder / "gone.jsonl").symlink_to(tmp_path / "nothing")
    with pytest.raises(CorpusError, match=r"gone\.jsonl: links to what isn't there"):
        open_corpus(folder)
    (folder / "gone.jsonl").unlink()
    pq.write_table(pa.table({"caption": ROWS}), folder / "e.parquet")
    with pytest.raises(CorpusError, match=r"e\.parquet: no column 'text'"):
        open_corpus(folder)


def test_hundreds_of_parts(tmp_path):
    for part in range(300):
        (tmp_path / f"{part:04d}.jsonl").write_text(f'{{"text": "row {part}"}}\n')
    assert list(open_corpus(tmp_path)) == [f"row {part}" for part in range(300)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("id;text\n" + "".join(f"{i};{t}\n" for i, t in enumerate(ROWS)), "semicolons"),
        ("id;text\n" + "".join(f"{i};{t}, he said\n" for i, t in enumerate(ROWS)), "semicolons"),
        ("\ufeffsep=;\nid;text\n" + "".join(f"{i};{t}\n" for i, t in enumerate(ROWS)), "semicolons"),
        ("SEP=|\r\nid|text\r\n" + "".join(f"{i}|{t}\r\n" for i, t in enumerate(ROWS)), "vertical bars"),
        ("id\ttext\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(ROWS)), "tabs"),
        ("id|text\n" + "".join(f"{i}|{t}\n" for i, t in enumerate(ROWS)), "vertical bars"),
        ("id,text,a|b\n" + "".join(f"{i},{t},x|y\n" for i, t in enumerate(ROWS)), None),
        ("id,text\r" + "".join(f"{i},{t}\r" for i, t in enumerate(ROWS)), None),
        ("text\n" + "".join(f"{t}; {t}\n" for t in ROWS), None),
    ],
)
def test_the_delimiter_is_found_and_said(tmp_path, capsys, data, said):
    (tmp_path / "x.csv").write_text(data, encoding="utf-8", newline="")
    rows = [row.split(",")[0].split(";")[0] for row in open_corpus(tmp_path / "x.csv")]
    assert rows == ROWS
    lines = [line for line in capsys.readouterr().err.splitlines() if "lines end at CR" not in line]
    assert lines == ([f"{tmp_path}/x.csv: cells are separated by {said}"] if said else [])


def test_a_header_that_two_delimiters_split_is_refused_and_sep_decides(tmp_path):
    path = tmp_path / "x.csv"
    data = "id;title, short\n" + "".join(f"{i};{t}, x\n" for i, t in enumerate(ROWS))
    path.write_text(data)
    with pytest.raises(CorpusError, match=r"at commas and at semicolons.*first line sep=, or sep=;"):
        open_corpus(path)
    path.write_text("sep=;\n" + data)
    assert next(iter(open_corpus(path, column="title, short"))) == "a cat sat, x"
    path.write_text("sep=,\n" + data)
    assert list(open_corpus(path, column="id;title"))[1] == "1;a dog ran"


@pytest.mark.parametrize(("suffix", "first"), [("csv", '"a cat sat"'), ("csv", "cats"), ("tsv", "a cat sat")])
def test_a_file_without_a_header_keeps_its_first_row(tmp_path, suffix, first):
    path = tmp_path / f"x.{suffix}"
    body = f"{first}\n" + "".join(f"{word}\n" for word in ("dogs", "cows"))
    path.write_text(body)
    name = first.strip('"')
    with pytest.raises(CorpusError, match=f"first line '{name}' may be a row or the column's name"):
        open_corpus(path)
    assert list(open_corpus(path, column=name)) == ["dogs", "cows"]
    path.write_text("text\n" + body)
    assert list(open_corpus(path)) == [name, "dogs", "cows"]
    two = tmp_path / f"y.{suffix}"
    mark = "\t" if suffix == "tsv" else ","
    two.write_text(f"1{mark}a cat\n2{mark}a dog\n")
    with pytest.raises(CorpusError, match=r"its columns: 1, a cat.*If that is a row, write the columns' names above"):
        open_corpus(two)
    two.write_text(f"id{mark}text\n1{mark}a cat\n2{mark}a dog\n")
    assert list(open_corpus(two)) == ["a cat", "a dog"]


def test_a_usual_header_over_sentences_needs_no_option(tmp_path):
    (tmp_path / "x.csv").write_text("review\na cat sat\ncats\n")
    (tmp_path / "y.csv").write_text("caption\ncats\ndogs\n")
    assert list(open_corpus(tmp_path / "x.csv")) == ["a cat sat", "cats"]
    assert list(open_corpus(tmp_path / "y.csv")) == ["cats", "dogs"]


LITERAL = {
    "lone": ['"a cat', "b", '"c', "d"],
    "inner": ['5" pipe', "b"],
    "said": ['"a cat" he said', "b", '"yes" she said'],
    "open to the end": ["a", '"b'],
    "whole cells": ['"a quotation"', "b"],
    "across rows beside an inner one": ['"I am here.', 'I am leaving."', 'she said "no" to it'],
}


@pytest.mark.parametrize("texts", LITERAL.values(), ids=LITERAL)
def test_quotes_of_tsv_are_characters(tmp_path, texts):
    path = tmp_path / "x.tsv"
    path.write_text("id\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)))
    assert list(open_corpus(path)) == texts
    found = read_id_texts(path)
    assert (list(found.texts), found.ids) == (texts, tuple(str(i) for i in range(len(texts))))


def test_quotes_between_two_columns_of_tsv_are_characters(tmp_path):
    (tmp_path / "x.tsv").write_text('sentence1\tsentence2\tscore\n"a\tb"\t1\nc\td\t2\ne\tf\t3\n')
    assert read_sts_file(tmp_path / "x.tsv").sentence1 == ('"a', "c", "e")


ENCLOSING = {
    "doubled": 'id\ttext\n1\t"say ""no"" to it"\n2\tb\n',
    "a tab": 'id\ttext\n1\t"a\tb"\n2\tb\n',
    "a line end": 'id\ttext\n1\t"a\nb"\n2\tb\n',
    "a line end in the first column": 'text\tid\n"a\n\nb"\t1\nb\t2\n',
    "header": '"id"\t"text"\n"1"\t"a"\n"2"\t"b"\n',
}


FIRST = dict(zip(ENCLOSING.values(), ['say "no" to it', "a\tb", "a\nb", "a\n\nb", "a"], strict=True))


@pytest.mark.parametrize("data", ENCLOSING.values(), ids=ENCLOSING)
def test_quotes_of_tsv_enclose_cells_where_the_file_shows_it(tmp_path, capsys, data):
    (tmp_path / "x.tsv").write_text(data)
    rows = list(open_corpus(tmp_path / "x.tsv"))
    assert rows == [FIRST[data], "b"]
    assert capsys.readouterr().err == f"{tmp_path}/x.tsv: quotes enclose cells\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('id\ttext\n1\t"I am here.\n2\tI am leaving."\n', "from line 2 to the next quotation mark"),
        ('text\n"I am here.\nI am leaving."\n', "from line 2 to the next quotation mark"),
        ('id\ttext\n1\t"a"\n2\t"b"\n', "each row's cell 2 is in quotes"),
    ],
)
def test_tsv_that_can_be_read_both_ways_is_refused_until_it_is_decided(tmp_path, data, words):
    path = tmp_path / "x.tsv"
    path.write_text(data)
    for read in (open_corpus, lambda file: read_id_texts(file, need_ids=False)):
        with pytest.raises(CorpusError, match=words) as error:
            read(path)
        assert "enclose the header's names" in str(error.value)
    header, body = data.split("\n", 1)
    path.write_text("\t".join(f'"{name}"' for name in header.split("\t")) + "\n" + body)
    assert all('"' not in row for row in open_corpus(path))


def test_tsv_that_shows_both_is_refused(tmp_path):
    (tmp_path / "x.tsv").write_text('text\n5" pipe\n"say ""no"""\n')
    with pytest.raises(
        CorpusError, match=r"characters in line 2 and enclose a cell in line 3. Write the file as jsonl"
    ):
        open_corpus(tmp_path / "x.tsv")


def test_csv_cells_with_line_ends_and_of_megabytes(tmp_path):
    long = "x" * (2 << 20)
    (tmp_path / "x.csv").write_text(f'id,text\n1,"a\nb"\n2,"{long}"\n')
    assert list(open_corpus(tmp_path / "x.csv", max_characters=4 << 20)) == ["a\nb", long]
    with pytest.raises(CorpusError, match="row 2 has 2,097,152 characters"):
        read_id_texts(tmp_path / "x.csv")


@pytest.mark.parametrize("data", ["a,1\nb\n", "a,1\nb,2,3\n"])
def test_ragged_rows_and_columns_of_one_name(tmp_path, data):
    (tmp_path / "x.csv").write_text("text,n\n" + data)
    with pytest.raises(CorpusError, match="row 2: expected 2 cells"):
        list(open_corpus(tmp_path / "x.csv"))
    (tmp_path / "y.csv").write_text("text,text\n" + "a,1\n")
    with pytest.raises(CorpusError, match=r"2 columns are called 'text'. Give each its own name"):
        open_corpus(tmp_path / "y.csv")


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_json_however_it_is_laid_out(tmp_path, monkeypatch, name, indent, mark):
    monkeypatch.setattr("consilience.corpora.json_rows._CHUNK", 16)
    objects = [{"text": text, "meta": {"tags": ["a", "]"]}} for text in [*ROWS, '} "quoted" {', "x" * 500]]
    expected = [row["text"] for row in objects]
    array = json.dumps(objects, indent=indent)
    each = "\n".join(json.dumps(row, indent=indent) for row in objects)
    for data in (array, array + "\n \n", each, each + "\n\n", " \n" + each):
        (tmp_path / name).write_text(mark + data, encoding="utf-8")
        assert list(open_corpus(tmp_path / name)) == expected
    (tmp_path / name).write_text("[]")
    with pytest.raises(CorpusError, match="empty corpus"):
        list(open_corpus(tmp_path / name))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('[{"text": "a"}, {"text": "b"}', "behind row 2: expected ',' or ']', got the file's end"),
        ('[{"text": "a"} {"text": "b"}]', "behind row 1: expected ',' or ']', got '{'"),
        ('[{"text": "a"},]', "row 2: isn't JSON"),
        ('[{"text": "a"}] x', "behind row 1: expected ',' or ']', got 'x'"),
        ('{"text": {"0": "a", "1": "b"}}', "row 1: column 'text': expected text, got dict"),
    ],
)
def test_json_that_is_no_rows(tmp_path, data, words):
    (tmp_path / "x.json").write_text(data)
    with pytest.raises(CorpusError, match=re.escape(words)):
        list(open_corpus(tmp_path / "x.json"))


def test_missing_keys_nulls_nan_and_surrogates_are_faults_of_their_row(tmp_path):
    (tmp_path / "sparse.jsonl").write_text('{"id": 0}\n' * 150 + '{"id": 1, "text": "a cat"}\n{"id": 2}\n')
    (tmp_path / "nan.jsonl").write_text('{"text": "a cat"}\n{"text": NaN}\n{"text": null}\n')
    (tmp_path / "surrogate.jsonl").write_text('{"text": "a cat"}\n{"text": "\\ud83d broken"}\n')
    for name, word in (
        ("sparse", "row 1 is empty"),
        ("nan", "row 2 is empty"),
        ("surrogate", "row 2 isn't valid UTF-8"),
    ):
        assert list(open_corpus(tmp_path / f"{name}.jsonl", column="text", on_fault="drop")) == ["a cat"]
        with pytest.raises(CorpusError, match=word):
            list(open_corpus(tmp_path / f"{name}.jsonl", column="text"))
    assert list(open_corpus(["a cat", float("nan"), None], on_fault="drop")) == ["a cat"]
    with pytest.raises(CorpusError, match="no column 'nosuch'; its columns: id"):
        open_corpus(tmp_path / "sparse.jsonl", column="nosuch")
    with pytest.raises(CorpusError, match="row 1: column 'id': expected text, got int"):  # the only key of its start
        open_corpus(tmp_path / "sparse.jsonl")
    (tmp_path / "late.jsonl").write_text('{"a": "x"}\n' * 150 + '{"a": "x", "b": "y"}\n')
    with pytest.raises(CorpusError, match=r"row 151 has the columns b beside 'a'.*Choose one with --column"):
        list(open_corpus(tmp_path / "late.jsonl"))
    assert len(list(open_corpus(tmp_path / "late.jsonl", column="a"))) == 151


def test_rows_that_end_at_cr(tmp_path, capsys):
    (tmp_path / "mac.txt").write_bytes("\r".join(ROWS).encode())
    (tmp_path / "mac.tsv").write_bytes(("id\ttext\r" + "".join(f"1\t{row}\r" for row in ROWS)).encode())
    (tmp_path / "mac.csv").write_bytes(("text\r" + "".join(f'"{row}"\r' for row in ROWS)).encode())
    for name in ("mac.txt", "mac.tsv", "mac.csv"):
        assert list(open_corpus(tmp_path / name)) == ROWS
        assert f"{name}: has no LF, so its lines end at CR" in capsys.readouterr().err
    (tmp_path / "mixed.txt").write_bytes(b"x\r" * 40_000 + b"y\nz\r")
    with pytest.raises(CorpusError, match="line 40001: lines end at CR, and at LF from here on"):
        list(open_corpus(tmp_path / "mixed.txt"))
    (tmp_path / "kept.txt").write_bytes(b"a\rb\nc\r\n")
    assert list(open_corpus(tmp_path / "kept.txt")) == ["a\rb", "c"]


TYPES = {
    "string_view": pa.string_view(),
    "large_string": pa.large_string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather", "ipc"])
@pytest.mark.parametrize("kind", TYPES)
def test_text_in_any_of_arrows_types(tmp_path, suffix, kind):
    column = pa.array([*ROWS, None]).cast(TYPES[kind])
    table = pa.table({"id": pa.array(range(5)), "text": column})
    path = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    elif suffix == "feather" and kind != "string_view":
        pyarrow.feather.write_feather(table, path)
    else:
        writer = pa.ipc.new_stream if suffix == "ipc" else pa.ipc.new_file
        with writer(str(path), table.schema) as sink:
            sink.write_table(table)
    assert list(open_corpus(path, on_fault="drop")) == ROWS
    assert list(open_corpus(path, where={"id": "1"})) == ROWS[1:2]
    with pytest.raises(CorpusError, match=r"column 'id': expected text, got int64. Its text columns: text"):
        open_corpus(path, column="id")


def test_columns_that_are_no_text_are_refused_by_every_reader(tmp_path):
    table = pa.table(
        {
            "id": [1, 2],
            "bytes": [b"a", b"b"],
            "list": [["a"], ["b"]],
            "struct": [{"text": "a"}, {"text": "b"}],
            "number": [1.5, 2.5],
            "words": ["a", "b"],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    for column in ("bytes", "list", "struct", "number"):
        for read in (
            lambda name=column: open_corpus(tmp_path / "x.parquet", column=name),
            lambda name=column: read_id_texts(tmp_path / "x.parquet", column=name),
            lambda name=column: open_pairs(tmp_path / "x.parquet", left=name, right="words"),
        ):
            with pytest.raises(CorpusError, match=f"column '{column}': expected text, got .*Its text columns: words"):
                read()
    with pytest.raises(
        CorpusError, match=r"no column 'text'; its columns: id, bytes, list, .*Choose one with --column"
    ):
        open_corpus(tmp_path / "x.parquet")


def test_types_that_differ_between_parts_are_refused(tmp_path):
    pq.write_table(pa.table({"text": ROWS}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": pa.array(ROWS, pa.large_string())}), tmp_path / "b.parquet")
    assert list(open_corpus(tmp_path)) == ROWS * 2
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "c.parquet")
    with pytest.raises(CorpusError, match=r"c\.parquet: column 'text': expected text, got int64"):
        open_corpus(tmp_path)


def test_what_a_name_does_not_say(tmp_path):
    pq.write_table(pa.table({"text": ROWS}), tmp_path / "blob")
    assert list(open_corpus(tmp_path / "blob")) == ROWS
    assert read_id_texts(tmp_path / "blob", need_ids=False).texts == tuple(ROWS)
    (tmp_path / "lines").write_text("a\nb\n")
    assert list(open_corpus(tmp_path / "lines")) == ["a", "b"]
    (tmp_path / "rows").write_bytes(json_lines())
    with pytest.raises(CorpusError, match=r"rows: holds JSON. Name it \.jsonl .*or \.txt"):
        open_corpus(tmp_path / "rows")
    (tmp_path / "rows").rename(tmp_path / "rows.txt")
    assert len(list(open_corpus(tmp_path / "rows.txt"))) == 4
    tar = bytearray(65_536)
    tar[:] = b"text " * 13_107 + b"x"
    tar[257:262] = b"ustar"
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress(bytes(tar)))
    with pytest.raises(CorpusError, match="found a tar archive"):
        open_corpus(tmp_path / "x.txt.gz")


@pytest.mark.parametrize(
    ("data", "options", "rows"),
    [
        (b"one\ntwo\n", {}, ["one", "two"]),
        (gzip.compress(b"one\ntwo\n", mtime=0), {}, ["one", "two"]),
        (b"id\tt\n1\tone\n", {"column": "t"}, ["one"]),
        (b"id;t\n1;one\n", {"column": "t"}, ["one"]),
        (b'[{"t": "one"}]', {"column": "t"}, ["one"]),
    ],
)
def test_standard_input(monkeypatch, data, options, rows):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert list(open_corpus("-", **options)) == rows


def test_standard_input_of_json_needs_a_column(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json_lines())))
    with pytest.raises(CorpusError, match=r"standard input: holds JSON. Name a column of it with --column"):
        open_corpus("-")


def test_python_objects_that_iterate_over_names_are_refused():
    class Frame(dict):
        columns = ("text",)

    for rows in ({"text": ROWS}, Frame(text=ROWS), pa.table({"text": ROWS})):
        with pytest.raises(ConsilienceError, match=r"Give (one column of it as a list|a list of str)"):
            open_corpus(rows)
    assert list(open_corpus(pa.table({"text": ROWS})["text"].to_pylist())) == ROWS


def test_samples_are_read_as_corpora_are(tmp_path):
    lines = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(ROWS))
    (tmp_path / "bom.jsonl").write_text("\ufeff" + lines, encoding="utf-8")
    (tmp_path / "bom.csv").write_text(
        "\ufeffid,text\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(ROWS)), encoding="utf-8"
    )
    packed(tmp_path / "x.jsonl.zst", lines.encode())
    for name in ("bom.jsonl", "bom.csv", "x.jsonl.zst"):
        found = read_id_texts(tmp_path / name)
        assert (found.ids, found.texts) == (("0", "1", "2", "3"), tuple(ROWS))


@pytest.mark.parametrize("value", ["7.0", "NaN", "null", "true", '[""]', '""'])
def test_ids_are_text_or_whole_numbers(tmp_path, value):
    (tmp_path / "x.jsonl").write_text(f'{{"id": 7, "text": "a"}}\n{{"id": {value}, "text": "b"}}\n')
    with pytest.raises(CorpusError, match="row 2: column 'id': expected an id, text or a whole number, got"):
        read_id_texts(tmp_path / "x.jsonl")
    assert read_id_texts(tmp_path / "x.jsonl", id_column="none", need_ids=False).texts == ("a", "b")
    pq.write_table(pa.table({"id": [7.0], "text": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(CorpusError, match=r"got float '7.0'"):
        read_id_texts(tmp_path / "x.parquet")


def test_pairs_and_test_sets_of_every_form(tmp_path):
    pairs = [(f"a cat number {i}", f"the {i}th cat, here") for i in range(20)]
    rows = [{"sentence1": a, "sentence2": b, "score": i} for i, (a, b) in enumerate(pairs)]
    objects = [{"sentence1": a, "sentence2": b} for a, b in pairs]
    (tmp_path / "p.json").write_text(json.dumps(objects, indent=1))
    (tmp_path / "p.csv").write_text("sentence1;sentence2\n" + "".join(f"{a};{b}\n" for a, b in pairs))
    packed(tmp_path / "p.jsonl.xz", "".join(json.dumps(row) + "\n" for row in objects).encode())
    (tmp_path / "nan.jsonl").write_text('{"sentence1": NaN, "sentence2": "b"}\n' + "\n".join(map(json.dumps, objects)))
    expected = open_pairs(pairs).fingerprint
    assert {open_pairs(tmp_path / name).fingerprint for name in ("p.json", "p.csv", "p.jsonl.xz")} == {expected}
    assert open_pairs(tmp_path / "nan.jsonl", on_fault="drop").fingerprint == expected
    (tmp_path / "sts").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "sts" / "sts12.parquet")
    packed(tmp_path / "sts" / "sts13.jsonl.gz", "".join(json.dumps(row) + "\n" for row in rows).encode())
    tasks = load_sts_folder(tmp_path, ["sts12", "sts13"])
    assert [task.name for task in tasks] == ["sts12", "sts13"]
    assert all(list(zip(task.sentence1, task.sentence2, strict=True)) == pairs for task in tasks)
    assert len(read_held_out([tmp_path])) == 40
    with pytest.raises(CorpusError, match=r"pair 1: holds a sentence of sts12\.parquet"):
        open_pairs(pairs, held_out=read_held_out([tmp_path]))


def test_the_docs_list_every_suffix():
    text = (Path(__file__).parents[3] / "docs" / "inputs.md").read_text(encoding="utf-8")
    listed = {}
    for line in text[text.index("| format |") :].split("\n\n")[0].splitlines()[2:]:
        kind, suffixes = line.split("|")[1:3]
        listed |= dict.fromkeys(re.findall(r"`(\.\w+)`", suffixes), kind.strip())
    assert listed == SUFFIXES
    sentence = next(line for line in text.splitlines() if line.startswith("Suffixes are read"))
    assert re.findall(r"`(\.\w+)`", sentence) == list(COMPRESSIONS)


def test_a_bare_cr_in_an_lf_csv_is_refused_outside_quotes(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"text\na\rb c\nd\n")
    with pytest.raises(CorpusError, match="line 2: malformed csv"):
        list(open_corpus(tmp_path / "x.csv"))
    (tmp_path / "x.csv").write_bytes(b'text\n"a\rb c"\nd\n')  # the error's fix
    assert list(open_corpus(tmp_path / "x.csv")) == ["a\rb c", "d"]


def test_a_filter_on_a_column_that_is_missing_names_its_own_option(tmp_path):
    (tmp_path / "a.csv").write_text("lang,text\nen,a cat\n")
    with pytest.raises(CorpusError, match=r"no column 'language'; its columns: lang, text. Choose one with --where"):
        open_corpus(tmp_path / "a.csv", where={"language": "en"})
    assert list(open_corpus(tmp_path / "a.csv", where={"lang": "en"})) == ["a cat"]


def test_an_empty_path_is_not_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "x.txt").write_text("not asked for\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match="corpus: expected a path, got an empty one"):
        open_corpus("")
    with pytest.raises(CorpusError, match="held-out sentences: expected a path, got an empty one"):
        read_held_out([""])


@pytest.mark.parametrize("layout", ["lines", "array"])
def test_a_name_twice_in_one_object_is_refused(tmp_path, layout):
    rows = '{"text": "a cat"}', '{"text": "a dog", "text": "a cow"}'
    (tmp_path / "a.json").write_text("\n".join(rows) if layout == "lines" else f"[{', '.join(rows)}]")
    with pytest.raises(CorpusError, match="'text' is there twice in one object; give each value its own name"):
        list(open_corpus(tmp_path / "a.json"))


def test_a_file_beside_its_compressed_form_is_refused(tmp_path):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in ROWS)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    with pytest.raises(CorpusError, match=r"a\.jsonl\.gz: lies beside a\.jsonl, .*Move one of them away"):
        open_corpus(tmp_path)
    (tmp_path / "a.jsonl").rename(tmp_path.parent / f"{tmp_path.name}.jsonl")
    assert list(open_corpus(tmp_path)) == ROWS * 2


def test_blanks_around_a_columns_name_are_shown(tmp_path):
    (tmp_path / "a.csv").write_text("id, text\n1,a cat\n2,a dog\n")
    with pytest.raises(CorpusError, match=r"its columns: id, ' text'"):
        open_corpus(tmp_path / "a.csv")
    assert list(open_corpus(tmp_path / "a.csv", column=" text")) == ["a cat", "a dog"]
