"""Token store, schedule, checkpoints, gauges, budget, settings."""

import math
import resource
import shutil

import numpy as np
import pytest
import torch

from consilience.core.errors import BankIntegrityError, CorpusError, InputError, StorageError
from consilience.core.hashing import RowHasher
from consilience.students.tokenizer import pad_id, train_tokenizer
from consilience.training.checkpoint import Position, load_checkpoint, save_checkpoint
from consilience.training.gauges import frame_gap, read_gauges, split_held_out
from consilience.training.journal import TrainingLog
from consilience.training.optimizers import Optimizers
from consilience.training.schedule import learning_rate
from consilience.training.settings import TrainingSettings
from consilience.training.time_budget import Decision, TimeBudget
from consilience.training.token_store import build_token_store

TEXTS = ["a red cube", "a blue sphere on a red cube", "two dogs run", "a dog"] * 5


def fingerprint(texts):
    hasher = RowHasher()
    for text in texts:
        hasher.update(text)
    return hasher.hexdigest()


def make_store(folder, texts, batches, max_length=6):
    tokenizer = train_tokenizer(TEXTS, vocab_size=90)
    return tokenizer, build_token_store(
        batches,
        folder,
        tokenizer=tokenizer,
        tokenizer_sha256="t",
        pad=pad_id(tokenizer),
        max_length=max_length,
        corpus_fingerprint=fingerprint(texts),
        rows=len(texts),
    )


def test_store_holds_the_tokenizers_ids_cut_to_length(tmp_path):
    tokenizer, store = make_store(tmp_path / "tokens", TEXTS, [TEXTS[:3], TEXTS[3:]])
    tokenizer.enable_truncation(6)
    assert len(store) == len(TEXTS)
    assert [store[row].tolist() for row in range(4)] == [tokenizer.encode(text).ids for text in TEXTS[:4]]
    ids, mask = store.gather(np.array([1, 3]))
    assert ids[0].tolist() == store[1].tolist()
    assert ids[1].tolist() == [*store[3].tolist(), 0, 0]
    assert mask.sum(axis=1).tolist() == store.lengths[[1, 3]].tolist()
    assert store.gather(np.array([3, 7]))[1] is None


def test_finished_store_is_not_read_again_and_another_key_rebuilds_it(tmp_path):
    make_store(tmp_path / "tokens", TEXTS, [TEXTS])

    def untouchable():
        raise AssertionError("the corpus was read again")
        yield

    _, store = make_store(tmp_path / "tokens", TEXTS, untouchable())
    assert len(store) == len(TEXTS)
    _, shorter = make_store(tmp_path / "tokens", TEXTS, [TEXTS], max_length=4)
    assert shorter.lengths.max() == 4


def test_a_corpus_that_changed_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="changed"):
        make_store(tmp_path / "tokens", TEXTS, [[*TEXTS[:-1], "a cat"]])
    assert not (tmp_path / "tokens" / "store.json").exists()


def test_schedule_by_hand():
    rates = [learning_rate(s, total=14, peak=2.0, warmup=4) for s in range(14)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert rates[9] == pytest.approx(1.0)
    assert rates[13] == pytest.approx(1 + math.cos(0.9 * math.pi))
    assert learning_rate(0, total=None, peak=1.0, warmup=50) == 0.02
    with pytest.raises(ValueError, match="total isn't known"):
        learning_rate(50, total=None, peak=1.0, warmup=50)


def trained(seed, steps):
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = Optimizers(dict(module.named_parameters()), lr=0.1)
    return module, optimizer, [torch.randn(5, 3) for _ in range(steps)]


def advance(module, optimizer, batches):
    for batch in batches:
        module(batch).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_checkpoint_continues_bit_for_bit(tmp_path):
    module, optimizer, batches = trained(0, 6)
    advance(module, optimizer, batches[:3])
    save_checkpoint(tmp_path, Position(step=3, total=6, rows=15), optimizer)
    advance(module, optimizer, batches[3:])
    other, other_optimizer, _ = trained(1, 0)
    assert load_checkpoint(tmp_path, other_optimizer) == Position(step=3, total=6, rows=15)
    advance(other, other_optimizer, batches[3:])
    for ours, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_two_checkpoints_are_kept_and_half_written_ones_ignored(tmp_path):
    module, optimizer, batches = trained(0, 1)
    advance(module, optimizer, batches)
    for step in range(1, 5):
        save_checkpoint(tmp_path, Position(step=step), optimizer)
    (tmp_path / "checkpoints" / ".step-000000009.tmp").mkdir()
    assert [p.name for p in sorted((tmp_path / "checkpoints").glob("step-*"))] == ["step-000000003", "step-000000004"]
    assert load_checkpoint(tmp_path, optimizer).step == 4


def test_a_damaged_checkpoint_is_refused(tmp_path):
    _, optimizer, _ = trained(0, 0)
    path = save_checkpoint(tmp_path, Position(step=1), optimizer) / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(BankIntegrityError, match="damaged"):
        load_checkpoint(tmp_path, optimizer)


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:-9], lambda text: text.replace('"rows"', '"rowz"'), lambda text: text.replace(": 2", ": 3")],
)
def test_a_damaged_state_is_named_and_without_it_the_one_before_continues(tmp_path, damage):
    _, optimizer, _ = trained(0, 0)
    save_checkpoint(tmp_path, Position(step=1), optimizer)
    folder = save_checkpoint(tmp_path, Position(step=2), optimizer)
    path = folder / "state.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(BankIntegrityError, match=f"state.json: damaged. Delete {folder}: .* the checkpoint before it"):
        load_checkpoint(tmp_path, optimizer)
    shutil.rmtree(folder)
    assert load_checkpoint(tmp_path, optimizer) == Position(step=1)


@pytest.mark.parametrize("name", ["tokens.bin", "store.json"])
def test_a_damaged_store_is_built_again(tmp_path, name):
    _, store = make_store(tmp_path / "tokens", TEXTS, [TEXTS])
    rows = [store[row].tolist() for row in range(4)]
    path = next((tmp_path / "tokens").glob(name))
    path.write_bytes(path.read_bytes()[:-8] + b"        ")
    _, again = make_store(tmp_path / "tokens", TEXTS, [TEXTS])
    assert [again[row].tolist() for row in range(4)] == rows


def planted(rows=600, d=8):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, np.linalg.qr(rng.standard_normal((d, d)))[0]


def test_frame_gap_is_what_a_planted_rotation_hides():
    x, rotation = planted()
    raw = float((x[1::2] @ rotation * x[1::2]).sum(axis=1).mean())
    assert frame_gap(x @ rotation, x) == pytest.approx(1 - raw, abs=1e-9)
    assert frame_gap(x, x) == pytest.approx(0, abs=1e-9)


def test_gauges_of_a_perfect_and_of_a_shuffled_student():
    x, _ = planted()
    perfect = read_gauges(x, x, seed=0)
    assert perfect["target_cosine"] == 1.0
    assert perfect["retrieval_at_1_of_600"] == perfect["retrieval_at_1_of_150"] == 1.0
    shuffled = read_gauges(x, np.roll(x, 1, axis=0), seed=0)
    assert abs(shuffled["target_cosine"]) < 0.1
    assert shuffled["retrieval_at_1_of_600"] < 0.02
    assert perfect == read_gauges(x, x, seed=0)


def test_held_out_rows_are_disjoint_and_differ_by_seed():
    training, held_out = split_held_out(5000, seed=0)
    assert len(held_out) == 500
    assert np.array_equal(np.sort(np.concatenate([training, held_out])), np.arange(5000))
    assert not np.array_equal(held_out, split_held_out(5000, seed=1)[1])
    assert len(split_held_out(100_000, seed=0)[1]) == 1024


def budget_of(work, seconds=600.0, final_bytes=1_500_000_000):
    return TimeBudget(seconds, work, most_readings=12, final_bytes=final_bytes)


def test_time_budget_leaves_room_for_gauges_and_writes(tmp_path):
    budget = budget_of(tmp_path)
    budget.gauge_seconds = 2.0
    budget.measured(6, 3.0)
    # 3% of 600 s are 9 readings of 2 s; 600 - 60 - 18 - 10 s of writing are 1,024 steps of half a second.
    assert budget.decide(6, spent=60.0, readings=None) == Decision(6, 6 + 1024, 9)


def test_a_machine_that_becomes_faster_gets_more_steps(tmp_path):
    budget = budget_of(tmp_path, final_bytes=0)
    budget.measured(6, 30.0)
    slow = budget.decide(6, spent=30.0, readings=None)
    assert slow.total == 6 + 114
    assert slow.review == 6 + 15
    budget.measured(15, 1.5)
    fast = budget.decide(slow.review, spent=31.5, readings=slow.readings)
    assert fast.total > 5 * slow.total


def test_decisions_are_replayed_and_not_measured_again(tmp_path):
    first = budget_of(tmp_path)
    first.measured(6, 3.0)
    kept = first.decide(6, spent=10.0, readings=None)
    again = budget_of(tmp_path)
    assert not again.first_review(5, 1e9)
    assert again.first_review(6, 0.0)
    again.measured(6, 300.0)
    assert again.decide(6, spent=500.0, readings=None) == kept


def test_without_time_left_a_training_ends_where_it_is(tmp_path):
    budget = budget_of(tmp_path, seconds=10.0, final_bytes=0)
    budget.measured(6, 3.0)
    assert budget.decide(6, spent=60.0, readings=None).total == 6


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "got none"),
        ({"steps": 3, "minutes": 1.0}, "--steps and --minutes"),
        ({"epochs": 0.0}, "--epochs above 0"),
        ({"minutes": float("nan")}, "--minutes above 0"),
        ({"steps": 3, "lr": 0.0}, "learning rate"),
        ({"steps": 3, "batch_rows": 1}, "at least 2"),
        ({"steps": 3, "precision": "fp8"}, "fp8"),
        ({"steps": 3, "checkpoint_seconds": 0.0}, "checkpoint"),
    ],
)
def test_impossible_settings_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        TrainingSettings(**fields)


def test_a_disk_that_is_full_when_the_log_closes_is_a_storage_error(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"log\.jsonl"), TrainingLog(tmp_path, keep_bytes=0) as journal:
            journal.write({"step": 1, "loss": 0.5})  # buffered: only closing writes it
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    module = torch.nn.Linear(2, 2)
    optimizer = Optimizers(dict(module.named_parameters()))
    left = tmp_path / "checkpoints" / ".step-000000003.tmp"
    left.mkdir(parents=True)
    save_checkpoint(tmp_path, Position(step=4, total=9), optimizer)
    assert [path.name for path in left.parent.iterdir()] == ["step-000000004"]
