"""``embed`` finds faults before compute, continues, recognises its own bank, and leaves nothing half-written."""

from __future__ import annotations

import json

import numpy as np
import pytest

import consilience
from consilience.core.errors import ConsilienceError, CorpusError, InputError, ResumeError, TeacherError
from consilience.core.manifests import partial_path
from consilience.corpora.fingerprint import fingerprint_corpus
from consilience.corpora.text import CorpusSpec, open_corpus
from consilience.recipes.embed import COMMAND, embed

TEXTS = [f"{'very ' * (i % 5)}small cat number {i}" for i in range(23)]


class LetterCounts:
    """A teacher one can compute by hand: how often each letter a..h occurs, and the length."""

    name = "letters"
    dimensions = 9
    parameters = 0

    def __init__(self, *, fail_at=None, fault=None):
        self.calls = 0
        self.fail_at = fail_at
        self.fault = fault

    def identity(self):
        return {"backend": "test", "name": "letters"}

    def encode(self, texts):
        self.calls += 1
        if self.calls == self.fail_at:
            if self.fault is None:
                raise KeyboardInterrupt
            return np.full((len(texts), 9), self.fault, dtype=np.float32)
        return np.array([[text.count(c) for c in "abcdefgh"] + [len(text)] for text in texts], dtype=np.float32)


def files_of(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "timing.json"}


def test_the_bank_holds_the_teachers_unit_vectors_in_corpus_order(tmp_path):
    bank = consilience.embed(TEXTS, teacher=LetterCounts(), out=tmp_path / "bank", dtype="fp32", shard_rows=5)
    raw = LetterCounts().encode(TEXTS)
    np.testing.assert_allclose(bank[:], raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-6)
    assert bank.manifest["corpus"]["rows"] == 23
    assert str(tmp_path) not in json.dumps(bank.manifest)
    timing = json.loads((bank.path / "timing.json").read_text())
    assert timing["rows_per_second"] > 0


def test_raw_vectors_are_kept_when_asked_for(tmp_path):
    bank = embed(TEXTS, teacher=LetterCounts(), out=tmp_path / "bank", normalise=False)
    np.testing.assert_array_equal(bank[:], LetterCounts().encode(TEXTS))
    assert not bank.normalised


def test_an_interrupted_job_continues_with_the_next_shard_to_the_same_bytes(tmp_path, capsys):
    whole = embed(TEXTS, teacher=LetterCounts(), out=tmp_path / "whole", shard_rows=5)
    with pytest.raises(KeyboardInterrupt):
        embed(TEXTS, teacher=LetterCounts(fail_at=3), out=tmp_path / "bank", shard_rows=5)
    assert not (tmp_path / "bank").exists()
    teacher = LetterCounts()
    continued = embed(TEXTS, teacher=teacher, out=tmp_path / "bank", shard_rows=5)
    assert teacher.calls == 3
    assert "continuing, 10 of 23 rows are done" in capsys.readouterr().err
    assert files_of(continued.path) == files_of(whole.path)


def test_a_finished_job_is_recognised_and_another_one_refused(tmp_path, capsys):
    first = embed(TEXTS, teacher=LetterCounts(), out=tmp_path / "bank")
    teacher = LetterCounts()
    assert embed(TEXTS, teacher=teacher, out=tmp_path / "bank").id == first.id
    assert teacher.calls == 0
    assert "already done" in capsys.readouterr().err
    with pytest.raises(ResumeError, match="already exists"):
        embed(TEXTS[:-1], teacher=teacher, out=tmp_path / "bank")
    with pytest.raises(ResumeError, match="already exists"):
        embed(TEXTS, teacher=teacher, out=tmp_path / "bank", dtype="fp32")
    assert embed(TEXTS[:-1], teacher=teacher, out=tmp_path / "bank", overwrite=True).rows == 22


@pytest.mark.parametrize("fault", [np.nan, np.inf, 0.0])
def test_a_teacher_that_returns_no_directions_is_refused_and_no_bank_appears(tmp_path, fault):
    with pytest.raises(TeacherError, match="rows 5:10"):
        embed(TEXTS, teacher=LetterCounts(fail_at=2, fault=fault), out=tmp_path / "bank", shard_rows=5)
    assert not (tmp_path / "bank").exists()


def test_a_teacher_refused_on_its_first_shard_leaves_nothing_behind(tmp_path):
    with pytest.raises(TeacherError):
        embed(TEXTS, teacher=LetterCounts(fail_at=1, fault=np.nan), out=tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_spec_keeps_its_own_options_and_given_ones_win(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("caption,source\na cat,x\n" + "a dog,y\n" * 3 + ",y\n")
    spec = CorpusSpec(str(path), column="caption", where={"source": "y"}, limit=4, on_fault="drop", max_characters=60)
    bank = embed(spec, teacher=LetterCounts(), out=tmp_path / "bank")
    assert bank.corpus_fingerprint == fingerprint_corpus(open_corpus(spec)).fingerprint
    assert embed(spec, teacher=LetterCounts(), out=tmp_path / "two", limit=2).rows == 2


@pytest.mark.parametrize("texts", [[], ["fine", ""], ["fine", "a\0b"], ["fine", "x" * 100_000]])
def test_a_faulty_corpus_is_refused_before_any_compute(tmp_path, texts):
    teacher = LetterCounts()
    with pytest.raises(CorpusError):
        embed(texts, teacher=teacher, out=tmp_path / "bank")
    assert teacher.calls == 0
    assert list(tmp_path.iterdir()) == []


def test_faulty_rows_are_dropped_when_asked_for(tmp_path):
    bank = embed(["a", "", "b"], teacher=LetterCounts(), out=tmp_path / "bank", on_fault="drop")
    assert bank.rows == 2


def test_a_corpus_that_changes_underneath_is_found_and_its_shards_discarded(tmp_path):
    path = tmp_path / "corpus.txt"
    texts = [f"{'filler ' * 5000}{i}" for i in range(60)]  # more than any reader buffers
    path.write_text("\n".join(texts))

    class Meddler(LetterCounts):
        def encode(self, rows):
            path.write_text("\n".join([*texts[:-1], texts[-1] + "!"]))
            return super().encode(rows)

    with pytest.raises(CorpusError, match="changed while"):
        embed(path, teacher=Meddler(), out=tmp_path / "bank", shard_rows=5)
    assert not partial_path(tmp_path / "bank").exists()
    assert not (tmp_path / "bank").exists()


def killed(temporary, out):
    raise KeyboardInterrupt


def test_embeddings_that_exist_are_imported(tmp_path, capsys, monkeypatch):
    raw = LetterCounts().encode(TEXTS)
    np.save(tmp_path / "x.npy", raw)
    bank = embed(TEXTS, teacher=f"npy:{tmp_path / 'x.npy'}", out=tmp_path / "bank", dtype="fp32")
    np.testing.assert_array_equal(bank[:], raw)
    again = embed(TEXTS, teacher=f"bank:{bank.path}", out=tmp_path / "again", dtype="fp32", shard_rows=3)
    assert again.frame == bank.frame
    assert "imported from" in capsys.readouterr().err
    monkeypatch.setattr("consilience.core.artefacts.place", killed)
    with pytest.raises(KeyboardInterrupt):
        embed(TEXTS, teacher=f"npy:{tmp_path / 'x.npy'}", out=tmp_path / "bank", dtype="fp32", overwrite=True)
    monkeypatch.undo()
    bank.path.rename(tmp_path / "old")
    done = (partial_path(bank.path) / "shard-00000.safetensors").stat().st_mtime_ns
    bank = embed(TEXTS, teacher=f"npy:{tmp_path / 'x.npy'}", out=tmp_path / "bank", dtype="fp32")
    assert (bank.path / "shard-00000.safetensors").stat().st_mtime_ns == done
    with pytest.raises(InputError, match="rows, the corpus 22"):
        embed(TEXTS[:-1], teacher=f"npy:{tmp_path / 'x.npy'}", out=tmp_path / "short")
    with pytest.raises(InputError, match="prompt don't apply"):
        embed(TEXTS, teacher=f"npy:{tmp_path / 'x.npy'}", out=tmp_path / "short", prompt="query: ")


def test_options_of_a_spec_are_refused_on_a_loaded_encoder(tmp_path):
    with pytest.raises(TeacherError, match="max_length can't be set"):
        embed(TEXTS, teacher=LetterCounts(), out=tmp_path / "bank", max_length=3)


def test_an_unknown_teacher_is_one_clear_error(tmp_path):
    with pytest.raises(ConsilienceError, match="nonsense"):
        embed(TEXTS, teacher="nonsense:model", out=tmp_path / "bank")
    assert list(tmp_path.iterdir()) == []


def test_the_command_that_continues_is_noted_for_inspect():
    from consilience.recipes.embed import _command

    command = _command(
        "my corpus.txt",
        "st:x",
        "out",
        {"split": "train"},
        {"limit": 3, "prompt": None},
        {"raw": True, "overwrite": False},
    )
    assert command == "consilience embed 'my corpus.txt' --teacher st:x --out out --where split=train --limit 3 --raw"
    assert COMMAND == "command.json"
