"""Seeds derive from names, so that a run's randomness is reproducible and two runs' differ (design, section 5)."""

from __future__ import annotations

import zlib

import numpy as np


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
