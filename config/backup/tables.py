"""The rows of the database as files: written from one snapshot, and loaded into tables that have no indexes yet.

Only with what the role may do that owns the database: `COPY` through the connection, and its own tables.
"""

import gzip
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from psycopg import sql

from core.private_files import open_private

PIECE = 1 << 20  # bytes
FAST = 1  # level of gzip: a processor packs as fast as a disk writes

_TABLES = """
SELECT c.relname, array_agg(a.attname ORDER BY a.attnum) FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> ALL(%s)
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
GROUP BY c.relname ORDER BY c.relname
"""
_SEQUENCES = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema() ORDER BY 1"
_FOREIGN_KEYS = """
SELECT c.conname, c.conrelid::regclass::text, pg_get_constraintdef(c.oid) FROM pg_constraint c
WHERE c.contype = 'f' AND c.connamespace = current_schema()::regnamespace ORDER BY 1
"""
# Of constraints such as primary keys they are found by their constraint, and stay: there are few, on short columns.
_INDEXES = """
SELECT i.relname, t.relname, pg_get_indexdef(i.oid) FROM pg_index x
JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
WHERE i.relnamespace = current_schema()::regnamespace AND t.relname <> ALL(%s)
    AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.oid) ORDER BY 1
"""
_ANYTHING = """
SELECT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
    AND c.relkind IN ('r', 'p', 'v', 'm')
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'))
"""


@dataclass(frozen=True, slots=True)
class Table:
    """One file of rows in PostgreSQL's text format, packed with gzip; `sha256` of the file."""

    name: str
    columns: list[str]
    rows: int
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}.copy.gz"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Later:
    """What is made of a table's rows once they are loaded: an index, or a foreign key (`of` is its table then)."""

    name: str
    of: str
    definition: str
    key: bool = False


@contextmanager
def snapshot() -> Iterator[None]:
    """What is read meanwhile is of one moment."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def tables(besides: Sequence[str] = ()) -> dict[str, list[str]]:
    """The names of the tables with those of their columns that are stored."""
    return dict(_asked(_TABLES, [list(besides)]))


def sequences() -> dict[str, int | None]:
    return dict(_asked(_SEQUENCES))


def is_empty() -> bool:
    return not _asked(_ANYTHING)[0][0]


def write(name: str, columns: list[str], directory: Path) -> Table:
    target, digest = directory / f"{name}.copy.gz", hashlib.sha256()
    with connection.cursor() as cursor, open_private(target) as raw, gzip.GzipFile("", "wb", FAST, raw, 0) as packed:
        with cursor.copy(_copy("COPY {table} ({columns}) TO STDOUT", name, columns)) as copy:
            for piece in copy:
                packed.write(piece)
        rows = cursor.rowcount
    with target.open("rb") as written:
        while piece := written.read(PIECE):
            digest.update(piece)
    return Table(name, columns, rows, digest.hexdigest())


def is_whole(table: Table, directory: Path) -> bool:
    target = directory / table.file
    if not target.is_file():
        return False
    with target.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest() == table.sha256


def strip(besides: Sequence[str]) -> list[Later]:
    """Takes away what would slow the loading down or refuse it, indexes, foreign keys and triggers, and what migrations
    have put into the tables. Returns what is to be made again, foreign keys last. Inside a transaction."""
    keys = [Later(name, table, definition, key=True) for name, table, definition in _asked(_FOREIGN_KEYS)]
    indexes = [Later(*each) for each in _asked(_INDEXES, [list(besides)])]
    with connection.cursor() as cursor:
        for key in keys:
            cursor.execute(_named("ALTER TABLE {of} DROP CONSTRAINT {name}", key))
        for index in indexes:
            cursor.execute(_named("DROP INDEX {name}", index))
        for name in tables(besides):
            table = sql.Identifier(name)
            cursor.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
            cursor.execute(sql.SQL("TRUNCATE {}").format(table))
    return [*indexes, *keys]


def load(table: Table, directory: Path) -> None:
    """Inside a transaction."""
    copying = _copy("COPY {table} ({columns}) FROM STDIN", table.name, table.columns)
    with connection.cursor() as cursor, gzip.open(directory / table.file) as rows, cursor.copy(copying) as copy:
        while piece := rows.read(PIECE):
            copy.write(piece)


def make(later: Later) -> None:
    with connection.cursor() as cursor:
        if later.key:
            statement = _named("ALTER TABLE {of} ADD CONSTRAINT {name} ", later)
            cursor.execute(sql.Composed([statement, sql.SQL(later.definition)]))
        else:
            cursor.execute(later.definition)


def finish(besides: Sequence[str], found: dict[str, int | None]) -> None:
    """Triggers work again, sequences go on from the values `found`, and the planner knows the tables."""
    with connection.cursor() as cursor:
        for name in tables(besides):
            cursor.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(sql.Identifier(name)))
        for name, value in found.items():
            cursor.execute("SELECT setval(%s::regclass, %s, %s)", [f'"{name}"', value or 1, value is not None])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _copy(statement: str, table: str, columns: list[str]) -> sql.Composed:
    listed = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL(statement).format(table=sql.Identifier(table), columns=listed)


def _named(statement: str, later: Later) -> sql.Composed:
    table = sql.SQL(later.of) if later.key else sql.Identifier(later.of)
    return sql.SQL(statement).format(of=table, name=sql.Identifier(later.name))


def _asked(query: str, bound: Sequence[Any] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, bound or None)
        return list(cursor.fetchall())
