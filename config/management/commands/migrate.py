"""`manage.py migrate`, which does not keep users of the tables waiting."""

import time
from typing import Any

import django.core.management.commands.migrate as django_migrate
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from psycopg.errors import LockNotAvailable

LOCK_SECONDS = 3  # that a migration waits for a table; later users of the table wait behind it
PAUSE_SECONDS = 5  # in which those users get the table, before the migration tries again
TRIES = 75  # in ten minutes


class SchemaEditor(DatabaseSchemaEditor):
    """A schema editor whose transaction gives up on a lock that it does not get soon.

    Migrations without a transaction wait as long as it takes: an index that is built concurrently keeps nobody waiting,
    and would be left invalid.
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
        """Wait before the next try, or raise CommandError after the last one. Earlier migrations are done."""
        if not left:
            raise CommandError(
                "A table was in use all the time. Look in pg_stat_activity for what holds it, such as a backup, and run"
                " migrate again when it has ended."
            ) from error
        self.stderr.write(f"A table is in use, by a backup perhaps: trying again in {PAUSE_SECONDS} seconds.")
        time.sleep(PAUSE_SECONDS)
