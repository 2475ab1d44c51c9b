"""model2vec: ``StaticModel.from_pretrained(FOLDER, max_length=None)``; the tokenizer itself cuts."""

import sys

from client import answer, versions
from model2vec import StaticModel

folder, texts = sys.argv[1], sys.argv[2]
model = StaticModel.from_pretrained(folder, max_length=None)  # the tokenizer cuts
answer(lambda given: model.encode(given), texts, versions("model2vec"))
