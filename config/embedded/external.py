"""Whether the services an operator named answer, said in one sentence before anything starts."""

from urllib.parse import urlsplit

import psycopg
import redis

from config.embedded.errors import StartError

SECONDS = 5


def check_database(url: str) -> None:
    try:
        psycopg.connect(url, connect_timeout=SECONDS).close()
    except psycopg.Error as error:
        raise _unreachable("PostgreSQL", "DATABASE_URL", url, error) from error


def check_redis(url: str) -> None:
    try:
        with redis.Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS) as client:
            client.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        raise _unreachable("Redis", "REDIS_URL", url, error) from error


def _unreachable(service: str, variable: str, url: str, error: Exception) -> StartError:
    """Names the host, never the URL: it holds a password."""
    host = urlsplit(url).netloc.rpartition("@")[2] or "its socket"
    first_line = str(error).strip().partition("\n")[0] or type(error).__name__
    reason = first_line.rpartition("failed: ")[2].rstrip(".")
    return StartError(f"{service} at {host} does not answer ({reason}); start it, or correct {variable}.")
