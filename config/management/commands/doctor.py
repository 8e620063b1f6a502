"""`manage.py doctor`: check the product's requirements, and name the remedy for each fault.

To add a check: 1. write a function that yields findings and raises nothing; 2. add it to `findings`, in the second loop
if it needs the database.
"""

import platform
import smtplib
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

import redis
import requests
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, connection, models
from kombu.exceptions import KombuError

from accounts.mailing import sending
from accounts.models import OpenIDProvider, Webhook
from config import service_urls
from config.celery import app as celery
from config.embedded.paths import StartError, find_open_paths, make_data_dir
from config.embedded.services import check_database, check_redis
from config.http.health import missing_migrations
from core import background
from core.crypto import is_lost
from core.errors import ModelError, ProductError
from core.logs import tracing
from core.sentences import NO_SENTENCE, Sentence
from files.models import Embedder, Reranker, SpeechServer
from llm import model_facts, tokens
from llm.models import Model, Provider, ToolGrant, ToolServer, WebSearch
from llm.services import test_connection
from readers.api import active_layers, photos_available, recognition_languages
from readers.confinement import CALL_LAYER, FILE_LAYER

State = Literal["ok", "warn", "fail"]
LOOPBACK = {"localhost", "127.0.0.1", "[::1]", "::1"}
SHORTEST_KEY = 50  # characters, as `manage.py check --deploy` requires
FEWEST_CHARACTERS = 5  # different characters
SECONDS = 3
MAX_NAMED_ITEMS = 10  # items named in one finding; further ones are counted


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `remedy`: what to do; empty if there is no fault."""

    state: State
    subject: Sentence
    detail: Sentence
    remedy: Sentence = NO_SENTENCE


def findings() -> Iterator[Finding]:
    """Yield the findings of all checks. Checks that need the database run only if it answers."""
    for check in (
        _python,
        _data_dir,
        _secret_key,
        _hosts,
        client_addresses,
        _encodings,
        _readers,
        _programs,
        _storage,
        _redis,
        _broker,
        _mail,
        _errors,
        _traces,
    ):
        yield from check()
    database = _database()
    yield database
    if database.state == "ok":
        for check in (_extensions, _migrations, _stored_keys, _model, _fallbacks, _models):
            yield from check()


def _python() -> Iterator[Finding]:
    state: State = "ok" if sys.version_info >= (3, 11) else "fail"
    yield Finding(
        state,
        Sentence("Python"),
        Sentence.verbatim(platform.python_version()),
        NO_SENTENCE if state == "ok" else Sentence("Use Python 3.11 or later."),
    )


def _data_dir() -> Iterator[Finding]:
    try:
        make_data_dir(settings.DATA_DIR)
    except StartError as error:
        yield Finding(
            "fail",
            Sentence("Data directory"),
            Sentence.verbatim(str(error)),
            Sentence("Set DATA_DIR to a directory that this user can write."),
        )
    else:
        yield Finding(
            "ok", Sentence("Data directory"), Sentence("{data_dir} can be written", data_dir=str(settings.DATA_DIR))
        )
        yield from _open_to_others()


def _open_to_others() -> Iterator[Finding]:
    data = settings.DATA_DIR
    if data.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not data.stat().st_mode & stat.S_ISVTX:
        remedy = Sentence("Other users of this machine could replace these files: chmod go-w.")
        yield Finding(
            "warn",
            Sentence("Data directory"),
            Sentence("others on this machine can write {data}", data=str(data)),
            remedy,
        )
    paths = [str(path.relative_to(data)) for path in find_open_paths(data)]
    if paths:
        remedy = Sentence(
            "Make the product's user the owner and start manage.py up, which sets private modes, or run chmod -R "
            "go-rwx."
        )
        yield Finding(
            "warn",
            Sentence("Stored files"),
            Sentence("others on this machine may read {found} in {data}", found=_named(paths), data=str(data)),
            remedy,
        )


def _named(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - MAX_NAMED_ITEMS:,} more" if len(names) > MAX_NAMED_ITEMS else ""
    return ", ".join(names[:MAX_NAMED_ITEMS]) + more


def _database() -> Finding:
    try:
        # This bypasses Django's connection pool, which retries for a long time and logs every attempt.
        check_database(settings.DATABASE_URL)
    except StartError as error:
        return Finding("fail", Sentence("Database"), Sentence.verbatim(str(error)))
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return Finding("ok", Sentence("Database"), Sentence("PostgreSQL {fetchone}", fetchone=cursor.fetchone()[0]))


def _extensions() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")
        row = cursor.fetchone()
    if row is None:
        yield Finding(
            "fail",
            Sentence("pgvector"),
            Sentence("is not installed on the database server"),
            Sentence("Install the extension pgvector there."),
        )
    else:
        yield Finding("ok", Sentence("pgvector"), Sentence.verbatim(str(row[0])))


def _migrations() -> Iterator[Finding]:
    if missing := missing_migrations():
        yield Finding(
            "fail",
            Sentence("Migrations"),
            Sentence("{missing} are missing", missing=missing),
            Sentence("Run manage.py migrate."),
        )
    else:
        yield Finding("ok", Sentence("Migrations"), Sentence("all applied"))


_LAYERS = {
    FILE_LAYER: Sentence("opens only the upload and Python's libraries"),
    CALL_LAYER: Sentence("has no network, starts no program and writes nothing"),
}


def _readers() -> Iterator[Finding]:
    """Check the layers that confine the process that reads uploads, beyond its limits of memory and time."""
    active = active_layers()
    for layer, remedy in (
        (FILE_LAYER, Sentence("Use Linux 5.13 or later with Landlock switched on.")),
        (CALL_LAYER, Sentence("Use Linux with seccomp on x86-64 or ARM64.")),
    ):
        what = _LAYERS[layer]
        if layer in active:
            yield Finding(
                "ok", Sentence("Reader of uploads"), Sentence("{what}, thanks to {layer}", what=what, layer=layer)
            )
        else:
            yield Finding(
                "warn",
                Sentence("Reader of uploads"),
                Sentence("{layer} is not available, so nothing ensures that it {what}", layer=layer, what=what),
                remedy,
            )


def _programs() -> Iterator[Finding]:
    """Check the installed programs that read files for which we have no reader of our own."""
    if languages := recognition_languages():
        yield Finding(
            "ok", Sentence("Text recognition"), Sentence("Tesseract knows {languages}", languages=", ".join(languages))
        )
    else:
        remedy = Sentence("Install tesseract-ocr and its package for each of your languages.")
        yield Finding(
            "warn", Sentence("Text recognition"), Sentence("Tesseract is not installed, so scans have no text"), remedy
        )
    if photos_available():
        yield Finding("ok", Sentence("Photos of phones"), Sentence("libheif's program opens HEIC"))
    else:
        remedy = Sentence("Install libheif-examples.")
        yield Finding(
            "warn",
            Sentence("Photos of phones"),
            Sentence("libheif's program is not installed, so HEIC is refused"),
            remedy,
        )


def _redis() -> Iterator[Finding]:
    try:
        for variable, url in _stores():
            check_redis(url, variable)
        worker_ages = background.report_ages()
        missing = background.missing_queues()
    except (StartError, redis.RedisError) as error:
        yield Finding("fail", Sentence("Redis"), Sentence.verbatim(str(error)))
        return
    yield Finding("ok", Sentence("Redis"), Sentence("answers"))
    if missing:
        remedy = Sentence(
            "Start one: celery -A config worker --pool threads --concurrency 16 -Q {missing}.",
            missing=",".join(missing),
        )
        yield Finding(
            "fail",
            Sentence("Worker"),
            Sentence("no worker of {missing} has reported within 20 seconds", missing=", ".join(missing)),
            remedy,
        )
    else:
        ages = ", ".join(f"{queue} {age:.0f} s ago" for queue, age in worker_ages.items())
        yield Finding("ok", Sentence("Worker"), Sentence("last report: {ages}", ages=ages))


def _stores() -> Iterator[tuple[str, str]]:
    """Yield the URL of each Redis with the variable that names it."""
    base = settings.REDIS_URL
    urls = {
        "STREAMS_URL": (settings.STREAMS_URL, service_urls.redis(base, service_urls.STREAMS_DB)),
        "CHANNELS_URL": (settings.CHANNELS_URL, service_urls.redis(base, service_urls.CHANNELS_DB)),
        "CACHE_URL": (settings.CACHE_URL, service_urls.redis(base, service_urls.CACHE_DB)),
        "BROKER_URL": (settings.CELERY_BROKER_URL, service_urls.broker(base)),
    }
    own = {variable: url for variable, (url, derived) in urls.items() if url != derived}
    if "STREAMS_URL" not in own:
        yield "REDIS_URL", settings.STREAMS_URL
    yield from ((variable, url) for variable, url in own.items() if urlsplit(url).scheme in ("redis", "rediss", "unix"))


def _broker() -> Iterator[Finding]:
    scheme = urlsplit(settings.CELERY_BROKER_URL).scheme
    try:
        with celery.connection_for_write(connect_timeout=SECONDS) as broker:
            broker.ensure_connection(max_retries=1, timeout=SECONDS)
    except (KombuError, OSError, redis.RedisError) as error:
        reason = type(error).__name__  # the text of the error may hold the broker's password
        yield Finding(
            "fail",
            Sentence("Broker"),
            Sentence("{scheme} does not answer ({reason})", scheme=scheme, reason=reason),
            Sentence("Start it, or correct BROKER_URL."),
        )
    else:
        yield Finding("ok", Sentence("Broker"), Sentence("{scheme} answers", scheme=scheme))


_MAIL_REMEDY = Sentence("Correct EMAIL_URL, as in smtps://user:password@mail.example.org:465.")


def _storage() -> Iterator[Finding]:
    """Write, read and delete an object."""
    where = settings.STORAGE_URL.partition("?")[0].rpartition("@")[2] or str(settings.MEDIA_ROOT)  # without keys
    content = uuid4().hex.encode()
    try:
        name = default_storage.save(f"doctor/{uuid4()}", ContentFile(content))
        with default_storage.open(name) as stored:
            whole = stored.read() == content
        default_storage.delete(name)
    except OSError as error:
        remedy = Sentence(
            "Set STORAGE_URL, and the keys of the bucket, to a place that this process may write and read."
        )
        yield Finding(
            "fail",
            Sentence("Storage of files"),
            Sentence("{where} cannot be written and read ({error})", where=where, error=str(error)),
            remedy,
        )
        return
    if whole:
        yield Finding("ok", Sentence("Storage of files"), Sentence("{where} can be written and read", where=where))
    else:
        yield Finding(
            "fail",
            Sentence("Storage of files"),
            Sentence("{where} returned other content than was stored", where=where),
            Sentence("Check the server of the storage."),
        )


def _mail() -> Iterator[Finding]:
    if not sending.has_mail_server():
        yield Finding("ok", Sentence("Mail"), Sentence("no mail server is set, so pages show links to copy"))
        return
    where = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
    try:
        sending.try_server()
    except (OSError, smtplib.SMTPException) as error:
        reason = type(error).__name__  # the text of the error may hold the server's password
        yield Finding(
            "fail",
            Sentence("Mail"),
            Sentence("{where} refuses the connection ({reason})", where=where, reason=reason),
            _MAIL_REMEDY,
        )
    else:
        yield Finding(
            "ok",
            Sentence("Mail"),
            Sentence(
                "{where} accepts mails, from {default_from_email}",
                where=where,
                default_from_email=settings.DEFAULT_FROM_EMAIL,
            ),
        )


def _errors() -> Iterator[Finding]:
    """Check whether Sentry accepts our key, with an empty envelope."""
    if settings.SENTRY_DSN:
        parts = urlsplit(settings.SENTRY_DSN)
        host = parts.netloc.rpartition("@")[2]
        place, _, number = parts.path.rpartition("/")
        url = f"{parts.scheme}://{host}{place}/api/{number}/envelope/?sentry_version=7&sentry_key={parts.username}"
        yield _check_endpoint(
            Sentence("Errors"),
            host,
            url,
            b"{}\n",
            {},
            Sentence("Correct SENTRY_DSN. The project's settings in Sentry show it."),
        )


def _traces() -> Iterator[Finding]:
    """Check whether the collector accepts our credentials, with a request without spans."""
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
        host = urlsplit(settings.OTEL_EXPORTER_OTLP_ENDPOINT).netloc.rpartition("@")[2]
        head = {"Content-Type": "application/x-protobuf", **tracing.credentials()}
        remedy = Sentence(
            "Correct OTEL_EXPORTER_OTLP_ENDPOINT, the address before /v1/traces, or OTEL_EXPORTER_OTLP_HEADERS."
        )
        yield _check_endpoint(Sentence("Traces"), host, tracing.address(), b"", head, remedy)


def _check_endpoint(
    subject: Sentence, host: str, url: str, body: bytes, head: dict[str, str], remedy: Sentence
) -> Finding:
    try:
        status = requests.post(url, body, headers=head, timeout=SECONDS).status_code
    except requests.RequestException as error:
        return Finding(
            "fail", subject, Sentence("{host} does not answer ({name})", host=host, name=type(error).__name__), remedy
        )
    if status in (400, 413, 429) or status < 300:  # the credentials are accepted, although the empty body is not
        return Finding("ok", subject, Sentence("{host} accepts them", host=host))
    return Finding(
        "fail", subject, Sentence("{host} does not accept them ({status})", host=host, status=status), remedy
    )


def mail_to(address: str) -> Finding:
    """Send a test mail to an operator, who checks whether it arrives."""
    if not sending.has_mail_server():
        return Finding("fail", Sentence("Mail"), Sentence("no mail server is set"), Sentence("Set EMAIL_URL."))
    text = "This mail was sent by manage.py doctor: mails of your workspace arrive.\n"
    try:
        sending.send([sending.Mail(address, "A mail of your workspace", text)])
    except ProductError:
        return Finding(
            "fail",
            Sentence("Mail"),
            Sentence("the server did not accept the mail to {address}", address=address),
            _MAIL_REMEDY,
        )
    return Finding(
        "ok",
        Sentence("Mail"),
        Sentence("the server accepted the mail to {address}; check whether it arrives", address=address),
    )


def _secret_key() -> Iterator[Finding]:
    key = settings.SECRET_KEY
    if len(key) < SHORTEST_KEY or len(set(key)) < FEWEST_CHARACTERS or key.startswith("django-insecure-"):
        remedy = Sentence(
            "Set SECRET_KEY to at least {shortest_key} random characters; keep the old one in ENCRYPTION_KEYS.",
            shortest_key=SHORTEST_KEY,
        )
        yield Finding("fail", Sentence("Secret key"), Sentence("can be guessed"), remedy)
    else:
        yield Finding("ok", Sentence("Secret key"), Sentence("{key} characters", key=len(key)))


_SECRETS: dict[type[models.Model], Sentence] = {
    Provider: Sentence("Stored API keys"),
    WebSearch: Sentence("Keys of web search"),
    ToolServer: Sentence("Secrets of tool servers"),
    ToolGrant: Sentence("Sign-ins of people to tool servers"),
    Embedder: Sentence("Keys of embedders"),
    Reranker: Sentence("Keys of re-rankers"),
    SpeechServer: Sentence("Keys of speech servers"),
    Webhook: Sentence("Secrets of webhooks"),
    OpenIDProvider: Sentence("Secrets of OpenID providers"),
}
# Others have `api_key`.
_FIELDS: dict[type[models.Model], str] = {
    Webhook: "secret",
    OpenIDProvider: "client_secret",
    ToolGrant: "access_token",
}
AGAIN_IN_THE_ADMIN = Sentence("Add the key that encrypted them to ENCRYPTION_KEYS, or enter them again in the admin.")
ENTER_AGAIN: dict[type[models.Model], Sentence] = {
    Embedder: Sentence(
        "Add the key that encrypted them to ENCRYPTION_KEYS, or add the embedder again and run manage.py reembed."
    ),
    ToolGrant: Sentence(
        "Add the key they were stored under to ENCRYPTION_KEYS, or have these people sign in again under “Connected "
        "tools” in their settings."
    ),
    Webhook: Sentence(
        "Add the key that encrypted them to ENCRYPTION_KEYS, or ask their owners to delete them and create new ones."
    ),
}


def _stored_keys() -> Iterator[Finding]:
    """Check every stored secret, one finding for each model."""
    for kind, subject in _SECRETS.items():
        rows: Any = kind._default_manager.select_related("owner") if kind is Webhook else kind._default_manager.all()
        try:
            undecryptable = [
                f"{row.owner}'s {row}" if isinstance(row, Webhook) else str(row)
                for row in rows
                if is_lost(getattr(row, _FIELDS.get(kind, "api_key")))
            ]
        except DatabaseError:
            return  # a migration is missing, which `_migrations` reports
        if undecryptable:
            names = _named(undecryptable)
            yield Finding(
                "fail",
                subject,
                Sentence("cannot be decrypted: {named}", named=names),
                ENTER_AGAIN.get(kind, AGAIN_IN_THE_ADMIN),
            )


def _hosts() -> Iterator[Finding]:
    outside = [host for host in settings.ALLOWED_HOSTS if host not in LOOPBACK]
    if not outside:
        yield Finding("ok", Sentence("Hosts"), Sentence("this machine only"))
        return
    if settings.DEBUG:
        yield Finding(
            "fail", Sentence("Debug"), Sentence("is on, and other machines can reach it"), Sentence("Set DEBUG=false.")
        )
    if "*" in outside:
        yield Finding(
            "warn",
            Sentence("Hosts"),
            Sentence("any name is allowed"),
            Sentence("Set ALLOWED_HOSTS to the names people use."),
        )
    else:
        yield Finding("ok", Sentence("Hosts"), Sentence.verbatim(", ".join(outside)))
    if not settings.HTTPS_ONLY:
        remedy = Sentence("Put a TLS proxy in front and set HTTPS_ONLY=true.")
        yield Finding("warn", Sentence("HTTPS"), Sentence("passwords may be sent unencrypted"), remedy)
    elif not settings.CSRF_TRUSTED_ORIGINS:
        remedy = Sentence("If forms are refused, set CSRF_TRUSTED_ORIGINS=https://your-name.")
        yield Finding("warn", Sentence("Trusted origins"), Sentence("none are named"), remedy)


def client_addresses() -> Iterator[Finding]:
    if settings.TRUSTED_PROXIES:
        yield Finding(
            "ok",
            Sentence("Client addresses"),
            Sentence(
                "from X-Forwarded-For, through {trusted_proxies} of yours", trusted_proxies=settings.TRUSTED_PROXIES
            ),
        )
    elif settings.HTTPS_ONLY:
        remedy = Sentence("Have the proxy set X-Forwarded-For, then set TRUSTED_PROXIES to the number of your proxies.")
        yield Finding(
            "warn",
            Sentence("Client addresses"),
            Sentence("all clients have the proxy's address, so their failed sign-ins are counted together"),
            remedy,
        )
    else:
        yield Finding("ok", Sentence("Client addresses"), Sentence("taken from the connections"))


def _encodings() -> Iterator[Finding]:
    try:
        counts = {name: tokens.count("one two three", name) for name in tokens.NAMES}
    except (RuntimeError, OSError, ValueError) as error:
        remedy = Sentence("Install the requirements again; the package bpe-openai carries the vocabularies.")
        yield Finding("fail", Sentence("Encodings"), Sentence.verbatim(str(error)), remedy)
    else:
        yield Finding("ok", Sentence("Encodings"), Sentence("{counts}, without the network", counts=", ".join(counts)))


def _model() -> Iterator[Finding]:
    try:
        usable = list(Model.objects.usable().order_by("-default", "created")[:1])
    except DatabaseError:
        return  # a migration is missing, which `_migrations` reports
    if not usable:
        remedy = Sentence("Add a provider and a model in the admin, or with manage.py provider.")
        yield Finding("fail", Sentence("Model"), Sentence("no model can be used"), remedy)
        return
    model = usable[0]
    if not model.default:
        yield Finding(
            "warn",
            Sentence("Default model"),
            Sentence("none; {model} is used instead", model=str(model)),
            Sentence("Choose “Make default” on a model's page."),
        )
    try:
        offered = test_connection(provider=model.provider)
    except ModelError as error:
        correct = Sentence(
            "Correct the provider “{provider}” in the admin; its page can test the connection.",
            provider=str(model.provider),
        )
        yield Finding(
            "fail",
            Sentence("Model"),
            Sentence("{model} cannot answer. {detail}", model=str(model), detail=error.sentence),
            correct,
        )
        return
    if len(offered) > 1 and model.name not in offered:  # a server with one model often accepts any name
        remedy = Sentence("Check the model's name; its page in the admin says what the provider offers.")
        yield Finding(
            "warn",
            Sentence("Model"),
            Sentence(
                "{model} is not among the {offered} that {provider} lists",
                model=str(model),
                offered=len(offered),
                provider=str(model.provider),
            ),
            remedy,
        )
    else:
        yield Finding(
            "ok",
            Sentence("Model"),
            Sentence(
                "{model} of {provider} answers, with {context_window} tokens",
                model=str(model),
                provider=str(model.provider),
                context_window=model.context_window,
            ),
        )


def _fallbacks() -> Iterator[Finding]:
    """Check which abilities an answer loses if a fallback model writes it."""
    try:
        models = list(Model.objects.usable().exclude(fallback=None).select_related("fallback__provider"))
    except DatabaseError:
        return  # a migration is missing, which `_migrations` reports
    for model in models:
        other = model.fallback
        if other is None:
            continue
        missing = ", ".join(name for name in ("tools", "vision") if getattr(model, name) and not getattr(other, name))
        if not (other.enabled and other.provider.enabled):
            remedy = Sentence(
                "Enable {other}, or choose another fallback on the page of {model} in the admin.",
                other=str(other),
                model=str(model),
            )
            yield Finding(
                "warn",
                Sentence("Fallback"),
                Sentence("{other}, the fallback of {model}, is switched off", other=str(other), model=str(model)),
                remedy,
            )
        elif other.provider == model.provider:
            remedy = Sentence("Choose a model of another provider as the fallback of {model}.", model=str(model))
            yield Finding(
                "warn",
                Sentence("Fallback"),
                Sentence(
                    "{other} fails whenever the provider it shares with {model} does",
                    other=str(other),
                    model=str(model),
                ),
                remedy,
            )
        elif missing:
            remedy = Sentence("Choose another fallback if {model} needs them.", model=str(model))
            yield Finding(
                "warn",
                Sentence("Fallback"),
                Sentence(
                    "{other} lacks {lacking}, which {model} has", other=str(other), lacking=missing, model=str(model)
                ),
                remedy,
            )
        else:
            yield Finding(
                "ok",
                Sentence("Fallback"),
                Sentence("{other} is asked when {model} is not available", other=str(other), model=str(model)),
            )


def _models() -> Iterator[Finding]:
    """Check the models in use against their providers' current facts, or the last known facts without an answer."""
    try:
        usable = list(Model.objects.usable())
    except DatabaseError:
        return  # a migration is missing, which `_migrations` reports
    for provider in {model.provider: None for model in usable}:
        models = [model for model in usable if model.provider == provider]
        facts = model_facts.ask_provider(provider, [model.name for model in models]).facts
        for model in models:
            model.found = model.found | facts.get(model.name, {})
            yield from _facts(model)


def _facts(model: Model) -> Iterator[Finding]:
    retires_on = model_facts.reported_retirement(model)
    if retires_on is not None and model_facts.is_retiring_soon(model):
        remedy = Sentence("Choose another model for personas and conversations, then switch this one off.")
        # The date is language-neutral: the admin caches findings for people with different languages.
        yield Finding(
            "warn",
            Sentence("Model {model} of {provider}", model=str(model), provider=str(model.provider)),
            Sentence("retires on {retires_on}", retires_on=f"{retires_on:%Y-%m-%d}"),
            remedy,
        )
    served = model_facts.reported_window(model)
    if served is not None and served < model.window:
        remedy = Sentence("Correct it in the admin (“Use reported values”), or start the server with a larger window.")
        yield Finding(
            "warn",
            Sentence("Model {model} of {provider}", model=str(model), provider=str(model.provider)),
            Sentence(
                "its window is set to {window} tokens, but its server has {served}", window=model.window, served=served
            ),
            remedy,
        )


class Command(BaseCommand):
    """Ends with status 1 if a check fails; a warning is no failure."""

    help = "Checks every dependency and setting, and reports each fault with its remedy."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--mail", metavar="ADDRESS", help="also send a test mail to this address")

    def handle(self, *args: Any, **options: Any) -> None:
        styles = {"ok": self.style.SUCCESS, "warn": self.style.WARNING, "fail": self.style.ERROR}
        failed = False
        for finding in (*findings(), *([mail_to(options["mail"])] if options["mail"] else [])):
            failed = failed or finding.state == "fail"
            state = styles[finding.state](f"{finding.state:<4}")
            remedy = f" → {finding.remedy.english}" if finding.remedy else ""
            self.stdout.write(f"{state}  {finding.subject.english}: {finding.detail.english}{remedy}")
        if failed:
            sys.exit(1)
