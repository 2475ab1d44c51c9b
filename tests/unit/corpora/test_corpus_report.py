"""The report's numbers by hand, the comparison's verdict, and both verbs of the command line."""

import json

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.core.errors import CorpusError, InputError
from consilience.corpora.corpus_report import compare_reports, report_corpus
from consilience.corpora.text import open_corpus
from consilience.recipes.grammar import grammar

FAULTY = b"a cat\na black dog\n\n  \na cat\nx\0y\ncaf\xe9\n" + b"z" * 60 + b"\nna\xc3\xafve\n"


def test_report_counts_by_hand(tmp_path):
    (tmp_path / "x.txt").write_bytes(FAULTY)
    report = report_corpus(
        open_corpus(tmp_path / "x.txt", max_characters=50), lambda texts: [len(t.split()) for t in texts]
    )
    assert (report.rows, report.empties, report.duplicates, report.undecodable) == (9, 2, 1, 1)
    assert (report.nul, report.too_long, report.faults) == (1, 1, 5)
    assert report.non_ascii_share == pytest.approx(2 / 9)
    assert (report.characters.max, report.words.max, report.words.p50) == (60, 3, 1)
    assert report.tokens is not None
    assert report.tokens.mean == pytest.approx((2 + 3 + 2 + 1) / 4)
    assert report.first_fault is not None
    assert report.first_fault.endswith("row 3: empty")
    json.dumps(report.to_json(), allow_nan=False)


def test_comparison_is_judged_on_the_tail_not_the_mean():
    base = report_corpus(open_corpus(["x" * 10] * 980 + ["x" * 100] * 20))
    shorter_mean = report_corpus(open_corpus(["x" * 2] * 980 + ["x" * 100] * 20))
    longer_tail = report_corpus(open_corpus(["x" * 10] * 980 + ["x" * 140] * 20))
    assert not compare_reports(base, shorter_mean).shifted
    moved = compare_reports(base, longer_tail)
    assert moved.shifted
    assert "characters" in moved.verdict
    assert [shift.shifted for shift in moved.measures] == [True, False]


def test_report_of_nothing_is_refused():
    with pytest.raises(CorpusError, match="empty corpus"):
        report_corpus(open_corpus([]))


def test_corpus_command(tmp_path):
    (tmp_path / "x.txt").write_bytes(FAULTY)
    (tmp_path / "y.csv").write_text("text,k\na cat,1\na dog,2\n")
    result = CliRunner().invoke(app, ["corpus", str(tmp_path / "x.txt"), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["faults"] == 4
    arguments = ["corpus", str(tmp_path / "y.csv"), "--where", "k=2", "--against", str(tmp_path / "y.csv"), "--json"]
    body = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert body["rows"] == 1
    assert body["comparison"]["shifted"] is False
    table = CliRunner().invoke(app, ["corpus", str(tmp_path / "x.txt")])
    assert "first fault" in table.stdout
    for bad in (["nosuch"], [str(tmp_path / "y.csv"), "--column", "z"], [str(tmp_path / "y.csv"), "--where", "k"]):
        assert isinstance(CliRunner().invoke(app, ["corpus", *bad]).exception, (CorpusError, InputError))


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet"])
def test_grammar_files_hold_the_same_captions(tmp_path, suffix):
    first = grammar(200, tmp_path / "a.txt", seed=4)
    path = grammar(200, tmp_path / f"b{suffix}", seed=4)
    assert list(open_corpus(path)) == list(open_corpus(first))
    if suffix == ".parquet":
        assert pq.read_metadata(path).num_rows == 200


def test_grammar_command(tmp_path):
    out = tmp_path / "pairs.tsv"
    result = CliRunner().invoke(app, ["grammar", "50", "--pairs", "--out", str(out)])
    assert result.exit_code == 0, result.output
    lines = out.read_text().split("\n")
    assert lines[0] == "sentence1\tsentence2\tscore\tsubset"
    assert len(lines) == 52
    assert all(len(line.split("\t")) == 4 and 0 <= float(line.split("\t")[2]) <= 5 for line in lines[1:-1])
    for bad in (["0", "--out", "x.txt"], ["5", "--out", "x.doc"], ["5", "--out", str(tmp_path / "no" / "x.txt")]):
        arguments = ["grammar", bad[0], "--out", str(tmp_path / bad[2])]
        assert isinstance(CliRunner().invoke(app, arguments).exception, InputError)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]
    with pytest.raises(InputError, match="already exists"):
        grammar(5, out, pairs=True)
