"""An empty FAISS index of the structure of another one, for vectors of another width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.seeds import rng_from_name

# What stores its vectors as they were added.
EXACT = frozenset({"IndexFlat", "IndexFlatL2", "IndexFlatIP", "IndexHNSWFlat", "IndexIVFFlat"})


def empty_like(faiss: Any, index: Any, dimensions: int, *, label: str) -> Any:  # noqa: ANN401 - faiss.Index
    """Return an empty index of the same class, metric and parameters, but of another width.

    Args:
        faiss: the module.
        index: Flat, HNSWFlat, IVFFlat, or an IDMap or IDMap2 of one.
        dimensions: the new width.
        label: the source, for the message.

    Raises:
        InputError: the index is of another class.
    """
    name = type(index).__name__
    metric = index.metric_type
    if name in ("IndexIDMap", "IndexIDMap2"):
        return getattr(faiss, name)(empty_like(faiss, faiss.downcast_index(index.index), dimensions, label=label))
    if name == "IndexFlat":
        fresh = faiss.IndexFlat(dimensions, metric)
        fresh.metric_arg = index.metric_arg
        return fresh
    if name in ("IndexFlatL2", "IndexFlatIP"):
        return getattr(faiss, name)(dimensions)
    if name == "IndexHNSWFlat":
        fresh = faiss.IndexHNSWFlat(dimensions, index.hnsw.nb_neighbors(1), metric)
        fresh.hnsw.efConstruction = index.hnsw.efConstruction
        fresh.hnsw.efSearch = index.hnsw.efSearch
        return fresh
    if name == "IndexIVFFlat":
        quantizer = empty_like(faiss, faiss.downcast_index(index.quantizer), dimensions, label=label)
        fresh = faiss.IndexIVFFlat(quantizer, dimensions, index.nlist, metric)
        fresh.nprobe = index.nprobe
        for parameter in ("niter", "nredo", "spherical", "seed", "max_points_per_centroid"):
            setattr(fresh.cp, parameter, getattr(index.cp, parameter))
        return fresh
    raise InputError(
        f"{label}: a new {name} can't be built from new vectors here; Flat, HNSWFlat, IVFFlat and ID maps of them can. "
        "Give --rewrite parquet:FILE or npy:FILE and build the index from it"
    )


def needs_ids(faiss: Any, index: Any) -> bool:  # noqa: ANN401 - faiss.Index
    """Return whether vectors are added to an index together with their ids (if not, ids are positions)."""
    return isinstance(index, (faiss.IndexIDMap, faiss.IndexIVF))


def training_rows(faiss: Any, index: Any, rows: int) -> NDArray[np.int64]:  # noqa: ANN401 - faiss.Index
    """Choose the rows that inverted lists are trained on: as many as FAISS would use, at random, the same each time."""
    ivf = faiss.extract_index_ivf(index)
    enough = int(ivf.nlist) * int(ivf.cp.max_points_per_centroid)
    if rows <= enough:
        return np.arange(rows)
    chosen = rng_from_name("faiss-training", rows).choice(rows, enough, replace=False)
    return np.sort(chosen)
