import math

import pytest
import torch

from consilience.adapters.attach import attach_amoe
from consilience.adapters.reads import AmplitudeRecorder, compare_domains, read_drift
from consilience.adapters.trunk import find_blocks
from consilience.core.errors import InputError


def _read(handle, model, batch, positional=False):
    with handle.record() as record, torch.no_grad():
        model(batch["input_ids"], batch["attention_mask"]) if positional else model(**batch)
    return record.result()


@pytest.mark.parametrize("positional", [False, True])
def test_shares_are_means_over_the_tokens_that_aren_t_padding(make_bert, make_library, batch, positional):
    model, library = make_bert(), make_library()
    handle = attach_amoe(model, library)
    outputs = []
    with handle.off():  # bare states, to compute the amplitudes from by hand
        for block in find_blocks(model):
            block.register_forward_hook(lambda module, args, output: outputs.append(output))
        read = _read(handle, model, batch, positional)
    real = batch["attention_mask"].bool()
    shares = torch.stack([library.amplitudes(states)[real] for states in outputs]).detach().double()
    assert read.tokens == int(real.sum()) == 21
    assert read.by_block == pytest.approx([pytest.approx(row.tolist()) for row in shares.abs().mean(dim=1)])
    assert read.shares == pytest.approx(shares.abs().mean(dim=(0, 1)).tolist())
    assert read.signed == pytest.approx(shares.mean(dim=(0, 1)).tolist())
    largest = shares.abs().argmax(dim=-1).flatten()
    assert read.usage == pytest.approx([(largest == k).double().mean().item() for k in range(3)])
    assert read.mask == "off"


def test_the_budget_is_conserved_whoever_is_masked(make_bert, make_library, batch):
    """The law: the share sum is reported, stays below 1, and masking doesn't hand shares on (checked on one block)."""
    model, library = make_bert(layers=1), make_library(blocks=1)
    handle = attach_amoe(model, library)
    whole = _read(handle, model, batch)
    assert whole.share_sum == pytest.approx(sum(whole.shares))
    assert 0 < whole.share_sum < 1
    assert whole.to_json()["share_sum"] == whole.share_sum
    assert sum(whole.usage) == pytest.approx(1)
    for names in (["equiv"], ["equiv", "para"]):
        with handle.mask(*names):
            masked = _read(handle, model, batch)
        assert masked.shares == whole.shares
        assert masked.damped
        assert masked.mask.endswith("(damped)")
    assert not whole.damped


def test_adding_an_anchor_takes_from_the_others(make_bert, make_library, batch):
    model, library = make_bert(), make_library("one", "two")
    handle = attach_amoe(model, library)
    with handle.off():
        before = _read(handle, model, batch)
        library.add("three", seed=9)
        after = _read(handle, model, batch)
    assert all(after.shares[k] < before.shares[k] for k in range(2))
    assert after.share_sum < 1


def test_labels():
    from consilience.adapters.masks import ALL, OFF, Mask

    assert (ALL.label, OFF.label) == ("all", "off")
    assert Mask("some", ("a", "b"), 3).label == "a + b (damped)"
    assert Mask("some", ("a", "b"), 2).label == "a + b"
    assert Mask("solo", ("a",), 3).to_json() == {"kind": "solo", "names": ["a"], "label": "a solo", "damped": False}


def test_rows_of_several_masks_don_t_average(make_bert, make_library, batch):
    model = make_bert()
    handle = attach_amoe(model, make_library())
    with handle.record() as record, torch.no_grad():
        model(**batch)
        with handle.only("equiv"):
            model(**batch)
    with pytest.raises(InputError, match=r"expected one mask, got all, equiv only \(damped\)"):
        record.result()


def test_nothing_read(make_bert, make_library, batch):
    model = make_bert()
    handle = attach_amoe(model, make_library())
    with handle.record() as record:
        pass
    with pytest.raises(InputError, match="expected texts to pass"):
        record.result()
    with handle.record() as record, handle.solo("equiv"), torch.no_grad():
        model(**batch)
    with pytest.raises(InputError, match="expected texts to pass"):
        record.result()
    for name in handle.library.names:
        handle.library.remove(name)
    with pytest.raises(InputError, match="empty"), handle.record():
        pass


def _recorded(shares, names=("one", "two"), forced=None):
    from consilience.adapters.masks import ALL

    recorder = AmplitudeRecorder(names, 1, forced=forced)
    recorder.add(0, torch.tensor([shares]), ALL)
    return recorder.result()


def test_own_domain_over_neutral():
    own, neutral = _recorded([0.6, -0.2]), _recorded([0.2, 0.16])
    one, two = (compare_domains(own, neutral, name) for name in ("one", "two"))
    assert (one.ratio, one.escapes_damping) == (pytest.approx(3.0), False)
    assert (two.ratio, two.escapes_damping) == (pytest.approx(1.25), True)
    assert two.to_json()["escapes_damping"] is True
    marked = compare_domains(_recorded([0.6, 0.2], forced={"anchors_of": "a", "attached_to": "b"}), neutral, "one")
    assert marked.to_json()["forced"] == {"anchors_of": "a", "attached_to": "b"}
    with pytest.raises(InputError, match="expected two reads of one library"):
        compare_domains(own, _recorded([0.1, 0.2], names=("one", "three")), "one")


def test_drift_is_an_angle(make_library):
    library = make_library("one")
    block = library.anchor("one").block(0)
    with torch.no_grad():
        first = block.atoms_init[0]
        other = torch.tensor([-first[1], first[0], -first[3], first[2]])  # at right angles, of length 1
        block.atoms[0] = 5 * (math.cos(0.3) * first + math.sin(0.3) * other)  # length has no effect
        block.atoms[1] = block.atoms_init[1] * 2
    (drift,) = read_drift(library)
    assert drift.max_radians[0] == pytest.approx(0.3, abs=1e-6)
    assert drift.mean_radians[0] == pytest.approx(0.3 / 64, abs=1e-6)
    assert drift.max_radians[1] == 0.0
    assert drift.gates == (0.5, 0.5)
    assert set(drift.to_json()) == {"name", "mean_radians", "max_radians", "gates"}
