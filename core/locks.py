"""Advisory locks of PostgreSQL: of two transactions that take the same lock, the second waits for the first's end."""

from django.db import connection


def lock(name: str) -> None:
    """Take the lock of this name, and hold it until the transaction ends. Waits while another transaction has it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def try_lock(name: str) -> bool:
    """Take the lock as `lock` does, without waiting. Returns False where another transaction has it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])
