"""Marks in the browser: set in the transcript and the panel, seen at once, also in another tab."""

import os
import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import ask, expect_complete
from tests.e2e.conversation_steps import act

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_a_turn_is_left_out_with_a_click_and_comes_back_with_another(page: Page) -> None:
    for text in ("First", "Second"):
        ask(page, f"{text} question", text=f"{text} answer.")
        expect_complete(page)
    first = page.locator("article.question").first
    with page.context.new_page() as other:
        other.goto(page.url)
        expect(other.locator("article.question")).to_have_count(2)
        act(first, "Never send this to the model")
        expect(page.locator("#message-menu")).to_be_hidden()
        expect(first).to_contain_text("Left out")
        expect(other.locator("article.question").first).to_contain_text("Left out")
    page.locator(".plan-line").click()
    panel = page.get_by_role("complementary").filter(has=page.locator("#panel-title"))
    expect(panel).to_contain_text("you have left it out")
    if shot := os.environ.get("SHOT"):
        page.screenshot(path=shot)
    first.get_by_role("button", name="Undo").click()
    expect(first).not_to_contain_text("Left out")
    expect(panel).not_to_contain_text("you have left it out")
    panel.get_by_role("button", name=re.compile("^Pin ?: First question")).click()
    expect(first).to_contain_text("Always sent")
    expect(panel.get_by_role("button", name="Unpin")).to_have_count(2)
