"""Pages are answered while many requests wait for something outside: they hold no connection to the database then."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.db import connection, connections, transaction

from accounts.models import OpenIDProvider
from core import outside
from core.errors import ModelError, ProductError
from core.outside import wait_outside
from files import page_pictures
from files.index.embedders import SEARCH_TIMEOUT, create_client
from files.index.ledger import SearchUsage
from files.models import Embedder
from readers.tests import samples
from tests.application import Application
from tests.conftest import Person, make_person
from tests.core.silent_server import SilentServer, silent_server
from tests.product import until

AT_ONCE = 60  # requests; the pool has 24 connections

Sender = Callable[[int], httpx.Response]


@contextmanager
def in_flight(send: Sender, count: int, waiting: Callable[[], bool], release: Callable[[], None]) -> Iterator[None]:
    """Send so many requests, and run the block once they are `waiting`; none of them has been answered after it."""
    with ThreadPoolExecutor(count) as threads:
        requests: list[Future[httpx.Response]] = [threads.submit(send, number) for number in range(count)]
        try:
            until(waiting, f"{count} requests wait outside")
            yield
            assert not any(each.done() for each in requests)
        finally:
            release()


def open_sign_in_page(application: Application) -> None:
    with application.http() as http:
        assert http.get("/login/").status_code == 200


@pytest.fixture
def hanging() -> Iterator[SilentServer]:
    with silent_server() as server:
        yield server


def test_sign_in_is_open_while_openid_providers_hang(application: Application, hanging: SilentServer) -> None:
    rows = [
        OpenIDProvider(
            name=f"hangs-{uuid4().hex[:8]}", issuer=f"http://127.0.1.{number + 1}:{hanging.port}", client_id="client"
        )
        for number in range(AT_ONCE)
    ]
    OpenIDProvider.objects.bulk_create(rows)

    def send(number: int) -> httpx.Response:
        with application.http() as http:
            return http.get(f"/login/openid/{rows[number].pk}/")

    try:
        with in_flight(send, AT_ONCE, lambda: hanging.connections == AT_ONCE, hanging.close):
            open_sign_in_page(application)
    finally:
        OpenIDProvider.objects.filter(pk__in=[row.pk for row in rows]).delete()


def test_a_thread_that_waits_for_an_embedder_holds_no_connection(committed: None, hanging: SilentServer) -> None:
    url = f"http://127.0.0.1:{hanging.port}"
    embedder = Embedder(name="hangs", kind="openai", base_url=url, model="hangs", dimensions=3)
    of_thread: list[Any] = []

    def embed() -> None:
        connection.ensure_connection()
        of_thread.append(connections["default"])
        with pytest.raises(ModelError):
            create_client(embedder, timeout=SEARCH_TIMEOUT).embed(["text"], SearchUsage())

    with ThreadPoolExecutor(1) as threads:
        request = threads.submit(embed)
        until(lambda: hanging.connections, "the embedder is asked")
        assert not request.done() and of_thread[0].connection is None
        hanging.close()
        request.result()


def uploaded(person: Person) -> str:
    files = {"file": ("a.pdf", samples.pdf(["A page."]), "application/pdf")}
    file = str(person.caller.http.post("files/", files=files).raise_for_status().json()["id"])
    until(lambda: person.caller.get(f"files/{file}/")["status"] == "ready", "the file is read")
    return file


def test_sign_in_is_open_while_pictures_wait_and_one_person_has_few_of_them(application: Application) -> None:
    people = [make_person(application) for _ in range(9)]
    files = [uploaded(person) for person in people]
    each = 1 + page_pictures.MAX_WAITING_PER_PERSON

    def send(number: int) -> httpx.Response:
        person, file = people[number // each], files[number // each]
        return person.caller.http.get(f"files/{file}/pages/1/picture/")

    def waiting() -> bool:
        counts = page_pictures._turns
        return len(counts._busy) == len(people) and sum(counts._waiting.values()) == 2 * len(people)

    with ExitStack() as slots:
        for _ in range(page_pictures.MAX_CONCURRENT_DRAWINGS):
            page_pictures._drawing.acquire()
            slots.callback(page_pictures._drawing.release)
        with in_flight(send, each * len(people), waiting, slots.close):
            open_sign_in_page(application)
            refused = send(0)
    assert refused.status_code == 429 and refused.json()["code"] == "too_many_pictures"
    assert int(refused.headers["Retry-After"]) > 0
    assert send(0).status_code == 200


def test_a_transaction_keeps_its_connection_so_only_few_wait_in_one(committed: None) -> None:
    with ExitStack() as waits:
        with transaction.atomic():
            for _ in range(outside.MAX_TRANSACTION_WAITS):
                waits.enter_context(wait_outside())
            with pytest.raises(ProductError) as error, wait_outside():
                raise AssertionError("the block does not run")
            assert (error.value.code, error.value.status) == ("busy", 503)
            assert connection.connection is not None
        waits.close()
    connection.ensure_connection()
    with wait_outside():
        assert connection.connection is None
