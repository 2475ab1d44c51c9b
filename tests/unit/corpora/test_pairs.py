import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.core.errors import CorpusError, InputError
from consilience.corpora.contamination import HeldOutSentences, exact_key, near_key, read_held_out
from consilience.corpora.pairs import open_pairs

DATA = Path(os.environ.get("CONSILIENCE_DATA", ""))
GOOD = [(f"a cat number {i}", f"the {i}th cat is here") for i in range(20)]


def test_formats_give_the_same_fingerprint(tmp_path):
    left, right = zip(*GOOD, strict=True)
    pq.write_table(pa.table({"sentence1": left, "sentence2": right}), tmp_path / "p.parquet")
    lines = [json.dumps({"sentence1": a, "sentence2": b}) for a, b in GOOD]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "p.csv").write_text("sentence1,sentence2\n" + "".join(f'"{a}","{b}"\n' for a, b in GOOD))
    (tmp_path / "p.tsv").write_text("x\tsentence1\tsentence2\n" + "".join(f"0\t{a}\t{b}\n" for a, b in GOOD))
    found = {open_pairs(tmp_path / f"p.{kind}").fingerprint for kind in ("parquet", "jsonl", "csv", "tsv")}
    assert found == {open_pairs(GOOD).fingerprint}
    assert open_pairs(tmp_path / "p.csv", limit=17).report.rows == 17
    assert open_pairs(tmp_path / "p.csv", left="sentence2", right="sentence1").fingerprint not in found


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ((None, "x"), "column sentence1 is null"),
        (("x", float("nan")), "column sentence2 is null"),
        (("", "x"), "column sentence1 is empty"),
        (("x", "a\0b"), "NUL"),
        (("x", 3), "expected text, got int 3"),
        (("x", "..."), "no letter or digit"),
        (("A cat!", "a cat"), "two views of one text"),
    ],
)
def test_a_bad_pair_is_refused_or_dropped(bad, words):
    with pytest.raises(CorpusError, match="pair 3: ") as refused:
        open_pairs([*GOOD[:2], bad, *GOOD[2:]])
    assert words in str(refused.value)
    report = open_pairs([*GOOD[:2], bad, *GOOD[2:]], on_fault="drop").report
    assert (report.kept, report.faulty + report.identical) == (20, 1)


def test_null_cells_of_a_parquet_file_are_refused(tmp_path):
    table = pa.table({"sentence1": [*"abcdefghijklmnopqr"], "sentence2": [None] * 18})
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(CorpusError, match="pair 1: column sentence2 is null"):
        open_pairs(tmp_path / "p.parquet")


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([], "the file has no rows"),
        ([("one class", f"text {i}") for i in range(30)], "one class"),
        ([("a", "b")] * 30, "one class"),
        (GOOD[:9], "at least 16 pairs"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(pairs, words):
    with pytest.raises(CorpusError, match=words):
        open_pairs(pairs)


def test_files_that_are_no_pairs(tmp_path):
    for name, text, words in (
        ("none.csv", None, "no such file"),
        ("a.docx", "x", "expected a file with columns"),
        ("a.csv", "text,other\n1,2\n", "no column 'sentence1' and no column 'sentence2'; its columns: text, other"),
        ("a.parquet", "nothing", "can't be read as parquet"),
        ("a.jsonl", "[1]\n", "expected a JSON object"),
        ("b.jsonl", "{\n", "isn't JSON"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(CorpusError, match=words):
            open_pairs(tmp_path / name)
    with pytest.raises(InputError, match="limit"):
        open_pairs(GOOD, limit=0)


def test_repeated_pairs_are_left_out_in_either_order():
    report = open_pairs([*GOOD, GOOD[3], GOOD[5][::-1]]).report
    assert (report.rows, report.kept, report.repeated) == (22, 20, 2)


def test_keys():
    assert exact_key("A man's dog ,") == exact_key("a mans dog")
    assert near_key("the dog and a man") == near_key("man and dog")
    assert near_key("the dog") is None
    tested = HeldOutSentences([("x.tsv", "A man rides the horse."), ("x.tsv", "dog")])
    assert tested.find("a man rides a horse") == "x.tsv"  # near
    assert tested.find("DOG") == "x.tsv"
    assert tested.find("a dog") is None  # exact has the article, near needs two words


def test_a_test_sentence_in_the_pairs_is_refused(tmp_path):
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "stsb-dev.tsv").write_text('sentence1\tsentence2\tscore\nA dog runs.\tThe cat\tis "here"\n')
    (tmp_path / "more.txt").write_text("someone whispers\n")
    tested = read_held_out([tmp_path, tmp_path / "more.txt"])
    assert len(tested) == 3
    dirty = [*GOOD, ("two words", "a dog runs")]
    with pytest.raises(CorpusError, match=r"pair 21: holds a sentence of stsb-dev\.tsv"):
        open_pairs(dirty, held_out=tested)
    report = open_pairs(dirty, held_out=tested, on_fault="drop").report
    assert (report.kept, report.contaminated, report.held_out) == (20, 1, 3)
    with pytest.raises(CorpusError, match="found none"):
        read_held_out([tmp_path / "nothing"])
    (tmp_path / "sts" / "bad.tsv").write_text("a\tb\n")
    with pytest.raises(
        CorpusError, match="expected a column sentence1, sentence2, sentence or text; its columns: a, b"
    ):
        read_held_out([tmp_path])


@pytest.mark.data("pairs", "sts")
def test_the_shared_pairs_are_clean_and_a_polluted_file_is_not(tmp_path):
    tested = read_held_out([DATA])
    clean = open_pairs(DATA / "pairs" / "equivalence.parquet", limit=5000, held_out=tested)
    assert clean.report.contaminated == 0
    assert clean.report.held_out == 29_103  # distinct exact keys that the data's README counts
    row = (DATA / "sts" / "sts15.tsv").read_text().split("\n")[5].split("\t")
    polluted = [*zip(clean.left[:100], clean.right[:100], strict=True), ("something else", max(row, key=len).upper())]
    with pytest.raises(CorpusError, match=r"pair 101: holds a sentence of \S+\.tsv"):
        open_pairs(polluted, held_out=tested)


def test_a_label_in_any_row_of_jsonl_is_refused_and_blank_lines_hide_nothing(tmp_path):
    lines = [json.dumps({"sentence1": a, "sentence2": b}) for a, b in GOOD]
    path = tmp_path / "p.jsonl"
    path.write_text("\n" + "\n".join([*lines[:9], lines[9][:-1] + ', "Score": 0.1}', *lines[10:]]) + "\n")
    with pytest.raises(CorpusError, match="got the column Score"):
        open_pairs(path)
    path.write_text("\n" + "\n".join(line.replace("sentence1", "a") for line in lines) + "\n")
    with pytest.raises(CorpusError, match="no column 'sentence1'; its columns: a, sentence2"):
        open_pairs(path)
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(CorpusError, match="row 1: isn't JSON"):
        open_pairs(path)


def test_a_column_that_exists_twice_is_refused(tmp_path):
    texts = [pa.array(side) for side in zip(*GOOD, strict=True)]
    table = pa.Table.from_arrays([*texts, texts[1]], names=["sentence1", "sentence2", "sentence2"])
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(CorpusError, match="2 columns are called 'sentence2'"):
        open_pairs(tmp_path / "p.parquet")


def test_rows_in_memory_that_are_no_pairs_are_named():
    with pytest.raises(CorpusError, match="pair 21: expected two texts"):
        open_pairs([*GOOD, ("a", "b", "c")])
