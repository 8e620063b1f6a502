"""Advisory locks of PostgreSQL, which a transaction holds until its end."""

from django.db import connection


def lock(name: str) -> None:
    """Take the lock with this name until the transaction ends. Waits while another transaction holds it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def try_lock(name: str) -> bool:
    """Take the lock like `lock`, without waiting. Returns False if another transaction holds it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])
