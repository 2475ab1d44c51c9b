"""An output is kept apart from an input that a spec names."""

from __future__ import annotations

import pytest

from consilience.core.errors import InputError
from consilience.core.placing import require_apart


@pytest.mark.parametrize("spec", ["static:{}", "st:{}?pool=mean", "npy:{}/x.npy#key", "{}"])
def test_a_spec_of_the_output_itself_is_refused(tmp_path, spec):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "x.npy").write_text("")
    with pytest.raises(InputError, match="which this job reads"):
        require_apart(folder, spec.format(folder))
    require_apart(tmp_path / "other", spec.format(folder), "packaged:glove", "st:org/name")
