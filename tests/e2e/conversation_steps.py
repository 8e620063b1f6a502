"""Steps of a person in conversations."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import ask, expect_complete, ready


def waiting(page: Page) -> Locator:
    return page.get_by_role("region", name="Your next message")


def talk(page: Page, text: str) -> None:
    """Begin a conversation and wait for its answer."""
    page.goto(re.sub(r"(//[^/]+)/.*", r"\1/", page.url))
    ready(page)
    ask(page, text, text=f"About {text}.")
    expect_complete(page)


def options(page: Page, title: str) -> None:
    row = page.locator("#side-list li").filter(has_text=title)
    row.hover()
    row.get_by_role("link", name="Options:").click()
    expect(page.locator("#organise")).to_be_visible()


def model_to_answer_again(menu: Locator, name: str) -> Locator:
    """Return a model's button in the menu of an answer. All models are shown first, if there are many."""
    model, every = menu.get_by_role("button", name=name), menu.get_by_role("button", name=re.compile("^Show all"))
    expect(model.or_(every).first).to_be_visible()
    if not model.count():
        every.click()
    return model


def act(message: Locator, name: str) -> None:
    """Do an act of a message's menu. Without scripts the menu is a page of its own."""
    message.get_by_role("link", name="Options of this message").click()
    page = message.page
    page.get_by_role("button", name=name).or_(page.get_by_role("link", name=name)).click()
