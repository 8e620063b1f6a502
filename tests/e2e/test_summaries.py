"""The summary of a long conversation on its page."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, Route, expect

from tests.chat.conversations import past
from tests.chat.growing import FILLER, small, writer
from tests.conftest import Person
from tests.e2e.conftest import PHONE, OpenBrowser, ask, expect_complete, field, in_thread, ready, status
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]

GOOD = "## Earlier\nThey counted words for a while.\n\n## Now\nAda wants to know which clause limits the fee."


def grown(product: Product, person: Person, name: str, script: dict[str, Any]) -> str:
    """The address of a conversation that the next answer makes too long."""

    def make() -> str:
        persona = small(person, window=6_000, summary_model=writer(product, name, script))
        return f"/c/{past(person.user, 6, words=60, persona=persona).pk}/"

    return in_thread(make)


def opened(page: Page, product: Product, path: str) -> None:
    page.goto(product.url + path)
    ready(page)


def test_a_summary_is_shown_where_it_ends_and_can_be_edited_and_undone(
    page: Page, product: Product, person: Person
) -> None:
    opened(page, product, grown(product, person, uuid4().hex, {"text": GOOD, "ttft": 2.0}))
    ask(page, f"Which clause? {FILLER}", text="Clause 7.")
    expect(status(page)).to_have_text("Summarising earlier messages…")
    field(page).fill("Written meanwhile.")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    divider = page.locator("details.summary")
    expect(divider).to_contain_text("messages above as a summary")
    expect(field(page)).to_have_value("Written meanwhile.")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    divider.locator("summary").click()
    expect(divider).to_contain_text("Ada wants to know which clause limits the fee.")
    expect(page.locator(".plan-line")).to_contain_text("old messages summarised")
    divider.get_by_role("link", name="Edit").click()
    page.get_by_label("Now").fill("Ada wants clause 7.")
    page.get_by_role("button", name="Save").click()
    page.locator("details.summary summary").click()
    expect(page.locator("details.summary")).to_contain_text("Ada wants clause 7.")
    page.get_by_role("button", name="Undo").click()
    page.locator("details.summary summary").click()
    expect(page.locator("details.summary")).to_contain_text("Ada wants to know")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("details.summary")).to_have_count(0)
    expect(field(page)).to_have_value("Written meanwhile.")


def test_a_failed_summary_says_so_and_is_tried_again(page: Page, product: Product, person: Person) -> None:
    name = uuid4().hex
    opened(page, product, grown(product, person, name, {"text": "I'm sorry, I cannot do that."}))
    ask(page, f"Which clause? {FILLER}", text="Clause 7.")
    expect_complete(page)
    notice = page.locator(".summary-failed")
    expect(notice).to_contain_text("It was an apology or an error, not a summary. Nothing is lost.")
    product.model.set_script(name, {"text": GOOD})
    notice.get_by_role("button", name="Try again").click()
    expect(page.locator("details.summary")).to_be_visible()
    expect(notice).to_have_count(0)


def test_a_summary_that_fails_before_the_page_hears_of_its_own_message_says_so_too(
    page: Page, product: Product, person: Person
) -> None:
    frames: list[str] = []
    page.on("websocket", lambda opened: opened.on("framereceived", lambda frame: frames.append(str(frame))))
    opened(page, product, grown(product, person, uuid4().hex, {"text": "I'm sorry, I cannot do that."}))
    routes: list[Route] = []
    page.route("**/c/*/turns/", lambda route: routes.append(route))
    ask(page, f"Which clause? {FILLER}", text="Clause 7.")
    while not routes:
        page.wait_for_timeout(20)
    response = routes[0].fetch()
    while not any('"summary"' in frame for frame in frames):
        page.wait_for_timeout(20)
    routes[0].fulfill(response=response)
    expect(page.locator(".summary-failed")).to_contain_text("Nothing is lost.")
    expect(page.locator("article.answer")).to_have_count(5)  # those of the page, and its own


def test_the_context_panel_says_what_the_summary_stands_for_on_a_phone(
    visit: OpenBrowser, product: Product, person: Person, tmp_path: Path
) -> None:
    page = visit(viewport=PHONE, has_touch=True, is_mobile=True, color_scheme="dark").sign_in()
    opened(page, product, grown(product, person, uuid4().hex, {"text": GOOD}))
    page.get_by_role("link", name="Options of this conversation").click()
    page.get_by_role("button", name="Summarise now").click()
    expect(page.locator("details.summary")).to_be_visible()
    ready(page)
    ask(page, "And now?", text="Now this.")
    expect_complete(page)
    page.locator(".context-link").last.click()
    expect(page.locator("#panel")).to_contain_text("old messages summarised")


def test_a_day_shows_its_messages_and_summaries(page: Page, product: Product, person: Person) -> None:
    opened(page, product, grown(product, person, uuid4().hex, {"text": GOOD}))
    ask(page, f"Which clause? {FILLER}", text="Clause 7.")
    expect(page.locator("details.summary")).to_be_visible()
    page.goto(product.url + "/daily/")
    expect(page.locator(".day-messages")).to_contain_text("Clause 7.")
    page.locator("details.summary-body summary").click()
    expect(page.locator("details.summary-body")).to_contain_text("They counted words")
    with page.expect_download() as download:
        page.get_by_role("link", name="Daily_chat.json").click()
    assert "Clause 7." in Path(download.value.path()).read_text()
