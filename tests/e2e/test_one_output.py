"""Verbs that are given one output at the same time: one makes it, the others are refused; nothing is half of each."""

import threading

import pytest
import torch

import consilience
from consilience.core.errors import ConsilienceError
from consilience.core.manifests import verify_artefact
from consilience.corpora.caption_grammar import generate_captions
from consilience.students.presets import StudentConfig

ROWS, DIMENSIONS = 300, 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, word_sum_bank):
    folder = tmp_path_factory.mktemp("one")
    captions = list(generate_captions(ROWS, seed=3))
    (folder / "captions.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
    word_sum_bank(folder / "bank", folder / "captions.txt", captions, DIMENSIONS)
    return folder


def at_once(verb, out, count=3):
    """Return what each thread's call ended with: None, or its error."""
    ends, start = [], threading.Barrier(count)

    def run():
        start.wait()
        try:
            verb(out)
            ends.append(None)
        except ConsilienceError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def check(verb, out):
    ends = at_once(verb, out)
    verify_artefact(out)
    assert not out.with_name(out.name + ".partial").exists()
    assert None in ends
    refused = ("another process is writing it", "another job has just finished it", "already exists")
    assert all(end is None or any(reason in end for reason in refused) for end in ends), ends


def test_one_of_several_equal_jobs_makes_the_result(corpus, tmp_path, one_thread):
    def distil(out):
        consilience.distill(
            corpus / "captions.txt", target=corpus / "bank", out=out, student="micro", tokenizer="train",
            vocab_size=300, steps=12, batch_rows=16, precision="fp32",
        )  # fmt: skip

    distil(tmp_path / "alone")
    check(distil, tmp_path / "student")
    for name in ("model.safetensors", "manifest.json"):
        assert (tmp_path / "student" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    check(lambda out: consilience.export(tmp_path / "alone", out=out), tmp_path / "export")


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_trainings_in_threads_give_what_each_gives_alone(corpus, tmp_path, one_thread, dropout):
    shape = StudentConfig(layers=1, hidden=DIMENSIONS, heads=2, ffn=32, dropout=dropout)

    def distil(out, seed=0):
        consilience.distill(
            corpus / "captions.txt", target=corpus / "bank", out=out, student=shape, tokenizer="train",
            vocab_size=300, steps=30, batch_rows=16, cache_rows=8, precision="fp32", seed=seed,
        )  # fmt: skip

    distil(tmp_path / "alone")
    before = torch.get_rng_state()
    outs = [tmp_path / "first", tmp_path / "second"]
    threads = [threading.Thread(target=distil, args=(out,)) for out in outs]
    threads.append(threading.Thread(target=lambda: [consilience.load(tmp_path / "alone") for _ in range(30)]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    for out in outs:
        assert (out / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()
