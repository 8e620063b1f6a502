"""Every page at both sizes, light and dark: axe finds nothing against WCAG 2.2 A and AA, and keys reach everything."""

from uuid import uuid4

import pytest
from django.core import signing
from django.urls import reverse
from playwright.sync_api import Page, ViewportSize, expect
from pytest_django.fixtures import Settings

from accounts import people
from accounts.mailing import addresses
from accounts.models import Limit, User
from llm.models import Model
from personas.models import BudgetProfile
from tests.conftest import Person
from tests.e2e.axe_steps import violations
from tests.e2e.conftest import DESKTOP, PHONE, TOO_WIDE, OpenBrowser, ask, expect_complete, in_thread, ready, status
from tests.e2e.key_steps import FOCUSED
from tests.house import PROFILE, House
from tests.product import Product
from workspace import services as workspace

pytestmark = [pytest.mark.browser, pytest.mark.product]

ZOOMED: ViewportSize = {"width": 320, "height": 256}  # 1280 x 1024 at 400 %
COLOURS = ["color-contrast"]  # the one rule of them that asks for colours


def furnished(product: Product, person: Person) -> dict[str, str]:
    name = 2 * uuid4().hex  # as names of models may be: long, and without a place to break

    def rows() -> tuple[str, str]:
        usual = Model.objects.get(name="scripted")
        model = Model.objects.create(
            provider=usual.provider, name=f"scripted:{name}", context_window=64_000, tools=True
        )  # fmt: skip
        Limit.objects.create(user_id=person.user.pk, unit=Limit.Unit.TOKENS, per=Limit.Per.MONTH, amount=10**9)
        profile = BudgetProfile.objects.create(**{**PROFILE, "name": name})
        return str(model.pk), str(profile.pk)

    return House(person.caller, lambda script: product.model.set_script(name, script), *in_thread(rows)).furnish()


def outside() -> dict[str, str]:
    """Return the pages without a sign-in, those of an invitation and of a sign-up included."""
    workspace.change_settings(user=None, fields={"sign_up": True})
    name = uuid4().hex
    invited = User.objects.create(username=name)
    key = signing.dumps({"email": f"{name}@example.org"}, salt=addresses.SIGN_UP, compress=True)
    welcome = reverse("welcome", args=[invited.pk], query={"key": people.links.make_token(invited)})
    return {
        "login": reverse("login"),
        "forgotten": reverse("forgotten"),
        "sign-up": reverse("sign-up"),
        "account": reverse("sign-up-confirmed", query={"key": key}),
        "account-ended": reverse("sign-up-confirmed", query={"key": "ended"}),
        "welcome": welcome,
        "welcome-ended": f"{welcome}ended",
    }


def faults(page: Page) -> list[str]:
    """Return violations of all rules in light colours, then of the rule of contrast in dark ones."""
    page.emulate_media(color_scheme="light")
    light = violations(page)
    page.emulate_media(color_scheme="dark")
    return light + [f"dark: {each}" for each in violations(page, rules=COLOURS)]


def too_wide(page: Page, size: ViewportSize) -> list[str]:
    page.set_viewport_size(ZOOMED)
    problems = [f"too wide at 400 %: {each}" for each in page.evaluate(TOO_WIDE, ZOOMED["width"])]
    page.set_viewport_size(size)
    return problems


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_breaks_a_rule_of_wcag(
    visit: OpenBrowser, product: Product, person: Person, settings: Settings, size: ViewportSize
) -> None:
    settings.EMAIL_URL = product.environment["EMAIL_URL"]  # without one nobody signs up by themselves
    opened = visit(viewport=size)
    opened.expected.append("404")  # the page that is not there is one of them
    page = opened.page
    by_page = {}

    def look(name: str, path: str) -> None:
        page.goto(product.url + path)
        if name == "summary":
            page.locator("details.summary > summary").click()
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        by_page[name] = faults(page) + too_wide(page, size)

    for name, path in in_thread(outside).items():
        look(name, path)
    in_thread(lambda: workspace.change_settings(user=None, fields={"sign_up": False}))
    opened.sign_in()
    for name, path in furnished(product, person).items():
        look(name, path)
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(password_once=True))
    look("held-up", "/")
    assert {name: each for name, each in by_page.items() if each} == {}


def test_what_opens_on_a_page_breaks_no_rule_either(page: Page, product: Product, person: Person) -> None:
    ask(page, "Which clause?", text="Clause 7.\n\n```python\nprint(7)\n```")
    expect_complete(page)
    page.locator(".context-link").last.click()
    expect(page.locator("#panel-title")).to_be_visible()
    assert violations(page) == []
    page.locator("[data-close-panel]").click()
    page.locator("header.head .menu-opener").last.click()
    expect(page.locator("#menu")).to_be_visible()  # it is fetched, and opens over whatever has the focus by then
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("#menu")).to_be_hidden()
    question = page.locator("article.question").first
    options = question.get_by_role("link", name="Options of this message")
    marks = {"Always send this to the model": "Always sent", "Never send this to the model": "Left out"}
    for name, state in marks.items():
        options.press("Enter")
        menu = page.locator("#message-menu")
        expect(menu.get_by_role("button").first).to_be_focused()
        assert violations(page) == []
        menu.get_by_role("button", name=name).press("Enter")
        expect(question).to_contain_text(state)
        assert faults(page) == []
        question.get_by_role("button", name="Undo").press("Enter")
        expect(question).not_to_contain_text(state)
    page.locator("#attach").click()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.locator(".who-opener").click()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option").first).to_be_visible()
    assert faults(page) == []


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


def test_the_first_tab_leads_past_the_side(page: Page, product: Product) -> None:
    page.goto(product.url + "/settings/")
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()


def test_a_status_line_says_what_happens_and_the_transcript_is_no_live_region(page: Page) -> None:
    ask(page, "Hello", text="Hello!")
    expect_complete(page)
    expect(status(page)).to_have_text("Answer complete, 1 word.")
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
