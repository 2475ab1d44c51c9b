"""Students, their rotations and the frame law, with real trainings of a few steps."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import consilience
from consilience.core.errors import AlignmentRefusedError, FrameMismatchError, InputError
from consilience.corpora.caption_grammar import generate_captions
from consilience.students.presets import StudentConfig

pytestmark = pytest.mark.weights

TEACHER = "packaged:wordllama"
SHAPE = StudentConfig(layers=1, hidden=64, heads=2, ffn=128)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("law")
    (folder / "captions.txt").write_text("".join(f"{t}\n" for t in generate_captions(4_000, seed=0)), encoding="utf-8")
    (folder / "fresh.txt").write_text("".join(f"{t}\n" for t in generate_captions(2_500, seed=5)), encoding="utf-8")
    bank = consilience.embed(folder / "captions.txt", teacher=TEACHER, out=folder / "bank")
    for objective in ("composite", "affinity"):
        for seed in (0, 1):
            consilience.distill(
                folder / "captions.txt",
                target=bank,
                student=SHAPE,
                steps=120,
                batch_rows=128,
                lr=2e-3,
                objective=objective,
                seed=seed,
                out=folder / f"{objective}-{seed}",
            )
    return folder


def law(scene, *options):
    students = [str(scene / f"{objective}-{seed}") for objective in ("composite", "affinity") for seed in (0, 1)]
    command = [sys.executable, "-m", "consilience", "frames", "law", *students, "--into", TEACHER]
    options = ["--corpus", str(scene / "fresh.txt"), "--pairs", "1200", "--held-out", "1000", *options]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def test_the_families_part_before_the_rotation_and_the_relational_gauge_is_refused(scene):
    found = law(scene, "--json")
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout)
    rows = {(row["objective"], row["seed"]): row for row in result["students"]}
    anchored, relational = rows["composite", 0], rows["affinity", 0]
    assert anchored["family"] == "anchored"
    assert anchored["before"]["cosine"] > 0.35
    assert relational["before"] == "refused"
    assert relational["after"]["cosine"] > 0.1
    shown = json.loads(law(scene, "--json", "--unrotated").stdout)["students"]
    floor = next(row for row in shown if (row["objective"], row["seed"]) == ("affinity", 0))
    assert abs(floor["before"]["cosine"]) < 0.05 < floor["after"]["cosine"] / 2
    assert len(result["across_seeds"]) == 2
    assert "refused" in law(scene).stdout


def test_a_runs_folder_means_its_students(scene, tmp_path):
    (tmp_path / "run").mkdir()
    for seed in (0, 1):
        (tmp_path / "run" / f"distill-{seed}").symlink_to(scene / f"composite-{seed}")
    options = {"into": TEACHER, "corpus": scene / "fresh.txt", "pairs": 1_200, "held_out": 1_000}
    found = consilience.frame_law([tmp_path / "run"], **options)
    assert [row["seed"] for row in found["students"]] == [0, 1]


def test_law_refuses_what_it_cannot_measure(scene, tmp_path):
    with pytest.raises(InputError, match="bank"):
        consilience.frame_law([scene / "bank"], into=TEACHER, corpus=scene / "fresh.txt")
    with pytest.raises(AlignmentRefusedError, match="pairs"):
        consilience.frame_law([scene / "composite-0"], into=TEACHER, corpus=scene / "fresh.txt", pairs=100)
    (tmp_path / "same.txt").write_text("a cat\n" * 3_000)
    with pytest.raises(InputError, match="vary"):
        consilience.frame_law([scene / "composite-0"], into=TEACHER, corpus=tmp_path / "same.txt", pairs=1_000)


def test_a_student_rotates_into_its_teachers_frame_and_ships_there(scene, tmp_path):
    rotation = consilience.rotate(
        scene / "affinity-0",
        into=TEACHER,
        corpus=scene / "captions.txt",
        pairs=1_500,
        held_out=500,
        out=tmp_path / "turn",
    )
    report = rotation.manifest["report"]
    assert abs(report["before"]["cosine"]) < 0.05 < report["after"]["cosine"] / 2
    consilience.export(scene / "affinity-0", out=tmp_path / "model", rotation=rotation.path)
    model = consilience.load(tmp_path / "model")
    student = consilience.load(scene / "affinity-0")
    texts = list(generate_captions(50, seed=9))
    np.testing.assert_allclose(model.encode(texts), rotation.apply(student.encode(texts)), atol=1e-5)
    plain, turned = student.encode(texts), model.encode(texts)
    np.testing.assert_allclose(turned @ turned.T, plain @ plain.T, atol=5e-3)  # its own cosines stay
    bank = consilience.embed(scene / "captions.txt", teacher="packaged:glove", out=tmp_path / "glove")
    other = consilience.rotate(bank, into=scene / "bank", out=tmp_path / "other", pairs=1_500, held_out=500)
    with pytest.raises(FrameMismatchError, match="rotates frame"):
        consilience.export(scene / "affinity-0", out=tmp_path / "wrong", rotation=other)
    assert not (tmp_path / "wrong").exists()
