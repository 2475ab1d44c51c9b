"""A PostgreSQL table with a pgvector column, reached through a DSN."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.extras import require
from consilience.indexes.columns import choose_column
from consilience.indexes.index import (
    Block,
    Metric,
    Transform,
    Vectors,
    checked_blocks,
    fingerprint_blocks,
    in_order,
    require_rows,
)
from consilience.indexes.spec import IndexSpec

_CONNECT_SECONDS = 10  # assumed: a database that is there answers sooner
_NAMED_TABLES = 10  # how many an error names
_VECTOR_TYPES = ("vector", "halfvec")
_ID_TYPES = ("int2", "int4", "int8", "text", "varchar", "bpchar", "uuid")
_METRICS: dict[str, Metric] = {"cosine_ops": "cosine", "ip_ops": "dot", "l2_ops": "l2"}

_FIND_TABLE = """
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relname = %(table)s
  AND (n.nspname = %(schema)s OR (%(schema)s::text IS NULL AND pg_table_is_visible(c.oid)))
"""
_FIND_COLUMNS = """
SELECT a.attname, t.typname, n.nspname, a.atttypmod, a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_FIND_KEY = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = %s AND i.indisprimary
"""
# Through the dependencies, which an index on an expression of the column has, too.
_FIND_OPERATORS = """
SELECT DISTINCT o.opcname FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam AND m.amname IN ('hnsw', 'ivfflat')
JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjid = i.indrelid
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = %(column)s AND a.attnum = d.refobjsubid
JOIN pg_opclass o ON o.oid = ANY(i.indclass)
WHERE i.indrelid = %(table)s
"""


@dataclass(frozen=True)
class Column:
    """A column of a table, as the system catalogue has it."""

    name: str
    type: str
    type_schema: str
    modifier: int
    generated: bool


class PgvectorIndex:
    """A table with an id column and a column of type ``vector`` or ``halfvec``.

    Every pass reads one snapshot, in a read-only transaction, ordered by id, through a cursor on the server.

    Args:
        dsn: anything libpq takes; a password may also come from PGPASSWORD or a password file.
        table: its name, perhaps with its schema before a dot.
        id_column: by default the primary key, or the only column that can be meant.
        vector_column: by default the only one.
        metric: what the vectors are compared by; by default that of the column's index, else "cosine".

    Raises:
        InputError: the database can't be reached, no such table or column, several that can be meant, or no rows.
        MissingExtraError: psycopg isn't installed.
    """

    kind = "pgvector"

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        id_column: str | None = None,
        vector_column: str | None = None,
        metric: Metric | None = None,
    ) -> None:
        self.label = f"pgvector:{without_password(dsn)}#{table}"
        self.spec = IndexSpec("pgvector", dsn, table)
        require("psycopg", extra="pgvector", purpose="to reach PostgreSQL")
        self._dsn = dsn
        with self.reading() as cursor:
            self.oid, self.schema, self.table = find_table(cursor, table) or self._no_table(cursor, table)
            self.columns = [
                Column(name, kind, schema, modifier, generated)
                for name, kind, schema, modifier, generated in cursor.execute(_FIND_COLUMNS, [self.oid])
            ]
            names = [column.name for column in self.columns]
            vectors = [column.name for column in self.columns if column.type in _VECTOR_TYPES]
            chosen = choose_column(self.label, "vector", vector_column, vectors, names, "embedding")
            self.vector = next(column for column in self.columns if column.name == chosen)
            ids = [column.name for column in self.columns if column.type in _ID_TYPES]
            key = [name for (name,) in cursor.execute(_FIND_KEY, [self.oid])]
            usual = key[0] if len(key) == 1 and key[0] in ids else "id"
            self.keyed = [id_column if id_column is not None else usual] == key
            self.id = choose_column(self.label, "id", id_column or (usual if usual in ids else None), ids, names, usual)
            self.rows = self._count(cursor)
            require_rows(self.label, self.rows)
            self.dimensions = self._width(cursor)
            self.metric: Metric = metric or self._metric(cursor)

    def iter_blocks(self, rows: int = 8192) -> Iterator[Block]:
        """See :meth:`VectorIndex.iter_blocks`; in the order of the ids."""
        return checked_blocks(self, lambda: self._blocks(rows), unique=self.keyed)

    def lookup(self, ids: Sequence[str]) -> Vectors:
        """See :meth:`VectorIndex.lookup`."""
        found: dict[str, Vectors] = {}
        with self.reading() as cursor:
            # As a literal: beside a parameter, a % in a column's name would have to be doubled.
            query = self.compose("SELECT {id}::text, {send} FROM {table} WHERE {id}::text = ANY({ids})", ids=list(ids))
            for name, data in cursor.execute(query, binary=True):
                found[name] = self.decoded(name, data)
        return in_order(self, found, ids)

    def fingerprint(self) -> str:
        """See :meth:`VectorIndex.fingerprint`."""
        return fingerprint_blocks(self.iter_blocks())

    def require_target(self, out: str, fragment: str | None) -> None:
        """See :meth:`RewritableIndex.require_target`."""
        from consilience.indexes.pgvector_write import require_table

        if fragment is None:
            raise InputError(f"{self.label}: expected the new table's name behind a '#'. Write --rewrite '#TABLE'")
        require_table(self, out, fragment)

    def rewrite(self, out: str, fragment: str | None, transform: Transform, dimensions: int, block_rows: int) -> None:
        """Write a new table of the same columns, keys and indexes, the vector column's width changed."""
        from consilience.indexes.pgvector_write import write_table

        if fragment is None:
            raise InputError(f"{self.label}: expected the new table's name behind a '#'. Write --rewrite '#TABLE'")
        write_table(self, out, fragment, transform, dimensions, block_rows)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Give a cursor in a read-only transaction that sees one snapshot."""
        with connected(self._dsn, self.label) as connection:
            import psycopg

            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with connection.cursor() as cursor:
                yield cursor

    def compose(self, query: str, **more: Any) -> Any:  # noqa: ANN401 - psycopg.sql.Composable
        """Fill ``{id}``, ``{vector}``, ``{table}``, ``{send}`` (the vector in pgvector's binary form) into a query."""
        from psycopg import sql

        vector, schema = sql.Identifier(self.vector.name), self.vector.type_schema
        send = sql.SQL("{}({}::{})").format(
            sql.Identifier(schema, "vector_send"), vector, sql.Identifier(schema, "vector")
        )
        table = sql.Identifier(self.schema, self.table)
        return sql.SQL(query).format(id=sql.Identifier(self.id), vector=vector, table=table, send=send, **more)

    def _blocks(self, rows: int) -> Iterator[Block]:
        query = self.compose("SELECT {id}::text, {send} FROM {table} t ORDER BY t.{id}")
        with self.reading() as cursor, cursor.connection.cursor("consilience", binary=True) as stream:
            stream.execute(query)
            while block := stream.fetchmany(rows):
                ids = [name for name, _ in block]
                if None in ids:
                    raise InputError(
                        f"{self.label}: rows without an id in column {self.id!r}. Choose another --index-id-column"
                    )
                yield ids, np.stack([self.decoded(name, data) for name, data in block])

    def decoded(self, name: str, data: bytes | None, number: str = ">f4") -> Vectors:
        """Read pgvector's binary form: a width of two bytes, two unused, then big-endian floats (``number``).

        Raises:
            InputError: the vector is missing or of another width.
        """
        if data is None:
            raise InputError(f"{self.label}: id {name!r} has no vector. Embed or delete the rows without one")
        vector = np.frombuffer(data, dtype=number, offset=4)
        if len(vector) != self.dimensions:
            raise InputError(
                f"{self.label}: id {name!r} has a vector of width {len(vector)}, the first has {self.dimensions}. "
                "Give a table whose vectors all have one width"
            )
        return vector.astype(np.float32)

    def _no_table(self, cursor: Any, table: str) -> tuple[int, str, str]:  # noqa: ANN401 - psycopg.Cursor
        found = cursor.execute(
            "SELECT DISTINCT a.attrelid::regclass::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
            "JOIN pg_class c ON c.oid = a.attrelid WHERE t.typname = ANY(%s) AND c.relkind IN ('r', 'p') ORDER BY 1",
            [list(_VECTOR_TYPES)],
        ).fetchall()
        names = ", ".join(name for (name,) in found[:_NAMED_TABLES]) or "none"
        names += ", ..." if len(found) > _NAMED_TABLES else ""
        view = cursor.execute(
            "SELECT relkind IN ('v', 'm') FROM pg_class WHERE oid = to_regclass(%s)", [table]
        ).fetchone()
        if view is not None and view[0]:
            raise InputError(f"{self.label}: {table} is a view. Give the table behind it; tables with vectors: {names}")
        raise InputError(f"{self.label}: no table {table!r}; tables with vectors: {names}. Choose one behind the #")

    def _count(self, cursor: Any) -> int:  # noqa: ANN401 - psycopg.Cursor
        rows, filled = cursor.execute(self.compose("SELECT count(*), count({vector}) FROM {table}")).fetchone()
        if filled < rows:
            query = self.compose("SELECT {id}::text FROM {table} t WHERE {vector} IS NULL ORDER BY t.{id} LIMIT 3")
            names = ", ".join(repr(name) for (name,) in cursor.execute(query))
            raise InputError(
                f"{self.label}: {rows - filled} of {rows} rows have no vector, the first: id {names}. "
                "Embed or delete these rows"
            )
        return int(rows)

    def _width(self, cursor: Any) -> int:  # noqa: ANN401 - psycopg.Cursor
        if self.vector.modifier > 0:
            return self.vector.modifier
        ((data,),) = cursor.execute(self.compose("SELECT {send} FROM {table} t ORDER BY t.{id} LIMIT 1"), binary=True)
        return (len(data) - 4) // 4

    def _metric(self, cursor: Any) -> Metric:  # noqa: ANN401 - psycopg.Cursor
        operators = cursor.execute(_FIND_OPERATORS, {"table": self.oid, "column": self.vector.name})
        # Bits, as of binary quantisation, only choose candidates, which are then compared by something else.
        names = sorted(name for (name,) in operators if not name.startswith("bit_"))
        found = {_METRICS.get(name.partition("_")[2]) for name in names}
        if not found:
            return "cosine"
        metric = found.pop()
        if found or metric is None:
            raise InputError(
                f"{self.label}: {self.vector.name!r} is indexed by {', '.join(names)}, which doesn't tell one of "
                "cosine, dot or l2. Say --metric"
            )
        return metric


def find_table(cursor: Any, table: str, schema: str | None = None) -> tuple[int, str, str] | None:  # noqa: ANN401
    """Return the oid, schema and name of a table, or None.

    Args:
        cursor: of psycopg.
        table: its name; without ``schema`` it's looked for along the search path, and a dot may separate its schema.
        schema: where it has to be.
    """
    found = cursor.execute(_FIND_TABLE, {"schema": schema, "table": table}).fetchone()
    if found is None and schema is None:
        schema, table = split_name(table)
        found = cursor.execute(_FIND_TABLE, {"schema": schema, "table": table}).fetchone()
    return None if found is None else (int(found[0]), str(found[1]), str(found[2]))


def split_name(name: str) -> tuple[str | None, str]:
    """Return the schema, or None, and the table of a name as a person writes it, perhaps with SQL's quotes.

    Example:
        >>> split_name('"My Schema"."Items"'), split_name("public.items"), split_name("items")
        (('My Schema', 'Items'), ('public', 'items'), (None, 'items'))
    """
    part = r'"(?:[^"]|"")+"|[^."]+'
    quoted = re.fullmatch(rf"(?:({part})\.)?({part})", name) if '"' in name else None
    if quoted is not None:
        schema, table = (
            None if found is None else found[1:-1].replace('""', '"') if found.startswith('"') else found
            for found in quoted.groups()
        )
        return schema, str(table)
    schema, dot, table = name.partition(".")
    return (schema, table) if dot else (None, name)


@contextmanager
def connected(dsn: str, label: str) -> Iterator[Any]:
    """Connect to PostgreSQL; its errors become an InputError that never holds the password.

    Raises:
        InputError: the DSN is malformed, the server can't be reached, or it refuses.
    """
    import psycopg

    # It would write lines of its own where a connection breaks, beside our error.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    options = {} if "connect_timeout" in dsn else {"connect_timeout": _CONNECT_SECONDS}
    problem, remedy = "", "Check the table and your rights to it"
    try:
        connection = psycopg.connect(dsn, application_name="consilience", **options)
    except psycopg.Error as error:
        # Not chained: libpq's own message may quote the DSN.
        problem = _first_line(error, dsn)
    else:
        try:
            with connection:
                yield connection
            return
        except psycopg.Error as error:
            problem = _first_line(error, dsn)
            if connection.broken or (error.sqlstate or "").startswith("57"):  # ended by somebody or something
                remedy = "See that the server runs, then run the command again"
        raise InputError(f"{label}: PostgreSQL refused: {problem}. {remedy}") from None
    raise InputError(
        f"{label}: can't connect: {problem}. Check host, port, database, user and password (PGPASSWORD works too)"
    ) from None


def without_password(dsn: str) -> str:
    """Return a DSN without its password, to be shown.

    Example:
        >>> without_password("postgresql://ann:s3c@ret@localhost/shop?sslmode=require")
        'postgresql://ann@localhost/shop?sslmode=require'
        >>> without_password("host=localhost password='s3 cret' dbname=shop")
        'host=localhost dbname=shop'
    """
    shown = re.sub(r"(?<=[?&])(?:ssl)?password=[^&]*&?", "", dsn, flags=re.IGNORECASE).rstrip("?&")
    shown = re.sub(r"^(\w+://)([^:@/?]*):.*@", r"\1\2@", shown, flags=re.DOTALL)
    return re.sub(r"\b(?:ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|\S+)\s*", "", shown, flags=re.IGNORECASE).strip()


def _first_line(error: Exception, dsn: str) -> str:
    """Return the first line of a message of PostgreSQL, less anything that was secret in the DSN."""
    from urllib.parse import unquote

    message = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    secrets = re.findall(r"^\w+://[^:@/?]*:(.*)@", dsn, flags=re.DOTALL)
    secrets += re.findall(r"password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]+)", dsn, flags=re.IGNORECASE)
    for secret in secrets:
        for form in {secret, unquote(secret), secret.strip("'")} - {""}:
            message = message.replace(form, "***")
    if dsn and dsn in message:
        message = message.replace(dsn, without_password(dsn))
    return message.rstrip(".")
