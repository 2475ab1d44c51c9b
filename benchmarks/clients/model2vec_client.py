"""model2vec: ``StaticModel.from_pretrained(FOLDER, max_length=LIMIT)``."""

from client import answer, versions
from model2vec import StaticModel


def load(job):
    """Load with the student's limit: it drops the one that the tokenizer holds."""
    return StaticModel.from_pretrained(job["folder"], max_length=job["limit"]).encode


answer(load, versions("model2vec"))
