"""Arrays in .npy files, with row numbers or a list as ids."""

import numpy as np
import pytest

from consilience.core.artefacts import begin_artefact
from consilience.core.errors import InputError
from consilience.indexes.open import open_index, write_index


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)


def doubled(vectors):
    return np.concatenate([vectors, vectors * 2], axis=1)


def read(index, rows=8192):
    blocks = list(index.iter_blocks(rows))
    return [name for ids, _ in blocks for name in ids], np.concatenate([vectors for _, vectors in blocks])


def test_row_numbers_are_the_ids(tmp_path, rows):
    np.save(tmp_path / "v.npy", rows)
    index = open_index(str(tmp_path / "v.npy"))
    assert (index.kind, index.rows, index.dimensions, index.metric) == ("npy", 50, 6, "cosine")
    ids, vectors = read(index, 7)
    assert ids == [str(i) for i in range(50)]
    np.testing.assert_array_equal(vectors, rows)
    np.testing.assert_array_equal(index.lookup(["49", "0"]), rows[[49, 0]])
    with pytest.raises(InputError, match=r"3 of 4 ids asked for .* first: '50', '-1', 'x'"):
        index.lookup(["50", "-1", "x", "2"])
    assert index.fingerprint() == open_index(f"npy:{tmp_path / 'v.npy'}", metric="dot").fingerprint()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_new_file_has_the_old_type_and_no_list_of_row_numbers(tmp_path, rows, dtype, order):
    np.save(tmp_path / "v.npy", np.asarray(rows.astype(dtype), order=order))
    before = (tmp_path / "v.npy").read_bytes()
    write_index(open_index(str(tmp_path / "v.npy")), str(tmp_path / "w.npy"), doubled, dimensions=12, block_rows=8)
    new = np.load(tmp_path / "w.npy")
    assert new.dtype == dtype
    np.testing.assert_array_equal(new, doubled(rows.astype(dtype).astype(np.float32)).astype(dtype))
    assert (tmp_path / "v.npy").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy", "w.npy"]


@pytest.mark.parametrize("beside", [True, False])
def test_a_list_of_ids_goes_along(tmp_path, rows, beside):
    np.save(tmp_path / "v.npy", rows)
    names = [f"doc é{i}" for i in range(50)]
    path = tmp_path / ("v.npy.ids.txt" if beside else "names.txt")
    path.write_text("\n".join(names) + ("\n" if beside else ""), encoding="utf-8")
    index = open_index(str(tmp_path / "v.npy") if beside else f"npy:{tmp_path / 'v.npy'}#ids={path}")
    assert read(index)[0] == names
    np.testing.assert_array_equal(index.lookup([names[3], names[1]]), rows[[3, 1]])
    write_index(index, str(tmp_path / "w.npy"), doubled, dimensions=12)
    again = open_index(str(tmp_path / "w.npy"))
    assert read(again)[0] == names
    np.testing.assert_array_equal(read(again)[1], doubled(rows))


def test_a_list_of_other_ids_at_the_output_is_not_overwritten(tmp_path, rows):
    np.save(tmp_path / "v.npy", rows)
    (tmp_path / "v.npy.ids.txt").write_text("".join(f"{i}\n" for i in range(50)))
    (tmp_path / "w.npy.ids.txt").write_text("mine\n")
    with pytest.raises(InputError, match="already exists"):
        write_index(open_index(str(tmp_path / "v.npy")), str(tmp_path / "w.npy"), doubled, dimensions=12)
    assert (tmp_path / "w.npy.ids.txt").read_text() == "mine\n"
    assert not (tmp_path / "w.npy").exists()


def test_ids_that_a_run_killed_at_its_very_end_left_are_taken_over(tmp_path, rows):
    np.save(tmp_path / "v.npy", rows)
    for name in ("v", "w"):
        (tmp_path / f"{name}.npy.ids.txt").write_text("".join(f"{i}\n" for i in range(50)))
    begin_artefact(tmp_path / "w.npy", {"index": "w.npy"})
    write_index(open_index(str(tmp_path / "v.npy")), str(tmp_path / "w.npy"), doubled, dimensions=12)
    assert open_index(str(tmp_path / "w.npy")).rows == 50


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 3), np.float32), "has no vectors"),
        (np.zeros(3, np.float32), "got float32 of shape"),
        (np.zeros((3, 3), np.int64), "expected rows of floating-point numbers, got int64"),
    ],
)
def test_arrays_that_are_no_index(tmp_path, array, message):
    np.save(tmp_path / "v.npy", array)
    with pytest.raises(InputError, match=message):
        open_index(str(tmp_path / "v.npy"))


def test_ids_that_do_not_fit(tmp_path, rows):
    np.save(tmp_path / "v.npy", rows)
    (tmp_path / "v.npy.ids.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"expected one id for each of the 50 rows .* got 2"):
        open_index(str(tmp_path / "v.npy"))
    (tmp_path / "v.npy.ids.txt").write_text("a\n" * 50)
    with pytest.raises(InputError, match="id 'a' occurs more than once"):
        read(open_index(str(tmp_path / "v.npy")))
    with pytest.raises(InputError, match="id 'a' occurs more than once"):
        write_index(open_index(str(tmp_path / "v.npy")), str(tmp_path / "w.npy"), doubled, dimensions=12)
    with pytest.raises(InputError, match="expected #ids=FILE"):
        open_index(f"npy:{tmp_path / 'v.npy'}#names.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy", "v.npy.ids.txt"]


def test_damaged_and_existing_files(tmp_path, rows):
    np.save(tmp_path / "v.npy", rows)
    (tmp_path / "half.npy").write_bytes((tmp_path / "v.npy").read_bytes()[:500])
    with pytest.raises(InputError, match=r"not a whole \.npy file"):
        open_index(str(tmp_path / "half.npy"))
    index = open_index(str(tmp_path / "v.npy"))
    with pytest.raises(InputError, match="is the source index"):
        write_index(index, str(tmp_path / "v.npy"), doubled, dimensions=12)
    with pytest.raises(InputError, match="already exists"):
        write_index(index, str(tmp_path / "half.npy"), doubled, dimensions=12)
    with pytest.raises(InputError, match="can't be written as faiss"):
        write_index(index, str(tmp_path / "w.faiss"), doubled, dimensions=12)
