"""The first steps of a new person."""

from urllib.parse import urljoin

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import answer, ask, expect_complete, field

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_an_empty_home_page_offers_places_to_begin_at_until_somebody_has_begun(page: Page) -> None:
    steps = page.get_by_role("list", name="To begin with")
    expect(steps.get_by_role("link")).to_have_text(["Add files to a project", "Make a persona"])
    expect(steps.get_by_role("button")).to_have_text(["Open a sample project"])
    page.get_by_role("link", name="Explain in three sentences").click()
    expect(field(page)).to_have_value("Explain in three sentences what a language model can do, and what it cannot.")
    expect(field(page)).to_be_focused()
    steps.get_by_role("link", name="Make a persona").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("New persona")
    page.go_back()
    ask(page, "Hello", text="Good day.")
    expect(steps).to_be_hidden()
    expect_complete(page)
    expect(answer(page)).to_contain_text("Good day.")
    page.goto(urljoin(page.url, "/"))
    expect(field(page)).to_be_visible()
    expect(steps).to_have_count(0)
