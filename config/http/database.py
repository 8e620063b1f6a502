"""Limit the time that a web process waits for an unreachable database.

1. libpq gives up a slow connection attempt (`connect_timeout`), and a connection whose network fails (keepalives,
   `tcp_user_timeout`).
2. The pool tries to connect for `RECONNECT_SECONDS`. Then it calls `refuse_waiting`: each request that waits for a
   connection is refused, and the next one opens a new pool.
3. `problems` answers a refused request with 503.

While the database works, a request waits up to 30 s for a connection, since several hundred requests may arrive at
once. A request whose statement is running has no time limit: a server that hangs looks like a long query.
"""

import threading
from typing import Any

from django.db import connections
from psycopg_pool import ConnectionPool

RECONNECT_SECONDS = 2.0  # a refused page may query twice: for the person and for the workspace's name
MAX_WAITING = 1000  # requests, each with a thread
REFUSE_ALL = -1
LIBPQ_OPTIONS = {
    "connect_timeout": 2,  # seconds
    "keepalives_idle": 1,  # seconds
    "keepalives_interval": 1,  # seconds
    "keepalives_count": 3,
    "tcp_user_timeout": 3000,  # milliseconds
}


def limit_waits(database: dict[str, Any]) -> None:
    """Add the bounds to Django's settings of a database. Options in its URL take precedence."""
    options = database["OPTIONS"]
    database["OPTIONS"] = {**LIBPQ_OPTIONS, **options}
    options["pool"] |= {
        "reconnect_timeout": RECONNECT_SECONDS,
        "reconnect_failed": refuse_waiting,
        "max_waiting": MAX_WAITING,
    }


def refuse_waiting(pool: "ConnectionPool[Any]") -> None:
    """Close the pool in a new thread. The pool calls this function from a thread that `close` waits for."""
    threading.Thread(target=_close, args=(pool,), name="refuse-waiting", daemon=True).start()


def _close(pool: "ConnectionPool[Any]") -> None:
    pool.max_waiting = REFUSE_ALL  # otherwise requests whose connection failed its check would queue after the close
    pool.close(timeout=0)
    for connection in connections.all():
        if connection.pool is pool:  # type: ignore[attr-defined]  # no stubs have it
            connection.close_pool()  # type: ignore[attr-defined]  # as above
