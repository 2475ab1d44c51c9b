"""A study's options and what they name: each fault is found before anything starts; starts count by their content."""

import inspect
import shutil

import numpy as np
import pytest

from consilience.banks.writer import BankWriter
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import InputError, RecipeError
from consilience.core.files import write_json
from consilience.recipes.distill import distill
from consilience.recipes.study import study
from consilience.recipes.study_checks import decided_elsewhere
from consilience.recipes.study_file import StudyStudentPart, StudyTrainPart, load_study
from consilience.recipes.study_starts import options_content
from consilience.students.presets import StudentConfig
from consilience.students.static import build_static, save_static_files
from consilience.students.text import build_student, save_student_files
from consilience.students.tokenizer import train_tokenizer

TEXTS = [f"a cat and {number} dogs run over the field" for number in range(80)]
WIDTH = 16
STUDY = """
name = "small"
seeds = [0]
objectives = ["mimicry"]
{top}
[corpus]
path = "captions.txt"
[[teachers]]
spec = "npy:a.npy"
name = "a"
[[teachers]]
spec = "npy:b.npy"
name = "b"
[[targets]]
name = "wide"
{target}
[[students]]
name = "s"
{student}
[train]
steps = 3
{train}
"""
TINY = "shape = { layers = 1, hidden = 32, heads = 2, ffn = 64 }\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "captions.txt").write_text("\n".join(TEXTS) + "\n")
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.standard_normal((len(TEXTS), WIDTH)).astype(np.float32))
    np.save(tmp_path / "b.npy", rng.standard_normal((len(TEXTS), 8)).astype(np.float32))
    return tmp_path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A transformers folder of two layers, and a static student of the targets' width."""
    place = tmp_path_factory.mktemp("models")
    words = train_tokenizer(TEXTS, vocab_size=120)
    shape = StudentConfig(layers=2, hidden=32, heads=2, ffn=64, max_positions=64, max_length=32)
    (place / "bert").mkdir()
    student = build_student(shape, vocab_size=words.get_vocab_size(), dimensions=32, seed=0, pad=0)
    save_student_files(student, words, place / "bert", max_length=32)
    work, _ = begin_artefact(place / "static", {"job": "static"})
    size = words.get_vocab_size()
    files = save_static_files(build_static(size, WIDTH, seed=0), words, work, max_length=32)
    facts = {"config": {"architecture": "static"}, "dimensions": WIDTH, "max_length": 32, "target": {}}
    finish_artefact(place / "static", kind="student", manifest=facts, files=files)
    return place


def write(folder, *, top="", target='teacher = "a"', student=TINY, train=""):
    text = STUDY.format(top=top, target=target, student=student, train=train)
    if "objectives" in top:
        text = text.replace('objectives = ["mimicry"]\n', "", 1)
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def faults_of(folder, **parts):
    with pytest.raises(RecipeError) as caught:
        load_study(write(folder, **parts))
    return caught.value.faults


def only_fault(folder, **parts):
    (fault,) = faults_of(folder, **parts)
    return fault


def bank(out, texts, width=WIDTH):
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import open_corpus

    identity = fingerprint_corpus(open_corpus(texts)).to_json()
    rows = np.random.default_rng(1).standard_normal((len(texts), width)).astype(np.float32)
    writer = BankWriter(
        out,
        rows=len(texts),
        dimensions=width,
        dtype="fp32",
        corpus=identity,
        teacher={"backend": "test", "name": "t"},
        frame=None,
    )
    with writer:
        for start, stop in writer.missing():
            writer.write_shard(start, rows[start:stop])
        writer.finish()
    return out


def test_both_tables_know_every_option_of_distill_that_is_a_studys_own():
    own = {name for name in inspect.signature(distill).parameters if decided_elsewhere(name) is None}
    for part in (StudyStudentPart, StudyTrainPart):
        extra = set(part.model_fields) - own - {"name", "preset", "shape", "objective"}
        assert (own - set(part.model_fields), extra) == (set(), set())


@pytest.mark.parametrize("table", ["student", "train"])
@pytest.mark.parametrize(
    "line",
    [
        'head = "bogus"', "head = 3", "lr = -1.0", 'lr = "x"', "batch_rows = 1", 'batch_rows = "x"',
        'precision = "int8"', "checkpoint_seconds = -1", "steps = 0", "vocab_size = -1", 'compile = "yes"',
        "matryoshka = [0]", 'matryoshka = "64"', "cache_rows = 0", "cache_rows = -1", 'cache_rows = "x"',
        "layers = [-1]", "max_length = 0", "sparse_embeddings = 1", "token_table = 3", "magic = 1",
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_one_fault_with_its_key(folder, table, line):
    key = line.partition(" ")[0]
    parts = {"student": TINY + line} if table == "student" else {"train": line}
    path = write(folder, **parts)
    if key == "steps" and table == "train":
        path.write_text(path.read_text().replace("steps = 3\n", ""))
    with pytest.raises(RecipeError) as caught:
        load_study(path)
    (fault,) = caught.value.faults
    assert fault.startswith(f"{'students[0]' if table == 'student' else 'train'}.{key}")


def test_faults_of_shape_hide_no_others(folder):
    found = faults_of(
        folder,
        top='objectives = ["mimicri"]',
        student=TINY + 'matryoshka = [0, -1]\ncolumn = "text"\nseed = 1',
        train='preset = "micro"\nobjective = "mimicry"\nlr = "x"',
    )
    keys = {fault.partition(":")[0] for fault in found}
    wanted = {"objectives", "students[0].matryoshka[0]", "students[0].matryoshka[1]", "students[0].column"}
    assert keys == wanted | {"students[0].seed", "train.preset", "train.objective", "train.lr"}
    assert "students[0].column: [corpus] decides it; leave it out" in found


def test_a_missing_table_is_named_and_the_rest_is_not_guessed(folder):
    path = write(folder)
    path.write_text(path.read_text().replace("[train]\nsteps = 3\n", ""))
    with pytest.raises(RecipeError) as caught:
        load_study(path)
    assert caught.value.faults == ("train: required and missing",)


@pytest.mark.parametrize("table", ["student", "train"])
@pytest.mark.parametrize("widths", [[1000], [WIDTH], [4]])
def test_nested_widths_lie_within_the_target(folder, table, widths):
    parts = {"student": TINY + f"matryoshka = {widths}"} if table == "student" else {"train": f"matryoshka = {widths}"}
    fault = only_fault(folder, **parts)
    assert fault.startswith("students[0].matryoshka: target wide: ")
    assert f"below the embedding's {WIDTH}, got {widths[0]}" in fault


@pytest.mark.parametrize(
    ("target", "width"),
    [("", WIDTH), ('reference = "b"', 8), ('method = "gpa"', WIDTH), ('method = "gpa"\ndimensions = 12', 12)],
)
def test_a_consensus_width_is_known_before_it_is_made(folder, target, width):
    assert f"embedding's {width}, got" in only_fault(folder, target=target, train="matryoshka = [500]")


def test_without_a_head_the_widths_agree(folder):
    assert "head: none needs" in only_fault(folder, student='preset = "micro"', train='head = "none"')
    assert "token states, 32, target wide has 16" in only_fault(folder, student=TINY + 'head = "none"')
    fits = TINY.replace("32", str(WIDTH))
    assert load_study(write(folder, student=fits + 'head = "none"')).students[0].head == "none"


def test_a_width_that_only_the_embedding_tells_is_checked_before_the_training(folder):
    import pyarrow as pa
    from pyarrow import parquet

    rows = np.load(folder / "a.npy")
    parquet.write_table(pa.table({"v": list(rows)}), folder / "a.parquet")
    path = write(folder, train="matryoshka = [500]")
    path.write_text(path.read_text().replace("npy:a.npy", "parquet:a.parquet#v"))
    load_study(path)
    with pytest.raises(InputError, match=r"students\[0\].matryoshka: target wide: .* got 500"):
        study(path, out=folder / "out")
    assert not list((folder / "out").glob("distill-*"))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ('init = "nowhere"', "nowhere: no such folder"),
        ('init = "st:nowhere"', "nowhere: a student starts from a folder on this machine"),
        ('init = "packaged:nope"', "packaged:nope: no such packaged model"),
        ('init = "packaged:wordllama"', "it is a token table, without layers"),
        ('init = "{bert}"\nlayers = [99]', "its 2 layers, 0 to 1, got 99"),
        ('init = "{bert}"\nlayers = [1, 0]', "its 2 layers, 0 to 1, got 1, 0"),
        ('init = "{bert}"\nhead = "none"', "head none needs an embedding as wide as the token states, got 16 and 32"),
        ('init = "{bert}"\nmax_length = 65', "max_length: expected 3 to 64, the start's positions, got 65"),
        ('init = "{static}"', "a static student has no layers to start from"),
        ('preset = "static"\ninit = "{bert}"', "not a Consilience artefact"),
        ('preset = "static"\nmax_length = 2', "max_length: expected 3 or more, got 2"),
        ('token_table = "nowhere"', "nowhere: no such file or folder"),
        ('token_table = "{bert}"', "not a Consilience artefact"),
        ('token_table = "nowhere"\ntokenizer = "train"', "nowhere: no such file or folder"),
        ('tokenizer = "nowhere.json"', "nowhere.json: no such file"),
        ("layers = [0]", "students[0].layers: picks trained layers, which preset and shape exclude"),
    ],
)
def test_a_start_that_cannot_be_made_is_a_fault(folder, models, options, wanted):
    text = options.replace("{bert}", str(models / "bert")).replace("{static}", str(models / "static"))
    fault = only_fault(folder, student=text)
    assert fault.startswith("students[0]")
    assert wanted in fault


def test_starts_that_fit_pass_and_a_static_one_of_another_width_does_not(folder, models):
    bert = models / "bert"
    assert load_study(write(folder, student=f'init = "{bert}"\nlayers = [1]\nmax_length = 64'))
    static = f'preset = "static"\ninit = "{models / "static"}"'
    assert load_study(write(folder, student=static))
    assert "a static student of 16 dimensions, the target has 8" in only_fault(
        folder, student=static, target='teacher = "b"'
    )


def test_objectives_that_a_sparse_table_cannot_be_trained_with_are_refused(folder):
    top = 'objectives = ["verbatim", "mimicry"]'
    for options in ('preset = "static"', TINY + "sparse_embeddings = true"):
        fault = only_fault(folder, top=top, student=options)
        assert fault.startswith("students[0]: objective 'verbatim' asks for weight decay or clipping")
    assert load_study(write(folder, top=top, student='preset = "static"\nsparse_embeddings = false'))


def test_banks_are_banks_of_the_studys_rows(folder):
    bank(folder / "own", TEXTS)
    bank(folder / "other", TEXTS[:-1])
    work, _ = begin_artefact(folder / "student", {"job": "x"})
    write_json(work / "config.json", {})
    finish_artefact(folder / "student", kind="student", manifest={}, files=["config.json"])
    assert load_study(write(folder, target='bank = "own"'))
    assert "expected a bank, found a student" in only_fault(folder, target='bank = "student"')
    assert "targets[0].bank: " in only_fault(folder, target='bank = "nowhere"')
    assert "a bank of corpus" in only_fault(folder, target='bank = "other"')
    path = write(folder)
    path.write_text(path.read_text().replace("npy:a.npy", "bank:other"))
    with pytest.raises(RecipeError, match=r"teachers\[0\].spec: .*a bank of corpus"):
        load_study(path)


def test_folders_of_other_studies_exist_unless_they_are_optional(folder):
    assert "nowhere: no such folder" in only_fault(folder, top='banks = ["nowhere"]')
    checked = load_study(write(folder, top='optional_banks = "nowhere"\nbanks = "."'))
    assert (checked.banks, checked.optional_banks) == ([str(folder)], [str(folder / "nowhere")])


@pytest.mark.parametrize(
    "pair",
    [
        ("infonce=1,mimicry=0.5", "mimicry=0.5,infonce=1"),
        ("composite", "infonce=1, mimicry=1"),
        ("composite+shaping", "mimicry=1,infonce=1+shaping"),
    ],
)
def test_two_spellings_of_one_objective_are_a_repetition(folder, pair):
    first, second = pair
    wanted = f"objectives: {second!r} means the same as {first!r}; name it once"
    assert only_fault(folder, top=f'objectives = ["{first}", "{second}", "cosine"]') == wanted
    cells = f'\n[[cells]]\nobjectives = ["{first}"]\n[[cells]]\nobjectives = ["{second}"]\n'
    assert only_fault(folder, train=cells) == wanted


def test_objectives_of_other_weights_or_on_other_targets_are_no_repetition(folder):
    assert load_study(write(folder, top='objectives = ["infonce=1,mimicry=0.5", "infonce=1,mimicry=1"]'))
    target = 'teacher = "a"\n[[targets]]\nname = "narrow"\nteacher = "b"'
    cells = '\n[[cells]]\nobjectives = ["mimicry"]\ntargets = ["wide"]\n'
    cells += '[[cells]]\nobjectives = ["consensus-mse"]\ntargets = ["narrow"]\n'
    assert load_study(write(folder, target=target, train=cells))


@pytest.mark.parametrize("table", ["student", "train"])
@pytest.mark.parametrize("prefix", ["st:", "hf:", ""])
def test_a_start_lies_beside_the_study_and_counts_by_its_content(folder, models, monkeypatch, tmp_path, table, prefix):
    shutil.copytree(models / "bert", folder / "my bert")
    (tmp_path / "elsewhere" / "my bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")  # a folder of the same name there is not meant
    line = f'init = "{prefix}my bert"'
    checked = load_study(write(folder, **({"student": line} if table == "student" else {"student": "", "train": line})))
    options = checked.options_of(checked.students[0])
    assert options["init"] == f"{prefix}{folder / 'my bert'}"
    before = options_content(options)
    shutil.copytree(folder / "my bert", folder / "moved")
    moved = {**options, "init": f"{prefix}{folder / 'moved'}"}
    assert options_content(moved) == before
    (folder / "my bert" / "tokenizer_config.json").write_text("{}")
    assert options_content(options) != before


def test_the_current_folder_is_never_meant(folder, models, monkeypatch, tmp_path):
    shutil.copytree(models / "bert", tmp_path / "elsewhere" / "bert")
    monkeypatch.chdir(tmp_path / "elsewhere")
    for line in ('init = "st:bert"', 'init = "bert"', 'tokenizer = "bert"'):
        assert "students[0]" in only_fault(folder, student=line)


def test_a_fault_that_only_the_training_finds_names_its_cell(folder):
    path = write(folder, student=TINY + 'tokenizer = "train"\nvocab_size = 5')
    with pytest.raises(InputError, match=r"^cell mimicry · wide · s, seed 0: tokenizer: expected a vocabulary"):
        study(path, out=folder / "out")
