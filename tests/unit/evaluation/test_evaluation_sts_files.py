import numpy as np
import pytest

from consilience.core.errors import ConsilienceError, CorpusError, InputError
from consilience.evaluation.sts import (
    REPORTED_TASKS,
    StsTask,
    load_selection_task,
    load_sts_folder,
    read_sts_file,
)

HEADER = "sentence1\tsentence2\tscore\tsubset\n"


def write(path, rows, header=HEADER):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((header + "".join(row + "\n" for row in rows)).encode())
    return path


def rows(count=3):
    return [f"a {i}\tb {i}\t{i}\tall" for i in range(count)]


def test_quotes_and_unusual_line_separators_stay_in_the_text(tmp_path):
    path = write(tmp_path / "t.tsv", ['say "no\tone "quote\t1.5\tx', "a\u2028b\tform\x0cfeed \t2\tx", "c\r\td\t3\tx"])
    task = read_sts_file(path)
    assert task.sentence1 == ('say "no', "a\u2028b", "c\r")
    assert task.sentence2 == ('one "quote', "form\x0cfeed ", "d")
    assert task.score.tolist() == [1.5, 2.0, 3.0]
    assert task.name == "t"


def test_last_line_without_newline_is_read(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text(HEADER + "\n".join(rows(4)), encoding="utf-8")
    assert len(read_sts_file(path)) == 4


def test_columns_are_found_by_name(tmp_path):
    path = write(tmp_path / "t.tsv", ["1\tx\ty", "2\tx\tz", "3\tw\ty"], header="score\tsentence2\tsentence1\n")
    task = read_sts_file(path)
    assert task.sentence1 == ("y", "z", "y")
    assert task.sentence2 == ("x", "x", "w")


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ("only one cell", "row 2: expected 4 cells, got 1"),
        ("a\tb\tmany\tx", "row 2: a finite number expected as score, got 'many'"),
        ("a\tb\tnan\tx", "row 2: a finite number"),
        ("a\tb\t1_0\tx", "row 2: a finite number expected as score, got '1_0'"),
    ],
)
def test_a_malformed_row_is_named(tmp_path, bad, named):
    path = write(tmp_path / "t.tsv", [rows(1)[0], bad, *rows(3)])
    with pytest.raises(ConsilienceError, match=named):
        read_sts_file(path)


def test_faulty_files(tmp_path):
    with pytest.raises(CorpusError, match="no such file"):
        read_sts_file(tmp_path / "absent.tsv")
    (tmp_path / "latin.tsv").write_bytes(HEADER.encode() + b"caf\xe9\tb\t1\tx\n")
    with pytest.raises(InputError, match="UTF-8 expected"):
        read_sts_file(tmp_path / "latin.tsv")
    write(tmp_path / "cols.tsv", ["a\tb"], header="sentence1\tsentence2\n")
    with pytest.raises(CorpusError, match="no column 'score'; its columns: sentence1, sentence2"):
        read_sts_file(tmp_path / "cols.tsv")
    (tmp_path / "empty.tsv").write_bytes(b"")
    with pytest.raises(CorpusError, match="no column 'sentence1'"):
        read_sts_file(tmp_path / "empty.tsv")
    write(tmp_path / "short.tsv", rows(2))
    with pytest.raises(InputError, match="at least 3 pairs"):
        read_sts_file(tmp_path / "short.tsv")
    write(tmp_path / "flat.tsv", [f"a\tb {i}\t2.5\tx" for i in range(3)])
    with pytest.raises(InputError, match=r"task flat \(file:flat\.tsv\).*all are 2\.5"):
        read_sts_file(tmp_path / "flat.tsv")


@pytest.mark.parametrize("inside", ["sts", ""])
def test_folder_in_the_order_of_the_tables(tmp_path, inside):
    for name in [*sorted(REPORTED_TASKS), "stsb-dev", "stsb-train"]:
        write(tmp_path / inside / f"{name}.tsv", rows())
    assert tuple(task.name for task in load_sts_folder(tmp_path)) == REPORTED_TASKS
    assert load_selection_task(tmp_path).name == "stsb-dev"


def test_missing_files_are_all_named(tmp_path):
    write(tmp_path / "sts" / "sts12.tsv", rows())
    with pytest.raises(InputError, match=r"stsb-test\.tsv, sick-r\.tsv, sts13\.tsv.*missing.*--data"):
        load_sts_folder(tmp_path)
    assert [task.name for task in load_sts_folder(tmp_path, ["sts12"])] == ["sts12"]
    assert load_selection_task(tmp_path) is None


def test_folder_without_tasks(tmp_path):
    with pytest.raises(InputError, match="CONSILIENCE_DATA"):
        load_sts_folder(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        load_sts_folder(tmp_path / "absent")


def test_task_refuses_columns_of_unequal_length():
    with pytest.raises(InputError, match="one length"):
        StsTask("t", ("a",) * 3, ("b",) * 3, np.zeros(2), "", "")
