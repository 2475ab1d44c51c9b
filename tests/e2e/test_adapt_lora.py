"""LoRA as the baseline of an anchor: the same pairs and steps, as many parameters, loadable by PEFT itself."""

import json

import numpy as np
import pytest
import torch

from consilience.core.errors import BankIntegrityError, InputError, TrunkMismatchError
from consilience.corpora.caption_grammar import generate_pairs
from consilience.recipes.adapt import adapt_fit
from consilience.recipes.adapt_lora import adapt_lora, choose_ranks, open_lora
from consilience.recipes.adapt_table import adapt_table
from consilience.students.text import load_student

peft = pytest.importorskip("peft")
QUICK = {"steps": 10, "batch_rows": 12, "held_out": [], "name": "equiv"}


def test_lora_beside_an_anchor(tmp_path, make_student):
    make_student(tmp_path / "student", 1)
    make_student(tmp_path / "other", 2)
    pairs = [(p.sentence1, p.sentence2) for p in generate_pairs(300, seed=5) if p.score >= 3]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"sentence1": a, "sentence2": b}) + "\n" for a, b in pairs))
    manifest = adapt_lora(tmp_path / "student", pairs=tmp_path / "p.jsonl", out=tmp_path / "lora", **QUICK)
    anchor = adapt_fit(tmp_path / "student", pairs=tmp_path / "p.jsonl", out=tmp_path / "anchor", **QUICK)
    counted = anchor.parameter_count - anchor.keys.numel()
    assert manifest["anchor_parameters"] == counted
    assert 0 <= counted - manifest["parameters"] <= 64  # the smallest rank there is here
    before, after = (json.loads((tmp_path / n / "report.json").read_text()) for n in ("lora", "anchor"))
    assert before["gauges"]["before"].items() <= after["gauges"]["before"].items()  # both start as the trunk
    assert before["pairs"] == after["pairs"]

    texts = ["a cat", "two dogs run"]
    encoder = open_lora(tmp_path / "student", tmp_path / "lora")
    adapted = encoder.encode(texts)
    student = load_student(tmp_path / "student")
    assert np.abs(adapted - student.encode(texts)).max() > 1e-5
    student.module.backbone = peft.PeftModel.from_pretrained(student.module.backbone, str(tmp_path / "lora"))
    with torch.no_grad():
        np.testing.assert_allclose(student.encode(texts), adapted, atol=1e-6)
    weights = tmp_path / "lora" / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(b"xx")
    with pytest.raises(BankIntegrityError, match="the file is damaged"):
        adapt_lora(tmp_path / "student", pairs=tmp_path / "p.jsonl", out=tmp_path / "lora", **QUICK)
    weights.write_bytes(whole)
    assert adapt_lora(tmp_path / "student", pairs=tmp_path / "p.jsonl", out=tmp_path / "lora", **QUICK) == manifest
    with pytest.raises(TrunkMismatchError):
        open_lora(tmp_path / "other", tmp_path / "lora")
    with pytest.raises(InputError, match="fresh copy"):
        open_lora(student, tmp_path / "lora")
    result = adapt_table(
        tmp_path / "student", tmp_path / "anchor", tasks=["grammar"], resamples=100, lora=[tmp_path / "lora"]
    )
    assert [model.model for model in result.models] == ["off", "equiv solo", "all", "lora equiv"]


def test_ranks_meet_a_count():
    sizes = {"q": 768, "ffn": 1920}
    ranks = choose_ranks(sizes, 40_000)
    assert 0 <= 40_000 - sum(ranks[n] * sizes[n] for n in sizes) < 768 + 1920
    with pytest.raises(InputError, match="rank 1"):
        choose_ranks(sizes, 2_000)
