"""A browser that signs in through the provider of the tests."""

from random import SystemRandom
from typing import Any
from uuid import uuid4

from django.test import Client
from django.urls import reverse

from accounts.models import OpenIDProvider
from accounts.openid.services import store_provider
from tests.accounts.openid_provider import CLIENT, SECRET, Provider

_random = SystemRandom()


def row_of(provider: Provider, **fields: Any) -> OpenIDProvider:
    row = OpenIDProvider(name=f"p-{uuid4().hex[:8]}", issuer=provider.issuer, client_id=CLIENT, **fields)
    store_provider(user=None, provider=row, secret=SECRET)
    provider.redirects.add("http://testserver" + reverse("login-openid-done", args=[row.pk]))
    return row


def browser() -> Client:
    """At an address that no other test counts for."""
    return Client(REMOTE_ADDR=f"10.{_random.randrange(256)}.{_random.randrange(256)}.{_random.randrange(256)}")


def begin_sign_in(row: OpenIDProvider, here: Client, then: str = "/files/") -> str:
    """Return the address that the browser is sent to."""
    answer = here.get(reverse("login-openid", args=[row.pk]), {"next": then})
    assert answer.status_code == 302, answer.content
    return str(answer["Location"])


def sign_in(provider: Provider, row: OpenIDProvider, here: Client | None = None) -> tuple[Client, Any]:
    here = here or browser()
    return here, here.get(provider.sign_in(begin_sign_in(row, here)))
