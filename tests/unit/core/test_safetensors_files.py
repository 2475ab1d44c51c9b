"""Other people's safetensors: types that NumPy has no name for, shards."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from consilience.core.errors import InputError
from consilience.core.safetensors_files import read_arrays, weight_files

EVERY_BYTE = torch.arange(256, dtype=torch.uint8)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_narrow_floats_are_torchs_numbers(kind, tmp_path):
    tensor = (EVERY_BYTE if kind.itemsize == 1 else torch.arange(65_536, dtype=torch.int32).to(torch.uint16)).view(kind)
    others = {"f16": torch.randn(3, 2).half(), "i8": torch.arange(-4, 4, dtype=torch.int8), "b": torch.tensor([True])}
    save_file({"narrow": tensor.reshape(4, -1), **others}, tmp_path / "x.safetensors")
    read = read_arrays(tmp_path / "x.safetensors")
    assert read["narrow"].dtype == np.float32
    np.testing.assert_array_equal(read["narrow"], tensor.reshape(4, -1).float().numpy())
    for name, other in others.items():
        np.testing.assert_array_equal(read[name], other.numpy())
        assert read[name].dtype == other.numpy().dtype


def test_what_is_no_safetensors_or_of_an_unknown_type_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"x" * 20)
    with pytest.raises(InputError, match="isn't a readable safetensors file"):
        read_arrays(path)
    save_file({"scales": EVERY_BYTE.view(torch.float8_e8m0fnu)}, path)
    with pytest.raises(InputError, match=r"tensor scales is of type F8_E8M0, which isn't read. Store it as F32"):
        read_arrays(path)


def test_a_file_comes_before_an_index_and_neither_is_nothing(tmp_path):
    path = tmp_path / "model.safetensors"
    assert weight_files(path) == []
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "one.safetensors"}}')
    (tmp_path / "one.safetensors").touch()
    assert weight_files(path) == [tmp_path / "one.safetensors"]
    path.touch()
    assert weight_files(path) == [path]
