"""A person chooses files that are there already for a message, in a browser."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, ask, expect_complete, field
from tests.e2e.file_steps import attach, chip, go_to, overflow, row, send_button, text_file
from tests.e2e.project_steps import make, search
from tests.projects.uploads import searchable, uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]


def open_picker(page: Page) -> Locator:
    page.get_by_role("button", name="Attach files").click()
    page.get_by_role("button", name="From your files…").click()
    sheet = page.get_by_role("dialog", name="Choose from your files")
    expect(sheet.get_by_label("Search your files")).to_be_focused()
    return sheet


def choice(sheet: Locator, name: str) -> Locator:
    return sheet.locator("li").filter(has=sheet.page.locator(".pick-name", has_text=name))


def choose(sheet: Locator, name: str) -> None:
    choice(sheet, name).get_by_role("button", name="Choose", exact=True).click()
    expect(choice(sheet, name).get_by_role("button", name="Chosen")).to_be_disabled()


def test_a_file_that_is_there_already_is_chosen_and_sent(page: Page, person: Person) -> None:
    uploaded(person.caller, "lake.txt", "The lake holds water.")
    uploaded(person.caller, "hill.txt", "The hill holds stones.")
    sheet = open_picker(page)
    expect(sheet.locator(".pick-name")).to_have_text(["hill.txt", "lake.txt"])
    expect(choice(sheet, "lake.txt")).to_contain_text(re.compile(r"5 tokens\s+Ready"))
    choose(sheet, "lake.txt")
    expect(sheet.get_by_label("Search your files")).to_be_focused()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(page.get_by_role("button", name="Attach files")).to_be_focused()
    expect(page.locator("#chips .chip")).to_have_count(1)
    ask(page, "What does it hold?", text="Water.")
    expect_complete(page)
    expect(page.locator("article.question")).to_contain_text("lake.txt")
    expect(page.locator("#chips .chip")).to_have_count(0)
    choose(open_picker(page), "hill.txt")
    expect(chip(page, "hill.txt")).to_have_attribute("data-status", "ready")


def test_files_are_found_by_name_first_and_then_by_their_words(page: Page, person: Person) -> None:
    searchable(person.caller, "notes.txt", "Long ago a harbour stood here.")
    searchable(person.caller, "harbour.txt", "Boats come and go.")
    sheet = open_picker(page)
    sheet.get_by_label("Search your files").fill("harbour")
    expect(sheet.locator(".pick-name")).to_have_text(["harbour.txt", "notes.txt"])
    expect(choice(sheet, "notes.txt").locator(".passage mark")).to_have_text("harbour")
    page.keyboard.press("Enter")  # searches, and sends nothing
    choose(sheet, "notes.txt")
    page.keyboard.press("Escape")
    expect(chip(page, "notes.txt")).to_have_attribute("data-status", "ready")
    expect(page).to_have_url(re.compile(r"/$"))


def test_a_file_that_would_cross_the_line_cannot_be_chosen_and_says_by_how_much(page: Page, person: Person) -> None:
    size = uploaded(person.caller, "most.txt", "word " * 40_000)["tokens"]
    uploaded(person.caller, "more.txt", "term " * 40_000)
    uploaded(person.caller, "all.txt", "word " * 80_000)
    uploaded(person.caller, "little.txt", "word")
    line = person.caller.get("max-selected-document-tokens/")["selectable_up_to"]
    assert size < line < 2 * size
    sheet = open_picker(page)
    expect(choice(sheet, "all.txt").get_by_role("button")).to_be_disabled()
    expect(choice(sheet, "more.txt").get_by_role("button")).to_be_enabled()
    choose(sheet, "most.txt")
    expect(choice(sheet, "more.txt").get_by_role("button")).to_be_disabled()
    expect(choice(sheet, "more.txt").locator(".why-not")).to_have_text(
        f"Too long by {-(-100 * (2 * size - line) // line):,} %"
    )
    expect(choice(sheet, "little.txt").get_by_role("button")).to_be_enabled()


def test_a_file_that_failed_cannot_be_chosen(page: Page, person: Person) -> None:
    uploaded(person.caller, "broken.pdf", b"%PDF-1.4 and nothing more")
    sheet = open_picker(page)
    expect(choice(sheet, "broken.pdf").get_by_role("button")).to_be_disabled()
    expect(choice(sheet, "broken.pdf").locator(".why-not")).to_have_text("It could not be read.")


def test_a_conversation_starts_with_a_file_of_the_list(page: Page, person: Person) -> None:
    uploaded(person.caller, "lake.txt", "The lake holds water.")
    go_to(page, "Files")
    row(page, "lake.txt").get_by_role("link", name="Ask about this").click()
    expect(page).to_have_url(re.compile(r"/\?file=[0-9a-f-]{36}$"))
    expect(chip(page, "lake.txt").locator("input[name=files]")).to_have_count(1)
    field(page).fill("What does it hold?")
    expect(send_button(page)).to_be_enabled()


def test_a_conversation_starts_with_a_file_that_a_project_s_search_found(page: Page, person: Person) -> None:
    make(page, "Waters")
    place = page.url.rstrip("/").rpartition("/")[2]
    file = searchable(person.caller, "lake.txt", "The lake holds water.")["id"]
    person.caller.post(f"projects/{place}/files/", {"file": file}, expect=201)
    search(page, "lake")
    page.locator("#results").get_by_role("link", name="Ask about this").click()
    expect(page).to_have_url(re.compile(rf"/projects/{place}/\?file={file}$"))
    expect(chip(page, "lake.txt")).to_have_count(1)
    expect(page.locator("#composer input[name=project]")).to_have_value(place)


def test_chips_survive_a_reload_and_are_forgotten_when_sent(page: Page) -> None:
    attach(page, text_file("a.txt", "some words"))
    expect(chip(page, "a.txt")).to_have_attribute("data-status", "ready")
    field(page).fill("A draft")
    page.reload()
    expect(chip(page, "a.txt").locator("input[name=files]")).to_have_count(1)
    expect(field(page)).to_have_value("A draft")
    ask(page, "What is it?", text="Words.")
    expect_complete(page)
    page.goto("/".join(page.url.split("/")[:3]) + "/")
    expect(page.get_by_role("button", name="Attach files")).to_be_visible()
    expect(page.locator("#chips .chip")).to_have_count(0)
    expect(field(page)).to_have_value("")


def test_a_chip_whose_file_is_gone_goes_too(visit: OpenBrowser, person: Person) -> None:
    opened = visit()
    page = opened.sign_in()
    opened.expected.append("404 (Not Found)")
    deleted = uploaded(person.caller, "gone.txt", "some words")["id"]
    uploaded(person.caller, "kept.txt", "other words")
    sheet = open_picker(page)
    choose(sheet, "gone.txt")
    choose(sheet, "kept.txt")
    person.caller.http.delete(f"files/{deleted}/").raise_for_status()
    page.reload()
    expect(page.locator("#chips .chip")).to_have_count(1)
    expect(chip(page, "kept.txt")).to_have_attribute("data-status", "ready")
    draft = page.evaluate("(name) => localStorage.getItem(name)", f"draft:{person.user.pk}/new:files")
    assert deleted not in draft


def test_the_menu_and_the_sheet_fit_on_a_phone(phone: Page, person: Person) -> None:
    uploaded(person.caller, "a-name-without-any-place-to-break-it" * 5 + ".txt", "some words " * 200)
    phone.get_by_role("button", name="Attach files").click()
    expect(phone.get_by_role("button", name="Upload…")).to_be_in_viewport(ratio=1)
    phone.keyboard.press("Escape")
    sheet = open_picker(phone)
    choose(sheet, "a-name")
    expect(choice(sheet, "a-name").get_by_role("button")).to_be_in_viewport(ratio=1)
    assert overflow(phone) == 0
