"""Rotations: fitted, judged, stored in fp16, checked when loaded, applied to banks, students and exports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save

from consilience.banks.writer import BankWriter
from consilience.committee.rotation import (
    judge_rotation,
    load_rotation,
    require_frame,
    require_orthogonal,
    save_rotation,
    solve_rotation,
    unit_pairs,
)
from consilience.core.errors import (
    AlignmentRefusedError,
    BankIntegrityError,
    FrameMismatchError,
    InputError,
    ResumeError,
)
from consilience.core.hashing import content_id, file_sha256
from consilience.core.manifests import read_manifest
from consilience.recipes.rotate import rotate, rotate_bank

CORPUS = {"fingerprint": "c" * 64, "rows": 1_200}


def make_bank(path, rows, name, corpus=CORPUS):
    options = {"rows": len(rows), "dimensions": rows.shape[1], "dtype": "fp32", "corpus": corpus, "frame": None}
    with BankWriter(path, teacher={"backend": "test", "name": name}, **options) as writer:
        for start, stop in writer.missing():
            writer.write_shard(start, rows[start:stop])
        return writer.finish()


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((1_200, 24)).astype(np.float32)


@pytest.fixture
def turn():
    return np.linalg.qr(np.random.default_rng(1).standard_normal((24, 24)))[0].astype(np.float32)


def test_planted_rotation_of_banks_is_found_and_reported(tmp_path, rows, turn):
    source, target = make_bank(tmp_path / "a", rows, "a"), make_bank(tmp_path / "b", rows @ turn, "b")
    found = rotate(source, into=target.path, out=tmp_path / "turn", pairs=500, held_out=400)
    np.testing.assert_allclose(found.matrix, turn, atol=1e-3)  # as stored, in fp16
    report = found.manifest["report"]
    assert report["after"] == {"cosine": pytest.approx(1, abs=1e-4), "recall_at_1": 1.0, "recall_at_10": 1.0}
    assert report["before"]["recall_at_1"] < 0.05
    assert abs(report["null"]["cosine"]) < 0.1
    assert (report["verdict"], found.source_frame, found.target_frame) == ("ok", source.frame, target.frame)
    assert (tmp_path / "turn" / "rotation.safetensors").stat().st_size < 24 * 24 * 2 + 200
    again = rotate(source, into=target, out=tmp_path / "turn", pairs=500, held_out=400)
    assert again.id == found.id
    with pytest.raises(ResumeError, match="isn't the result"):
        rotate(source, into=target, out=tmp_path / "turn", pairs=501, held_out=400)


def test_a_bank_is_written_in_the_frame_that_it_was_rotated_into(tmp_path, rows, turn):
    source, target = make_bank(tmp_path / "a", rows, "a"), make_bank(tmp_path / "b", rows @ turn, "b")
    found = rotate(source, into=target, out=tmp_path / "turn", pairs=500, held_out=400)
    rotated = rotate_bank(source.path, rotation=found.path, out=tmp_path / "rotated")
    assert rotated.frame == target.frame
    np.testing.assert_allclose(rotated[0:1_200], target[0:1_200], atol=2e-3)
    assert rotate_bank(source, rotation=found, out=tmp_path / "rotated").id == rotated.id
    with pytest.raises(FrameMismatchError, match="rotates frame"):
        rotate_bank(target, rotation=found, out=tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_unequal_widths_have_no_before(tmp_path, rows, turn):
    source, target = make_bank(tmp_path / "a", rows[:, :16], "a"), make_bank(tmp_path / "b", rows, "b")
    found = rotate(source, into=target, out=tmp_path / "turn", pairs=500, held_out=400)
    assert found.matrix.shape == (16, 24)
    assert found.manifest["report"]["before"] is None


def test_refusals_leave_nothing(tmp_path, rows, turn):
    source = make_bank(tmp_path / "a", rows, "a")
    noise = np.random.default_rng(2).standard_normal(rows.shape).astype(np.float32)
    unrelated = make_bank(tmp_path / "u", noise, "u")
    elsewhere = make_bank(tmp_path / "e", rows @ turn, "e", corpus={"fingerprint": "d" * 64, "rows": 1_200})
    out = tmp_path / "turn"
    with pytest.raises(AlignmentRefusedError, match="at least 24 pairs"):
        rotate(source, into=unrelated, out=out, pairs=23, held_out=100)
    with pytest.raises(AlignmentRefusedError, match=r"refused.*null|refused.*chance"):
        rotate(source, into=unrelated, out=out, pairs=500, held_out=400)
    with pytest.raises(FrameMismatchError, match="same corpus"):
        rotate(source, into=elsewhere, out=out)
    with pytest.raises(InputError, match="nothing to rotate"):
        rotate(source, into=source, out=out)
    with pytest.raises(InputError, match="--corpus"):
        rotate(source, into="packaged:wordllama", out=out)
    assert not list(tmp_path.glob("turn*"))
    kept = rotate(source, into=unrelated, out=out, pairs=500, held_out=400, force=True)
    assert kept.manifest["report"]["verdict"] == "refused"


def test_an_edited_rotation_is_refused(tmp_path, rows, turn):
    source, target = make_bank(tmp_path / "a", rows, "a"), make_bank(tmp_path / "b", rows @ turn, "b")
    folder = rotate(source, into=target, out=tmp_path / "turn", pairs=500, held_out=400).path
    stored = (folder / "rotation.safetensors").read_bytes()
    (folder / "rotation.safetensors").write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    with pytest.raises(BankIntegrityError, match="checksum"):
        load_rotation(folder)
    # Even with checksum and id made to fit, a matrix that isn't orthogonal isn't a rotation.
    (folder / "rotation.safetensors").write_bytes(save({"rotation": (turn * 1.01).astype(np.float16)}))
    manifest = read_manifest(folder)
    manifest["files"]["rotation.safetensors"] = file_sha256(folder / "rotation.safetensors")
    manifest["id"] = content_id({k: v for k, v in manifest.items() if k != "id"}, prefix="rotation-")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BankIntegrityError, match="orthogonal"):
        load_rotation(folder)
    with pytest.raises(InputError, match="expected a rotation, found a bank"):
        load_rotation(source.path)


def test_frame_and_orthogonality_guards(tmp_path, turn):
    side = {"label": "a", "frame": "frame-1", "dimensions": 24, "id": "x"}
    manifest = {"source": side, "target": {**side, "frame": "frame-2"}, "rows": {}, "report": {}}
    rotation = save_rotation(tmp_path / "r", job={"job": 1}, manifest=manifest, matrix=turn)
    require_frame(rotation, "frame-1", what="the student")
    with pytest.raises(FrameMismatchError, match=r"frame-1 .*frame frame-9"):
        require_frame(rotation, "frame-9", what="the student")
    with pytest.raises(BankIntegrityError, match="Q'Q"):
        require_orthogonal(np.full((3, 3), np.nan), where="w")
    require_orthogonal(turn[:, :5], where="w")  # semi-orthogonal
    require_orthogonal(turn[:5], where="w")


def test_null_of_shuffled_pairs_is_low_where_the_map_is_real(rows, turn):
    fit = unit_pairs(rows[:600], rows[:600] @ turn, names=("a", "b"))
    held = unit_pairs(rows[600:], rows[600:] @ turn, names=("a", "b"))
    report = judge_rotation(solve_rotation(*fit), fit=fit, held_out=held)
    assert report.fit.measurements.out_of_sample_cosine == pytest.approx(1.0)
    assert report.null["recall_at_1"] < 0.05
