"""The settings pages in a real browser, on a desk and on a phone."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, field
from tests.e2e.settings_steps import settings_link
from tests.product import Caller

pytestmark = [pytest.mark.browser, pytest.mark.product]

NEW_PASSWORD = "an even longer staple"


def settings(page: Page, tab: str = "Preferences") -> None:
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_role("navigation", name="Settings")).to_be_visible()
    settings_link(page, tab).click()
    expect(settings_link(page, tab)).to_have_attribute("aria-current", "page")


def save(page: Page) -> None:
    with page.expect_navigation():  # the page before may say so, too
        page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_colours_follow_the_system_until_some_are_chosen(visit: OpenBrowser) -> None:
    page = visit(color_scheme="light").sign_in()
    settings(page)
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    page.get_by_label("Light").check()
    save(page)
    assert background(page) == light
    page.get_by_label("Dark").check()
    save(page)
    page.emulate_media(color_scheme="light")
    assert background(page) == dark
    page.get_by_role("link", name="New conversation").click()
    expect(field(page)).to_be_visible()
    assert background(page) == dark
    settings(page)
    page.get_by_label("As the system").check()
    save(page)
    expect(page.locator("html")).not_to_have_attribute("data-theme", re.compile("."))
    assert background(page) == light


def test_the_browsers_time_zone_is_taken_at_the_first_sign_in(visit: OpenBrowser) -> None:
    browser = visit(timezone_id="Asia/Saigon")
    with browser.page.expect_response("**/settings/time-zone/") as answer:
        page = browser.sign_in()
    assert answer.value.status == 204
    settings(page)
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Ho_Chi_Minh")
    expect(page.get_by_text("It was taken from your browser")).to_be_visible()
    expect(page.locator("#use-zone")).to_be_hidden()


def test_the_browsers_time_zone_is_offered(visit: OpenBrowser) -> None:
    page = visit(timezone_id="Europe/Paris").sign_in()
    settings(page)
    zone = page.get_by_label("Time zone")
    zone.fill("UTC")
    save(page)
    expect(zone).to_have_value("UTC")
    expect(page.locator("#zones option[value='Asia/Ho_Chi_Minh']")).to_have_count(1)
    page.get_by_role("button", name="Europe/Paris").click()
    expect(zone).to_have_value("Europe/Paris")
    save(page)
    expect(zone).to_have_value("Europe/Paris")
    expect(page.get_by_role("button", name="Europe/Paris")).to_have_count(0)


def test_the_language_of_the_page_is_the_chosen_one(page: Page) -> None:
    settings(page)
    page.get_by_label("Language").select_option("vi")
    page.locator("form.settings button[type=submit]").click()
    expect(page.locator("html")).to_have_attribute("lang", "vi")
    page.locator("#language").select_option("en")
    page.locator("form.settings button[type=submit]").click()
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_a_token_is_made_copied_used_and_revoked(visit: OpenBrowser) -> None:
    opened = visit(permissions=["clipboard-read", "clipboard-write"])
    page = opened.sign_in()
    settings(page, "API tokens")
    page.get_by_label("Name").fill("backup script")
    page.get_by_role("checkbox", name=re.compile("^files")).check()
    page.get_by_label("Your password").fill(opened.person.password)
    page.get_by_role("button", name="Make token").click()
    shown = page.locator(".new-token code")
    expect(page.get_by_role("status")).to_contain_text("shown this once")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    token = str(page.evaluate("navigator.clipboard.readText()"))
    expect(shown).to_have_text(token)
    program = Caller(opened.product, token)
    program.get("files/")
    program.get("projects/", expect=403)
    settings(page, "API tokens")
    expect(page.get_by_text(token)).to_have_count(0)
    row = page.get_by_role("listitem").filter(has_text="backup script")
    expect(row).to_contain_text("Last used")
    row.get_by_text("Revoke…").click()
    row.get_by_role("button", name="Revoke “backup script”").click()
    expect(page.get_by_text("Tokens that have ended")).to_be_visible()
    program.get("files/", expect=401)


def test_a_form_that_is_refused_says_why_beside_the_field(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected += ["status of 422"]
    page = opened.sign_in()
    settings(page, "API tokens")
    page.get_by_label("Name").fill("nothing allowed")
    page.get_by_label("Your password").fill(opened.person.password)
    page.get_by_role("button", name="Make token").click()
    expect(page.get_by_role("alert")).to_have_text("Choose at least one scope.")
    expect(page.get_by_label("Name")).to_have_value("nothing allowed")


def test_another_browser_is_signed_out(visit: OpenBrowser) -> None:
    desk, phone = visit(), visit(user_agent="Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Version/18.0 Safari/604.1")
    phone.expected.append("401 (Unauthorized)")
    page, other = desk.sign_in(), phone.sign_in()
    form = phone.tab("/personas/new/")
    form.get_by_label("Instructions", exact=False).first.fill("Long thought of")
    settings(other)
    settings(page, "Sessions")
    expect(page.get_by_role("listitem").filter(has_text="this browser")).to_contain_text("Chrome on Linux")
    row = page.get_by_role("listitem").filter(has_text="Safari on iPhone")
    row.get_by_role("button", name="Sign out").click()
    expect(row).to_have_count(0)
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(form.get_by_role("alert")).to_contain_text("You were signed out. Your text is kept here")
    expect(form.get_by_label("Instructions", exact=False).first).to_have_value("Long thought of")
    expect(page.locator(".entries").get_by_role("listitem")).to_have_count(1)


def test_the_password_is_changed(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    settings(page, "Password")
    page.get_by_label("Current password").fill(opened.person.password)
    page.get_by_label("New password", exact=True).fill(NEW_PASSWORD)
    page.get_by_label("New password again").fill(NEW_PASSWORD)
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("status")).to_contain_text("Your password is changed")
    page.locator(".side").get_by_role("button", name="Sign out").click()
    opened.person.password = NEW_PASSWORD
    opened.enter()


def test_settings_work_without_scripts(visit: OpenBrowser) -> None:
    page = visit(java_script_enabled=False).sign_in()
    settings(page)
    page.get_by_label("Time zone").fill("Asia/Ho_Chi_Minh")
    page.get_by_label("Dark").check()
    save(page)
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Ho_Chi_Minh")
    expect(page.get_by_role("button", name="Take this browser's")).to_have_count(0)


def test_settings_fit_on_a_phone(phone: Page, person: Person) -> None:
    for tab in ("Preferences", "Password", "API tokens", "Sessions"):
        phone.get_by_role("button", name=re.compile("Conversations|Menu")).first.click()
        settings(phone, tab)
        assert overflow(phone) == 0, tab
    settings_link(phone, "API tokens").click()
    phone.get_by_label("Name").fill("a-name-without-any-place-to-break-it" * 2)
    phone.get_by_role("checkbox", name=re.compile("^chat")).check()
    phone.get_by_label("Your password").fill(person.password)
    phone.get_by_role("button", name="Make token").click()
    expect(phone.locator(".new-token code")).to_be_visible()
    assert overflow(phone) == 0
    small = phone.evaluate(
        "[...document.querySelectorAll('.page button, .page select, .page input')]"
        ".filter(each => each.offsetParent && each.getBoundingClientRect().height < 24 && !each.closest('label'))"
        ".map(each => each.outerHTML)"
    )
    assert not small, json.dumps(small)
