"""A student's own folder as a teacher of other libraries: they would leave its head out."""

import numpy as np
import pytest

import consilience
from consilience.core.errors import InputError
from consilience.teachers.registry import load_teacher


def test_a_student_with_a_head_is_refused_until_it_is_exported(tmp_path):
    texts = [f"a {colour} {thing}" for colour in range(8) for thing in range(10)]
    bank = consilience.embed(texts, teacher="packaged:glove", out=tmp_path / "bank")
    made = consilience.distill(
        texts, target=bank, out=tmp_path / "student", student="micro", head="mlp", steps=1, batch_rows=8
    )
    for spec in (f"st:{tmp_path}/student", f"hf:{tmp_path}/student"):
        with pytest.raises(InputError, match=r"a student's folder, whose head only consilience reads. Export it"):
            load_teacher(spec)
    consilience.export(tmp_path / "student", out=tmp_path / "exported", formats=["sentence-transformers"])
    found = load_teacher(f"st:{tmp_path}/exported").encode(["a red cat"])
    assert np.allclose(found / np.linalg.norm(found), made.encode(["a red cat"]), atol=1e-5)
