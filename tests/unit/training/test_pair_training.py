from itertools import pairwise

import numpy as np
import pytest
import torch

from consilience.adapters.anchor import AnchorConfig
from consilience.adapters.attach import attach_amoe
from consilience.adapters.library import AnchorLibrary
from consilience.adapters.reads import read_drift
from consilience.core.errors import InputError
from consilience.corpora.caption_grammar import generate_pairs
from consilience.corpora.pairs import open_pairs
from consilience.training.key_alignment import align_keys, mean_state, read_keys, start_keys
from consilience.training.pair_loop import DivergedError, PairSettings, pair_infonce, train_on_pairs
from consilience.training.pair_tokens import PairBatches, tokenize_pairs

PAIRS = [(p.sentence1, p.sentence2) for p in generate_pairs(400, seed=1) if p.score >= 3.5]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(pair_model):
    return pair_model


@pytest.fixture
def domain(model):
    return tokenize_pairs(model, open_pairs(PAIRS), name="equiv", seed=0)


def test_infonce_by_hand():
    left = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    groups = np.array([[0, 1], [2, 3], [0, 5]])  # rows 0 and 2 share their first text: no negatives of one another
    loss = pair_infonce(left, left, groups, temperature=1.0)
    e = np.exp(1.0)
    rows = [np.log(1 + 1 / e), np.log(1 + 2 / e), np.log(1 + 1 / e)]
    assert loss.item() == pytest.approx(np.mean(rows), abs=1e-6)
    with pytest.raises(InputError, match="one class"):
        pair_infonce(left, left, np.array([[0, 1], [0, 2], [0, 3]]), temperature=1.0)


def test_crossed_texts_are_no_negatives():
    x = torch.nn.functional.normalize(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    crossed = pair_infonce(x, x.flip(1), np.array([[0, 1], [1, 2], [3, 4]]), temperature=1.0)
    plain = pair_infonce(x, x.flip(1), np.array([[0, 1], [5, 2], [3, 4]]), temperature=1.0)
    assert crossed < plain  # one term fewer in one denominator


def test_held_out_pairs_share_no_text_with_training(model):
    crossed = [(one[0], other[1]) for one, other in pairwise(PAIRS[:60])]  # texts that several pairs have
    pairs = open_pairs([*PAIRS, *crossed])
    domain = tokenize_pairs(model, pairs, name="equiv", seed=0)
    assert len(domain.held_out) + len(domain.training) < len(pairs)
    held = {tuple(row.tolist()) for side in (domain.left, domain.right) for row in (side[i] for i in domain.held_out)}
    trained = {
        tuple(row.tolist()) for side in (domain.left, domain.right) for row in (side[i] for i in domain.training)
    }
    assert len(domain.held_out) >= 4
    assert not held & trained


def test_batches_are_a_function_of_the_step_and_alternate(domain):
    from dataclasses import replace

    other = replace(domain, name="para", training=domain.training[:50])
    one, two = (PairBatches([domain, other], rows=16, seed=5) for _ in range(2))
    for step in range(12):
        one.at(step)
    assert [one.at(step)[0].name for step in range(4)] == ["equiv", "para", "equiv", "para"]
    np.testing.assert_array_equal(one.at(9)[1], two.at(9)[1])
    epoch = np.concatenate([two.at(step)[1] for step in (1, 3, 5)])
    assert len(set(epoch.tolist())) == 48


def test_embedding_matches_the_students_own(model):
    texts = ["a cat", *(p[0] for p in PAIRS[:9])]
    np.testing.assert_allclose(model.encode_ids(model.tokenize(texts)), model.model.encode(texts), atol=1e-6)


def test_an_anchor_learns_and_the_trunk_does_not(model, domain, tmp_path):
    library = AnchorLibrary(32, 2)
    anchor = library.add("equiv", seed=0)
    handle = attach_amoe(model.model, library)
    before = model.identity()
    library.trainable("equiv")
    # A random trunk has no geometry to keep: the higher temperature learns faster.
    settings = PairSettings(steps=40, batch_rows=24, lr=3e-3, gauge_readings=2, temperature=0.07)
    with handle.training(), handle.solo("equiv"):
        summary = train_on_pairs(model, [domain], dict(anchor.named_parameters()), settings, tmp_path)
    assert model.identity() == before
    last = max(key for key in summary.last if "retrieval" in key)
    assert summary.last[last] > summary.first[last]
    (drift,) = read_drift(library)
    assert min(drift.mean_radians) > 0
    handle.detach()


def test_a_pair_of_one_view_is_refused_in_training(model, domain, tmp_path):
    """Law "two views from one forward pass": both sides from one input, under numbers that call them two texts."""
    from dataclasses import replace

    library = AnchorLibrary(32, 2)
    anchor = library.add("equiv")
    handle = attach_amoe(model.model, library)
    library.trainable("equiv")
    one_view = replace(domain, right=domain.left)
    with (
        handle.training(),
        handle.solo("equiv"),
        pytest.raises(InputError, match="the two views have the same token ids in every row"),
    ):
        train_on_pairs(model, [one_view], dict(anchor.named_parameters()), PairSettings(steps=1), tmp_path)
    handle.detach()


def test_a_diverging_training_stops(model, domain, tmp_path):
    library = AnchorLibrary(32, 2)
    anchor = library.add("equiv")
    handle = attach_amoe(model.model, library)
    library.trainable("equiv")
    with torch.no_grad():
        anchor.block(0).output.weight.fill_(float("nan"))
    with handle.training(), handle.solo("equiv"), pytest.raises((DivergedError, InputError, ValueError)):
        train_on_pairs(model, [domain], dict(anchor.named_parameters()), PairSettings(steps=3), tmp_path)


def test_keys_start_audible_and_a_starved_one_is_revived(model, domain, tmp_path):
    from dataclasses import replace

    library = AnchorLibrary(32, 2)
    for number, name in enumerate(("equiv", "para")):
        library.add(name, seed=number, config=AnchorConfig(slots=4, atoms=8, hidden=8))
    handle = attach_amoe(model.model, library)
    second = replace(domain, name="para")
    domains = [domain, second]
    start = start_keys(handle, model, domains)
    torch.testing.assert_close(start[0], mean_state(model, domain))
    reads = read_keys(handle, model, domains)
    assert min(reads.own["equiv"].signed) > 0
    assert 0 < reads.own["equiv"].share_sum < 1
    assert reads.ratios["para"].ratio == pytest.approx(1.0)  # both domains have the same texts

    from consilience.training import key_alignment

    wanted = key_alignment.STARVED_SHARE
    key_alignment.STARVED_SHARE = 2.5  # more than everyone can have: all are starved
    try:
        summary, reads = align_keys(handle, model, domains, PairSettings(steps=32, batch_rows=16), tmp_path)
    finally:
        key_alignment.STARVED_SHARE = wanted
    assert {event["revived"] for event in summary.events} == {"equiv", "para"}
    assert max(event["step"] for event in summary.events) <= 24
    assert reads.starved == ("equiv", "para")
    assert library.keys_trunk == handle.trunk
    handle.detach()


@pytest.mark.parametrize("bad", [{"steps": 0}, {"batch_rows": 1}, {"lr": 0.0}, {"temperature": float("nan")}])
def test_settings_are_checked(bad):
    with pytest.raises(InputError, match="adapt"):
        PairSettings(**bad)
