"""Align and consensus on synthetic banks: what they compute, what they refuse, what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from consilience.banks.reader import open_bank
from consilience.banks.writer import BankWriter
from consilience.committee.consensus_report import rounded_json
from consilience.committee.frame_set import load_frames, open_frames
from consilience.committee.targets import centroid
from consilience.core.errors import (
    AlignmentRefusedError,
    BankIntegrityError,
    FrameMismatchError,
    InputError,
    ResumeError,
    ShapeError,
)
from consilience.core.manifests import partial_path
from consilience.frames.align import identity_map
from consilience.frames.rows import normalise_rows
from consilience.recipes.align import align
from consilience.recipes.consensus import consensus

ROWS = 3000
RNG = np.random.default_rng


def vectors(name, d, *, noise=0.7, rows=ROWS):
    latent = RNG(0).standard_normal((rows, 24))
    seed = sum(map(ord, name))
    mixing = RNG(seed).standard_normal((24, d))
    return latent @ mixing + noise * RNG(seed + 1).standard_normal((rows, d))


def make_bank(folder, name, x, *, corpus="abc", **teacher):
    identity = {"backend": "synthetic", "name": name, **teacher}
    with BankWriter(
        folder, rows=len(x), dimensions=x.shape[1], dtype="fp16", corpus={"fingerprint": corpus, "rows": len(x)},
        teacher=identity, frame=None, shard_rows=512,
    ) as writer:  # fmt: skip
        for start, stop in writer.missing():
            writer.write_shard(start, x[start:stop])
        writer.finish()
    return folder


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks")
    return [make_bank(folder / name, name, vectors(name, d)) for name, d in (("one", 24), ("two", 20), ("three", 32))]


@pytest.fixture(scope="module")
def frames(banks, tmp_path_factory):
    return align(banks, reference="one", out=tmp_path_factory.mktemp("frames") / "frames")


def test_align_writes_maps_reports_and_identity(banks, frames):
    loaded = load_frames(frames.path)
    assert open_frames is load_frames
    assert loaded.manifest == frames.manifest
    assert loaded.frame.startswith("frame-")
    reference = open_bank(banks[0])
    assert loaded.reference_bank_id == reference.id
    assert set(loaded.maps) == {open_bank(path).teacher_id for path in banks}
    np.testing.assert_array_equal(loaded.maps[reference.teacher_id].matrix, np.eye(24, dtype=np.float32))
    assert loaded.manifest["rows"] == {"fit": 2400, "held_out": 600}
    reports = {entry["label"]: entry["report"] for entry in loaded.teachers.values()}
    assert reports["synthetic:one"] is None
    assert reports["synthetic:two"]["verdict"] == "ok", reports["synthetic:two"]["reasons"]
    assert reports["synthetic:three"]["out_of_sample_recall"] > 0.5
    assert sorted(path.name for path in frames.path.iterdir()) == ["manifest.json", "maps.safetensors"]


def test_a_reference_may_be_a_path_a_name_or_a_bank_that_is_not_listed(banks, frames, tmp_path):
    by_path = align(banks, reference=banks[0], out=tmp_path / "a")
    by_bank = align([open_bank(p) for p in banks], reference=open_bank(banks[0]), out=tmp_path / "b")
    unlisted = align(banks[1:], reference=banks[0], out=tmp_path / "c")
    assert by_path.frame == by_bank.frame == unlisted.frame == frames.frame
    assert by_path.id == frames.id
    with pytest.raises(InputError, match=r"reference: expected one of the banks, none matches 'four'.*synthetic:one"):
        align(banks, reference="four", out=tmp_path / "d")


def test_another_fit_is_another_frame(banks, frames, tmp_path):
    ids = {
        frames.frame,
        align(banks, reference="two", out=tmp_path / "a").frame,
        align(banks, reference="one", method="orthogonal", out=tmp_path / "b").frame,
        align(banks, reference="one", seed=1, out=tmp_path / "c").frame,
        align(banks, reference="one", shrinkage="ledoit-wolf", out=tmp_path / "d").frame,
    }
    assert len(ids) == 5


def test_a_finished_job_is_returned_and_another_refused(banks, frames, tmp_path):
    before = (frames.path / "maps.safetensors").stat().st_mtime_ns
    assert align(banks, reference="one", out=frames.path).id == frames.id
    assert (frames.path / "maps.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ResumeError, match="isn't the result of this command"):
        align(banks, reference="one", method="ridge", out=frames.path)
    again = align(banks, reference="one", out=tmp_path / "f")
    replaced = align(banks, reference="one", method="ridge", out=tmp_path / "f", overwrite=True)
    assert replaced.frame != again.frame


def test_maps_at_the_null_are_refused_unless_forced(banks, tmp_path):
    noise = make_bank(tmp_path / "noise", "noise", RNG(9).standard_normal((ROWS, 24)))
    with pytest.raises(
        AlignmentRefusedError, match=r"1 of 2 maps into synthetic:one refused: synthetic:noise:.*chance"
    ):
        align([banks[0], banks[1], noise], reference="one", out=tmp_path / "frames")
    assert not (tmp_path / "frames").exists()
    assert not partial_path(tmp_path / "frames").exists()
    forced = align([banks[0], noise], reference="one", out=tmp_path / "frames", force=True)
    verdicts = [entry["report"]["verdict"] for entry in forced.teachers.values() if entry["report"]]
    assert verdicts == ["refused"]


def test_low_rank_sources_and_small_corpora_are_refused(banks, tmp_path):
    flat = make_bank(tmp_path / "flat", "flat", vectors("one", 24)[:, :2] @ RNG(1).standard_normal((2, 24)))
    with pytest.raises(AlignmentRefusedError, match="effective rank of the source"):
        align([banks[0], flat], reference="one", out=tmp_path / "frames")
    few = [make_bank(tmp_path / n, n, vectors(n, 64, rows=200), corpus="few") for n in ("x", "y")]
    with pytest.raises(AlignmentRefusedError, match=r"need at least 4 rows per dimension \(256 for 64\), got 160"):
        align(few, reference="x", out=tmp_path / "frames")


def test_banks_that_do_not_belong_together_are_refused(banks, tmp_path):
    other = make_bank(tmp_path / "other", "other", vectors("other", 16), corpus="def")
    with pytest.raises(FrameMismatchError, match=r"different corpora.*abc.*def"):
        align([banks[0], other], reference="one", out=tmp_path / "frames")
    twin = make_bank(tmp_path / "twin", "two", vectors("two", 20))
    with pytest.raises(InputError, match=r"two and .*twin are banks of the same teacher"):
        align([*banks, twin], reference="one", out=tmp_path / "frames")
    with pytest.raises(InputError, match="at least two banks"):
        align(banks[:1], reference="one", out=tmp_path / "frames")
    prompted = make_bank(tmp_path / "prompted", "two", vectors("two", 20), prompt="query: ")
    with pytest.raises(InputError, match="2 matches 'synthetic:two'"):
        align([*banks, prompted], reference="synthetic:two", out=tmp_path / "frames")


def test_consensus_is_the_normalised_mean_of_aligned_rows(banks, frames, tmp_path):
    bank = consensus(banks, frames=frames.path, out=tmp_path / "c", dtype="fp32")
    assert bank.frame == frames.frame
    assert bank.rows == ROWS
    opened = [open_bank(path) for path in banks]
    mean = np.zeros((ROWS, 24))
    for member in opened:
        affine = frames.maps[member.teacher_id]
        x = member[:].astype(np.float64)
        y = x / np.linalg.norm(x, axis=1, keepdims=True) @ affine.matrix.astype(np.float64) + affine.bias
        mean += y / np.linalg.norm(y, axis=1, keepdims=True) / 3
    norms = np.linalg.norm(mean, axis=1)
    np.testing.assert_allclose(bank[:], mean / norms[:, None], atol=2e-6)

    report = bank.manifest["extra"]["report"]
    held_out = frames.held_out_rows("abc")
    assert report["sample"] == {"rows": 600, "held_out": True}
    assert report["centroid_norm"]["mean"] == pytest.approx(norms[held_out].mean(), abs=1e-5)
    assert [t["label"] for t in report["teachers"]] == ["synthetic:one", "synthetic:two", "synthetic:three"]
    assert all(t["agreement_with_others"]["mean"] < t["agreement"]["mean"] for t in report["teachers"])
    assert report["target"]["effective_rank"]["participation"] > 5
    matrix = np.array(report["agreement_matrix"]["values"])
    np.testing.assert_allclose(matrix, matrix.T)
    assert np.isfinite(matrix).all()


def test_weights_and_leaving_out(banks, frames, tmp_path):
    alone = consensus(banks, frames=frames, out=tmp_path / "a", leave_out=["two", "synthetic:three"])
    np.testing.assert_allclose(alone[:], open_bank(banks[0])[:], atol=2e-3)
    weighted = consensus(banks, frames=frames, out=tmp_path / "b", weights={"two": 0, str(banks[2]): 0})
    np.testing.assert_array_equal(alone[:], weighted[:])
    shares = [
        m["weight"] for m in consensus(banks, frames=frames, out=tmp_path / "c", weights={"one": 2}).teacher["members"]
    ]
    assert shares == [0.5, 0.25, 0.25]
    with pytest.raises(InputError, match="all are 0 or left out"):
        consensus(banks, frames=frames, out=tmp_path / "d", leave_out=["one", "two", "three"])
    with pytest.raises(InputError, match=r"number >= 0 for two, got -1"):
        consensus(banks, frames=frames, out=tmp_path / "d", weights={"two": -1})
    with pytest.raises(InputError, match="leave-out: expected one of the banks, none matches 'nobody'"):
        consensus(banks, frames=frames, out=tmp_path / "d", leave_out=["nobody"])
    assert not (tmp_path / "d").exists()


def test_consensus_refuses_other_frames_damage_and_other_jobs(banks, frames, tmp_path):
    stranger = make_bank(tmp_path / "stranger", "stranger", vectors("stranger", 24))
    with pytest.raises(FrameMismatchError, match=r"stranger is in frame teacher:.*no map from it into frame-.*align"):
        consensus([banks[0], stranger], frames=frames, out=tmp_path / "c")
    other = make_bank(tmp_path / "other", "two", vectors("two", 20), corpus="def")
    with pytest.raises(FrameMismatchError, match="different corpora"):
        consensus([banks[0], other], frames=frames, out=tmp_path / "c")
    broken = make_bank(tmp_path / "broken", "two", vectors("two", 20))
    shard = broken / "shard-00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    shard.write_bytes(content)
    for job in (
        lambda: consensus([banks[0], broken], frames=frames, out=tmp_path / "c"),
        lambda: align([banks[0], broken], reference="one", out=tmp_path / "c"),
    ):
        with pytest.raises(BankIntegrityError, match="shard-00002"):
            job()
    assert not (tmp_path / "c").exists()
    assert not partial_path(tmp_path / "c").exists()
    done = consensus(banks, frames=frames, out=tmp_path / "c")
    assert consensus(banks, frames=frames, out=tmp_path / "c").id == done.id
    with pytest.raises(ResumeError, match="isn't the result of this command"):
        consensus(banks, frames=frames, out=tmp_path / "c", leave_out=["two"])
    with pytest.raises(InputError, match="expected a frames folder, found a bank"):
        consensus(banks, frames=done.path, out=tmp_path / "e")


def test_damaged_maps_are_refused(banks, tmp_path):
    frames = align(banks, reference="one", out=tmp_path / "frames")
    maps = frames.path / "maps.safetensors"
    content = bytearray(maps.read_bytes())
    content[-1] ^= 1
    maps.write_bytes(content)
    with pytest.raises(BankIntegrityError, match="damaged"):
        load_frames(frames.path)


def test_frames_of_one_corpus_serve_another(banks, frames, tmp_path):
    fresh = [make_bank(tmp_path / n, n, vectors(n, d)[:700], corpus="new") for n, d in (("one", 24), ("two", 20))]
    bank = consensus(fresh, frames=frames, out=tmp_path / "c")
    assert bank.manifest["extra"]["report"]["sample"] == {"rows": 700, "held_out": False}
    assert bank.frame == frames.frame


def test_teachers_that_cancel_out_and_misfits_are_named():
    x = normalise_rows(RNG(0).standard_normal((4, 3)).astype(np.float32))
    mean = centroid([x, -x], [identity_map(3)] * 2, [0.5, 0.5])
    with pytest.raises(InputError, match="row 0"):
        normalise_rows(mean)
    with pytest.raises(ShapeError, match="one map and one weight"):
        centroid([x], [identity_map(3)] * 2, [1.0])
    assert rounded_json((1 / 3, {"a": True})) == [0.333333, {"a": True}]


def run_cli(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "consilience", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"},
    )


def test_command_line_tables_json_and_refusals(banks, tmp_path):
    shown = run_cli("align", *banks, "--reference", banks[0], "--out", tmp_path / "frames")
    assert shown.returncode == 0, shown.stderr
    assert "synthetic:two" in shown.stdout
    printed = run_cli("align", *banks, "--reference", "one", "--out", tmp_path / "frames", "--json")
    report = json.loads(printed.stdout)
    assert report["kind"] == "frames"
    assert printed.stderr == ""
    made = run_cli(
        "consensus", *banks, "--frames", tmp_path / "frames", "--out", tmp_path / "c", "--json",
        "--weight", "one=2", "--leave-out", "three",
    )  # fmt: skip
    facts = json.loads(made.stdout)
    assert facts["frame"] == report["frame"]
    assert [m["weight"] for m in facts["members"]] == pytest.approx([2 / 3, 1 / 3, 0])
    refused = run_cli("consensus", *banks, "--frames", tmp_path / "nowhere", "--out", tmp_path / "d")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "nowhere" in refused.stderr
    for wrong in (["--weight", "one"], ["--weight", "one=heavy"], ["--dtype", "int8"]):
        assert (
            run_cli("consensus", *banks, "--frames", tmp_path / "frames", "--out", tmp_path / "d", *wrong).returncode
            == 2
        )
    assert not (tmp_path / "d").exists()


def test_gpa_needs_no_reference_and_its_consensus_is_marked_as_without_axes(banks, tmp_path):
    found = align(banks, method="gpa", out=tmp_path / "gpa")
    assert (found.dimensions, found.reference_bank_id, found.manifest["reference"]) == (32, None, None)
    facts = found.manifest["gpa"]
    assert facts["converged"]
    assert 0.5 < facts["alignment"] < 1
    assert {entry["report"]["verdict"] for entry in found.teachers.values()} <= {"ok", "weak"}
    target = consensus(banks, frames=found, out=tmp_path / "target")
    assert (target.dimensions, target.frame) == (32, found.frame)
    assert target.manifest["extra"]["without_axes"] is True
    narrow = align(banks, method="gpa", dimensions=8, out=tmp_path / "narrow")
    assert narrow.dimensions == 8
    with pytest.raises(InputError, match="needs no --reference"):
        align(banks, method="gpa", reference="one", out=tmp_path / "x")
    with pytest.raises(InputError, match="--reference, whose frame"):
        align(banks, out=tmp_path / "x")
    with pytest.raises(InputError, match="--rank is an option of --method low-rank"):
        align(banks, reference="one", rank=3, out=tmp_path / "x")
    with pytest.raises(InputError, match="--dimensions is an option of --method gpa"):
        align(banks, reference="one", dimensions=3, out=tmp_path / "x")


def test_a_tower_that_follows_nobody_is_refused_in_a_gpa_frame(banks, tmp_path):
    noise = make_bank(tmp_path / "noise", "noise", RNG(9).standard_normal((ROWS, 24)))
    with pytest.raises(AlignmentRefusedError, match=r"1 of 4 maps into the towers' own frame refused: synthetic:noise"):
        align([*banks, noise], method="gpa", out=tmp_path / "gpa")
    assert not (tmp_path / "gpa").exists()


@pytest.mark.parametrize("options", [{"method": "isotropic"}, {"method": "low-rank", "rank": 12}, {"shrinkage": "gcv"}])
def test_the_other_maps_have_reports_of_their_own(banks, tmp_path, options):
    found = align(banks, reference="one", out=tmp_path / "f", **{"method": "ridge", **options})
    reports = [entry["report"] for entry in found.teachers.values() if entry["report"]]
    assert all(report["out_of_sample_recall"] > 0.3 for report in reports)
