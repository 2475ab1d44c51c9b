"""Seeds derive from names, so that a run's randomness is reproducible and two runs' differ (design, section 5)."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

_drawing = threading.RLock()


def seed_from_name(name: str, seed: int = 0) -> int:
    """Return a 32-bit seed: the CRC-32 of the run's name and its seed number.

    Example:
        >>> seed_from_name("flickr-mini", 0) == seed_from_name("flickr-mini", 0)
        True
        >>> seed_from_name("flickr-mini", 0) == seed_from_name("flickr-mini", 1)
        False
    """
    return zlib.crc32(f"{name}/{seed}".encode())


def rng_from_name(name: str, seed: int = 0) -> np.random.Generator:
    """Return a NumPy generator seeded by :func:`seed_from_name`."""
    return np.random.default_rng(seed_from_name(name, seed))


@contextmanager
def torch_turn(devices: Iterable[int] = ()) -> Iterator[None]:
    """Have torch's own generators alone while the block runs, and put them back as they were.

    There is one a process and device: threads that draw take turns, so each gets its own numbers.

    Args:
        devices: GPUs whose generators the block draws from, beside the CPU's.
    """
    import torch

    with _drawing, torch.random.fork_rng(devices=list(devices)):
        yield


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Seed torch's own generator of the CPU, from which layers draw their first weights, while the block runs.

    Args:
        seed: of the numbers that the block draws.
    """
    import torch

    with torch_turn():
        torch.default_generator.manual_seed(seed)
        yield
