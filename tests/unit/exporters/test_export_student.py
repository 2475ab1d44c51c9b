import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import InputError, ResumeError
from consilience.core.manifests import partial_path, verify_artefact

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from consilience.exporters.folder import export_student, find_teachers  # noqa: E402
from consilience.exporters.onnx import embed_with_onnx  # noqa: E402
from consilience.exporters.parity import (  # noqa: E402
    PROBE,
    TOLERANCE,
    ParityError,
    check_parity,
    compare_vectors,
    embed_with_student,
)
from consilience.exporters.student_parts import student_parts  # noqa: E402
from consilience.recipes.export import export  # noqa: E402
from consilience.students.presets import StudentConfig  # noqa: E402
from consilience.students.text import StudentEncoder, build_student, load_student, save_student_files  # noqa: E402
from consilience.students.tokenizer import train_tokenizer  # noqa: E402

MAX_LENGTH = 48
TEACHERS = {"st:all-MiniLM-L6-v2": "Apache-2.0", "static:wordllama": "MIT"}


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """A small student with random weights, stored as an artefact."""
    torch.manual_seed(0)
    texts = [*PROBE, "a cat sleeps", "a kitten is asleep", "the quick brown fox jumps over the lazy dog"] * 3
    tokenizer = train_tokenizer(texts, vocab_size=400)
    config = StudentConfig(layers=2, hidden=32, heads=4, ffn=64, max_positions=64, max_length=48)
    module = build_student(config, vocab_size=tokenizer.get_vocab_size(), dimensions=24, seed=7)
    out = tmp_path_factory.mktemp("student") / "student"
    work, _ = begin_artefact(out, {"job": "test"})
    files = save_student_files(module.eval(), tokenizer, work, max_length=MAX_LENGTH)
    manifest = {
        "dimensions": 24,
        "max_length": MAX_LENGTH,
        "preset": "tiny",
        "frame": "teacher:abc",
        "corpus": {"fingerprint": "f" * 64, "rows": 12, "path": "/secret/folder/captions.txt"},
        "training": {"steps": 10, "seed": 7},
        "target": {"id": "bank-1", "teacher": {"backend": "consensus", "name": "c", "teachers": []}},
    }
    finish_artefact(out, kind="student", manifest=manifest, files=files)
    return load_student(out)


@pytest.fixture(scope="module")
def results(student):
    score = {"score": 0.5, "low": 0.4, "high": 0.6, "pairs": 10}
    own = {
        "model": "/secret/folder/student",
        "tasks": {"sts12": score},
        "mean": 0.5,
        "mean_low": 0.4,
        "mean_high": 0.6,
        "mean_of": ["sts12"],
        "geometry": {"effective_rank": 12.34, "self_cosine": 0.1},
        "identity": {"student": student.manifest["id"]},
    }
    return {"models": [own, {**own, "model": "packaged:other", "identity": {}}], "comparisons": []}


@pytest.fixture(scope="module")
def exported(student, results, tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "tiny-model"
    export_student(student, out, results=results, teachers=TEACHERS, command="consilience export student --out tiny")
    return out


def test_the_manifest_verifies_and_records_parity(exported, student):
    manifest = verify_artefact(exported)
    assert manifest["kind"] == "export"
    assert manifest["student"] == student.manifest["id"]
    differences = manifest["parity"]["max_abs_difference"]
    assert set(differences) == {"sentence-transformers", "automodel", "onnx-batch-1", "onnx-batch-7"}
    assert max(differences.values()) <= 1e-5
    assert not partial_path(exported).exists()


def clean_python(code, *arguments, cwd):
    environment = {
        key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
    }
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run(
        [sys.executable, "-I", "-c", code, *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, env=environment, timeout=600, check=False,
    )  # fmt: skip


def test_the_folder_loads_without_consilience_in_a_clean_process(exported, student, tmp_path):
    code = (
        "import sys, json\n"
        "from sentence_transformers import SentenceTransformer\n"
        "m = SentenceTransformer(sys.argv[1])\n"
        "v = m.encode(['a cat', 'x'])\n"
        "assert not [n for n in sys.modules if n.split('.')[0] == 'consilience']\n"
        "pooler = {n: p for n, p in m.named_parameters() if '.pooler.' in n}\n"
        "assert len(pooler) == 2 and not any(p.any() for p in pooler.values())\n"
        "own = sum(p.numel() for n, p in m.named_parameters() if n not in pooler)\n"
        "print(json.dumps([v.tolist(), m.max_seq_length, own]))\n"
    )
    done = clean_python(code, exported, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    vectors, max_length, parameters = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(vectors, student.encode(["a cat", "x"]), atol=TOLERANCE)
    assert max_length == MAX_LENGTH
    assert parameters == student.parameters + 2 * 32  # token types, held at zero
    assert "MISSING" not in done.stderr
    assert "newly initialized" not in done.stderr


@pytest.mark.parametrize("section", ["sentence-transformers", "transformers", "ONNX Runtime, without torch"])
def test_the_card_s_snippets_run(exported, section, tmp_path):
    card = (exported / "README.md").read_text(encoding="utf-8")
    code = re.search(rf"### {section}\n\n```python\n(.*?)```", card, re.DOTALL).group(1)
    assert "path/to/this/folder" in code
    done = clean_python(code.replace("path/to/this/folder", str(exported)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    similarities = [float(number) for number in re.findall(r"-?\d\.\d*", done.stdout)]
    assert len(similarities) == 4
    assert similarities[0] == pytest.approx(1, abs=1e-4)


def test_onnx_takes_any_batch_and_length(exported, student):
    for texts in (["a cat"], ["x"] * 7, ["word " * i for i in range(1, 12)]):
        for batch in (1, 7, len(texts)):
            np.testing.assert_allclose(
                embed_with_onnx(exported, texts, batch=batch), student.encode(texts), atol=TOLERANCE
            )


def test_onnx_file_is_self_contained_checked_and_says_nothing_of_this_machine(exported):
    import onnx

    path = exported / "onnx" / "model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(path, load_external_data=False)
    assert [value.name for value in model.graph.input] == ["input_ids", "attention_mask"]
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.output}
    assert list(shapes) == ["sentence_embedding", "last_hidden_state"]  # in this order: some take the first
    assert list(shapes.values()) == [["batch", 24], ["batch", "tokens", 32]]
    assert next(entry.version for entry in model.opset_import if entry.domain == "") >= 17
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]
    content = path.read_bytes()
    assert b"site-packages" not in content
    assert str(Path(__file__).parents[3]).encode() not in content


def test_two_exports_are_the_same_bytes(exported, student, results, tmp_path):
    again = tmp_path / "tiny-model"
    export_student(student, again, results=results, teachers=TEACHERS, command="consilience export student --out tiny")
    assert (again / "manifest.json").read_bytes() == (exported / "manifest.json").read_bytes()


def test_card(exported):
    import yaml

    card = (exported / "README.md").read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert metadata["library_name"] == "sentence-transformers"
    assert metadata["pipeline_tag"] == "sentence-similarity"
    assert metadata["license"] == "apache-2.0"
    assert metadata["teachers"] == list(TEACHERS)
    assert metadata["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.5
    for expected in (
        "| `static:wordllama` | MIT |",
        "f" * 64,
        "| training.steps | 10 |",
        "| task | **this model** | `packaged:other` |",
        "| sts12 | 0.5000 [0.400, 0.600] |",
        "`teacher:abc`",
        "| automodel |",
        "consilience export student --out tiny",
    ):
        assert expected in body
    assert "/secret/" not in card


@pytest.mark.parametrize("formats", [("onnx",), ("sentence-transformers",)])
def test_one_format_alone(student, tmp_path, formats):
    out = tmp_path / "one"
    manifest = export_student(student, out, formats=formats, teachers={})
    assert (out / "modules.json").exists() == ("sentence-transformers" in formats)
    assert (out / "onnx").exists() == ("onnx" in formats)
    assert (out / "tokenizer.json").exists()
    assert manifest["formats"] == list(formats)


def test_existing_folder_unknown_format_and_overwrite(student, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(ResumeError, match="already exists"):
        export_student(student, out, teachers={})
    assert (out / "mine").exists()
    with pytest.raises(InputError, match="formats among"):
        export_student(student, tmp_path / "y", formats=("gguf",), teachers={})
    assert not (tmp_path / "y").exists()
    with pytest.raises(ResumeError, match="won't delete it"):
        export_student(student, out, formats=("onnx",), teachers={}, overwrite=True)
    assert (out / "mine").exists()
    mine = tmp_path / "mine"
    for overwrite in (False, True):
        export_student(student, mine, formats=("sentence-transformers",), teachers={}, overwrite=overwrite)
    assert verify_artefact(mine)["formats"] == ["sentence-transformers"]


def test_parity_fails_on_a_changed_weight_and_leaves_nothing(student, tmp_path, monkeypatch):
    from consilience.exporters import folder

    def spoil(parts, work):
        real(parts, work)
        weights = work / "4_Dense" / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 0x40  # the exponent of the last bias
        weights.write_bytes(content)

    real = folder.write_modules
    monkeypatch.setattr(folder, "write_modules", spoil)
    out = tmp_path / "spoilt"
    with pytest.raises(ParityError, match="sentence-transformers differs from the student"):
        export_student(student, out, formats=("sentence-transformers",), teachers={})
    assert list(tmp_path.iterdir()) == []


def test_compare_vectors_by_hand():
    ones = np.ones((2, 2), dtype=np.float32)
    assert compare_vectors("x", ones, ones + 5e-5) == pytest.approx(5e-5, rel=0.01)
    with pytest.raises(ParityError, match=r"by 2\.00e-04"):
        compare_vectors("x", ones, ones + np.float32(2e-4))
    with pytest.raises(ParityError):
        compare_vectors("x", ones, ones * np.nan)
    with pytest.raises(ParityError, match="shape"):
        compare_vectors("x", ones, ones[:1])


def test_probe_goes_beyond_the_length_limit(student):
    lengths = [len(student.tokenizer.encode(text).ids) for text in PROBE]
    assert max(lengths) > MAX_LENGTH
    assert min(lengths) <= 3
    assert check_parity(student_parts(student), Path("absent"))["max_abs_difference"] == {}
    np.testing.assert_allclose(embed_with_student(student_parts(student), PROBE), student.encode(PROBE), atol=1e-5)


def test_a_head_that_stock_modules_cannot_express_is_refused(student):
    module = build_student(
        StudentConfig(layers=1, hidden=16, heads=2, ffn=16, max_positions=16, max_length=16),
        vocab_size=student.tokenizer.get_vocab_size(), dimensions=8, seed=0,
    )  # fmt: skip
    module.head[1] = torch.nn.GELU(approximate="tanh")
    other = StudentEncoder(module, student.tokenizer, name="x", max_length=16, manifest={})
    with pytest.raises(InputError, match="exact GELU"):
        student_parts(other)


def test_recipe_reads_results_and_names_no_folders(student, results, tmp_path):
    source = tmp_path / "results.json"
    source.write_text(json.dumps(results), encoding="utf-8")
    out = tmp_path / "exported"
    export(student.name, out=out, formats=("onnx",), results=source)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "consilience export student --out exported --format onnx" in card
    assert "0.5000 [0.400, 0.600]" in card
    assert "--results results.json" in card
    assert "This model is one training seed." in card


def test_the_card_s_command_has_every_option_that_its_content_depends_on(student, results, rotation, tmp_path):
    out = tmp_path / "exported"
    options = {"results": results, "rotation": rotation.path, "title": "A title", "quantize": "int8"}
    export(student.name, out=out, formats=("onnx",), **options)
    said = (out / "README.md").read_text(encoding="utf-8").split("## Made with")[1]
    assert (
        "\nconsilience export student --out exported --format onnx --results results.json --rotation r "
        "--quantize int8 --title 'A title'\n"
    ) in said


MODEL = {"model": "m", "tasks": {"t": {"score": 0.5, "low": 0.4, "high": 0.6}}, "mean": 0.5, "geometry": {}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1]", "it holds list"),
        ("null", "it holds null"),
        ({}, "models: field required"),
        ({"models": []}, "models: list should have at least 1 item"),
        ({"models": {}}, "models: input should be a valid list"),
        ({"models": [1]}, r"models\.0: "),
        ({"models": [None]}, r"models\.0: "),
        ({"models": [{}]}, r"models\.0\.model: field required; .*and 1 more"),
        *(
            ({"models": [{k: v for k, v in MODEL.items() if k != name}]}, rf"models\.0\.{name}: field required")
            for name in MODEL
        ),
        ({"models": [{**MODEL, "tasks": {"t": {"score": "0.5"}}}]}, r"tasks\.t\.score: input should be a valid number"),
        ({"models": [{**MODEL, "tasks": {"t": {"score": 0.5, "low": 0.4}}}]}, "low and high need each other"),
        ({"models": [{**MODEL, "tasks": {"t": 0.5}}]}, r"tasks\.t: "),
        ({"models": [{**MODEL, "mean": None}]}, r"mean: input should be a valid number"),
        ({"models": [{**MODEL, "mean_low": 0.1}]}, "mean_low and mean_high need each other"),
        ({"models": [{**MODEL, "geometry": {"self_cosine": "x"}}]}, "self_cosine: input should be a valid number"),
        ({"models": [{**MODEL, "identity": None}]}, r"identity: "),
        ({"models": [{**MODEL, "mean": float("nan")}]}, "mean: input should be a finite number"),
        ({"models": [MODEL], "other": float("nan")}, "it isn't JSON"),
    ],
)
def test_results_that_evaluate_did_not_print_are_refused(student, content, says, tmp_path):
    source = tmp_path / "results.json"
    source.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=says) as caught:
        export(student.name, out=tmp_path / "z", results=source)
    assert str(caught.value).startswith(f"{source}: the object of consilience evaluate --json expected, but ")
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    if isinstance(content, dict):
        with pytest.raises(InputError, match=says):
            export(student.name, out=tmp_path / "z", results=content)


def test_refused_results_are_one_line_and_exit_code_two(student, tmp_path):
    source = tmp_path / "results.json"
    source.write_text('{"models": [{}]}', encoding="utf-8")
    words = ["export", student.name, "--out", str(tmp_path / "z"), "--results", str(source)]
    done = subprocess.run(
        [sys.executable, "-m", "consilience", *words], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "consilience evaluate STUDENT --json" in done.stderr.splitlines()[-1]
    with pytest.raises(InputError, match="Fix --results"):
        export(student.name, out=tmp_path / "z", results=tmp_path)


def test_teachers_of_a_committee_are_its_members():
    members = [
        {"label": "a", "teacher": {"backend": "st", "name": "/secret/model"}, "weight": 0.5},
        {"label": "b", "teacher": {"backend": "hf", "name": "org/name"}, "weight": 0.5},
        {"label": "c", "teacher": {"backend": "hf", "name": "org/left-out"}, "weight": 0.0},
    ]
    committee = {"backend": "consensus", "name": "consensus", "members": [{"teacher_id": "x", "weight": 0.5}]}
    manifest = {"target": {"bank": "bank-1", "teacher": committee, "extra": {"members": members}}}
    assert list(find_teachers(manifest)) == ["st:model", "hf:org/name"]
    assert list(find_teachers({"target": {"teacher": {"backend": "hf", "name": "org/name"}}})) == ["hf:org/name"]


@pytest.fixture(scope="module")
def rotation(student, tmp_path_factory):
    from consilience.committee.rotation import save_rotation

    matrix = np.linalg.qr(np.random.default_rng(3).standard_normal((24, 24)))[0]
    side = {"label": "a", "id": "x", "frame": student.manifest["frame"], "dimensions": 24}
    report = {"after": {"cosine": 0.9, "recall_at_1": 0.8, "recall_at_10": 0.9}, "gallery": 400}
    manifest = {
        "source": side,
        "target": {**side, "label": "serving-model", "frame": "teacher:served"},
        "rows": {"fit": 2500, "held_out": 400},
        "report": report,
    }
    return save_rotation(tmp_path_factory.mktemp("rotation") / "r", job={}, manifest=manifest, matrix=matrix)


def test_a_rotated_export_is_the_student_rotated_in_every_form(student, rotation, tmp_path):
    out = tmp_path / "rotated"
    manifest = export(student.manifest and student.name, out=out, rotation=rotation)
    assert (manifest["rotation"], manifest["frame"]) == (rotation.id, "teacher:served")
    assert max(manifest["parity"]["max_abs_difference"].values()) <= 1e-5
    plain = embed_with_student(student_parts(student), PROBE)
    np.testing.assert_allclose(embed_with_onnx(out, PROBE), rotation.apply(plain), atol=1e-5)
    modules = json.loads((out / "modules.json").read_text())
    assert [module["type"].rsplit(".", 1)[-1] for module in modules] == [
        "Transformer", "Pooling", "Dense", "LayerNorm", "Dense", "Normalize",
    ]  # fmt: skip
    card = (out / "README.md").read_text()
    assert "serving-model" in card
    assert "Embeddings are in the frame `teacher:served`" in card
    assert "`teacher:abc`" not in card.split("## Frame")[1].split("## Parity")[0]
    code = re.search(r"```python\n(import torch\n.*?)```", card, re.DOTALL)[1].replace("path/to/this/folder", str(out))
    done = clean_python(code + "\nprint('norm', embeddings.norm(dim=1).tolist())", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "norm [" in done.stdout


def test_a_rotation_of_another_frame_is_refused(student, rotation, tmp_path):
    from dataclasses import replace

    from consilience.core.errors import FrameMismatchError

    other = replace(
        rotation, manifest={**rotation.manifest, "source": {**rotation.manifest["source"], "frame": "frame-z"}}
    )
    with pytest.raises(FrameMismatchError, match=r"frame-z.*teacher:abc"):
        export_student(student, tmp_path / "out", teachers=TEACHERS, rotation=other)
    assert not list(tmp_path.iterdir())


def test_a_damaged_export_is_refused_by_evaluate(exported, tmp_path):
    import shutil

    from consilience.core.errors import BankIntegrityError
    from consilience.recipes.encoders import open_encoder

    copy = tmp_path / "copy"
    shutil.copytree(exported, copy)
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-100] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    with pytest.raises(BankIntegrityError, match=r"model\.safetensors"):
        open_encoder(str(copy))


def test_exporting_a_student_onto_itself_is_refused(student):
    with pytest.raises(InputError, match="which this job reads"):
        export(student.name, out=student.name, overwrite=True)
    assert load_student(student.name).manifest["kind"] == "student"


def test_the_same_export_again_is_already_done(student, exported, results, tmp_path):
    options = {"results": results, "teachers": TEACHERS, "command": "consilience export student --out tiny"}
    before = (exported / "manifest.json").stat().st_mtime_ns
    again = export_student(student, exported, **options)
    assert again["kind"] == "export"
    assert (exported / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(ResumeError):
        export_student(student, exported, **{**options, "command": "another"})
