"""One string names an index: ``kind:location``, with a table or collection behind a ``#`` where the kind has them.

| spec | what it is |
|---|---|
| ``vectors.npy``, ``npy:FILE``, ``npy:FILE#ids=FILE`` | an array; ids are row numbers or lines of ``FILE.ids.txt`` |
| ``rows.parquet``, ``parquet:FILE_OR_FOLDER``, ``parquet:FILE#COLUMN`` | a column of float lists beside an id column |
| ``x.faiss``, ``x.index``, ``faiss:FILE`` | a FAISS index |
| ``lancedb:FOLDER#TABLE`` | a LanceDB table |
| ``qdrant:FOLDER#COLLECTION`` | a collection of Qdrant's local mode |
| ``pgvector:postgresql://USER:PASSWORD@HOST/DATABASE#TABLE`` | a PostgreSQL table with a vector column |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from consilience.core.errors import InputError

KINDS = ("npy", "parquet", "faiss", "lancedb", "qdrant", "pgvector")
_SUFFIXES = {".npy": "npy", ".parquet": "parquet", ".faiss": "faiss", ".index": "faiss"}
_FRAGMENTS = {"lancedb": "TABLE", "qdrant": "COLLECTION", "pgvector": "TABLE"}


@dataclass(frozen=True)
class IndexSpec:
    """Where an index is.

    Attributes:
        kind: one of :data:`KINDS`.
        location: path, or the DSN of a database; the latter may hold a password, so it's never shown.
        fragment: what is behind the ``#``, or None.
    """

    kind: str
    location: str = field(repr=False)
    fragment: str | None


def parse_index_spec(spec: str, *, default: IndexSpec | None = None) -> IndexSpec:
    """Take an index's spec apart.

    Args:
        spec: see the module.
        default: the source, for a new index's spec: its kind where ``spec`` names none, its location where the spec is
            only ``#NAME`` or ``kind:#NAME``.

    Raises:
        InputError: the kind can't be told, or the table or collection is missing.

    Example:
        >>> parse_index_spec("lancedb:store#captions").fragment
        'captions'
    """
    prefix, colon, rest = spec.partition(":")
    named = bool(colon) and prefix in KINDS
    location = rest if named else spec
    kind = prefix if named else _kind_by_look(spec, default)
    fragment: str | None = None
    if kind in _FRAGMENTS or (kind in ("npy", "parquet") and "#" in location and not Path(location).exists()):
        location, hash_sign, name = location.rpartition("#")
        if not hash_sign or not name:
            form = f"{kind}:{'DSN' if kind == 'pgvector' else 'FOLDER'}#{_FRAGMENTS.get(kind, 'NAME')}"
            raise InputError(f"{kind} index: expected {form}, got no name behind a '#'. Write it so")
        fragment = name
    if not location and default is not None and default.kind == kind:
        location = default.location
    if not location:
        raise InputError(f"{kind} index: its location is empty. Write {kind}:LOCATION")
    return IndexSpec(kind, location, fragment)


def _kind_by_look(spec: str, default: IndexSpec | None) -> str:
    """Tell the kind of a spec without a prefix by its suffix, by what is there, or by the source's kind."""
    path = Path(spec.partition("#")[0])
    by_suffix = _SUFFIXES.get(path.suffix.lower())
    if by_suffix is not None and (default is None or "#" not in spec or default.kind not in _FRAGMENTS):
        return by_suffix
    if default is not None:
        return default.kind
    if path.is_dir() and next(path.rglob("*.parquet"), None) is not None:
        return "parquet"
    shown = spec if "://" not in spec and "password" not in spec else "this address"
    raise InputError(
        f"{shown}: can't tell what kind of index it is. Write KIND:LOCATION with a kind of {', '.join(KINDS)}"
    )
