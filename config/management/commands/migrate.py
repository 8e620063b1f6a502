"""`manage.py migrate` that does not block other users of the tables for long."""

import time
from typing import Any

import django.core.management.commands.migrate as django_migrate
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from psycopg.errors import LockNotAvailable

LOCK_SECONDS = 3  # for which a migration waits for a table lock; later queries on the table queue behind it
PAUSE_SECONDS = 5  # before the next try, so that those queries get the table
MAX_TRIES = 75  # in ten minutes


class SchemaEditor(DatabaseSchemaEditor):
    """A schema editor whose transaction gives up if it does not get a lock within `LOCK_SECONDS`.

    Migrations without a transaction wait without a limit. They build indexes concurrently, which blocks nobody, and a
    timeout would leave an index invalid.
    """

    def __enter__(self) -> "SchemaEditor":
        super().__enter__()
        if self.atomic_migration:
            self.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'", params=None)
        return self


class Command(django_migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        default_editor = connection.SchemaEditorClass
        connection.SchemaEditorClass = SchemaEditor
        try:
            for tries_left in reversed(range(MAX_TRIES)):
                try:
                    super().handle(*args, **options)
                    return
                except OperationalError as error:
                    if not isinstance(error.__cause__, LockNotAvailable):
                        raise
                    self._wait(error, tries_left)
        finally:
            connection.SchemaEditorClass = default_editor

    def _wait(self, error: OperationalError, left: int) -> None:
        """Wait before the next try, or raise CommandError after the last one. Completed migrations stay applied."""
        if not left:
            raise CommandError(
                "A table was in use all the time. Find the session that locks it in pg_stat_activity, such as a backup,"
                " and run migrate again when it has ended."
            ) from error
        self.stderr.write(f"A table is in use, perhaps by a backup. Trying again in {PAUSE_SECONDS} seconds.")
        time.sleep(PAUSE_SECONDS)
