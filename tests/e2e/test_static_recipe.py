"""A static student from two hand-computable teachers and from real ones: made, resumed, refined, exported, rotated."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import FrameMismatchError, InputError, TeacherError
from consilience.corpora.caption_grammar import generate_captions
from consilience.recipes.embed import embed
from consilience.recipes.encoders import open_encoder
from consilience.recipes.export import export
from consilience.recipes.inspect import inspect
from consilience.recipes.static import static
from consilience.recipes.static_weights import find_weigher, token_factors
from consilience.students.static import StaticEncoder, load_table
from consilience.students.text import load_student, save_student_files
from consilience.students.token_table import token_texts
from consilience.students.tokenizer import train_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Letters:
    """Counts letters, and turns the counts by a fixed matrix; one further coordinate is 1."""

    parameters = None

    def __init__(self, seed: int, width: int, *, fails_at: int | None = None) -> None:
        self.name = f"letters:{seed}"
        self.dimensions = width
        self._matrix = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, 27)).T)[0].T
        self._left = fails_at

    def identity(self) -> dict[str, Any]:
        return {"backend": "letters", "name": self.name, "width": self.dimensions}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        counts = np.array([[text.lower().count(letter) for letter in LETTERS] + [1] for text in texts], dtype=float)
        return np.asarray(counts @ self._matrix.T, dtype=np.float32)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "tokenizer.json"
    train_tokenizer(list(generate_captions(1500)), vocab_size=900).save(str(path))
    return path


def build(out: Path, tokenizer: Path, **options: Any) -> StaticEncoder:
    student = static([Letters(1, 20), Letters(2, 16)], out=out, tokenizer=tokenizer, **{"dimensions": 12, **options})
    assert isinstance(student, StaticEncoder)
    return student


@pytest.fixture(scope="module")
def made(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "student"
    build(out, tokenizer, frequencies=list(generate_captions(300, seed=5)))
    return out


def test_made(made: Path) -> None:
    facts = inspect(made)
    assert (facts["kind"], facts["preset"], facts["dimensions"], facts["axes"]) == (
        "student",
        "static",
        12,
        "principal",
    )
    assert facts["config"]["architecture"] == "static"
    assert facts["frame"].startswith("principal:")
    assert not made.with_name("student.partial").exists()
    encoder = open_encoder(made)
    same, other = encoder.encode(["a dog runs", "runs a dog"]), encoder.encode(["a kitchen table"])
    np.testing.assert_allclose(same[0], same[1], atol=1e-6)
    assert same[0] @ other[0] < 0.99


def test_frequent_tokens_weigh_less(tokenizer: Path, made: Path, tmp_path: Path) -> None:
    weighted, words = load_table(made)
    build(tmp_path / "flat", tokenizer, frequencies="none")
    flat, _ = load_table(tmp_path / "flat")
    frequent, rare = words.token_to_id("a"), words.token_to_id("##z")
    ratio = weighted.norm(dim=1) / flat.norm(dim=1)
    assert ratio[frequent] < 0.2 * ratio[rare]
    assert words.token_to_id("[PAD]") == 0
    assert weighted[0].norm() == 0


def test_interrupted_and_continued_to_equal_bytes(tokenizer: Path, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "student"
    frequencies = list(generate_captions(300, seed=5))
    with pytest.raises(KeyboardInterrupt):
        static(
            [Letters(1, 20), Letters(2, 16, fails_at=0)],
            out=out,
            tokenizer=tokenizer,
            dimensions=12,
            frequencies=frequencies,
        )
    assert not out.exists()
    build(out, tokenizer, frequencies=frequencies)
    for path in made.iterdir():
        if path.name != "timing.json":
            assert (out / path.name).read_bytes() == path.read_bytes(), path.name
    before = (out / "manifest.json").stat().st_mtime_ns
    build(out, tokenizer, frequencies=frequencies)
    assert (out / "manifest.json").stat().st_mtime_ns == before


def test_banks_in_a_work_folder_serve_the_next_student(tokenizer: Path, tmp_path: Path) -> None:
    work = tmp_path / "banks"
    build(tmp_path / "a", tokenizer, work=work)
    banks = sorted(work.glob("embed-*/manifest.json"))
    stamps = [path.stat().st_mtime_ns for path in banks]
    student = build(tmp_path / "b", tokenizer, work=work, dimensions=None, axes="reference", weights={"letters:2": 3.0})
    assert [path.stat().st_mtime_ns for path in sorted(work.glob("embed-*/manifest.json"))] == stamps
    assert student.dimensions == 20
    assert not student.manifest["frame"].startswith("principal:")


def test_weights_of_a_static_teacher(tokenizer: Path, tmp_path: Path) -> None:
    table = {"a": [3.0, 4.0], "cat": [1.0, 0.0], "[PAD]": [0.0, 0.0]}
    teacher = tmp_path / "teacher"
    teacher.mkdir()
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(table)}, unk_token="[PAD]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(teacher / "tokenizer.json"))
    save_file({"table": np.array(list(table.values()), dtype=np.float32)}, teacher / "model.safetensors")
    weigher = find_weigher(f"static:{teacher}")
    assert weigher.sum_lengths(["a", "cat", "a a", "a cat"]).tolist() == pytest.approx([5.0, 1.0, 10.0, 32**0.5])
    with pytest.raises(InputError, match="needs a static teacher"):
        build(tmp_path / "s", tokenizer, lengths=Letters(1, 20))
    plain = train_tokenizer(["a cat"] * 3, vocab_size=16)
    texts = token_texts(plain)
    factors = token_factors(plain, texts, "none", 1e-3, weigher)
    known = [text for text in texts if text is not None]
    assert factors[known.index("a")] / factors[known.index("cat")] == pytest.approx(5.0)


def test_one_teacher_needs_no_alignment(tokenizer: Path, tmp_path: Path) -> None:
    student = static(Letters(1, 20), out=tmp_path / "s", tokenizer=tokenizer, whiten=0.0)
    assert student.dimensions == 20
    assert student.manifest["target"]["teacher"]["name"] == "letters:1"


def test_refined_on_a_bank_of_texts(tokenizer: Path, tmp_path: Path) -> None:
    texts = list(generate_captions(900, seed=8))
    bank = embed(texts, teacher=Letters(3, 18), out=tmp_path / "bank")
    student = build(tmp_path / "s", tokenizer, refine=bank, corpus=texts, dimensions=None, ridge=1.0)
    gauges = student.manifest["gauges"]
    assert gauges["target_cosine"] > gauges["target_cosine_before"] + 0.1
    assert gauges["residual"] <= 1e-3
    expected = float((student.encode(texts) * bank[:].astype(np.float32)).sum(axis=1).mean())
    assert expected > gauges["target_cosine"]  # most of these texts were fitted to
    assert (student.dimensions, student.manifest["frame"]) == (18, bank.frame)
    narrow = build(tmp_path / "n", tokenizer, refine=bank, corpus=texts, dimensions=9, ridge=0.1)
    assert narrow.dimensions == 9
    assert narrow.manifest["frame"].startswith("principal:")
    with pytest.raises(FrameMismatchError, match="a bank of corpus"):
        build(tmp_path / "x", tokenizer, refine=bank, corpus=texts[1:])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"smoothing": 0.0}, "--smoothing above 0, got 0.0. Change it"),
        ({"smoothing": float("inf")}, "finite --smoothing above 0, got inf"),
        ({"smoothing": float("nan")}, "finite --smoothing above 0, got nan"),
        ({"smoothing": 1e-60}, "the tokens' weights reach .* Change --smoothing"),
        ({"ridge": 0.0}, "--ridge above 0 .* got 0.0. Change it"),
        ({"ridge": float("inf")}, "--ridge above 0 .* got inf"),
        ({"ridge": 1e39}, "--ridge above 0 and at most .* got 1e\\+39"),
        ({"weights": {"letters:1": float("inf")}}, "finite weight above 0 for letters:1, got inf. Change --weight"),
        ({"weights": {"letters:1": float("nan")}}, "finite weight"),
        ({"weights": {"letters:1": 1e308, "letters:2": 1e308}}, "too far apart to add"),
        ({"frequencies": ["☃ ☃"]}, "none of the tokenizer's tokens"),
        ({"axes": "sideways"}, "--axes principal or reference"),
        ({"dimensions": 21}, "can't give 21 dimensions"),
        ({"weights": {"nobody": 1.0}}, "isn't one of the teachers letters:1, letters:2"),
        ({"weights": {"letters:1": 0.0}}, "above 0"),
        ({"reference": "nobody"}, "isn't one of the teachers"),
        ({"corpus": ["a"]}, "need each other"),
        ({"frequencies": "-"}, "can't be standard input"),
        ({"max_length": 0}, "--max-length"),
    ],
)
def test_refusals(tokenizer: Path, tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        build(tmp_path / "s", tokenizer, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        (20, {"dimensions": None}, "needs as many texts; 16 of the bank's 20"),
        (60, {"dimensions": 9999}, "--dimensions from 1 to the targets' 18 with --refine, got 9999. Change"),
        (60, {"dimensions": 0}, "got 0"),
    ],
)
def test_what_a_refinement_cannot_do_is_refused_before_any_work(
    tokenizer: Path, tmp_path: Path, rows: int, options: dict[str, Any], says: str
) -> None:
    texts = list(generate_captions(rows, seed=8))
    bank = embed(texts, teacher=Letters(3, 18), out=tmp_path / "bank")
    with pytest.raises(InputError, match=says):
        build(tmp_path / "s", tokenizer, refine=bank, corpus=texts, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]


class Damaged(Letters):
    """Gives NaN."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.full((len(texts), self.dimensions), np.nan, dtype=np.float32)


def test_a_late_refusal_leaves_work_but_no_empty_folder(tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    with pytest.raises(TeacherError):  # with the banks elsewhere, nothing is in the student's own folder
        static([Letters(1, 20), Damaged(2, 16)], out=out, tokenizer=tokenizer, dimensions=12, work=tmp_path / "banks")
    assert not out.with_name("s.partial").exists()
    with pytest.raises(TeacherError):
        static([Letters(1, 20), Damaged(2, 16)], out=out, tokenizer=tokenizer, dimensions=12)
    assert list(out.with_name("s.partial").glob("tokens/embed-*/manifest.json"))  # the first teacher's bank


def test_same_teacher_twice(tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is given twice"):
        static([Letters(1, 20), Letters(1, 20)], out=tmp_path / "s", tokenizer=tokenizer)
    with pytest.raises(InputError, match="at least one teacher"):
        static([], out=tmp_path / "s", tokenizer=tokenizer)


def test_exported_forms_agree(made: Path, tmp_path: Path) -> None:
    manifest = export(made, out=tmp_path / "export")
    assert max(manifest["parity"]["max_abs_difference"].values()) < 1e-5
    assert set(manifest["parity"]["max_abs_difference"]) == {"sentence-transformers", "onnx-batch-1", "onnx-batch-7"}
    card = (tmp_path / "export" / "README.md").read_text()
    assert "AutoModel" not in card
    assert "letters:letters:1" in card
    texts = list(generate_captions(30, seed=9))
    expected = load_student(made).encode(texts)
    np.testing.assert_allclose(open_encoder(tmp_path / "export").encode(texts), expected, atol=1e-5)
    narrow = export(made, out=tmp_path / "narrow", truncate_dim=5, formats=["onnx"])
    assert narrow["dimensions"] == 5
    cut = expected[:, :5] / np.linalg.norm(expected[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(open_encoder(tmp_path / "narrow").encode(texts), cut, atol=1e-5)


def test_trained_widths_are_on_the_card_and_in_the_refusal(made: Path, tmp_path: Path) -> None:
    student = load_student(made)
    nested = tmp_path / "nested"
    work, _ = begin_artefact(nested, {"job": "test"})
    files = save_student_files(student.module, student.tokenizer, work, max_length=64)
    body = {"config": {"architecture": "static"}, "dimensions": 12, "max_length": 64, "frame": "f"}
    finish_artefact(nested, kind="student", manifest={**body, "matryoshka": [4, 8, 12]}, files=files)
    manifest = export(nested, out=tmp_path / "whole", formats=["sentence-transformers"])
    card = (tmp_path / "whole" / "README.md").read_text()
    assert "trained at the widths 4, 8, 12 together" in card
    assert "truncate_dim=8" in card
    assert manifest["matryoshka"] == [4, 8, 12]
    export(nested, out=tmp_path / "cut", formats=["sentence-transformers"], truncate_dim=4)
    assert "Fewer dimensions" not in (tmp_path / "cut" / "README.md").read_text()
    with pytest.raises(InputError, match=r"cut 12 dimensions to 5: it was trained at 4, 8, 12\. Change --truncate-dim"):
        export(nested, out=tmp_path / "x", truncate_dim=5)
    assert not (tmp_path / "x").exists()


def test_rotated_export(made: Path, tmp_path: Path) -> None:
    from consilience.recipes.rotate import rotate

    texts = list(generate_captions(600, seed=11))
    corpus = tmp_path / "captions.txt"
    corpus.write_text("\n".join(texts) + "\n")
    bank = embed(corpus, teacher=Letters(1, 20), out=tmp_path / "bank")
    rotation = rotate(made, into=bank, corpus=corpus, pairs=400, held_out=150, out=tmp_path / "rotation", force=True)
    export(made, out=tmp_path / "export", rotation=rotation)
    turned = load_student(made).encode(texts[:20]) @ rotation.matrix
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    np.testing.assert_allclose(open_encoder(tmp_path / "export").encode(texts[:20]), turned, atol=1e-4)


def test_command_line(tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "glove"
    command = [
        *(sys.executable, "-m", "consilience", "static", "--teacher", "packaged:glove-6b-50d"),
        *("--tokenizer", str(tokenizer), "--dimensions", "32", "--out", str(out), "--json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["dimensions"] == 32
    assert facts["id"] == inspect(out)["id"]
    wrong = subprocess.run([*command[:-1], "--overwrite", "--whiten", "2"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--whiten between 0 and 1" in wrong.stderr
    assert out.exists()
