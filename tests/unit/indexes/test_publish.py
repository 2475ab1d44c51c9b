"""Complete or absent: files and folders under a temporary name."""

import subprocess
import sys

import numpy as np
import pytest

from consilience.core.errors import InputError, ResumeError
from consilience.indexes.open import open_index, plan_target, write_index
from consilience.indexes.publish import published, require_new


def test_success_leaves_the_output_alone(tmp_path):
    out = tmp_path / "deep" / "out"
    with published(out) as partial:
        partial.mkdir()
        (partial / "a").write_text("1")
        assert not out.exists()
    assert (out / "a").read_text() == "1"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def write_and_fail(out):
    with published(out) as partial:
        partial.write_text("half")
        raise RuntimeError("stop")


def test_an_exception_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError, match="stop"):
        write_and_fail(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_dropped(tmp_path):
    code = (
        "import os, pathlib, sys; from consilience.indexes.publish import published; "
        "stack = published(pathlib.Path(sys.argv[1])); stack.__enter__().write_text('half'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "out"], check=False).returncode == 9
    assert (tmp_path / "out.partial" / "index" / "out").read_text() == "half"
    with published(tmp_path / "out") as partial:
        assert not partial.exists()
        partial.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def write_once_more(out):
    with published(out):
        pytest.fail("two writers")


def test_a_second_writer_is_refused_and_the_first_undisturbed(tmp_path):
    with published(tmp_path / "out") as partial:
        partial.write_text("first")
        with pytest.raises(ResumeError, match="another process is writing it"):
            write_once_more(tmp_path / "out")
        assert partial.read_text() == "first"
    assert (tmp_path / "out").read_text() == "first"


def write_beside_another(out):
    with published(out) as partial:
        partial.write_text("ours")
        out.write_text("theirs")


def test_what_appeared_meanwhile_is_kept(tmp_path):
    with pytest.raises(ResumeError, match="was made while this job ran"):
        write_beside_another(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_source_and_what_exists_are_refused(tmp_path):
    source, other = tmp_path / "source", tmp_path / "other"
    source.mkdir()
    other.write_text("")
    (tmp_path / "link").symlink_to(source)
    for out in (source, tmp_path / "x" / ".." / "source", tmp_path / "link", source / "inside"):
        with pytest.raises(InputError, match="is the source index or lies in it"):
            require_new(out, source)
    with pytest.raises(InputError, match="already exists"):
        require_new(other, source)


def test_nothing_heavy_is_imported_at_the_start():
    code = (
        "import sys, consilience.indexes.open, consilience.indexes.npy_index, consilience.indexes.parquet_index, "
        "consilience.indexes.faiss_index, consilience.indexes.lance_index, consilience.indexes.qdrant_index, "
        "consilience.indexes.pgvector_write; "
        "print(sorted({'faiss', 'lancedb', 'qdrant_client', 'psycopg', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize("theirs", ["{}.partial", "{}.partial.lock", "{}.partial/plan.json", "{}.ids.txt.partial"])
def test_somebodys_files_beside_a_new_index_are_kept(tmp_path, kind, theirs):
    np.save(tmp_path / "v.npy", np.eye(8, dtype=np.float32))
    (tmp_path / "v.npy.ids.txt").write_text("".join(f"{i}\n" for i in range(8)))
    file = tmp_path / theirs.format(f"w.{kind}")
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    source, out = open_index(str(tmp_path / "v.npy")), f"{kind}:{tmp_path / f'w.{kind}'}"
    if f"w.{kind}.partial" in (file.name, file.parent.name):
        for call in (plan_target, lambda *words: write_index(*words, lambda rows: rows, dimensions=8)):
            with pytest.raises(ResumeError, match="Move it away or choose another --rewrite"):
                call(source, out)
            assert not (tmp_path / f"w.{kind}").exists()
    else:
        write_index(source, out, lambda rows: rows, dimensions=8)
        assert open_index(out).rows == 8
    assert file.read_text() == "mine"


def test_no_place_for_an_index_is_found_before_the_work(tmp_path):
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a link"):
        require_new(tmp_path / "gone", tmp_path / "source")
    with pytest.raises(InputError, match="is a link to nothing"):
        require_new(tmp_path / "gone" / "deep", tmp_path / "source")
