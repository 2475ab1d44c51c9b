import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save

from consilience.adapters.anchor import Anchor, AnchorConfig
from consilience.adapters.attach import attach_amoe, detach_amoe
from consilience.adapters.library import FILE, AnchorLibrary, load_library, save_library
from consilience.adapters.trunk import identify_trunk, run_probe
from consilience.core.errors import BankIntegrityError, InputError, ResumeError, ShapeError, TrunkMismatchError
from consilience.core.hashing import content_id, file_sha256
from consilience.core.manifests import read_manifest


@pytest.fixture
def bound(make_bert, make_library):
    library = make_library()
    library.provenance["equiv"] = {"recipe": {"steps": 1500}, "data": "ab12", "seeds": [0]}
    model = make_bert()
    attach_amoe(model, library)
    detach_amoe(model)
    return model, library


def test_a_round_trip_gives_the_same_bits(bound, tmp_path):
    model, library = bound
    manifest = save_library(library, tmp_path / "one", job={"seed": 3})
    assert manifest["kind"] == "adapters"
    assert manifest["trunk"] == identify_trunk(model).to_json()
    assert manifest["parameters"] == library.parameter_count
    loaded = load_library(tmp_path / "one")
    assert loaded.names == library.names
    assert loaded.provenance == {**library.provenance}
    assert loaded.fingerprint() == library.fingerprint()
    assert loaded.anchor("para").config == library.anchor("para").config
    attach_amoe(model, library)
    expected = run_probe(model)
    detach_amoe(model)
    attach_amoe(model, tmp_path / "one")
    assert torch.equal(run_probe(model), expected)
    detach_amoe(model)
    save_library(loaded, tmp_path / "two", job={"seed": 3})
    for name in ("manifest.json", FILE):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_file_says_what_it_is_without_its_manifest(bound, tmp_path):
    from safetensors import safe_open

    save_library(bound[1], tmp_path / "out", job={"command": "adapt fit"})
    with safe_open(tmp_path / "out" / FILE, framework="pt") as file:
        body = json.loads(file.metadata()["consilience"])
    assert body["trunk"]["fingerprint"] == bound[1].trunk.fingerprint
    assert body["job"] == {"command": "adapt fit"}
    assert body["anchors"][0]["provenance"] == {"recipe": {"steps": 1500}, "data": "ab12", "seeds": [0]}


def test_a_stored_sharp_temperature_was_said_where_it_was_chosen(bound, tmp_path, capsys):
    bound[1].temperature = 0.05
    save_library(bound[1], tmp_path / "out")
    capsys.readouterr()
    assert load_library(tmp_path / "out").temperature == 0.05
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "edited manifest", "no safetensors"])
def test_damaged_files_are_refused(bound, tmp_path, damage):
    out = tmp_path / "out"
    save_library(bound[1], out)
    weights = out / FILE
    data = weights.read_bytes()
    if damage == "truncated":
        weights.write_bytes(data[:-100])
    elif damage == "flipped":
        weights.write_bytes(data[:-50] + bytes([data[-50] ^ 1]) + data[-49:])
    elif damage == "missing":
        weights.unlink()
    elif damage == "edited manifest":
        manifest = json.loads((out / "manifest.json").read_text())
        manifest["trunk"]["fingerprint"] = "0" * 64
        (out / "manifest.json").write_text(json.dumps(manifest))
    else:
        _rewrite(out, b"no safetensors")
    with pytest.raises(BankIntegrityError):
        load_library(out)


def _rewrite(out, data, **changes):
    """Change a library as somebody would who also repairs its checksums."""
    (out / FILE).write_bytes(data)
    manifest = json.loads((out / "manifest.json").read_text()) | changes
    manifest["files"][FILE] = file_sha256(out / FILE)
    body = {key: value for key, value in manifest.items() if key != "id"}
    (out / "manifest.json").write_text(json.dumps({**body, "id": content_id(body, prefix="adapters-")}))


def test_edits_with_repaired_checksums_are_refused_too(bound, tmp_path):
    out = tmp_path / "out"
    save_library(bound[1], out)
    tensors, data = load_file(out / FILE), (out / FILE).read_bytes()
    trunk = {**read_manifest(out)["trunk"], "fingerprint": "0" * 64}
    _rewrite(out, data, trunk=trunk)
    with pytest.raises(BankIntegrityError, match="describe different libraries"):
        load_library(out)
    shutil.rmtree(out)
    save_library(bound[1], out)
    from safetensors import safe_open

    with safe_open(out / FILE, framework="pt") as file:
        metadata = file.metadata()
    for change in (
        {"keys": tensors["keys"][:2].contiguous()},
        {"keys": torch.full_like(tensors["keys"], float("nan"))},
        {"anchors.para.blocks.0.gate": None},
        {"anchors.topical.blocks.0.gate": torch.zeros(())},
    ):
        changed = {key: value for key, value in {**tensors, **change}.items() if value is not None}
        _rewrite(out, save(changed, metadata=metadata))
        with pytest.raises(BankIntegrityError, match=f"{next(iter(change))} is damaged"):
            load_library(out)


def test_what_isn_t_saved(bound, make_library, tmp_path):
    with pytest.raises(InputError, match="met their trunk"):
        save_library(make_library(), tmp_path / "out")
    save_library(bound[1], tmp_path / "out")
    with pytest.raises(ResumeError, match="already exists"):
        save_library(bound[1], tmp_path / "out")
    save_library(bound[1], tmp_path / "out", overwrite=True)
    with torch.no_grad():
        bound[1].keys[1, 1] = float("inf")
    with pytest.raises(InputError, match="keys has others"):
        save_library(bound[1], tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(InputError, match="no such file or folder"):
        load_library(tmp_path / "nowhere")


def test_anchors_of_two_trunks_don_t_mix(bound, make_bert, make_library):
    foreign = make_library("foreign")
    other = make_bert(seed=5)
    attach_amoe(other, foreign)
    detach_amoe(other)
    with pytest.raises(TrunkMismatchError, match="anchor foreign was trained on trunk"):
        bound[1].add("foreign", foreign.anchor("foreign"))
    assert "foreign" not in bound[1].names


def test_keys_follow_their_anchors(make_library):
    library = make_library("one", "two", "three")
    keys = library.keys.detach().clone()
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(3))
    part = library.subset(["three", "one"])
    assert part.names == ("one", "three")
    assert torch.equal(part.keys.detach(), keys[[0, 2]])
    assert part.anchor("one") is library.anchor("one")
    with torch.no_grad():
        part.keys.zero_()
    assert torch.equal(library.keys.detach(), keys)  # copies
    removed = library.remove("two")
    assert isinstance(removed, Anchor)
    assert torch.equal(library.keys.detach(), keys[[0, 2]])
    library.add("two", removed, key=keys[1])
    assert library.names == ("one", "three", "two")
    assert library.parameters_of("keys") == [library.keys]
    assert library.subset([]).names == ()


def test_a_new_anchor_of_one_name_and_seed_is_always_the_same():
    one, same, other = AnchorLibrary(16, 1), AnchorLibrary(16, 1), AnchorLibrary(16, 1)
    for library, seed in ((one, 1), (same, 1), (other, 2)):
        library.add("equiv", seed=seed, config=AnchorConfig(hidden=8))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.mark.parametrize("name", ["", "Equiv", "off", "all", "solo", "keys", "items", "a.b", "1a", "one", "x" * 65])
def test_names_that_aren_t_names(make_library, name):
    with pytest.raises(InputError, match="expected a new name"):
        make_library("one").add(name)


def test_shapes_that_don_t_fit(make_library):
    library = make_library("one")
    with pytest.raises(ShapeError, match="expected anchors of 2 blocks of width 32, got two with 1 of 32"):
        library.add("two", Anchor(32, 1))
    with pytest.raises(ShapeError, match="expected a key of 32 numbers"):
        library.add("two", key=torch.ones(31))
    assert library.names == ("one",)
    with pytest.raises(InputError, match="at least 1"):
        AnchorLibrary(0, 1)
    with pytest.raises(InputError, match="expected names among one, got two"):
        library.trainable("two")
