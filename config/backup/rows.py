"""Load the rows of a backup of format 1, which has files for `COPY`. Versions before the use of pg_dump wrote it.

The rows go into the tables of that version's migrations, in one transaction, so an interrupted restore leaves no rows.
"""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

READ_BYTES = 1 << 20  # bytes per read

_TABLES = """
SELECT c.oid::regclass::text FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> %s
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
"""
# Foreign keys and indexes with the statements that drop and create them. They would slow down the load or refuse rows.
# Foreign keys are created last. Indexes of constraints, such as primary keys, stay.
_KEYS_AND_INDEXES = """
SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I', conrelid::regclass, conname),
    format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', conrelid::regclass, conname, pg_get_constraintdef(oid)), 1
FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace
UNION ALL
SELECT format('DROP INDEX %%s', x.indexrelid::regclass), pg_get_indexdef(x.indexrelid), 0
FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid
WHERE t.relnamespace = current_schema()::regnamespace AND t.relname <> %s
    AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = x.indexrelid)
ORDER BY 3, 1
"""


class Table(TypedDict):
    """A file `<name>.copy.gz` with the rows of a table in PostgreSQL's text format. `sha256`: the hash of the file."""

    name: str
    columns: list[str]
    rows: int
    sha256: str


def file_name(table: Table) -> str:
    return f"{table['name']}.copy.gz"


def load(
    migrations: Sequence[str],
    tables: Sequence[Table],
    sequences: Mapping[str, int | None],
    directory: Path,
    preserved_table: str,
) -> None:
    """Migrate to exactly these migrations (`app.name`), and load the tables.

    The table `preserved_table` stays as it is.
    """
    _migrate_to({(app, name) for app, _, name in (each.partition(".") for each in migrations)})
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_TABLES, [preserved_table])
        table_names = [name for (name,) in cursor.fetchall()]
        cursor.execute(_KEYS_AND_INDEXES, [preserved_table])
        keys_and_indexes = cursor.fetchall()
        for drop, _, _ in keys_and_indexes:
            cursor.execute(drop)
        for name in table_names:
            cursor.execute(f"ALTER TABLE {name} DISABLE TRIGGER USER")
        cursor.execute(f"TRUNCATE {', '.join(table_names)}")
        for table in tables:
            columns = sql.SQL(", ").join(map(sql.Identifier, table["columns"]))
            statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table["name"]), columns)
            with gzip.open(directory / file_name(table)) as rows, cursor.copy(statement) as copy:
                while piece := rows.read(READ_BYTES):
                    copy.write(piece)
        for name in table_names:
            cursor.execute(f"ALTER TABLE {name} ENABLE TRIGGER USER")
        for _, create, _ in keys_and_indexes:
            cursor.execute(create)
        for name, value in sequences.items():
            cursor.execute("SELECT setval(%s::regclass, %s, %s)", [f'"{name}"', value or 1, value is not None])


def _migrate_to(migrations: set[tuple[str, str]]) -> None:
    executor = MigrationExecutor(connection)
    nodes = executor.loader.graph.node_map
    last = [
        key
        for key in sorted(migrations)
        if not any(child.key[0] == key[0] and child.key in migrations for child in nodes[key].children)
    ]
    executor.migrate(last)
