"""Errors that no view raises itself, as programs get them."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any, cast
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.db import OperationalError, connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from drf_standardized_errors.types import ExceptionHandlerContext
from psycopg_pool import PoolTimeout
from pytest_django.fixtures import Settings

from accounts.models import User
from config.http.handler import Handler
from config.http.problems import handle
from tests.accounts.programs import Program

pytestmark = pytest.mark.django_db
SCOPE = {"type": "http", "method": "GET", "query_string": b"", "headers": []}


def stopping(request: HttpRequest) -> HttpResponse:
    return next(iter(()))


running, to_end = threading.Event(), threading.Event()


def lasting(request: HttpRequest) -> HttpResponse:
    User.objects.exists()
    running.set()
    to_end.wait(60)
    return HttpResponse()


urlpatterns = [path("stops/", stopping), path("lasts/", lasting)]


def test_a_body_that_is_too_large_is_refused_and_is_no_failure(settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576
    program = Program(User.objects.create_user("olga"), "chat")
    refused = program.post("/api/v1/conversations/", {"title": "x" * 1_100_000})
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-7", "zlib", "unicode_escape"])
@pytest.mark.parametrize("address", ["/api/v1/conversations/", "/v1/chat/completions", "/login/"])
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_no_body_is_decoded_in_the_square_of_its_length(charset: str, address: str, kind: str) -> None:
    """Punycode of 8 MB would take hours, in a thread that cannot be ended."""
    program = Program(User.objects.create_user("olga"), "chat")
    body = b'--x\r\nContent-Disposition: form-data; name="username"\r\n\r\na-' + b"b" * 200_000 + b"\r\n--x--\r\n"
    refused = program.client.generic("POST", address, body, content_type=f"{kind}; boundary=x; charset={charset}")
    assert refused.status_code == 415
    assert b"Send UTF-8." in refused.content


@pytest.mark.parametrize("charset", ["utf-8", "UTF8", "utf-16", "latin-1", "windows-1252", "us-ascii", "unheard-of"])
def test_bodies_in_encodings_of_texts_are_read(charset: str) -> None:
    program = Program(User.objects.create_user("olga"), "chat")
    body = b'{"title": "x"}' if charset == "unheard-of" else '{"title": "x"}'.encode(charset)
    kind = f"application/json; charset={charset}"
    answer: Any = program.client.generic("POST", "/api/v1/conversations/", body, content_type=kind)
    assert (answer.status_code, answer.json()["title"]) == (201, "x")


@pytest.mark.parametrize("name", ['name="f"', 'name="file"; filename="a.txt"'])
@pytest.mark.parametrize("address", ["/api/v1/files/", "/api/v1/imports/"])
def test_a_form_of_too_many_parts_is_refused_and_is_no_failure(address: str, name: str) -> None:
    program = Program(User.objects.create_user("olga"), "chat", "files")
    body = f"--x\r\nContent-Disposition: form-data; {name}\r\n\r\n1\r\n" * 2_000 + "--x--\r\n"
    refused: Any = program.client.generic("POST", address, body, content_type="multipart/form-data; boundary=x")
    assert (refused.status_code, refused.json()["code"]) == (413, "too_many_parts")


def test_of_what_was_sent_a_refusal_repeats_little_whatever_the_language() -> None:
    """Sentences with values were found by expressions that take the cube of the value's length."""
    program = Program(User.objects.create_user("olga", language="vi"), "admin", "tasks")
    program.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "vi"
    for value in (": , from " * 3_000, "“" * 30_000, "x" * 1_000_000):
        refused = program.ask("PATCH", "/api/v1/me/", json.dumps({"theme": value}))
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
        assert len(refused.content) < 10_000
        assert refused.json()["errors"][0]["detail"].startswith('"' + value[:100])


def test_a_refusal_lists_so_many_errors_and_no_more() -> None:
    program = Program(User.objects.create_user("olga"), "chat")
    refused = program.post("/api/v1/reminders/", {"x" * 5_000: 1} | {f"member{number}": 1 for number in range(5_000)})
    assert refused.status_code == 400
    assert len(refused.json()["errors"]) == 20
    assert len(refused.content) < 50_000


def test_who_finds_no_connection_to_the_database_free_is_told_to_come_again(rf: RequestFactory) -> None:
    error = OperationalError("couldn't get a connection after 30.00 sec")
    error.__cause__ = PoolTimeout()
    context: dict[str, Any] = {"request": rf.get("/api/v1/files/"), "view": None, "args": (), "kwargs": {}}
    answer = handle(error, cast("ExceptionHandlerContext", context))
    assert answer is not None
    assert (answer.status_code, answer.data["code"], answer.headers["Retry-After"]) == (503, "unavailable", "5")


def test_an_unknown_address_of_the_api_is_a_problem_too(client: Client) -> None:
    missing = client.get("/api/v1/nowhere/")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert missing.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("address", ["export/", "conversations/{}/export/", "turns/{}/events/"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_method_that_an_address_of_the_api_does_not_know_is_a_problem_too(address: str, method: str) -> None:
    """This holds too for views that are not of Django REST framework. No CSRF token is needed."""
    refused = Client(enforce_csrf_checks=True).generic(method, f"/api/v1/{address.format(uuid4())}")
    assert (refused.status_code, refused.json()["code"], refused["Allow"]) == (405, "method_not_allowed", "GET")
    assert refused["Content-Type"] == "application/problem+json"


def problem_of(address: str) -> dict[str, Any]:
    """The head of the answer."""

    async def head() -> Any:
        communicator: Any = ApplicationCommunicator
        request = communicator(Handler(), {**SCOPE, "path": address})
        await request.send_input({"type": "http.request"})
        return await request.receive_output(60)

    return dict(async_to_sync(head)())


def test_a_view_that_raises_stop_iteration_answers(settings: Settings) -> None:
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []
    assert problem_of("/stops/")["status"] == 500


def without_a_connection(get_response: object) -> Callable[[HttpRequest], HttpResponse]:
    def look_up(request: HttpRequest) -> HttpResponse:
        raise OperationalError("couldn't get a connection after 30.00 sec") from PoolTimeout()

    return look_up


@pytest.mark.parametrize(
    ("address", "media_type"), [("/", b"text/html; charset=utf-8"), ("/api/v1/files/", b"application/problem+json")]
)
def test_so_is_who_cannot_even_be_looked_up(settings: Settings, address: str, media_type: bytes) -> None:
    middleware = "django_htmx.middleware.HtmxMiddleware"
    settings.MIDDLEWARE = [middleware, f"{__name__}.without_a_connection"]
    answer = problem_of(address)
    headers = dict(answer["headers"])
    assert (answer["status"], headers[b"Content-Type"], headers[b"Retry-After"]) == (503, media_type, b"5")


@pytest.mark.parametrize("cancel", [False, True])
def test_a_request_that_the_server_gives_up_keeps_no_connection_to_the_database(
    settings: Settings, cancel: bool
) -> None:
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []
    pool: Any = connection.pool  # type: ignore[attr-defined]  # of PostgreSQL's alone
    running.clear()
    to_end.clear()

    def lent() -> int:
        numbers = pool.get_stats()
        return int(numbers["pool_size"] - numbers["pool_available"])

    before = lent()

    async def give_up() -> None:
        messages: asyncio.Queue[Any] = asyncio.Queue()
        messages.put_nowait({"type": "http.request"})

        async def send(_: object) -> None:
            """Discard the message: there is no reader."""

        request = asyncio.create_task(Handler()({**SCOPE, "path": "/lasts/"}, messages.get, send))
        await asyncio.to_thread(running.wait, 60)
        if cancel:
            messages.put_nowait({"type": "http.disconnect"})
        request.cancel()  # as daphne does, every second until it ends
        await asyncio.sleep(0)
        request.cancel()
        await asyncio.sleep(0)
        to_end.set()
        await asyncio.wait([request])

    asyncio.run(give_up())
    assert lent() <= before  # what threads of other tests had may have come back meanwhile
