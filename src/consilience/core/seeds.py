"""Seeds derive from names, so that a run's randomness is reproducible and two runs' differ (design, section 5)."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
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
def torch_seed(seed: int) -> Iterator[None]:
    """Seed torch's own generator of the CPU while the block runs, and put it back as it was.

    Layers draw their first weights from it, and there is one a process: threads take turns, so each gets its own.

    Args:
        seed: of the numbers that the block draws.
    """
    import torch

    with _drawing, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
