"""A new pgvector table beside another one: loaded under a temporary name, renamed in one transaction."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError, ResumeError
from consilience.core.progress import log
from consilience.indexes.index import RowChecks, Transform, transformed
from consilience.indexes.pgvector_index import connected, find_table, split_name, without_password

if TYPE_CHECKING:
    from consilience.indexes.pgvector_index import PgvectorIndex

_SUFFIX = "__partial"
_MARK = "Consilience writes this table; it's renamed when it is complete"
_NAME_BYTES = 63  # PostgreSQL cuts longer names

_SAME_PLACE = "SELECT pg_postmaster_start_time(), current_database()"
_VECTOR_INDEXES = """
SELECT c.relname, pg_get_indexdef(c.oid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam WHERE i.indrelid = %s AND m.amname IN ('hnsw', 'ivfflat')
"""
_OWN_NAMES = """
SELECT 'INDEX', c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %(table)s
UNION ALL
SELECT 'SEQUENCE', c.relname FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S'
WHERE d.refobjid = %(table)s AND d.deptype IN ('a', 'i')
"""
_SEQUENCES = """
SELECT a.attname, a.attidentity <> '', pg_get_serial_sequence(%(name)s, a.attname),
       format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
  AND pg_get_serial_sequence(%(name)s, a.attname) IS NOT NULL
"""
_LEFT_BEHIND = """
SELECT 'foreign keys' FROM pg_constraint WHERE conrelid = %(table)s AND contype = 'f'
UNION SELECT 'triggers' FROM pg_trigger WHERE tgrelid = %(table)s AND NOT tgisinternal
UNION SELECT 'row security' FROM pg_class WHERE oid = %(table)s AND relrowsecurity
UNION SELECT 'grants' FROM pg_class WHERE oid = %(table)s AND relacl IS NOT NULL
UNION SELECT 'partitions' FROM pg_class WHERE oid = %(table)s AND relkind = 'p'
ORDER BY 1
"""
_GENERATED_FROM = """
SELECT g.attname FROM pg_attrdef f
JOIN pg_attribute g ON g.attrelid = f.adrelid AND g.attnum = f.adnum AND g.attgenerated <> ''
JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refobjid = f.adrelid
JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = d.refobjsubid AND a.attname = %(column)s
WHERE f.adrelid = %(table)s AND g.attname <> %(column)s
"""
_CHECKS_OF = """
SELECT c.conname FROM pg_constraint c
JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attname = %(column)s AND a.attnum = ANY(c.conkey)
WHERE c.conrelid = %(table)s AND c.contype = 'c'
"""


def write_table(
    source: PgvectorIndex, dsn: str, table: str, transform: Transform, dimensions: int, block_rows: int
) -> None:
    """Write the new table; see :meth:`PgvectorIndex.rewrite`.

    Args:
        source: the table that is read, in one snapshot.
        dsn: the same database, perhaps as another user.
        table: the new table's name; without a schema it goes to the source's.
        transform: maps rows as stored to new rows.
        dimensions: their width.
        block_rows: how many rows are in memory at once.

    Raises:
        InputError: the table exists, is the source, is in another database, or PostgreSQL refuses.
        ResumeError: another process is writing it.
    """
    schema, name, label = _place(source, dsn, table)
    with connected(dsn, label) as connection, connection.cursor() as cursor, source.reading() as reader:
        _require_possible(cursor, reader, source, (schema, name), label)
        (free,) = cursor.execute(
            "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [f"consilience {schema}.{name}"]
        ).fetchone()
        if not free:
            raise ResumeError(f"{label}: another process is writing it. Wait for it or choose another --rewrite")
        writer = _Writer(source, cursor, schema, name, label)
        writer.create(dimensions)
        connection.commit()
        try:
            writer.load(reader, transform, dimensions, block_rows)
            writer.finish()
            left = [what for (what,) in reader.execute(_LEFT_BEHIND, {"table": source.oid})]
            connection.commit()
        except BaseException:
            connection.rollback()
            writer.drop()
            connection.commit()
            raise
        if left:
            log(
                f"{label}: not copied from the source: {', '.join(left)}. Add to the new table what you want there, too"
            )


def require_table(source: PgvectorIndex, dsn: str, table: str) -> None:
    """Refuse, before any work, a table that :func:`write_table` couldn't write.

    Args:
        source: the table that is read.
        dsn: where the new one would be.
        table: its name.

    Raises:
        InputError: it exists, is the source, is in another database, or a column is generated from the vectors.
    """
    schema, name, label = _place(source, dsn, table)
    with connected(dsn, label) as connection, connection.cursor() as cursor, source.reading() as reader:
        _require_possible(cursor, reader, source, (schema, name), label)


def _place(source: PgvectorIndex, dsn: str, table: str) -> tuple[str, str, str]:
    """Return the new table's schema, name and label."""
    schema, name = split_name(table)
    schema = schema or source.schema
    label = f"pgvector:{without_password(dsn)}#{schema}.{name}"
    if (schema, name) == (source.schema, source.table):
        raise InputError(f"{label}: is the source table, which is never changed. Choose another --rewrite")
    if len((name + _SUFFIX).encode()) > _NAME_BYTES:
        raise InputError(
            f"{label}: expected a name of at most {_NAME_BYTES - len(_SUFFIX)} bytes. Choose a shorter one"
        )
    return schema, name, label


def _require_possible(cursor: Any, reader: Any, source: PgvectorIndex, place: tuple[str, str], label: str) -> None:  # noqa: ANN401
    _require_same_place(cursor, reader, source, label)
    if find_relation(cursor, *place):
        raise InputError(f"{label}: already exists. Choose another --rewrite or drop it")
    (may,) = cursor.execute(
        "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s", [place[0]]
    ).fetchone() or (None,)
    if may is None:
        raise InputError(f"{label}: there is no schema {place[0]!r}. Create it or choose another --rewrite")
    if not may:
        raise InputError(
            f"{label}: this user may not create tables in schema {place[0]!r}. Give --rewrite with another user's "
            "address, or parquet:FILE or npy:FILE"
        )
    of_vector = {"table": source.oid, "column": source.vector.name}
    generated = [name for (name,) in reader.execute(_GENERATED_FROM, of_vector)]
    if generated:
        raise InputError(
            f"{source.label}: column {generated[0]!r} is generated from {source.vector.name!r}, whose width changes, "
            "so the table can't be copied. Give --rewrite parquet:FILE or npy:FILE, with the ids and the new vectors"
        )


class _Writer:
    """The steps of one new table; the caller commits between them."""

    def __init__(self, source: PgvectorIndex, cursor: Any, schema: str, name: str, label: str) -> None:  # noqa: ANN401
        self._source = source
        self._cursor = cursor
        self._schema = schema
        self._name = name
        self._label = label
        self._partial = name + _SUFFIX
        self._index_definitions: list[str] = []

    def create(self, dimensions: int) -> None:
        """Make the empty table; its vector indexes are noted and dropped, to be built when the rows are there."""
        self.drop()
        source, kind = self._source, self._source.vector.type
        self._run("CREATE TABLE {partial} (LIKE {table} INCLUDING ALL)")
        self._run("COMMENT ON TABLE {partial} IS {mark}")
        for (check,) in self._cursor.execute(
            _CHECKS_OF, {"table": self._oid(), "column": source.vector.name}
        ).fetchall():  # most often of the old width
            self._run("ALTER TABLE {partial} DROP CONSTRAINT {check}", check=self._sql().Identifier(check))
            log(f"{self._label}: the check {check!r} of the vectors isn't copied. Add it if you want it there, too")
        # While the index is there: PostgreSQL then says at once that it can't index vectors as wide as this.
        self._run(
            "ALTER TABLE {partial} ALTER COLUMN {vector} TYPE {kind}",
            kind=self._sql().SQL("{}({})").format(self._sql().Identifier(source.vector.type_schema, kind), dimensions),
        )
        for index, definition in self._cursor.execute(_VECTOR_INDEXES, [self._oid()]).fetchall():
            self._index_definitions.append(self._widened(definition, dimensions))
            self._run("DROP INDEX {index}", index=self._sql().Identifier(self._schema, index))
        self._own_sequences()

    def load(self, reader: Any, transform: Transform, dimensions: int, block_rows: int) -> None:  # noqa: ANN401
        """Copy all rows in PostgreSQL's binary form, which leaves every other value as it is, with other vectors."""
        source = self._source
        names = [column.name for column in source.columns if not column.generated]
        vector_at = names.index(source.vector.name)
        columns = self._sql().SQL(", ").join(map(self._sql().Identifier, names))
        select = source.compose(
            "COPY (SELECT {columns}, {id}::text FROM {table} t ORDER BY t.{id}) TO STDOUT (FORMAT binary)",
            columns=columns,
        )
        insert = self._composed("COPY {partial} ({columns}) FROM STDIN (FORMAT binary)", columns=columns)
        encoding = reader.connection.info.encoding
        number = ">f2" if source.vector.type == "halfvec" else ">f4"
        header = struct.pack(">hh", dimensions, 0)
        checks = RowChecks(source.label, source.dimensions, unique=source.keyed)
        with reader.copy(select) as incoming, self._cursor.copy(insert) as outgoing:
            for rows in _blocks(incoming.rows(), block_rows):
                ids = [row[-1].decode(encoding) for row in rows]
                vectors = np.stack(
                    [source.decoded(i, row[vector_at], number) for i, row in zip(ids, rows, strict=True)]
                )
                checks.check(ids, vectors)
                new = transformed(source.label, transform, ids, vectors, dimensions)
                for row, vector in zip(rows, new.astype(number), strict=True):
                    outgoing.write_row((*row[:vector_at], header + vector.tobytes(), *row[vector_at + 1 : -1]))
        checks.finish(lambda: (ids for ids, _ in source.iter_blocks(block_rows)))

    def finish(self) -> None:
        """Build the vector indexes and give the table, its indexes and sequences their final names."""
        for definition in self._index_definitions:
            self._cursor.execute(definition)
        oid = self._oid()
        owned = self._cursor.execute(_OWN_NAMES, {"table": oid}).fetchall()
        (comment,) = self._cursor.execute("SELECT obj_description(%s, 'pg_class')", [self._source.oid]).fetchone()
        self._run("COMMENT ON TABLE {partial} IS {comment}", comment=self._sql().Literal(comment))
        sql = self._sql()
        self._run("ALTER TABLE {partial} RENAME TO {name}", name=sql.Identifier(self._name))
        for what, old in owned:
            new = old.replace(self._partial, self._name, 1)
            taken = find_relation(self._cursor, self._schema, new)
            if new != old and not taken:
                self._cursor.execute(
                    sql.SQL("ALTER {} {} RENAME TO {}").format(
                        sql.SQL(what), sql.Identifier(self._schema, old), sql.Identifier(new)
                    )
                )

    def drop(self) -> None:
        """Drop what a killed run left at the temporary name, if it is ours.

        Raises:
            InputError: a table of that name isn't ours.
        """
        found = find_table(self._cursor, self._partial, self._schema)
        if found is None:
            return
        (comment,) = self._cursor.execute("SELECT obj_description(%s, 'pg_class')", [found[0]]).fetchone()
        if comment != _MARK:
            raise InputError(
                f"{self._label}: the temporary name {self._partial!r} is taken by a table that isn't ours. "
                "Choose another --rewrite"
            )
        self._run("DROP TABLE {partial}")

    def _widened(self, definition: str, dimensions: int) -> str:
        """Give the casts of an index on an expression, ``(embedding::halfvec(384))``, the new width."""
        source = self._source
        others = [c.name for c in source.columns if c.type == source.vector.type and c.name != source.vector.name]
        if any(re.search(rf"\b{re.escape(name)}\b", definition) for name in others):
            return definition
        casts = rf'(::(?:[\w"]+\.)?(?:vector|halfvec|bit))\({source.dimensions}\)'
        return re.sub(casts, rf"\g<1>({dimensions})", definition)

    def _own_sequences(self) -> None:
        """Give serial columns a sequence of their own, at the source's position; a shared one would bind the tables."""
        sql, source = self._sql(), self._source
        quoted = sql.Identifier(source.schema, source.table).as_string(self._cursor)
        partial = sql.Identifier(self._schema, self._partial)
        query = {"name": quoted, "table": source.oid}
        for column, identity, sequence, kind in self._cursor.execute(_SEQUENCES, query).fetchall():
            if not identity:
                fresh = sql.Identifier(self._schema, f"{self._partial}_{column}_seq")
                self._cursor.execute(sql.SQL("CREATE SEQUENCE {} AS {}").format(fresh, sql.SQL(kind)))
                self._cursor.execute(
                    sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT nextval({})").format(
                        partial, sql.Identifier(column), sql.Literal(fresh.as_string(self._cursor))
                    )
                )
                self._cursor.execute(
                    sql.SQL("ALTER SEQUENCE {} OWNED BY {}").format(
                        fresh, sql.Identifier(self._schema, self._partial, column)
                    )
                )
            self._cursor.execute(
                sql.SQL("SELECT setval(pg_get_serial_sequence(%s, %s), last_value, is_called) FROM {}").format(
                    sql.SQL(sequence)
                ),
                [partial.as_string(self._cursor), column],
            )

    def _oid(self) -> int:
        found = find_table(self._cursor, self._partial, self._schema)
        if found is None:
            raise InputError(
                f"{self._label}: its temporary table was dropped while this job ran. Run the command again"
            )
        return found[0]

    def _composed(self, query: str, **more: Any) -> Any:  # noqa: ANN401 - psycopg.sql.Composable
        sql = self._sql()
        return self._source.compose(
            query, partial=sql.Identifier(self._schema, self._partial), mark=sql.Literal(_MARK), **more
        )

    def _run(self, query: str, **more: Any) -> None:  # noqa: ANN401 - psycopg.sql.Composable
        self._cursor.execute(self._composed(query, **more))

    @staticmethod
    def _sql() -> Any:  # noqa: ANN401 - the module psycopg.sql
        from psycopg import sql

        return sql


def find_relation(cursor: Any, schema: str, name: str) -> bool:  # noqa: ANN401 - psycopg.Cursor
    """Return whether a table, index, sequence or view of this name is in a schema."""
    query = (
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"
    )
    return cursor.execute(query, [schema, name]).fetchone() is not None


def _require_same_place(cursor: Any, reader: Any, source: PgvectorIndex, label: str) -> None:  # noqa: ANN401
    """Refuse another database: the rows are copied by PostgreSQL's own definition of the source table."""
    there, here = cursor.execute(_SAME_PLACE).fetchone(), reader.execute(_SAME_PLACE).fetchone()
    if there != here:
        raise InputError(
            f"{label}: is in another database than {source.label}. Write the new table beside the source (--rewrite "
            "'#TABLE') and move it with pg_dump"
        )


def _blocks(rows: Iterator[Sequence[bytes | None]], size: int) -> Iterator[list[Any]]:
    block: list[Any] = []
    for row in rows:
        block.append(row)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
