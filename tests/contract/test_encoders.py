"""One suite for every encoder that isn't a teacher: students, adapted, mapped and exported models."""

import contextvars
import copy
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tokenizers import models, pre_tokenizers

from consilience.adapters.adapted_encoder import AdaptedEncoder
from consilience.adapters.anchor import Anchor, AnchorConfig
from consilience.adapters.attach import attach_amoe
from consilience.adapters.library import AnchorLibrary
from consilience.banks.reader import open_bank
from consilience.banks.writer import BankWriter
from consilience.committee.mapped_encoder import MappedEncoder
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.encoder import Encoder
from consilience.frames.align import AffineMap
from consilience.indexes.open import open_index
from consilience.recipes.encoders import open_encoder
from consilience.students.presets import StudentConfig
from consilience.students.static import StaticEncoder, build_static
from consilience.students.text import build_student, load_student, save_student_files
from consilience.students.tokenizer import train_tokenizer
from consilience.training.pair_model import PairModel, PlainEncoder

# Words that training never saw, so that every call of the static student has something to learn.
WORDS = ["".join(chr(97 + (i * k + k) % 26) for k in range(2, 4 + i % 5)) for i in range(300)]
SHAPE = StudentConfig(layers=2, hidden=32, heads=4, ffn=64, max_positions=64, max_length=24)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([" ".join(WORDS[i : i + 9]) for i in range(0, 300, 9)] * 2, vocab_size=120)


@pytest.fixture(scope="module")
def stored(tokenizer, tmp_path_factory):
    out = tmp_path_factory.mktemp("students") / "student"
    work, _ = begin_artefact(out, {"job": 1})
    student = build_student(SHAPE, vocab_size=tokenizer.get_vocab_size(), dimensions=16, seed=1)
    files = save_student_files(student, tokenizer, work, max_length=24)
    manifest = {"dimensions": 16, "max_length": 24, "frame": "f", "preset": "custom", "config": SHAPE.to_json()}
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return out


@pytest.fixture(scope="module")
def exported(stored, tmp_path_factory):
    from consilience.exporters.folder import export_student

    out = tmp_path_factory.mktemp("exports") / "export"
    export_student(load_student(stored), out, formats=("sentence-transformers",), command="x")
    return out


def static_student(tokenizer):
    module = build_static(tokenizer.get_vocab_size(), 16, seed=1)
    return StaticEncoder(module, tokenizer, name="static", max_length=24, manifest={})


def unlike_bert(tokenizer):
    """A static student whose tokenizer looks across blanks: nothing is kept between calls."""
    from tokenizers import Tokenizer

    pieces = [("<unk>", -9.0), ("[PAD]", -9.0), *((letter, -1.0) for letter in "▁abcdefghijklmnopqrstuvwxyz")]
    unigram = Tokenizer(models.Unigram(pieces, unk_id=0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    return StaticEncoder(build_static(len(pieces), 16, seed=1), unigram, name="u", max_length=24, manifest={})


def half_static(tokenizer):
    encoder = static_student(tokenizer)
    encoder.module.half()
    return encoder


def with_library(model, width=32, blocks=2):
    library = AnchorLibrary(width, blocks)
    for number, name in enumerate(("equiv", "para")):
        library.add(name, Anchor(width, blocks, AnchorConfig(hidden=8, gate=0.0), seed=number, random_output=True))
    return attach_amoe(model, library)


def adapted(stored):
    student = load_student(stored)
    return AdaptedEncoder(student, with_library(student).make_mask("some", "equiv"))


def adapted_st(exported):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(exported), device="cpu")
    return AdaptedEncoder(model, with_library(model).make_mask("solo", "para"))


def mapped(tokenizer):
    inner = static_student(tokenizer)
    rng = np.random.default_rng(0)
    affine = AffineMap(rng.normal(size=(16, 5)), rng.normal(size=5))
    return MappedEncoder(inner, affine, identity=inner.identity(), map_id="m")


def mapped_over_a_users_encoder(tokenizer):
    class Mine:
        """A user's encoder, which knows no rule for its texts."""

        name, dimensions, parameters = "mine", 2, None

        def identity(self):
            return {"backend": "mine"}

        def encode(self, texts):
            return np.array([[len(text), 1] for text in texts], dtype=np.float32)

    return MappedEncoder(Mine(), AffineMap(np.eye(2), np.ones(2)), identity={"backend": "mine"}, map_id="m")


MAKERS = {
    "text student": lambda get: load_student(get("stored")),
    "static student": lambda get: static_student(get("tokenizer")),
    "static student in half precision": lambda get: half_static(get("tokenizer")),
    "static student of another tokenizer": lambda get: unlike_bert(get("tokenizer")),
    "adapted student": lambda get: adapted(get("stored")),
    "adapted sentence-transformers model": lambda get: adapted_st(get("exported")),
    "trunk of a student": lambda get: PlainEncoder(PairModel(load_student(get("stored")), name="trunk")),
    "mapped": lambda get: mapped(get("tokenizer")),
    "mapped, a user's": lambda get: mapped_over_a_users_encoder(get("tokenizer")),
    "export": lambda get: open_encoder(get("exported")),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return lambda: MAKERS[request.param](request.getfixturevalue)


def test_threads_get_the_bits_of_one_thread(make, thread_safe):
    encoder = make()
    assert isinstance(encoder, Encoder)
    thread_safe(make(), encoder, WORDS)


def test_one_text_a_list_and_anything_else(make, one_rule_for_texts):
    one_rule_for_texts(make(), WORDS[3] + " " + WORDS[9], WORDS[4])


def test_masks_of_two_threads_do_not_meet(stored, thread_safe):
    student = load_student(stored)
    handle = with_library(student)
    rows = [AdaptedEncoder(student, mask) for mask in handle.table_masks()]
    text = [" ".join(WORDS[:9])]
    expected = [row.encode(text).tobytes() for row in rows]
    assert len(set(expected)) == len(rows)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: rows[i % len(rows)].encode(text).tobytes(), range(20 * len(rows))))
    assert found == expected * 20


def test_a_recorder_that_threads_share_reads_each_ones_own_padding(stored):
    """asyncio.to_thread and friends copy the context, and with it the recorder."""
    student = load_student(stored)
    handle = with_library(student)
    batches = [[" ".join(WORDS[:9]), *[WORDS[k]] * k] for k in range(1, 9)]
    with handle.record() as recorder:
        for batch in batches * 20:
            student.encode(batch)
    expected = recorder.result()
    with handle.record() as recorder, ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(contextvars.copy_context().run, student.encode, batch) for batch in batches * 20]
        [job.result() for job in jobs]
    assert recorder.result().tokens == expected.tokens
    np.testing.assert_allclose(recorder.result().shares, expected.shares, rtol=1e-9)


def test_copies_of_a_static_student_give_its_bits(tokenizer):
    encoder = static_student(tokenizer)
    expected = encoder.encode(WORDS[:50])
    for other in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
        assert np.array_equal(other.encode(WORDS[:50]), expected)


def test_a_static_student_made_in_inference_mode_encodes(tokenizer):
    with torch.inference_mode():
        encoder = static_student(tokenizer)
    assert np.array_equal(encoder.encode(WORDS[:9]), static_student(tokenizer).encode(WORDS[:9]))


def test_an_interrupted_call_leaves_no_sum_at_another_chunks_place(tokenizer, monkeypatch):
    encoder, expected = static_student(tokenizer), static_student(tokenizer).encode(WORDS)
    concatenate = np.concatenate

    def interrupted(*args, **kwargs):
        concatenate(*args, **kwargs)
        raise KeyboardInterrupt

    encoder.encode(WORDS[:10])
    monkeypatch.setattr(np, "concatenate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(WORDS[10:40])
    monkeypatch.undo()
    assert np.array_equal(encoder.encode(WORDS), expected)


def test_threads_that_build_or_load_draw_their_own_numbers(stored):
    def build(seed):
        student = build_student(SHAPE, vocab_size=60, dimensions=16, seed=seed)
        load_student(stored)
        return torch.cat([p.flatten() for p in student.parameters()])

    expected = [build(seed) for seed in range(4)]
    torch.manual_seed(7)
    before = torch.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(build, [0, 1, 2, 3] * 6))
    assert all(torch.equal(weights, expected[i % 4]) for i, weights in enumerate(found))
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_that_load_teachers_leave_the_logs_as_they_were(exported):
    import logging

    from transformers.utils import logging as transformers_logging

    def state():
        level = logging.getLogger("sentence_transformers").level
        return level, transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()

    before = state()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: open_encoder(exported), range(16)))
    assert state() == before


def test_a_first_use_from_threads_at_once(stored, tmp_path):
    """A fresh process (seconds: it imports torch and transformers): all that is lazy is met for the first time."""
    script = tmp_path / "first.py"
    script.write_text(
        """
import json, sys, threading
import consilience
barrier = threading.Barrier(8)
found, texts = [], json.loads(sys.argv[2])
def work():
    barrier.wait()
    found.append(consilience.load(sys.argv[1]).encode(texts).tobytes())
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), len(set(found)), found[0].hex())
"""
    )
    expected = load_student(stored).encode(WORDS[:5]).tobytes()
    command = [sys.executable, "-W", "error", str(script), str(stored), json.dumps(WORDS[:5])]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    calls, different, bits = done.stdout.split()
    assert (calls, different) == ("8", "1"), done.stderr
    np.testing.assert_allclose(
        np.frombuffer(bytes.fromhex(bits), np.float32), np.frombuffer(expected, np.float32), atol=1e-6
    )


def test_banks_and_indexes_are_read_from_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("consilience.banks.reader._MAXIMUM_MAPS", 3)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, 6)).astype(np.float32)
    job = {"rows": 400, "dimensions": 6, "dtype": "fp32", "shard_rows": 32, "normalise": False, "frame": None}
    corpus = {"name": "c", "fingerprint": "f" * 64, "rows": 400}
    with BankWriter(tmp_path / "bank", corpus=corpus, teacher={"backend": "t"}, **job) as writer:
        for start, stop in writer.missing():
            writer.write_shard(start, vectors[start:stop])
        writer.finish()
    bank = open_bank(tmp_path / "bank")
    np.save(tmp_path / "index.npy", vectors)
    index = open_index(f"npy:{tmp_path / 'index.npy'}")
    draws = [rng.integers(0, 400, size=40) for _ in range(200)]

    def read(rows):
        lo, hi = sorted(rows[:2])
        blocks = np.concatenate([block for _, block in index.iter_blocks(64)])
        return (
            np.array_equal(bank[rows], vectors[rows])
            and np.array_equal(bank[lo:hi], vectors[lo:hi])
            and np.array_equal(blocks, vectors)
        )

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, draws))
    finally:
        sys.setswitchinterval(interval)
