"""Convert service URLs to the settings of each library, including the Unix-socket forms that the usual parsers refuse.

django-environ parses the URL of the database, but not the URL of the mail server, since it takes `smtps://` for
STARTTLS.
"""

from typing import Any, NotRequired, TypedDict
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from environ import Env
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.retry import Retry

from config.embedded.paths import StartError

# One Redis serves four purposes; each has its own database number, added to that of REDIS_URL (0 by default).
STREAMS_DB = 0
BROKER_DB = 1
CHANNELS_DB = 2
CACHE_DB = 3

SUBMISSION_PORT = 587  # the port for the submission of mail (RFC 6409)
PREPARE_THRESHOLD = 2  # executions of a statement on one connection, after which it is prepared
BROKER_SECONDS = 2  # seconds that the broker Redis may take for one command

# A Redis that hangs must not block requests: after a second a request continues without the cache. A broken connection
# is reopened once. A command that timed out is not retried.
CACHE_OPTIONS = {
    "parser_class": "core.redis_failover.FailoverParser",
    "socket_timeout": 1,
    "socket_connect_timeout": 1,
    "retry": Retry(NoBackoff(), 1, supported_errors=(NotConnected,)),
}


def database(url: str, *, prepared: bool = True, cursors: bool = True) -> dict[str, Any]:
    """Return Django's settings for a libpq URL: `postgresql://user:password@host:5432/name` or `…?host=/socket/dir`.

    `prepared`: whether a connection prepares repeated statements with server-side binding (`chat.models.queries`).
    `cursors`: whether long results are read through server-side cursors, which keep one connection to the end.
    """
    if not url.startswith(("postgres://", "postgresql://")):
        raise StartError("DATABASE_URL must start with postgresql://, as in postgresql://user:password@host:5432/name.")
    config = Env.db_url_config(url)
    options = config.get("OPTIONS", {})
    return {
        **config,
        "HOST": options.pop("host", config["HOST"]),
        "PORT": str(options.pop("port", config["PORT"])),
        "OPTIONS": {
            # If several hundred messages are sent at once, each waits up to 30 s for a connection. A connection is a
            # PostgreSQL process with 3 MB, so idle ones are closed after a minute.
            "pool": {"min_size": 1, "max_size": 24, "timeout": 30, "max_idle": 60},
            "prepare_threshold": PREPARE_THRESHOLD if prepared else None,
            **options,
        },
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": not cursors,
        "TEST": {"NAME": "test_glasshouse"},
    }


def limit_statements(database: dict[str, Any], seconds: float) -> None:
    """Have the server cancel statements that take longer than `seconds`. With 0 the server keeps its own limit."""
    if seconds:
        options = database["OPTIONS"].get("options", "")
        database["OPTIONS"]["options"] = f"{options} -c statement_timeout={round(seconds * 1000)}".strip()


def redis(url: str, db: int) -> str:
    """Return the URL with the database number of a purpose, for redis-py and channels_redis."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}?db={_first_db(parts) + db}"
    if parts.scheme not in ("redis", "rediss"):
        raise StartError("REDIS_URL must start with redis://, rediss:// or unix://, as in redis://host:6379/0.")
    return parts._replace(path=f"/{_first_db(parts) + db}").geturl()


def _first_db(parts: SplitResult) -> int:
    if parts.scheme == "unix":
        return int(parse_qs(parts.query).get("db", ["0"])[0])
    return int(parts.path.strip("/") or "0")


def broker(redis_url: str) -> str:
    """Return the URL of the same Redis for Celery's broker. kombu has its own form for Unix sockets."""
    parts = urlsplit(redis_url)
    if parts.scheme == "unix":
        return f"redis+socket://{parts.path}?virtual_host={_first_db(parts) + BROKER_DB}"
    return redis(redis_url, BROKER_DB)


def broker_options(url: str) -> dict[str, int]:
    """Return kombu's options. A sender tries only once: a user is waiting, and sweepers find lost jobs.

    These options do not change how workers reconnect.
    """
    options = {"max_retries": 0}
    if "redis" in url.partition("://")[0]:
        options |= {"socket_timeout": BROKER_SECONDS, "socket_connect_timeout": BROKER_SECONDS}
    return options


class MailSettings(TypedDict):
    """Django's settings of the mail server, and the sender's address."""

    HOST: str
    PORT: int
    USER: str
    PASSWORD: str
    SSL: bool
    TLS: bool
    FROM: str


def mail(url: str) -> MailSettings:
    """Return Django's settings for `smtp://user:password@host:587` or `smtps://…`; unused defaults without a URL.

    `smtp://` uses STARTTLS if the URL has a user name or the port is 587; `?starttls=yes` or `no` overrides that.
    """
    parts = urlsplit(url or "smtp://localhost:25")
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise StartError("EMAIL_URL must start with smtp:// or smtps://, as in smtps://user:password@mail.example.org.")
    choice = parse_qs(parts.query).get("starttls", [""])[0]
    port = parts.port or (465 if parts.scheme == "smtps" else 587 if parts.username else 25)
    starttls = choice == "yes" if choice else bool(parts.username) or port == SUBMISSION_PORT
    user = unquote(parts.username or "")
    return {
        "HOST": parts.hostname,
        "PORT": port,
        "USER": user,
        "PASSWORD": unquote(parts.password or ""),
        "SSL": parts.scheme == "smtps",
        "TLS": parts.scheme == "smtp" and starttls,
        "FROM": user if "@" in user else f"glasshouse@{parts.hostname}",
    }


class StorageSettings(TypedDict):
    """An entry of Django's STORAGES."""

    BACKEND: str
    OPTIONS: NotRequired[dict[str, str]]


def storage(url: str) -> StorageSettings:
    """Return the default entry of Django's STORAGES. Without a URL files are stored in MEDIA_ROOT.

    A URL is `file:///srv/files` or `s3://bucket/prefix?endpoint=https://…&region=…`. `s3://KEY:SECRET@bucket` names the
    keys. Otherwise they come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or the machine's role.
    """
    parts = urlsplit(url or "file:///")
    if parts.scheme == "file":
        if parts.netloc or url == "file:///":
            raise StartError("STORAGE_URL of a directory has three slashes, as in file:///srv/glasshouse/files.")
        return {"BACKEND": "django.core.files.storage.FileSystemStorage"}
    bucket = parts.netloc.rpartition("@")[2]
    if parts.scheme != "s3" or not bucket:
        raise StartError("STORAGE_URL must be like file:///srv/files or s3://bucket?endpoint=https://s3.example.org.")
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    if unknown := query.keys() - {"endpoint", "region"}:
        raise StartError(f"STORAGE_URL knows endpoint and region behind the question mark, not {', '.join(unknown)}.")
    options = {
        "bucket_name": bucket,
        "location": parts.path.strip("/"),
        "endpoint_url": query.get("endpoint"),
        "region_name": query.get("region"),
        "access_key": unquote(parts.username or "") or None,
        "secret_key": unquote(parts.password or "") or None,
    }
    return {
        "BACKEND": "core.net.object_storage.ObjectStorage",
        "OPTIONS": {name: value for name, value in options.items() if value},
    }


def uploads(url: str) -> str:
    """Return the directory of a STORAGE_URL, or an empty string if it names none."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else ""


def site(url: str) -> str:
    """Return the origin of this site, or an empty string without a URL. Raises StartError."""
    if url and not _is_origin(url.rstrip("/")):
        raise StartError("SITE_URL must be scheme and host of this site, as in https://chat.example.org.")
    return url.rstrip("/")


def _is_origin(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # malformed brackets or port
        return False
    return bool(has_host) and "@" not in parts.netloc and url == f"{parts.scheme}://{parts.netloc}"


def sentry(url: str) -> str:
    """Return the DSN of a Sentry project, `https://KEY@sentry.example.org/4`, or an empty string. Raises StartError."""
    parts = urlsplit(url)
    number = parts.path.rpartition("/")[2]
    if url and not (parts.scheme in ("http", "https") and parts.username and parts.hostname and number.isdecimal()):
        raise StartError("SENTRY_DSN must be the DSN of a project in Sentry, as in https://KEY@sentry.example.org/4.")
    return url


def otlp(url: str) -> str:
    """Return the base URL of an OpenTelemetry collector (OTLP over HTTP), or an empty string. Raises StartError."""
    parts = urlsplit(url)
    if url and not (parts.scheme in ("http", "https") and parts.hostname):
        raise StartError(
            "OTEL_EXPORTER_OTLP_ENDPOINT must start with http:// or https://, as in http://collector.example.org:4318."
        )
    return url
