"""A plain file is written where nothing is, or over what --overwrite names, and never over a link or a folder."""

import numpy as np
import pytest

from consilience.banks.interchange import export_bank
from consilience.core.artefacts import begin_artefact
from consilience.core.errors import ConsilienceError, InputError, ResumeError
from consilience.core.files import atomic_write
from consilience.recipes.distill import distill
from consilience.recipes.embed import embed
from consilience.recipes.grammar import grammar


@pytest.mark.parametrize("suffix", ["txt", "parquet"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_captions_replace_no_link_and_no_folder(tmp_path, suffix, overwrite):
    out = tmp_path / f"captions.{suffix}"
    (tmp_path / "thesis").write_text("mine")
    for target in ("thesis", "nowhere"):
        out.symlink_to(tmp_path / target)
        with pytest.raises(InputError, match=r"is a link|already exists"):
            grammar(3, out=out, overwrite=overwrite)
        assert out.is_symlink()
        out.unlink()
    out.mkdir()
    with pytest.raises(InputError, match=r"is a folder|already exists"):
        grammar(3, out=out, overwrite=overwrite)
    assert (tmp_path / "thesis").read_text() == "mine"


def test_a_file_that_is_made_while_another_is_written_is_kept(tmp_path):
    out = tmp_path / "captions.txt"
    with pytest.raises(ResumeError, match="was made while this job ran"), atomic_write(out, "x") as stream:  # noqa: PT012
        stream.write("ours")
        out.write_text("theirs")
    assert out.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["captions.txt"]
    grammar(3, out=out, overwrite=True)
    assert len(out.read_text().splitlines()) == 3


def test_a_bank_is_exported_over_nothing(tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(3, dtype=np.float32))
    bank = embed(["a", "b", "c"], teacher=f"npy:{tmp_path / 'rows.npy'}", out=tmp_path / "bank")
    (tmp_path / "out.npy").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a link"):
        export_bank(bank, tmp_path / "out.npy")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("verb", [embed, distill])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_verb_finds_it_before_it_reads_anything(tmp_path, verb, overwrite):
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    part = {"teacher": "packaged:none"} if verb is embed else {"target": tmp_path / "none"}
    with pytest.raises(InputError, match="is a link, and a link isn't replaced"):
        verb(tmp_path / "no-corpus.txt", out=tmp_path / "out", overwrite=overwrite, **part)


def test_tensorboards_folder_is_somebodys_file(tmp_path):
    (tmp_path / "out.tensorboard").write_text("mine")
    with pytest.raises(InputError, match=r"out\.tensorboard: is in the way"):
        distill(tmp_path / "t.txt", target=tmp_path / "none", out=tmp_path / "out", tensorboard=True)
    assert (tmp_path / "out.tensorboard").read_text() == "mine"


def test_an_input_in_a_working_folder_is_refused(tmp_path):
    work, _ = begin_artefact(tmp_path / "out", {"job": 1})
    (work / "corpus.txt").write_text("a\n")
    for overwrite in (False, True):
        with pytest.raises(ConsilienceError, match="which this job reads"):
            embed(work / "corpus.txt", teacher="packaged:glove", out=tmp_path / "out", overwrite=overwrite)
    assert (work / "corpus.txt").read_text() == "a\n"
