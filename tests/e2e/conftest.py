"""A real browser. An error in a page's console, or a breach of its content policy, fails the test."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import pytest
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from accounts.models import User
from llm.models import Model
from tests.chromium import chromium
from tests.conftest import Person, make_person
from tests.product import WAIT, Product, until
from tests.product import in_thread as in_thread  # tests of the browser take it from here

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
HAND: dict[str, Any] = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
# Both sizes and both colour schemes, in two runs; axe checks every page in all four combinations.
SCREENS: dict[str, dict[str, Any]] = {
    "desktop-light": {"color_scheme": "light"},
    "phone-dark": {**HAND, "color_scheme": "dark"},
}
Result = TypeVar("Result")
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


@pytest.fixture(scope="session")
def browser(product: Product) -> Iterator[Browser]:
    with chromium() as started:
        yield started


@cache
def strong_hash(password: str) -> str:
    """The web server does not know the fast hashes of tests; this one takes its time, once."""
    return make_password(password, hasher="pbkdf2_sha256")


@pytest.fixture
def person(product: Product, committed: None) -> Person:
    def make() -> Person:
        new_person = make_person(product)
        User.objects.filter(pk=new_person.user.pk).update(password=strong_hash(new_person.password))
        return new_person

    return in_thread(make)


class Visit:
    """One person's browser, with watched pages and common steps."""

    def __init__(self, product: Product, person: Person, context: BrowserContext, *, scripts: bool) -> None:
        self.product = product
        self.person = person
        self.context = context
        self.scripts = scripts
        self.complaints: list[str] = []
        self.expected: list[str] = []
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
            self._complain(f"the page asked for {url}")

    def sign_in(self) -> Page:
        """With a session that is there already; signing in by hand, as `enter` does, takes a second each time."""
        key = in_thread(self.session)
        self.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": key, "url": self.product.url}])
        self.page.goto(self.product.url + "/")
        return self._signed_in()

    def enter(self) -> Page:
        """By the form, with the person's password."""
        self.page.goto(self.product.url + "/")
        self.page.get_by_label("User name").fill(self.person.username)
        self.page.get_by_label("Password").fill(self.person.password)
        self.page.get_by_role("button", name="Sign in").click()
        return self._signed_in()

    def session(self) -> str:
        """Return the key of a new session of the person."""
        client = Client()
        client.force_login(User.objects.get(pk=self.person.user.pk))
        return client.cookies[settings.SESSION_COOKIE_NAME].value

    def _signed_in(self) -> Page:
        expect(field(self.page)).to_be_visible()
        if self.scripts:
            ready(self.page)
        return self.page


def ready(page: Page) -> None:
    """The scripts have taken over: before, nothing is kept and Enter is a new line."""
    expect(page.locator(".plan-line")).to_be_visible()


def field(page: Page) -> Locator:
    return page.get_by_label("Your message")


def who_answers(page: Page) -> Locator:
    """Open the sheet to choose model, persona and effort, and return it."""
    sheet = page.get_by_role("dialog", name="Model and persona")
    if not sheet.is_visible():
        page.locator(".who-opener").click()
    expect(sheet).to_be_visible()
    return sheet


def choose_models(page: Page, first: str, *others: str) -> None:
    """By their names; several answer side by side."""
    sheet = who_answers(page)
    sheet.get_by_role("radio", name=first).check()
    if others:
        sheet.get_by_label("Compare").check()
    for name in others:
        sheet.get_by_role("checkbox", name=name).check()


def answer(page: Page, number: int = -1) -> Locator:
    return page.locator("article.answer").nth(number)


def status(page: Page) -> Locator:
    return page.locator("#status")


def scripted(message: str, **script: Any) -> str:
    return f"{message}\nscript: {json.dumps(script)}"


def ask(page: Page, message: str, **script: Any) -> None:
    """Write and send a message. The model's script is part of it."""
    field(page).fill(scripted(message, **script) if script else message)
    page.get_by_role("button", name="Send").click()


def expect_complete(page: Page) -> None:
    expect(page.locator("#composer.htmx-request")).to_have_count(0)  # before, the newest answer is still the one before
    expect(answer(page)).to_have_attribute("data-status", "done")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()  # not "Send now" of one that waited


OpenBrowser = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, product: Product, person: Person) -> Iterator[OpenBrowser]:
    """Open a new browser for the person. The options are those of a Playwright context."""
    opened: list[Visit] = []

    def open_(**options: Any) -> Visit:
        # What a service worker asks for, a test can neither hold back nor see.
        options = {"viewport": DESKTOP, "reduced_motion": "reduce", "service_workers": "block", **options}
        scripts = bool(options.get("java_script_enabled", True))
        opened.append(Visit(product, person, browser.new_context(**options), scripts=scripts))
        return opened[-1]

    yield open_
    for each in opened:
        each.context.close()
    complaints = [complaint for each in opened for complaint in each.complaints]
    assert complaints == [], product.log("web")[-5_000:]


@pytest.fixture
def page(visit: OpenBrowser) -> Page:
    """A desktop page, signed in."""
    return visit().sign_in()


@pytest.fixture
def phone(visit: OpenBrowser) -> Page:
    return visit(**HAND).sign_in()


def luminance(colour: str) -> float:
    """The relative luminance of WCAG, 0 to 1, of a colour as `getComputedStyle` gives it."""
    channels = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


BEHIND = """(each) => {
  while (getComputedStyle(each).backgroundColor === "rgba(0, 0, 0, 0)") each = each.parentElement;
  return getComputedStyle(each).backgroundColor;
}"""
# A page's own scrollers must not move sideways either; what is wide inside an answer has a scroller of its own.
TOO_WIDE = """(width) => [
  ...[document.documentElement, ...document.querySelectorAll("#transcript, .scroller, #panel, #side, [popover]")]
    .filter((each) => each.checkVisibility() && each.scrollWidth > Math.min(width, each.clientWidth)),
  ...[...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter((each) => {
    const { left, right } = each.getBoundingClientRect();
    if (!each.checkVisibility({ visibilityProperty: true }) || each.matches(".skip")) return false;
    for (let over = each.parentElement; over; over = over.parentElement)
      if (over.scrollWidth > over.clientWidth && /auto|scroll/.test(getComputedStyle(over).overflowX)) return false;
    return left < 0 || right > width;
  }),
].map((each) => each.outerHTML.slice(0, 200))"""


@dataclass
class Screen:
    """A signed-in page of one size in one colour scheme. `options` are those of its Playwright context."""

    visit: Visit
    page: Page
    options: dict[str, Any]

    @property
    def phone(self) -> bool:
        return "is_mobile" in self.options

    @property
    def dark(self) -> bool:
        return bool(self.options["color_scheme"] == "dark")

    def go(self, path: str) -> None:
        self.page.goto(self.visit.product.url + path)

    def press(self, what: Locator) -> None:
        """Tap on a phone, click on a desktop."""
        if self.phone:
            what.tap()
        else:
            what.click()

    def side(self) -> Locator:
        """Return the list of conversations. On a phone it is a sheet, which is opened first."""
        side = self.page.locator("#side")
        if self.phone and not side.is_visible():
            self.press(self.page.locator(".side-opener"))
        expect(side).to_be_visible()
        return side

    def check(self, *shown: Locator) -> None:
        """Assert that nothing is wider than the screen, that no control is off it, and that the page and `shown` have
        the colours of the scheme."""
        for place in (self.page.locator("body"), *shown):
            expect(place).to_be_visible()
            # What news of the page replace in this moment has no colour; what comes in its place has.
            behind = until(partial(place.evaluate, BEHIND), "it has a colour")
            assert (luminance(behind) < 0.2) if self.dark else (luminance(behind) > 0.7), (place, behind)
        size = self.page.viewport_size
        assert size and self.page.evaluate(TOO_WIDE, size["width"]) == []


@pytest.fixture(params=SCREENS)
def screen(request: pytest.FixtureRequest, visit: OpenBrowser) -> Screen:
    """Each of `SCREENS` in turn, signed in, with access to the clipboard."""
    options = SCREENS[str(request.param)]
    opened = visit(**options, permissions=["clipboard-read", "clipboard-write"])
    return Screen(opened, opened.sign_in(), options)


@pytest.fixture
def model(product: Product, person: Person) -> Iterator[Model]:
    """Make the default model call tools."""

    usual = in_thread(lambda: Model.objects.get(name="scripted"))
    in_thread(lambda: Model.objects.filter(pk=usual.pk).update(tools=True))
    yield usual
    in_thread(lambda: Model.objects.filter(pk=usual.pk).update(tools=False))
