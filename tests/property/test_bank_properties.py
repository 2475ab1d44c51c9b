"""Whatever the sizes: a bank round-trips, every access agrees, and any flipped bit is found."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.banks.interchange import export_bank, import_embeddings, open_npy, open_parquet
from consilience.banks.reader import open_bank
from consilience.banks.verify import verify_bank
from consilience.banks.writer import BankWriter
from consilience.core.errors import BankIntegrityError
from consilience.recipes.inspect import inspect

sizes = st.tuples(st.integers(1, 40), st.integers(1, 9), st.integers(1, 50))  # rows, dimensions, rows a shard
few = settings(max_examples=20, deadline=None)


def make_bank(folder, rows, dimensions, shard_rows, dtype="fp32", *, order=None, normalise=False):
    x = np.random.default_rng(rows * 1000 + dimensions).standard_normal((rows, dimensions)).astype(np.float32)
    corpus = {"fingerprint": "c" * 64, "rows": rows}
    with BankWriter(
        folder / "bank",
        rows=rows,
        dimensions=dimensions,
        dtype=dtype,
        corpus=corpus,
        teacher={"name": "t"},
        frame=None,
        shard_rows=shard_rows,
        normalise=normalise,
    ) as writer:
        for start, stop in sorted(writer.missing(), key=order):
            writer.write_shard(start, x[start:stop])
        return writer.finish(), x.astype({"fp16": np.float16, "fp32": np.float32}[dtype])


@few
@given(size=sizes, dtype=st.sampled_from(["fp16", "fp32"]), data=st.data())
def test_every_access_agrees_with_the_array(size, dtype, data):
    with tempfile.TemporaryDirectory() as folder:
        bank, x = make_bank(Path(folder), *size, dtype)
        rows = size[0]
        part = data.draw(st.slices(rows))
        np.testing.assert_array_equal(bank[part], x[part])
        index = data.draw(st.lists(st.integers(-rows, rows - 1), max_size=60))
        np.testing.assert_array_equal(bank[index], x[np.array(index, dtype=int)])
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
        np.testing.assert_array_equal(bank[mask], x[mask])
        block_rows = data.draw(st.integers(1, 60))
        blocks = list(bank.iter_blocks(block_rows))
        assert [start for start, _ in blocks] == list(range(0, rows, block_rows))
        np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), x)
        np.testing.assert_array_equal(np.concatenate([s for _, s in bank.iter_shards(verify=True)]), x)


@few
@given(size=sizes, seed=st.integers(0, 10))
def test_the_order_of_writing_does_not_change_the_bytes(size, seed):
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, _ = make_bank(Path(one), *size)
        second, _ = make_bank(Path(two), *size, order=lambda _: rng.random())
        for path in first.path.iterdir():
            if path.name != "timing.json":
                assert path.read_bytes() == (second.path / path.name).read_bytes()


@few
@given(size=sizes, data=st.data())
def test_any_flipped_bit_is_found(size, data):
    with tempfile.TemporaryDirectory() as folder:
        bank, _ = make_bank(Path(folder), *size)
        assert inspect(bank.path)["verified"]
        victim = data.draw(st.sampled_from(sorted(p for p in bank.path.iterdir() if p.suffix == ".safetensors")))
        content = bytearray(victim.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        victim.write_bytes(content)
        with pytest.raises(BankIntegrityError, match=victim.name):
            verify_bank(bank.path)
        with pytest.raises(BankIntegrityError, match=victim.name):
            inspect(bank.path)
        with pytest.raises(BankIntegrityError, match=victim.name):
            list(open_bank(bank.path).iter_shards(verify=True))


@few
@given(size=sizes, dtype=st.sampled_from(["fp16", "fp32"]), suffix=st.sampled_from([".npy", ".parquet"]))
def test_export_and_import_give_the_rows_back(size, dtype, suffix):
    with tempfile.TemporaryDirectory() as folder:
        bank, x = make_bank(Path(folder), *size, dtype)
        file = export_bank(bank, Path(folder) / f"rows{suffix}")
        source = open_npy(file) if suffix == ".npy" else open_parquet(file)
        again = import_embeddings(
            source, Path(folder) / "again", corpus=bank.manifest["corpus"], dtype=dtype, shard_rows=7
        )
        np.testing.assert_array_equal(again[:], x)
        assert again.corpus_fingerprint == bank.corpus_fingerprint
