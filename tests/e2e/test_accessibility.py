"""Every page at both sizes, light and dark: axe finds nothing against WCAG 2.2 A and AA, and keys reach everything."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.db import connection
from playwright.sync_api import Page, expect

from llm.models import Model
from personas.models import BudgetProfile
from tests.conftest import Person
from tests.e2e.conftest import PHONE, OpenBrowser, ask, expect_complete, ready, status
from tests.house import PROFILE, House
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product, pytest.mark.xdist_group("browser")]

WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
LOOKS: dict[str, dict[str, Any]] = {
    "desktop-light": {"color_scheme": "light"},
    "desktop-dark": {"color_scheme": "dark"},
    "phone-light": {"viewport": PHONE, "color_scheme": "light"},
    "phone-dark": {"viewport": PHONE, "color_scheme": "dark"},
}
T = TypeVar("T")


def elsewhere(work: Callable[[], T]) -> T:
    """Runs what needs the database where no event loop runs."""

    def then_close() -> T:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(then_close).result()


def furnished(product: Product, person: Person) -> dict[str, str]:
    name = uuid4().hex[:8]

    def rows() -> tuple[str, str]:
        usual = Model.objects.get(name="scripted")
        model = Model.objects.create(
            provider=usual.provider, name=f"scripted:{name}", context_window=64_000, tools=True
        )  # fmt: skip
        profile = BudgetProfile.objects.create(**{**PROFILE, "name": name})
        return str(model.pk), str(profile.pk)

    return House(person.caller, lambda script: product.model.set_script(name, script), *elsewhere(rows)).furnish()


def violations(page: Page) -> list[str]:
    found = Axe().run(page, options=WCAG).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def test_no_page_breaks_a_rule_of_wcag(visit: OpenBrowser, product: Product, person: Person) -> None:
    paths = furnished(product, person)
    faults: dict[str, list[str]] = {}
    for look, options in LOOKS.items():
        opened = visit(**options)
        opened.expected.append("404")  # the page that is not there is one of them
        opened.page.goto(product.url + "/login/")
        faults[f"login {look}"] = violations(opened.page)
        page = opened.sign_in()
        for name, path in paths.items():
            page.goto(product.url + path)
            if name == "summary":
                page.locator("details.summary > summary").click()
            faults[f"{name} {look}"] = violations(page)
    assert {page: found for page, found in faults.items() if found} == {}


def test_what_opens_on_a_page_breaks_no_rule_either(page: Page, product: Product, person: Person) -> None:
    ask(page, "Which clause?", text="Clause 7.\n\n```python\nprint(7)\n```")
    expect_complete(page)
    page.locator(".context-link").last.click()
    expect(page.locator("#panel-title")).to_be_visible()
    assert violations(page) == []
    page.locator("[data-close-panel]").click()
    page.locator("header.head .menu-opener").last.click()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.locator("#attach").click()
    assert violations(page) == []


def test_every_control_of_a_page_is_reached_by_tab_and_shows_it(page: Page) -> None:
    """Walks a whole page once: each place has an outline, and none is left out."""
    ready(page)
    reachable = page.evaluate(CONTROLS)
    walked: list[str] = []
    for _ in range(len(reachable) + 3):  # once around, with the browser's own places between end and beginning
        page.keyboard.press("Tab")
        place = page.evaluate(FOCUSED)
        if place is not None:
            assert place["visible"], f"{place['html']} has the focus and does not show it"
            walked.append(place["what"])
    missed = [html for what, html in reachable.items() if what not in walked]
    assert missed == []


CONTROLS = """() => Object.fromEntries(
  [...document.querySelectorAll('a[href], button, input, select, textarea, [tabindex="0"]')]
  .filter((each) => each.checkVisibility({visibilityProperty: true}) && !each.disabled && each.type !== 'hidden'
    && each.tabIndex >= 0)
  .map((each, number) => [each.dataset.walked = String(number), each.outerHTML.slice(0, 200)]))"""
FOCUSED = """() => {
  const each = document.activeElement;
  if (!each || each === document.body) return null;
  const shown = [each, each.closest('.composer'), each.closest('label')].filter(Boolean).some((place) => {
    const style = getComputedStyle(place);
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
  });
  return {what: each.dataset.walked, html: each.outerHTML.slice(0, 200), visible: shown};
}"""


def test_the_first_tab_leads_past_the_side(page: Page, product: Product) -> None:
    page.goto(product.url + "/settings/")
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()


def test_a_status_line_says_what_happens_and_the_transcript_is_no_live_region(page: Page) -> None:
    ask(page, "Hello", text="Good day.")
    expect_complete(page)
    ask(page, "Count", text="One two three.")
    expect_complete(page)
    expect(status(page)).to_have_attribute("role", "status")
    expect(status(page)).to_have_text("Answer complete, 3 words.")
    assert page.locator("#transcript [aria-live]:not([aria-live=off]), #transcript[aria-live]").count() == 0


def test_nothing_moves_for_those_who_asked_for_less_motion(page: Page) -> None:
    ask(page, "Count", tokens=60, interval=0.05)
    moving = page.evaluate("document.getAnimations().map((each) => each.animationName ?? each.transitionProperty)")
    assert moving == []
    expect_complete(page)
