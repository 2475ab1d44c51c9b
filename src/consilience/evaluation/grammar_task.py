"""A graded-similarity task from the caption grammar: needs no data and no network."""

from __future__ import annotations

import hashlib

import numpy as np

from consilience.core.hashing import canonical_json
from consilience.evaluation.sts import StsTask

GRAMMAR_TASK = "grammar"
GRAMMAR_PAIRS = 1_500
GRAMMAR_SEED = 20_261  # assumed; only has to differ from the seeds that training corpora are made with


def grammar_task(pairs: int = GRAMMAR_PAIRS, *, seed: int = GRAMMAR_SEED) -> StsTask:
    """Make the caption-grammar task: pairs whose score is what they share by construction.

    Args:
        pairs: how many.
        seed: of the grammar's pair generator.

    Returns:
        The task; the same arguments give the same bytes on every machine.
    """
    from consilience.corpora.caption_grammar import generate_pairs

    graded = list(generate_pairs(pairs, seed=seed))
    sentence1 = tuple(pair.sentence1 for pair in graded)
    sentence2 = tuple(pair.sentence2 for pair in graded)
    score = np.asarray([pair.score for pair in graded], dtype=np.float64)
    content = canonical_json([sentence1, sentence2, score.tolist()])
    return StsTask(
        name=GRAMMAR_TASK,
        sentence1=sentence1,
        sentence2=sentence2,
        score=score,
        sha256=hashlib.sha256(content).hexdigest(),
        source=f"caption grammar, {pairs} pairs, seed {seed}",
    )
