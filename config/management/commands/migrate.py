"""`manage.py migrate`, which makes nobody wait who uses the tables meanwhile."""

import time
from typing import Any

import django.core.management.commands.migrate as django_migrate
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from psycopg.errors import LockNotAvailable

LOCK_SECONDS = 3  # that a migration waits for a table, and all who want that table after it wait with it
PAUSE_SECONDS = 5  # in which they get it, before the migration asks again
TRIES = 75  # in ten minutes


class SchemaEditor(DatabaseSchemaEditor):
    """Whose transaction gives up on a lock that it does not get soon.

    Migrations without a transaction wait as long as it takes: an index that is built concurrently keeps nobody waiting,
    and would be left behind broken.
    """

    def __enter__(self) -> "SchemaEditor":
        super().__enter__()
        if self.atomic_migration:
            self.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'", params=None)
        return self


class Command(django_migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        usual = connection.SchemaEditorClass
        connection.SchemaEditorClass = SchemaEditor
        try:
            for left in reversed(range(TRIES)):
                try:
                    super().handle(*args, **options)
                    return
                except OperationalError as error:
                    if not isinstance(error.__cause__, LockNotAvailable):
                        raise
                    self._wait(error, left)
        finally:
            connection.SchemaEditorClass = usual

    def _wait(self, error: OperationalError, left: int) -> None:
        """What was migrated before the one that did not get its lock is done."""
        if not left:
            raise CommandError(
                "A table was in use all the time. Look in pg_stat_activity for what holds it, such as a backup, and run"
                " migrate again when it has ended."
            ) from error
        self.stderr.write(f"A table is in use, by a backup perhaps: trying again in {PAUSE_SECONDS} seconds.")
        time.sleep(PAUSE_SECONDS)
