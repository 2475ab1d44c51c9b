"""A collection of Qdrant's local mode, the folder that ``QdrantClient(path=...)`` keeps."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, StorageError
from consilience.core.extras import require
from consilience.core.files import read_json, write_json
from consilience.indexes.columns import choose_column
from consilience.indexes.index import (
    Block,
    Metric,
    RowChecks,
    Transform,
    Vectors,
    checked_blocks,
    fingerprint_blocks,
    in_order,
    require_ids,
    require_rows,
    transformed,
)
from consilience.indexes.publish import published, require_new
from consilience.indexes.spec import IndexSpec

_META = "meta.json"
_METRICS: dict[str, Metric] = {"Cosine": "cosine", "Dot": "dot", "Euclid": "l2"}
_UNNAMED = ""


class QdrantIndex:
    """One dense vector of each point of a local collection.

    Local mode locks its folder and may repair its files when it opens them, so the collection is copied to a temporary
    folder, through SQLite's own snapshot, and read there; the source stays as it is, even while another process uses
    it. Local mode holds a whole collection in memory. Like Qdrant, this
    trusts the folder: local mode keeps its points as Python objects, so open only folders of your own.

    Args:
        folder: the folder.
        collection: name or alias.
        vector: name of the vector where points have several; by default the only one.
        metric: what the vectors are compared by; by default the collection's distance.

    Raises:
        InputError: no such folder, collection or vector, several that can be meant, no points, or another distance.
        MissingExtraError: qdrant-client isn't installed.
    """

    kind = "qdrant"

    def __init__(
        self, folder: Path, collection: str, *, vector: str | None = None, metric: Metric | None = None
    ) -> None:
        self.label = f"qdrant:{folder}#{collection}"
        self.spec = IndexSpec("qdrant", str(folder), collection)
        if not (folder / _META).is_file():
            raise InputError(f"{folder}: no folder of Qdrant's local mode (it has no {_META}). Check the path")
        self._qdrant: Any = require("qdrant_client", extra="qdrant", purpose="to read Qdrant collections")
        self._folder = folder
        collections, aliases = _read_meta(folder / _META)
        self._collection = aliases.get(collection, collection)
        if self._collection not in collections:
            found = ", ".join(sorted(collections)) or "none"
            raise InputError(f"{folder}: has no collection {collection!r}; it has {found}. Choose one behind the #")
        self._config: dict[str, Any] = collections[self._collection]
        self._vector = self._choose_vector(vector)
        params = _dense_vectors(self._config)[self._vector]
        self.dimensions = int(params["size"])
        found_metric = _METRICS.get(str(params["distance"]))
        if metric is None and found_metric is None:
            raise InputError(
                f"{self.label}: its distance {params['distance']} is neither Cosine, Dot nor Euclid. "
                "Say --metric if one of cosine, dot or l2 is close enough"
            )
        self.metric: Metric = metric or found_metric or "cosine"
        with _sqlite(self._storage()) as database:
            self.rows = int(database.execute("SELECT count(*) FROM points").fetchone()[0])
        require_rows(self.label, self.rows)

    def iter_blocks(self, rows: int = 8192) -> Iterator[Block]:
        """See :meth:`VectorIndex.iter_blocks`; in the order in which Qdrant scrolls."""
        return checked_blocks(self, lambda: self._blocks(rows), unique=True)

    def lookup(self, ids: Sequence[str]) -> Vectors:
        """See :meth:`VectorIndex.lookup`."""
        with self._snapshot() as client:
            points = {str(name): name for name in self._ids(client)}
            require_ids(self.label, [name for name in ids if name not in points], len(ids))
            records = self._retrieve(client, [points[name] for name in ids])
        names = [str(record.id) for record in records]
        return in_order(self, dict(zip(names, self._vectors(records), strict=True)), ids)

    def fingerprint(self) -> str:
        """See :meth:`VectorIndex.fingerprint`."""
        return fingerprint_blocks(self.iter_blocks())

    def require_target(self, out: str, fragment: str | None) -> None:
        """See :meth:`RewritableIndex.require_target`."""
        target, name = Path(out), fragment or self._collection
        if "/" in name or not name.strip("."):
            raise InputError(f"{name!r}: can't be the name of a collection. Choose another behind the # of --rewrite")
        if target.resolve() == self._folder.resolve():
            raise InputError(
                f"{target}: is the source's folder, and local mode lists all its collections in one file there. "
                "Choose a new folder for --rewrite"
            )
        require_new(target, self._folder)

    def rewrite(self, out: str, fragment: str | None, transform: Transform, dimensions: int, block_rows: int) -> None:
        """Write a new folder with one collection: same settings, other vectors and payloads copied."""
        self.require_target(out, fragment)
        target, name = Path(out), fragment or self._collection
        models = self._qdrant.models
        checks = RowChecks(self.label, self.dimensions, unique=True)
        with published(target) as partial, self._snapshot() as source:
            partial.mkdir()
            write_json(partial / _META, {"collections": {name: self._new_config(dimensions)}, "aliases": {}})
            (partial / "collection" / name).mkdir(parents=True)
            with closing(self._qdrant.QdrantClient(path=str(partial))) as client:
                flush_at_the_end(client, name)
                for points in _slices(self._ids(source), block_rows):
                    records = self._retrieve(source, points, payload=True)
                    ids, vectors = [str(record.id) for record in records], self._vectors(records)
                    checks.check(ids, vectors)
                    new = transformed(self.label, transform, ids, vectors, dimensions)
                    fresh = [
                        models.PointStruct(id=r.id, vector=self._replaced(r.vector, row), payload=r.payload)
                        for r, row in zip(records, new.tolist(), strict=True)
                    ]
                    try:
                        client.upsert(name, points=fresh)
                    except sqlite3.Error as error:
                        raise _storage_error(target, error) from error
            (partial / ".lock").unlink(missing_ok=True)

    def _choose_vector(self, vector: str | None) -> str:
        dense = _dense_vectors(self._config)
        if vector is None and list(dense) == [_UNNAMED]:
            return _UNNAMED
        return choose_column(self.label, "vector", vector, list(dense), list(dense), "")

    def _new_config(self, dimensions: int) -> dict[str, Any]:
        vectors = self._config["vectors"]
        if self._vector == _UNNAMED and "size" in vectors:
            return {**self._config, "vectors": {**vectors, "size": dimensions}}
        changed = {**vectors[self._vector], "size": dimensions}
        return {**self._config, "vectors": {**vectors, self._vector: changed}}

    def _replaced(self, old: Any, row: list[float]) -> Any:  # noqa: ANN401 - a list, or a dict by name
        return {**old, self._vector: row} if isinstance(old, dict) else row

    def _storage(self) -> Path:
        path: Path = self._folder / "collection" / self._collection / "storage.sqlite"
        if not path.is_file():
            raise InputError(
                f"{path}: the collection's points are missing, or are of a qdrant-client before 1.1. "
                "Open the folder once with a current client"
            )
        return path

    @contextmanager
    def _snapshot(self) -> Iterator[Any]:
        """Copy the collection to a temporary folder and give a client of the copy."""
        with _temporary_folder() as folder:
            inner = folder / "collection" / self._collection
            inner.mkdir(parents=True)
            write_json(folder / _META, {"collections": {self._collection: self._config}, "aliases": {}})
            with _sqlite(self._storage()) as source, closing(sqlite3.connect(inner / "storage.sqlite")) as copy:
                source.backup(copy)
            try:
                client = self._qdrant.QdrantClient(path=str(folder))
            except Exception as error:  # whatever a damaged Python object, or a setting of another version, raises
                raise InputError(
                    f"{self.label}: Qdrant can't open it ({type(error).__name__}: {error}). Check that the folder is "
                    "whole and of this version of qdrant-client"
                ) from error
            with closing(client):
                yield client

    def _ids(self, client: Any) -> list[Any]:  # noqa: ANN401 - QdrantClient
        # Asked for at once: local mode sorts all points for each page of a scroll.
        records, _ = client.scroll(self._collection, limit=self.rows, with_payload=False, with_vectors=False)
        return [record.id for record in records]

    def _retrieve(self, client: Any, points: Sequence[Any], *, payload: bool = False) -> list[Any]:  # noqa: ANN401
        records: list[Any] = client.retrieve(
            self._collection, ids=list(points), with_payload=payload, with_vectors=True
        )
        return records

    def _vectors(self, records: Sequence[Any]) -> Vectors:
        vectors = []
        for record in records:
            vector = record.vector.get(self._vector) if isinstance(record.vector, dict) else record.vector
            if vector is None:
                raise InputError(
                    f"{self.label}: id {str(record.id)!r} has no vector. Embed or delete the points without one"
                )
            vectors.append(vector)
        return np.array(vectors, dtype=np.float32).reshape(len(records), -1)

    def _blocks(self, rows: int) -> Iterator[Block]:
        with self._snapshot() as client:
            for points in _slices(self._ids(client), rows):
                records = self._retrieve(client, points)
                yield [str(record.id) for record in records], self._vectors(records)


def _dense_vectors(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parameters of a collection's dense vectors by name; the only, unnamed one is ""."""
    vectors = config.get("vectors") or {}
    named = {_UNNAMED: vectors} if "size" in vectors and "distance" in vectors else vectors
    return {name: params for name, params in named.items() if not params.get("multivector_config")}


def flush_at_the_end(client: Any, collection: str) -> None:  # noqa: ANN401 - QdrantClient
    """Let SQLite leave out its flush after each point, where the client's inside is as known.

    Measured: writing is 4.5 times faster. The folder is flushed as a whole before it gets its name. With another client
    writing is slower, and the same.
    """
    local = getattr(client, "_client", None)
    storage = getattr(getattr(local, "collections", {}).get(collection), "storage", None)
    database = getattr(storage, "storage", None)
    if isinstance(database, sqlite3.Connection):
        database.execute("PRAGMA synchronous=OFF")


def _slices(values: Sequence[Any], rows: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), rows):
        yield values[start : start + rows]


def _read_meta(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the collections and the aliases that a folder lists."""
    meta = read_json(path)
    collections = meta.get("collections") if isinstance(meta, dict) else None
    if not isinstance(collections, dict) or not all(map(_is_config, collections.values())):
        raise InputError(f"{path}: doesn't list collections as Qdrant's local mode does. Check the folder")
    return collections, meta.get("aliases") or {}


def _is_config(config: Any) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(config, dict) or not isinstance(config.get("vectors") or {}, dict):
        return False
    dense = _dense_vectors(config).values()
    return all(isinstance(params.get("size"), int) and "distance" in params for params in dense)


@contextmanager
def _sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an SQLite file for reading only."""
    with _temporary_folder() as folder:
        try:
            if _needs_repair(path):
                # A killed writer left its journal. SQLite would roll it back in the source, so that's done in a copy.
                for file in (path, journal_of(path)):
                    shutil.copyfile(file, folder / file.name)
                path, mode = folder / path.name, "rw"
            else:
                mode = "ro"
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True)) as database:
                yield database
        except sqlite3.DatabaseError as error:
            if _is_full(error):
                raise _storage_error(Path(tempfile.gettempdir()), error) from error
            if _named(error).startswith("SQLITE_BUSY"):
                raise InputError(f"{path}: another process is writing to it. Run the command again later") from error
            raise InputError(f"{path}: can't be read as Qdrant's local storage ({error}). Check the folder") from error


def journal_of(path: Path) -> Path:
    """Return the file in which SQLite keeps what a transaction has changed."""
    return path.with_name(path.name + "-journal")


def _needs_repair(path: Path) -> bool:
    if not journal_of(path).is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        if _named(error).startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            return True
        raise
    return False


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Give a temporary folder; it's in TMPDIR where that is set."""
    with tempfile.TemporaryDirectory(prefix="consilience-qdrant-") as temporary:
        yield Path(temporary)


def _named(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", ""))


def _is_full(error: sqlite3.Error) -> bool:
    """Return whether SQLite says that it couldn't write, and not that it couldn't read."""
    written = ("WRITE", "FSYNC", "TRUNCATE", "DELETE", "DIR_FSYNC", "SHMSIZE")
    return _named(error) in {"SQLITE_FULL", *(f"SQLITE_IOERR_{what}" for what in written)}


def _storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    return StorageError(
        f"{path}: SQLite can't write there ({error}). Free some space, choose another --rewrite, or, for temporary "
        "copies, another TMPDIR"
    )
