"""The plan and the report on the page of a conversation."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import OpenBrowser, ask, expect_complete, field

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_the_plan_follows_what_is_written(page: Page) -> None:
    line = page.locator(".plan-line")
    expect(line).to_contain_text("Everything you gave fits")
    edge = page.locator("#plan-bar .group-current")
    before = edge.get_attribute("width") or ""
    field(page).fill("some more words " * 4_000)
    expect(edge).not_to_have_attribute("width", before)
    expect(line).to_contain_text("Everything you gave fits")


def test_a_draft_that_does_not_fit_cannot_be_sent_and_says_why(page: Page) -> None:
    field(page).fill("word " * 130_000)
    line = page.locator(".plan-line")
    expect(line).to_contain_text("shorten the message, or choose a model that can read more")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    field(page).fill("word")
    expect(line).to_contain_text("Everything you gave fits")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_the_plan_opens_into_what_will_be_sent(page: Page) -> None:
    field(page).fill("A draft to look at")
    page.locator(".plan-line").click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model will see")).to_be_focused()
    expect(panel.locator(".glass-card").last).to_contain_text("A draft to look at")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


@pytest.mark.smoke
def test_an_answer_shows_what_its_model_saw(page: Page) -> None:
    ask(page, "First question", text="First answer.")
    expect_complete(page)
    ask(page, "Second question", text="Second answer.")
    expect_complete(page)
    expect(page.locator(".context-link")).to_have_count(2)
    page.locator(".context-link").last.click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model saw")).to_be_visible()
    expect(panel.locator(".glass-card").first).to_contain_text(re.compile(r"Instructions of the workspace\s+\d+"))
    expect(panel).to_contain_text("First answer.")
    panel.get_by_text("For the curious").click()
    expect(panel).to_contain_text(re.compile(r"version \d+"))
    panel.get_by_text("Show the prompt").click()
    expect(panel.locator("pre").first).to_contain_text("You are being tested.")
    panel.get_by_text("Changed since the turn before").click()
    expect(panel).to_contain_text("new")
    panel.get_by_role("button", name="Close the panel").click()
    expect(panel).to_be_hidden()
    expect(page.locator(".context-link").last).to_be_focused()


def test_the_context_can_be_read_without_scripts(visit: OpenBrowser, page: Page) -> None:
    ask(page, "Without scripts", text="An answer.")
    expect_complete(page)
    plain = visit(java_script_enabled=False)
    plain.sign_in()
    plain.page.get_by_role("link", name="Without scripts").first.click()
    plain.page.locator(".context-link").click()
    expect(plain.page.get_by_role("heading", name="What the model saw")).to_be_visible()
    expect(plain.page.locator(".glass-card").first).to_contain_text("Instructions")


def test_the_panel_is_a_sheet_on_a_phone(phone: Page) -> None:
    ask(phone, "On the phone", text="A short answer.")
    expect_complete(phone)
    phone.locator(".context-link").click()
    panel = phone.locator("#panel")
    expect(panel).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    panel.get_by_role("button", name="Close the panel").click()
    expect(panel).to_be_hidden()
