"""The meaning of every environment variable, and the table of them in docs/operate/configuration.md.

To add a variable: 1. Read it in `config/settings.py`. 2. Add an `EnvironmentVariable` here. 3. Run
`python -m scripts.docs`.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "config" / "settings.py"
# Not read by the settings, but before them, by the first start, and by `manage.py up`.
READ_ELSEWHERE = {"DATA_DIR", "ADMIN_USERNAME", "ADMIN_PASSWORD", "PORT", "HOST"}
# `manage.py up` gives these to its own processes.
INTERNAL = {"BUNDLED_MODEL_URL", "BUNDLED_MODEL_KEY"}


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """One row of the table: a variable, or several that share a meaning. `default` replaces the default of the code."""

    names: tuple[str, ...]
    meaning: str
    default: str = ""


SECTIONS: dict[str, tuple[EnvironmentVariable, ...]] = {
    "The first start": (
        EnvironmentVariable(
            ("DATA_DIR",),
            "embedded services, uploaded files, the generated secret key. A start closes it to other users of the "
            "machine",
            "`var/`",
        ),
        EnvironmentVariable(("PORT",), "where `make run` serves", "`8000`"),
        EnvironmentVariable(("HOST",), "the address that `make run` listens at", "`127.0.0.1`"),
        EnvironmentVariable(("ADMIN_USERNAME", "ADMIN_PASSWORD"), "the first admin", "`admin`, a one-time password"),
    ),
    "Keys": (
        EnvironmentVariable(
            ("SECRET_KEY",),
            "signs sessions. [Security](security.md#rotate-a-key) says how to replace it",
            "generated, in `DATA_DIR`",
        ),
        EnvironmentVariable(
            ("ENCRYPTION_KEYS",),
            "encrypt stored secrets; comma-separated, the first encrypts, all decrypt",
            "`SECRET_KEY`",
        ),
    ),
    "Servers": (
        EnvironmentVariable(
            ("DATABASE_URL",),
            "`postgresql://user:password@host:5432/name`, or several hosts with commas between; pgvector is needed",
            "embedded PostgreSQL",
        ),
        EnvironmentVariable(
            ("PREPARED_STATEMENTS",),
            "plan frequent statements once for each connection; `false` behind a pooler that cannot, such as PgBouncer "
            "before 1.21 with transaction pooling",
        ),
        EnvironmentVariable(
            ("SERVER_SIDE_CURSORS",),
            "read long results, such as exports, piece by piece; `false` behind any pooler with transaction pooling",
        ),
        EnvironmentVariable(
            ("STATEMENT_TIMEOUT",),
            "seconds that one statement of a web process may take; `0` leaves it to the server. A pooler refuses it "
            "unless it ignores `options` at the start of a connection: then set `statement_timeout` of the role",
        ),
        EnvironmentVariable(
            ("REDIS_URL",),
            "`redis://host:6379/0`, Redis 6.2 or later or Valkey, no Redis Cluster; four database numbers from this "
            "one on are used",
            "embedded Valkey",
        ),
        EnvironmentVariable(
            ("STREAMS_URL", "CACHE_URL", "CHANNELS_URL"),
            "servers of their own for answers and their line, for what may be forgotten, and for what open pages are "
            "told: [Several Redis](processes.md#several-redis)",
            "the same Redis",
        ),
        EnvironmentVariable(("BROKER_URL",), "the broker of Celery, for example RabbitMQ", "the same Redis"),
        EnvironmentVariable(
            ("STORAGE_URL",),
            "where uploaded files are: `file:///srv/files`, or a bucket of S3 or its protocol, "
            "`s3://bucket/prefix?endpoint=https://s3.example.org&region=eu-1`, with keys as `s3://KEY:SECRET@bucket` "
            "or in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`",
            "`DATA_DIR/files`",
        ),
        EnvironmentVariable(
            ("STATIC_ROOT",),
            "where static files are collected; outside of `DATA_DIR` another server may serve it at `/static/`",
            "`static/` in `DATA_DIR`",
        ),
    ),
    "Addresses": (
        EnvironmentVariable(
            ("SITE_URL",),
            "scheme and host of this site, such as `https://chat.example.org`: where links in mails and webhooks lead. "
            "See [The address of the site](install.md#the-address-of-the-site)",
            "the host of the request",
        ),
        EnvironmentVariable(("ALLOWED_HOSTS",), "host names that requests may carry", "loopback names"),
        EnvironmentVariable(
            ("CSRF_TRUSTED_ORIGINS",), "origins of a TLS proxy, such as `https://chat.example.org`", "none"
        ),
        EnvironmentVariable(
            ("HTTPS_ONLY",),
            "behind a TLS proxy: secure cookies, trusts `X-Forwarded-Proto`, redirects to https, HSTS for a year",
        ),
        EnvironmentVariable(
            ("TRUSTED_PROXIES",),
            "how many proxies of yours add to `X-Forwarded-For`: from there the address of a client is taken",
        ),
    ),
    "Mail": (
        EnvironmentVariable(
            ("EMAIL_URL",),
            "the server that takes mails: `smtp://user:password@mail.example.org:587` or `smtps://…`. `smtp://` uses "
            "TLS with a user name or at port 587; `?starttls=yes` or `no` decides it",
            "none: links are shown to be copied",
        ),
        EnvironmentVariable(
            ("EMAIL_FROM",),
            "whom mails are from, such as `Glasshouse <glasshouse@example.org>`",
            "the user name of `EMAIL_URL`, if it is an address",
        ),
    ),
    "Limits for each person": (
        EnvironmentVariable(
            ("LIVE_TURNS",),
            "answers that are written at a time, or fewer where a limit of turns at once says so; more wait in the "
            "person's own line. `0` sets no limit",
        ),
        EnvironmentVariable(("WAITING_TURNS",), "answers that wait in that line; one more is refused with 429"),
        EnvironmentVariable(("CONNECTIONS_AT_ONCE",), "sockets and streams of events at one web process"),
        EnvironmentVariable(("STORED_BYTES",), "what files and waiting exports may take together; `0` sets no limit"),
        EnvironmentVariable(
            ("MAX_UPLOAD_BYTES",),
            "the largest file or export. Other requests end at 8 MB, and at 100 kB without a session or token",
        ),
        EnvironmentVariable(("UPLOADS_AT_ONCE",), "uploads that may arrive at a web process at the same time"),
        EnvironmentVariable(
            ("API_RATES",),
            "calls of the API in a minute, by kind; 0 is no limit, and kinds left out keep theirs",
            "`chat=6000,files=3000,` `projects=3000,tasks=3000,` `admin=600,uploads=600`",
        ),
    ),
    "Limits for each address": (
        EnvironmentVariable(
            ("PAGE_RATES",),
            "a minute: pages of sign-in, unfinished attempts of each way to sign in, back-channel logouts, shared "
            "conversations; 0 is no limit",
            "`sign-in=3000,attempts=600,` `openid=600,shared=120`",
        ),
        EnvironmentVariable(
            ("SIGN_IN_LIMITS",),
            "wrong passwords in a quarter of an hour for one name at one address, and for one address; names that such "
            "an address may still try once each; wrong codes of one person a day; 0 is no limit",
            "`name=10,address=50,` `crowd=300,codes=200`",
        ),
    ),
    "Answers and workers": (
        EnvironmentVariable(
            ("TURNS_PER_WORKER",),
            "answers that one worker process writes at a time, those that wait for a model or a person included",
        ),
        EnvironmentVariable(
            ("DRAIN_SECONDS",),
            "how long a process that is asked to end (SIGTERM) goes on with what it has begun; whoever stops it waits "
            "longer",
        ),
        EnvironmentVariable(("APPROVAL_SECONDS",), "how long a tool call waits for the person who has to allow it"),
        EnvironmentVariable(
            ("ALIVE_FILE",),
            "a file that a worker touches every five seconds while it takes work, for a check of its container; each "
            "worker has its own",
            "none",
        ),
        EnvironmentVariable(("WEBHOOK_ALLOW_PRIVATE",), "lets webhooks go to private addresses and to any port"),
        EnvironmentVariable(("TIME_ZONE",), "of new users and logs"),
        EnvironmentVariable(
            ("AG_UI",),
            "`off` takes the [AG-UI](../api/ag-ui.md) protocol away: its address and its part of the OpenAPI document",
        ),
    ),
    "Days that things are kept": (
        EnvironmentVariable(
            ("API_CONVERSATION_DAYS",),
            "requests in the OpenAI protocol, where the workspace's settings say nothing; `0` is for ever",
        ),
        EnvironmentVariable(("AUDIT_DAYS",), "acts in the audit; `0` is for ever"),
    ),
    "Logs, metrics and errors": (
        EnvironmentVariable(("LOG_LEVEL",), "the least level that is logged"),
        EnvironmentVariable(
            ("LOG_FORMAT",), "`plain`, or `json`: an object a line, see [Find an error](monitoring.md#find-an-error)"
        ),
        EnvironmentVariable(("DEBUG",), "for development only"),
        EnvironmentVariable(
            ("METRICS_TOKEN",),
            "the bearer token with which Prometheus reads `/metrics`; without it only administrators may",
            "none",
        ),
        EnvironmentVariable(
            ("METRICS_PORT",),
            "the port at which a worker gives its metrics, to whoever has `METRICS_TOKEN`; several workers of one "
            "machine take the next nine, too",
            "none",
        ),
        EnvironmentVariable(("SENTRY_DSN",), "the DSN of a project in Sentry, or in what speaks its protocol", "none"),
        EnvironmentVariable(
            ("OTEL_EXPORTER_OTLP_ENDPOINT",),
            "the base address of a collector of OpenTelemetry (OTLP over HTTP), such as `http://collector:4318`",
            "none",
        ),
        EnvironmentVariable(
            ("OTEL_EXPORTER_OTLP_HEADERS",),
            "headers for the collector, as `name=value,name=value`, percent-encoded",
            "none",
        ),
        EnvironmentVariable(("OTEL_TRACES_SAMPLER_ARG",), "the share of traces that is sent, from 0 to 1"),
    ),
}


def defaults() -> dict[str, str | None]:
    """Return the variables that the settings read, each with its default as a shell writes it, or None for code."""
    tree = ast.parse(SETTINGS.read_text())
    return {name: default for call in ast.walk(tree) if isinstance(call, ast.Call) for name, default in _read(call)}


def _read(call: ast.Call) -> Iterator[tuple[str, str | None]]:
    reader, name = call.func, call.args[0] if call.args else None
    if not (isinstance(reader, ast.Attribute) and isinstance(reader.value, ast.Name) and reader.value.id == "env"):
        return
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        default = next((each.value for each in call.keywords if each.arg == "default"), None)
        yield name.value, _written(default.value) if isinstance(default, ast.Constant) else None


def _written(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def documented() -> set[str]:
    """Return the names of all variables that have a meaning here."""
    return {name for rows in SECTIONS.values() for row in rows for name in row.names}


def table() -> str:
    """Return the generated part of docs/operate/configuration.md.

    Raises `SystemExit` for a variable whose default is computed and has no words here.
    """
    read = defaults()
    parts = [f"## {title}\n\n{_rows(rows, read)}" for title, rows in SECTIONS.items()]
    return "\n\n".join(parts)


def _rows(rows: tuple[EnvironmentVariable, ...], read: dict[str, str | None]) -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for row in rows:
        default = row.default or _default_of(row.names[0], read)
        lines.append(f"| {', '.join(f'`{name}`' for name in row.names)} | {default} | {row.meaning} |")
    return "\n".join(lines)


def _default_of(name: str, read: dict[str, str | None]) -> str:
    if not read.get(name):
        raise SystemExit(f"{name} needs a default in words, in scripts/docs/variables.py.")
    return f"`{read[name]}`"
