"""Search for a text in every table of the database, and in every key of Redis."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import connection
from psycopg import sql


def tables_with(marker: str) -> list[str]:
    """Return the tables of the database and the keys of Redis that contain a text."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        names = []
        for table in tables:
            query = sql.SQL("SELECT 1 FROM {table} row WHERE row::text LIKE %s LIMIT 1").format(
                table=sql.Identifier(table)
            )
            cursor.execute(query, [f"%{marker}%"])
            names += [table] if cursor.fetchone() else []
    return names + [
        each
        for url in (settings.STREAMS_URL, settings.CACHES["default"]["LOCATION"])
        for each in redis_keys_with(str(url), marker)
    ]


def dumped(marker: str) -> str:
    """Return every row of the database that contains the text."""
    rows = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            query = sql.SQL("SELECT row::text FROM {table} row WHERE row::text LIKE %s").format(
                table=sql.Identifier(table)
            )
            cursor.execute(query, [f"%{marker}%"])
            rows += [row for (row,) in cursor.fetchall()]
    return "\n".join(rows)


def stored(marker: str) -> list[str]:
    """Return the stored files whose content or name contains the text."""
    files = [file for file in Path(settings.MEDIA_ROOT).rglob("*") if file.is_file()]
    return [str(file) for file in files if marker in file.name or marker.encode() in file.read_bytes()]


def redis_keys_with(url: str, marker: str) -> Iterator[str]:
    """Yield the keys of a Redis whose values contain the text."""
    store: Any = redis.Redis.from_url(url, protocol=2)
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"string": store.get,
        b"stream": store.xrange,
        b"hash": store.hgetall,
        b"zset": lambda key: store.zrange(key, 0, -1),
        b"set": store.smembers,
        b"list": lambda key: store.lrange(key, 0, -1),
    }
    for key in store.scan_iter():
        kind = store.type(key)
        if marker in repr((key, read[kind](key) if kind in read else None)):  # it may be gone meanwhile
            yield repr(key)
