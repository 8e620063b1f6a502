"""Log lines about the addresses that people and programs request."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from daphne.access import AccessLogGenerator  # type: ignore[import-untyped]
from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from config.celery import app as celery_app
from config.http.server import LimitedServer
from core.background import Job
from core.logs.context import add_log_fields, log_context, log_fields
from core.logs.lines import Formatter, JsonFormatter, RefusalFilter, without_secrets
from tests.product import Caller

TOKEN = "akYZ5vXNIMggEX8JDXZR6iKL5Jaw6dabosP2KHk1oGE"  # the same in every process of the tests


@pytest.mark.parametrize(
    ("line", "logged"),
    [
        (f"GET /s/{TOKEN}/", "GET /s/…/"),
        (f"GET /%73/{TOKEN}/?x=1", "GET /%73/…/?…"),
        (f"uri=http://chat.example//s//{TOKEN} ended", "uri=http://chat.example//s//… ended"),
        ("GET /api/v1/search/?q=what%20nobody%20knows&after=2", "GET /api/v1/search/?…"),
        ("GET /usage.csv?month=2026-11", "GET /usage.csv?…"),
        ('GET /search/?"quoted"', "GET /search/?…"),
        (f"Invalid header Bearer gh_{TOKEN}", "Invalid header Bearer gh_…"),
        ("Is it there? Really?", "Is it there? Really?"),
        ("GET /s/short/", "GET /s/short/"),
        ("/files/0199d2a4-7c1e-7000-8000-000000000001/", "/files/0199d2a4-7c1e-7000-8000-000000000001/"),
    ],
)
def test_secrets_and_searches_are_left_out_and_all_else_stays(line: str, logged: str) -> None:
    assert without_secrets(line) == logged


@pytest.mark.parametrize("address", [f"/s/{TOKEN}/", "/search/?q=hidden", f"/ws/?since={TOKEN}".encode()])
def test_the_access_log_names_the_page_and_no_secret(address: str | bytes) -> None:
    log = io.StringIO()
    server = LimitedServer(application=None, endpoints=["tcp:0"], action_logger=AccessLogGenerator(log))
    details = {"client": "127.0.0.1:1", "path": address, "method": "GET", "status": 200, "size": 12}
    protocol, action = ("websocket", "connected") if isinstance(address, bytes) else ("http", "complete")
    server.log_action(protocol, action, details)
    assert "…" in log.getvalue()
    assert TOKEN not in log.getvalue()
    assert "hidden" not in log.getvalue()


def test_the_access_log_says_only_what_is_wrong_of_what_proxies_ask_each_second() -> None:
    log = io.StringIO()
    server = LimitedServer(application=None, endpoints=["tcp:0"], action_logger=AccessLogGenerator(log))
    for path, status in (("/livez", 200), ("/readyz", 200), ("/readyz", 503), ("/livez/", 404)):
        details = {"client": "127.0.0.1:1", "path": path, "method": "GET", "status": status, "size": 12}
        server.log_action("http", "complete", details)
    assert re.findall(r'"GET (\S+)" (\d+)', log.getvalue()) == [("/readyz", "503"), ("/livez/", "404")]


@pytest.mark.django_db
def test_djangos_warnings_leave_the_token_out(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    assert client.get(reverse("chat:shared", args=[TOKEN])).status_code == 404
    record = next(each for each in caplog.records if each.name == "django.request")
    assert TOKEN in record.getMessage()  # this is what Django hands to the handlers
    written = [handler for name in ("", "django", "django.server") for handler in logging.getLogger(name).handlers]
    ours = [handler.formatter for handler in written if isinstance(handler.formatter, Formatter)]
    assert len(ours) == 3
    for formatter in ours:
        assert formatter.format(record) == "WARNING django.request: Not Found: /s/…/"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """All that is logged meanwhile, as LOG_FORMAT=json writes it."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    loggers = [logging.getLogger(name) for name in ("", "django")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield lines
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_one_id_finds_the_lines_of_the_request_and_of_the_call_of_the_model(
    caller: Caller, written: io.StringIO
) -> None:
    place = caller.conversation()
    page = {"X-Request-ID": "from-the-page"}
    body = {"text": "a word that nobody logs"}
    [turn] = caller.http.post(f"conversations/{place}/turns/", json=body, headers=page).json()["turns"]
    caller.ended(turn["id"])
    assert caller.http.get(f"conversations/{uuid4()}/", headers=page).status_code == 404
    lines = [line for line in map(json.loads, written.getvalue().splitlines()) if "from-the-page" in str(line)]
    [call] = [line for line in lines if line["logger"] == "llm.providers.streaming"]
    [refused] = [line for line in lines if line["logger"] == "django.request"]
    assert call["turn_id"] == turn["id"] and call["user_id"] == refused["user_id"]
    assert call["level"] == "INFO" and call["time"].endswith("+00:00")
    assert "turn_id" not in refused
    assert "nobody logs" not in written.getvalue() and caller.token not in written.getvalue()


def test_what_is_known_goes_along_with_a_job() -> None:
    class Knows(Job):
        name = "knows"

        def run(self) -> dict[str, str]:
            add_log_fields(user_id="somebody")
            return log_fields()

    job = Knows()
    job.bind(celery_app)
    job.push_request(said={"request_id": "from-the-page"})
    try:
        assert job() == {"request_id": "from-the-page", "user_id": "somebody"}
    finally:
        job.pop_request()
    assert log_fields() == {}


def test_thousands_of_lines_as_json_hold_no_secret_text_or_search(written: io.StringIO, settings: Settings) -> None:
    """The lines are one of the access log for each way to put a text into an address, and the traceback of an error."""
    settings.LOG_FORMAT = "json"
    server = LimitedServer(application=None, endpoints=["tcp:0"], action_logger=AccessLogGenerator(io.StringIO()))
    secret = "hidden-" + TOKEN
    addresses = [f"/s/{TOKEN}/", f"/search/?q={secret}", f"/%73/{TOKEN}/?{secret}", f"/api/v1/search/?tag=a&q={secret}"]
    for number in range(2_500):
        for address in addresses:
            details = {"client": "127.0.0.1:1", "path": address, "method": "GET", "status": 200, "size": number}
            with log_context({"request_id": f"id-{number}"}):
                server.log_action("http", "complete", {**details, "time_taken": 0.25})
    try:
        raise ValueError(f"gh_{TOKEN} of /search/?q={secret}")
    except ValueError:
        logging.getLogger("any").exception("failed at /s/%s/", TOKEN)
    logging.getLogger("elses").error({"a": "dictionary"}, extra={"body": TOKEN, "level": TOKEN})
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert len(lines) == 10_002
    members = {"time", "level", "logger", "message"}
    assert set(lines[-1]) == members and lines.pop()["message"] == "{'a': 'dictionary'}"
    assert set(lines[0]) == {*members, "request_id", "client", "method", "path", "status", "size", "seconds"}
    assert set(lines[-1]) == {*members, "error"}
    assert TOKEN not in written.getvalue()
    first = lines[0]
    assert (first["logger"], first["request_id"], first["path"], first["seconds"]) == ("access", "id-0", "/s/…/", 0.25)
    assert "ValueError: gh_…" in lines[-1]["error"]


@pytest.mark.parametrize("error", [PermissionDenied(), SuspiciousOperation("a host"), BadRequest("odd")])
def test_a_refused_request_is_one_line_and_a_failed_one_has_its_traceback(error: Exception) -> None:
    def line(cause: Exception) -> str:
        try:
            raise cause
        except Exception:
            record = logging.LogRecord("django.request", 30, "", 0, "Refused: /admin/", (), sys.exc_info())
        assert RefusalFilter().filter(record)
        return Formatter("%(message)s").format(record)

    assert line(error) == "Refused: /admin/"
    assert "Traceback" in line(RuntimeError("ours"))


def test_the_log_of_the_product_leaves_tracebacks_of_refusals_out() -> None:
    logging_settings: Any = settings.LOGGING
    assert logging_settings["handlers"]["console"]["filters"] == ["refusals"]
