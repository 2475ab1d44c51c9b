"""Gauges of nearest neighbours: retrieval R@1 in a known gallery, its fall with the gallery's size, hubness.

Source: design, sections 9 and 11; Radovanovic et al. 2010 for hubness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, ShapeError
from consilience.gauges.isotropy import unit_rows

Metric = Literal["cosine", "dot", "l2"]
_CHUNK_ROWS = 512
_TIE = 1e-6  # cosines of equal rows differ by rounding, by where a matrix product puts them in its blocks


def retrieval_at_1(queries: NDArray[np.floating], gallery: NDArray[np.floating], *, chunk_rows: int = 1024) -> float:
    """Return the share of queries whose nearest gallery row (cosine) is their own.

    Query i belongs to gallery row i. A tie among k rows counts 1/k, so that a collapsed gallery scores chance.

    Args:
        queries: rows (n, d); normalised here.
        gallery: rows (n, d) or more rows behind them.
        chunk_rows: queries at a time; memory is chunk_rows * len(gallery) * 4 bytes.

    Raises:
        ShapeError: widths differ or the gallery is smaller than the queries.

    Example:
        >>> retrieval_at_1(np.eye(3), np.ones((3, 3)))
        0.333...
    """
    q, g = _paired(queries, gallery, where="retrieval_at_1")
    hits = 0.0
    for start in range(0, len(q), chunk_rows):
        scores = q[start : start + chunk_rows] @ g.T
        own = scores[np.arange(len(scores)), np.arange(start, start + len(scores))]
        best = scores.max(axis=1) - _TIE
        ties = (scores >= best[:, None]).sum(axis=1)
        hits += float(np.sum((own >= best) / ties))
    return hits / len(q)


def recall_at_k(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, k: int, chunk_rows: int = 1024
) -> float:
    """Return the share of queries that have their own gallery row among the k nearest (cosine).

    A row that ties with a query's own counts half a place, so that a collapsed gallery finds nothing.

    Args:
        queries: rows (n, d); normalised here. Query i belongs to gallery row i.
        gallery: rows (n, d) or more rows behind them.
        k: at least 1.
        chunk_rows: queries at a time; memory is chunk_rows * len(gallery) * 4 bytes.

    Raises:
        ShapeError: widths differ, the gallery is smaller than the queries or than k.

    Example:
        >>> recall_at_k(np.eye(3), np.eye(3)[[1, 0, 2]], k=1)
        0.333...
    """
    q, g = _paired(queries, gallery, where="recall_at_k")
    if not 1 <= k <= len(g):
        raise ShapeError(f"recall_at_k: expected k between 1 and the gallery's size {len(g)}, got {k}")
    hits = 0
    for start in range(0, len(q), chunk_rows):
        scores = q[start : start + chunk_rows] @ g.T
        own = scores[np.arange(len(scores)), np.arange(start, start + len(scores))][:, None]
        rank = ((scores > own + _TIE).sum(axis=1) + (scores >= own - _TIE).sum(axis=1) - 1) / 2
        hits += int(np.sum(rank < k))
    return hits / len(q)


def _paired(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, where: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return queries and gallery as unit rows, query i belonging to gallery row i."""
    if queries.ndim != 2 or gallery.ndim != 2 or queries.shape[1] != gallery.shape[1] or len(gallery) < len(queries):
        raise ShapeError(
            f"{where}: expected queries (n, d) and a gallery of at least n rows, got {queries.shape} and "
            f"{gallery.shape}"
        )
    q = unit_rows(queries, where=f"{where} queries").astype(np.float32)
    return q, unit_rows(gallery, where=f"{where} gallery").astype(np.float32)


def nearest(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    *,
    k: int,
    metric: Metric,
    own: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return each query's k nearest gallery rows by exact search, nearest first.

    Args:
        queries: (n, d).
        gallery: (m, d).
        k: below m.
        metric: "cosine", "dot" (largest first) or "l2" (smallest first).
        own: for each query a gallery row that doesn't count, or None.

    Raises:
        ShapeError: widths differ, or k isn't below the gallery's size.

    Example:
        >>> nearest(np.eye(2), np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), k=2, metric="cosine").tolist()
        [[0, 1], [2, 1]]
    """
    if queries.shape[1] != gallery.shape[1] or not 0 < k < len(gallery) + (own is None):
        raise ShapeError(
            f"nearest: expected one width and k below {len(gallery)}, got {queries.shape}, {gallery.shape}, {k}"
        )
    q, g = np.asarray(queries, dtype=np.float32), np.asarray(gallery, dtype=np.float32)
    if metric == "cosine":
        q = unit_rows(q, where="nearest: queries").astype(np.float32)
        g = unit_rows(g, where="nearest: gallery").astype(np.float32)
    squares = np.einsum("nd,nd->n", g, g) if metric == "l2" else None
    found = np.empty((len(q), k), dtype=np.int64)
    for start in range(0, len(q), _CHUNK_ROWS):
        scores = q[start : start + _CHUNK_ROWS] @ g.T
        if squares is not None:
            scores = 2 * scores - squares  # -||q - g||^2 up to the query's own norm
        lines = np.arange(len(scores))
        if own is not None:
            scores[lines, own[start : start + len(scores)]] = -np.inf
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-scores[lines[:, None], best], axis=1, kind="stable")
        found[start : start + len(scores)] = best[lines[:, None], order]
    return found


def retained(found: NDArray[np.int64], truth: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return, for each query, the share of the true k nearest that are among the k found.

    Example:
        >>> retained(np.array([[1, 2, 3]]), np.array([[3, 2, 9]]), 3).round(3).tolist()
        [0.667]
    """
    hits = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(found[:, :k], truth[:, :k], strict=True)]
    return np.asarray(hits, dtype=np.float64) / k


@dataclass(frozen=True)
class GalleryCurve:
    """R@1 by gallery size.

    Attributes:
        sizes: gallery sizes, ascending.
        scores: R@1 at each.
    """

    sizes: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def falls(self) -> bool:
        """Whether the score at the largest gallery is below the one at the smallest."""
        return self.scores[-1] < self.scores[0]

    def pairs(self) -> list[tuple[int, float]]:
        """Return (size, score) pairs."""
        return list(zip(self.sizes, self.scores, strict=True))


def gallery_curve(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    *,
    sizes: Sequence[int] | None = None,
    rng: np.random.Generator,
) -> GalleryCurve:
    """Measure R@1 in nested random galleries of growing size.

    Args:
        queries: rows (n, d), paired with the gallery's.
        gallery: rows (n, d).
        sizes: gallery sizes; n/25, n/5 and n without them.
        rng: draws the galleries.

    Raises:
        InputError: a size is below 2 or above n, or there is only one.
    """
    n = len(gallery)
    chosen = sorted({max(n // 25, 2), max(n // 5, 2), n} if sizes is None else set(sizes))
    if len(chosen) < 2 or chosen[0] < 2 or chosen[-1] > n:
        raise InputError(f"gallery_curve: expected at least two sizes between 2 and {n}, got {chosen}")
    order = rng.permutation(n)
    scores = []
    for size in chosen:
        # Small galleries are cut several times, so that each score rests on about as many queries.
        cuts = [order[i : i + size] for i in range(0, n - size + 1, size)]
        scores.append(float(np.mean([retrieval_at_1(queries[rows], gallery[rows]) for rows in cuts])))
    return GalleryCurve(tuple(chosen), tuple(scores))


def require_falling(curve: GalleryCurve) -> None:
    """Refuse a retrieval score that doesn't fall as the gallery grows: it measures the pairing, not the model.

    Raises:
        InputError: the score at the largest gallery isn't below the one at the smallest.

    Source: design, sections 9 and 11 (gallery-size invariance).
    """
    if not curve.falls:
        listed = ", ".join(f"{score:.3f} at {size}" for size, score in curve.pairs())
        raise InputError(
            f"retrieval: expected R@1 to fall as the gallery grows, got {listed}. The two sides are likely the same "
            "vectors (two views of one forward pass) or constant; use independent views or a larger gallery"
        )


def hubness_skew(x: NDArray[np.floating], *, neighbours: int = 10, chunk_rows: int = 1024) -> float:
    """Return the skewness of how often each row is among the k nearest of others; 0 has no hubs.

    Args:
        x: rows (n, d), n > k; normalised here.
        neighbours: k.
        chunk_rows: rows at a time.

    Source: Radovanovic, Nanopoulos, Ivanovic 2010, "Hubs in space", JMLR 11.
    """
    n = len(x)
    if n <= neighbours:
        raise ShapeError(f"hubness_skew: expected more than {neighbours} rows, got {n}")
    unit = unit_rows(x, where="hubness_skew").astype(np.float32)
    counts = np.zeros(n)
    for start in range(0, n, chunk_rows):
        scores = unit[start : start + chunk_rows] @ unit.T
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -np.inf
        nearest = np.argpartition(scores, n - neighbours, axis=1)[:, n - neighbours :]
        counts += np.bincount(nearest.ravel(), minlength=n)
    centred = counts - counts.mean()
    deviation = float(np.sqrt(np.mean(centred**2)))
    return float(np.mean(centred**3)) / deviation**3 if deviation > 0 else 0.0
