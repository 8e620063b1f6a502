"""What stands in the logs of the addresses that people and programs ask for."""

import io
import logging

import pytest
from daphne.access import AccessLogGenerator  # type: ignore[import-untyped]
from django.test import Client
from django.urls import reverse

from config.http.logs import Formatter, without_secrets
from config.http.server import LimitedServer

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
