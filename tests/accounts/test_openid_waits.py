"""An OpenID provider that hangs: waiting sign-ins share one request, and later ones are refused at once for a while."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from accounts.models import OpenIDProvider
from accounts.openid import connection
from accounts.openid.shared import Outages, SharedDocuments
from core.errors import ProductError
from tests.accounts.openid_provider import CLIENT
from tests.core.silent_server import SilentServer, silent_server
from tests.product import until


@pytest.fixture
def hanging() -> Iterator[SilentServer]:
    with silent_server() as server:
        yield server


def provider_at(server: SilentServer) -> OpenIDProvider:
    return OpenIDProvider(name="hangs", issuer=f"http://127.0.0.1:{server.port}", client_id=CLIENT)


def test_a_document_is_read_once_for_all_who_want_it() -> None:
    documents = SharedDocuments(kept_seconds=60, waiting_seconds=60)
    go_on, reading, times = threading.Event(), threading.Event(), list[int]()

    def read() -> dict[str, Any]:
        times.append(1)
        reading.set()
        assert go_on.wait(60)
        return {"issuer": "a"}

    with ThreadPoolExecutor(10) as threads:
        first = threads.submit(documents.get, "a", "address", read)
        assert reading.wait(60)
        others = [threads.submit(documents.get, "a", "address", read, fresh=True) for _ in range(9)]
        go_on.set()
        assert [each.result() for each in (first, *others)] == [{"issuer": "a"}] * 10
    assert documents.get("a", "address", read) == {"issuer": "a"}
    assert len(times) < 10


def test_a_reading_that_fails_is_not_stored() -> None:
    documents = SharedDocuments(kept_seconds=60, waiting_seconds=60)

    def fail() -> dict[str, Any]:
        raise ProductError("openid_unreachable", "It is away.", status=502)

    with pytest.raises(ProductError):
        documents.get("a", "address", fail)
    assert documents.get("a", "address", lambda: {"there": True}) == {"there": True}


@pytest.mark.django_db
def test_a_provider_that_hangs_is_asked_once_and_then_refused_at_once(
    hanging: SilentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.2)
    provider = provider_at(hanging)
    for sentence in ("The provider did not answer in time.", "The provider did not answer. The next request"):
        with pytest.raises(ProductError) as error:
            connection.metadata(provider)
        assert (error.value.code, error.value.status) == ("openid_unreachable", 502)
        assert error.value.detail.startswith(sentence) and int(error.value.headers["Retry-After"]) > 0
    assert hanging.connections == 1
    connection.forget(provider)  # an administrator tests it
    with pytest.raises(ProductError):
        connection.metadata(provider)
    until(lambda: hanging.connections == 2, "the provider is asked again")


def test_an_outage_ends() -> None:
    outages = Outages(seconds=0.0)
    outages.begin("a")
    assert outages.seconds_left("a") == 0
