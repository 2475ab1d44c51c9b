"""transformers alone: the model card's own snippet, with other texts."""

from client import answer, card_code, run_code, versions


def load(job):
    """Take the snippet as it is."""
    code = card_code(job["folder"], "transformers")
    return lambda texts: run_code(code, texts)


answer(load, versions("transformers", "torch"))
