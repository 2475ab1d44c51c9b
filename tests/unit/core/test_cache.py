"""A damaged folder of the cache is made again, at the cost of nothing but the cache's own files."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from consilience.core import cache
from consilience.core.errors import StorageError


def build(work):
    (work / "deep").mkdir()
    (work / "deep" / "model.bin").write_bytes(b"weights")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_verified", set())
    return cache.cached_folder("model", build)


def test_a_damaged_file_is_made_again(folder):
    (folder / "deep" / "model.bin").write_bytes(b"broken")
    (folder / "files.json").unlink()
    assert cache.cached_folder("model", build) == folder
    assert (folder / "deep" / "model.bin").read_bytes() == b"weights"


def test_a_file_of_somebody_in_it_is_named_and_kept(folder):
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"notes\.txt: isn't the cache's, so .* Move it away"):
        cache.cached_folder("model", build)
    assert (folder / "notes.txt").read_text() == "mine"
    (folder / "notes.txt").rename(folder.parent / "notes.txt")
    assert cache.cached_folder("model", build) == folder


def test_only_old_leftovers_of_this_folder_are_swept(folder):
    old = {}
    for name in (".model-abcd_123", ".model-notes", ".model-of-the-year"):
        (folder.parent / name).mkdir()
        os.utime(folder.parent / name, (0, 0))
        old[name] = (folder.parent / name).exists
    (folder / "files.json").unlink()
    cache.cached_folder("model", build)
    assert {name: exists() for name, exists in old.items()} == {
        ".model-abcd_123": False,
        ".model-notes": True,
        ".model-of-the-year": True,
    }


def test_several_that_find_it_damaged_make_it_once(folder):
    (folder / "deep" / "model.bin").write_bytes(b"broken")
    cache._verified.clear()
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: cache.cached_folder("model", build), range(64)))
    assert {(found / "deep" / "model.bin").read_bytes() for found in folders} == {b"weights"}
