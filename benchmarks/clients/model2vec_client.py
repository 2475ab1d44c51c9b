"""model2vec: ``StaticModel.from_pretrained(FOLDER, max_length=None)``; the tokenizer itself cuts."""

from client import answer, versions
from model2vec import StaticModel

answer(lambda job: StaticModel.from_pretrained(job["folder"], max_length=None).encode, versions("model2vec"))
