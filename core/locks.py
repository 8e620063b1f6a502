"""Advisory locks of PostgreSQL: who does the same at the same time waits until the other's transaction has ended."""

from django.db import connection


def lock(name: str) -> None:
    """Waits until nobody else holds the lock of this name, and holds it until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def try_lock(name: str) -> bool:
    """As `lock`, without waiting: False when somebody else holds it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])
