"""Requests of a browser for a long conversation, at the first visit and at later ones."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from chat.models import Conversation, Message
from llm.models import Model, Provider
from tests.conftest import Person
from tests.e2e.conftest import MARKDOWN, WORDS, OpenBrowser, choose_models, in_thread, ready

pytestmark = [pytest.mark.browser, pytest.mark.product]

MESSAGES = 200
MODELS = 300
MAX_REQUESTS = 16  # the page, its stylesheet, font, icons, htmx, and a request for each module of its scripts
MAX_BYTES = 150_000  # compressed, with headers
NEWS_TAKE = 2_000  # ms; a page that has missed something asks for it a second after it was opened


@dataclass
class Fetched:
    """Requests that reached the server, by Chromium's own count: their addresses and bytes. A socket is none."""

    urls: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)

    def began(self, event: dict[str, Any]) -> None:
        if event["request"]["url"].startswith("http"):
            self.urls[event["requestId"]] = event["request"]["url"]

    def ended(self, event: dict[str, Any]) -> None:
        self.sizes[event["requestId"]] = event["encodedDataLength"]

    def cached(self, event: dict[str, Any]) -> None:
        if event.get("response", {}).get("fromDiskCache", "response" not in event):
            self.urls.pop(event["requestId"], None)

    @property
    def bytes(self) -> float:
        return sum(size for request, size in self.sizes.items() if request in self.urls)

    def __str__(self) -> str:
        return "\n".join(f"{self.sizes.get(request)} {url}" for request, url in self.urls.items())


def watched(page: Page) -> Fetched:
    fetched = Fetched()
    session = page.context.new_cdp_session(page)
    session.on("Network.requestWillBeSent", fetched.began)
    session.on("Network.loadingFinished", fetched.ended)
    session.on("Network.requestServedFromCache", fetched.cached)
    session.on("Network.responseReceived", fetched.cached)
    session.send("Network.enable")
    return fetched


def opened(page: Page, path: str) -> Fetched:
    fetched = watched(page)
    page.goto(path)
    ready(page)
    page.wait_for_timeout(NEWS_TAKE)
    page.wait_for_load_state("networkidle")
    return fetched


@pytest.fixture
def long(person: Person) -> str:
    """The address of a conversation with questions of a sentence and answers of a screen."""

    def make() -> Conversation:
        conversation = Conversation.objects.create(owner=person.user, title="Long")
        rows: list[Message] = []
        for depth in range(MESSAGES):
            text = f"{depth}: {WORDS[:200]}" if depth % 2 == 0 else f"{WORDS}\n\n{MARKDOWN}\n\n{depth}: {WORDS}"
            rows.append(
                Message(
                    conversation=conversation,
                    parent=rows[-1] if rows else None,
                    depth=depth,
                    role=Message.Role.USER if depth % 2 == 0 else Message.Role.ASSISTANT,
                    parts=[{"type": "text", "text": text}],
                )
            )
        Message.objects.bulk_create(rows)
        Conversation.objects.filter(pk=conversation.pk).update(leaf=rows[-1])
        return conversation

    return f"/c/{in_thread(make).pk}/"


@pytest.fixture
def many_models() -> Iterator[list[str]]:
    """Their names, as in a workspace that is connected to a broker of models."""

    def make() -> Provider:
        provider = Provider.objects.create(name=uuid4().hex)
        rows = [Model(provider=provider, name=f"{provider.name} {number}") for number in range(MODELS)]
        Model.objects.bulk_create(rows)
        return provider

    provider = in_thread(make)
    yield [f"{provider.name} {number}" for number in range(MODELS)]
    in_thread(provider.delete)


def test_a_first_look_at_a_long_conversation_takes_few_requests_and_little(
    visit: OpenBrowser, long: str, many_models: list[str]
) -> None:
    seen = visit()
    cookies = seen.sign_in().context.cookies()
    new = visit()  # with nothing in its cache
    new.context.add_cookies(cookies)  # type: ignore[arg-type]  # as they were given
    fetched = opened(new.page, new.product.url + long)
    assert fetched.bytes <= MAX_BYTES, str(fetched)
    assert len(fetched.urls) <= MAX_REQUESTS, str(fetched)
    # Those that the page did not bring along can be chosen all the same.
    choose_models(new.page, many_models[0], many_models[-1])
    expect(new.page.locator(".who-opener")).to_contain_text(f"{many_models[0]} and 1 more")


def test_who_has_been_there_before_fetches_the_page_alone(visit: OpenBrowser, long: str) -> None:
    seen = visit()
    page = seen.sign_in()
    opened(page, seen.product.url + long)
    again = opened(page, seen.product.url + long)
    assert list(again.urls.values()) == [seen.product.url + long]
