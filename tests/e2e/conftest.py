"""A real browser. Whatever a page writes to its console as an error, or wants against its policy, fails the test."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.db import connection
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from accounts.models import User
from tests.conftest import Person, make_person
from tests.product import WAIT, Product

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
expect.set_options(timeout=WAIT * 1000)


MARKDOWN = """# A heading

Some **bold** words and `code`.

```python
def answer(question):
    return 42
```

| a | b |
|---|--:|
| 1 | 2 |
"""
WORDS = " ".join(f"word{number}" for number in range(60))


def top_of(place: Locator) -> float:
    return float(place.evaluate("each => each.getBoundingClientRect().top"))


@pytest.fixture(scope="module")  # no longer: Playwright's event loop runs in this thread, and Django minds
def browser(product: Product) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def person(product: Product, committed: None) -> Person:
    def make() -> Person:
        try:
            made = make_person(product)
            # The web server does not know the fast hashes of tests.
            User.objects.filter(pk=made.user.pk).update(password=make_password(made.password, hasher="pbkdf2_sha256"))
            return made
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as elsewhere:  # where no event loop runs
        return elsewhere.submit(make).result()


class Visit:
    """One person's browser: pages that are watched, and what one does on them again and again."""

    def __init__(self, product: Product, person: Person, context: BrowserContext, *, scripts: bool) -> None:
        self.product = product
        self.person = person
        self.context = context
        self.scripts = scripts
        self.complaints: list[str] = []
        # Leaving a page ends the request for its plan; a request that fails complains in other words too.
        self.expected: list[str] = ["htmx:sendAbort", "htmx:afterRequest"]
        context.set_default_timeout(WAIT * 1000)
        self.page = self.tab()

    def tab(self, path: str = "") -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self._complain(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self._complain(str(error)))
        page.on("request", lambda request: self._foreign(request.url))
        if path:
            page.goto(self.product.url + path)
        return page

    def _complain(self, text: str) -> None:
        if not any(each in text for each in self.expected):
            self.complaints.append(text)

    def _foreign(self, url: str) -> None:
        if not url.startswith((self.product.url, self.product.url.replace("http", "ws", 1), "data:", "blob:")):
            self.complaints.append(f"the page asked for {url}")

    def sign_in(self) -> Page:
        self.page.goto(self.product.url + "/")
        self.page.get_by_label("Username").fill(self.person.username)
        self.page.get_by_label("Password").fill(self.person.password)
        self.page.get_by_role("button", name="Sign in").click()
        expect(field(self.page)).to_be_visible()
        if self.scripts:
            ready(self.page)
        return self.page


def ready(page: Page) -> None:
    """The scripts have taken over: before, nothing is kept and Enter is a new line."""
    expect(page.locator(".plan-line")).to_be_visible()


def field(page: Page) -> Locator:
    return page.get_by_label("Your message")


def answer(page: Page, number: int = -1) -> Locator:
    return page.locator("article.answer").nth(number)


def status(page: Page) -> Locator:
    return page.locator("#status")


def scripted(message: str, **script: Any) -> str:
    return f"{message}\nscript: {json.dumps(script)}"


def ask(page: Page, message: str, **script: Any) -> None:
    """Writes and sends; what the model will do rides on the message."""
    field(page).fill(scripted(message, **script) if script else message)
    page.get_by_role("button", name="Send").click()


def expect_complete(page: Page) -> None:
    expect(page.locator("#composer.htmx-request")).to_have_count(0)  # before, the newest answer is still the one before
    expect(answer(page)).to_have_attribute("data-status", "done")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


OpenBrowser = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, product: Product, person: Person) -> Iterator[OpenBrowser]:
    """Opens a browser of its own for the person; options are those of a Playwright context."""
    opened: list[Visit] = []

    def open_(**options: Any) -> Visit:
        options = {"viewport": DESKTOP, "reduced_motion": "reduce", **options}
        scripts = bool(options.get("java_script_enabled", True))
        opened.append(Visit(product, person, browser.new_context(**options), scripts=scripts))
        return opened[-1]

    yield open_
    for each in opened:
        each.context.close()
    assert [complaint for each in opened for complaint in each.complaints] == []


@pytest.fixture
def page(visit: OpenBrowser) -> Page:
    """A desktop page, signed in."""
    return visit().sign_in()


@pytest.fixture
def phone(visit: OpenBrowser) -> Page:
    return visit(viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2).sign_in()
