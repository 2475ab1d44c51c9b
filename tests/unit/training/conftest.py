"""What the tests of training on pairs share: a tiny untrained trunk, and one thread."""

import pytest
import torch

from consilience.corpora.caption_grammar import generate_pairs
from consilience.students.presets import StudentConfig
from consilience.students.text import StudentEncoder, build_student
from consilience.students.tokenizer import train_tokenizer
from consilience.training.pair_model import PairModel


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def pair_model():
    texts = [text for p in generate_pairs(400, seed=1) if p.score >= 3.5 for text in (p.sentence1, p.sentence2)]
    words = train_tokenizer(texts, vocab_size=300)
    shape = StudentConfig(layers=2, hidden=32, heads=4, ffn=64, max_positions=64, max_length=48)
    student = build_student(shape, vocab_size=words.get_vocab_size(), dimensions=16, seed=3)
    return PairModel(StudentEncoder(student, words, name="tiny", max_length=48, manifest={}), name="tiny")
