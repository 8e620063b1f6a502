"""A conversation is given to a colleague, who goes on in a copy."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import make_person
from tests.e2e.conftest import OpenBrowser, Visit, ask, expect_complete, in_thread
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_a_colleague_sees_what_is_shared_at_once_and_goes_on_in_a_copy(
    visit: OpenBrowser, browser: Browser, product: Product
) -> None:
    stranger = in_thread(lambda: make_person(product))
    page = visit().sign_in()
    ask(page, "What limits the fee?", text="Clause 7 limits it.")
    expect_complete(page)
    colleague = Visit(product, stranger, browser.new_context(service_workers="block"), scripts=True)
    other = colleague.sign_in()
    other.get_by_title("Shared with me").click()
    expect(other.get_by_text("Nobody shares a conversation with you yet.")).to_be_visible()
    page.locator("header .menu-opener").click()
    page.get_by_role("link", name="Share with people here…").click()
    dialog = page.get_by_role("dialog", name="Share with people here")
    expect(dialog.get_by_text("They read 2 messages")).to_be_visible()
    dialog.get_by_label("User name of a person").fill(stranger.username)
    dialog.get_by_label("They may go on in a copy").check()
    dialog.get_by_role("button", name="Share it").click()
    expect(dialog.get_by_role("button", name=re.compile("^Stop sharing"))).to_be_visible()
    other.locator("#received a").click()
    expect(other.locator("article.answer")).to_contain_text("Clause 7 limits it.")
    other.get_by_role("button", name="Go on in a copy").click()
    expect(other).to_have_url(re.compile(r"/c/[0-9a-f-]+/"))
    expect(other.locator("article.answer")).to_contain_text("Clause 7 limits it.")
    ask(other, "And the notice?", text="Three months.")
    expect_complete(other)
    dialog.get_by_role("button", name=re.compile("^Stop sharing")).click()
    expect(dialog.get_by_text("Shared with nobody here.")).to_be_visible()
    other.goto(product.url + "/shared-with-me/")
    expect(other.get_by_text("Nobody shares a conversation with you yet.")).to_be_visible()
    colleague.context.close()
    assert not colleague.complaints
