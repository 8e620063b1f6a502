"""Whole ways through what is done with conversations: listed, found, taken out and brought in, each in four looks."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Locator, expect

from tests.chat.exports import as_json, as_zip, branched, claude
from tests.e2e.conftest import Look, OpenBrowser, answer, field, ready
from tests.product import Caller

pytestmark = [pytest.mark.browser, pytest.mark.product]

LONG = "\n\n".join(f"Line {line}." for line in range(40))


def talk(caller: Caller, title: str, *questions: str, text: str = "Well.") -> str:
    """A conversation of this title, answered with `text` each time; its id."""
    place = caller.conversation()
    for question in questions:
        caller.ended(caller.ask(question, {"text": text}, place)["id"])
    caller.http.patch(f"conversations/{place}/", json={"title": title}).raise_for_status()
    return place


def options(look: Look, title: str) -> Locator:
    """The menu of a conversation in the list."""
    row = look.side().locator("#side-list li").filter(has_text=title)
    if not look.phone:
        row.hover()
    look.press(row.get_by_role("link", name=f"Options: {title}"))
    menu = look.page.locator("#organise")
    expect(menu.get_by_label("Title")).to_be_focused()
    expect(menu).to_be_in_viewport(ratio=1)
    return menu


def test_conversations_are_named_put_away_deleted_brought_back_and_found(look: Look) -> None:
    page, caller = look.page, look.visit.person.caller
    talk(caller, "Pears", "pears")
    talk(caller, "Plums", "plums")
    apples = talk(caller, "Apples", "Hợp đồng thuê nhà", "more", "and more", text=LONG)
    look.go(f"/c/{apples}/")
    ready(page)
    titles = page.locator("#side-list")
    expect(titles).to_be_visible(visible=not look.phone)

    menu = options(look, "Apples")
    look.check(menu)
    menu.get_by_label("Title").fill("Fruit & more")
    look.press(menu.get_by_role("button", name="Rename"))
    expect(titles).to_contain_text("Fruit & more")
    expect(page.get_by_role("heading", name="Fruit & more")).to_be_attached()
    look.press(options(look, "Pears").get_by_role("button", name="Archive", exact=True))
    expect(titles).not_to_contain_text("Pears")
    look.press(look.side().get_by_role("link", name="Archived"))
    expect(titles).to_contain_text("Pears")
    look.press(look.side().get_by_role("link", name="By time"))
    expect(titles).to_contain_text("Plums")

    look.press(options(look, "Plums").get_by_role("button", name="Delete", exact=True))
    expect(titles).not_to_contain_text("Plums")
    toast = page.get_by_role("status").filter(has_text="was deleted")
    look.check(toast, page.locator("#side"))
    look.press(toast.get_by_role("button", name="Undo"))
    expect(titles).to_contain_text("Plums")

    look.press(look.side().get_by_role("link", name="Search…"))
    palette = page.get_by_role("dialog", name="Search and commands")
    palette.get_by_label("Search everything").fill("hop dong")
    look.check(palette)
    look.press(palette.get_by_role("option", name="All that was found"))
    hit = page.locator(".found-messages a").last
    expect(hit.locator("mark").first).to_have_text("Hợp")
    look.check(hit)
    look.press(hit)
    found = page.locator("article.question:target")
    expect(found).to_contain_text("Hợp đồng")
    expect(found).to_be_in_viewport()
    look.check(found)


def test_a_conversation_is_shared_by_a_link_until_that_ends(look: Look, visit: OpenBrowser) -> None:
    page = look.page
    place = talk(look.visit.person.caller, "The fee", "Which clause?", text="**Clause 7** and `more`.")
    look.go(f"/c/{place}/")
    ready(page)
    look.press(page.get_by_role("link", name="Options of this conversation"))
    look.check(page.locator("#menu"))
    look.press(page.locator("#menu").get_by_role("link", name="Share by link…"))
    dialog = page.get_by_role("dialog", name="Share by link")
    look.check(dialog.get_by_label("Password"))
    look.press(dialog.get_by_label("Show what the model saw"))
    look.press(dialog.get_by_role("button", name="Make a link"))
    link = dialog.get_by_label("Link", exact=True)
    look.check(link)
    look.press(dialog.get_by_role("button", name="Copy"))
    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    address = link.input_value()
    assert page.evaluate("navigator.clipboard.readText()") == address

    opened = visit(**look.options)
    stranger = Look(opened, opened.page, look.options)
    stranger.page.goto(address)
    expect(answer(stranger.page).locator("strong")).to_have_text("Clause 7")
    expect(field(stranger.page)).to_have_count(0)
    stranger.press(stranger.page.get_by_text("What the model saw"))
    expect(stranger.page.get_by_role("row", name="Instructions")).to_be_visible()
    stranger.check(answer(stranger.page), stranger.page.locator(".bubble"))
    look.press(dialog.get_by_role("button", name="End this link"))
    expect(page.get_by_text("No link leads here.")).to_be_visible()
    stranger.visit.expected.append("404 (Not Found)")
    stranger.page.reload()
    expect(stranger.page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    stranger.check()


def test_conversations_are_taken_out_and_brought_in(look: Look) -> None:
    page = look.page
    place = talk(look.visit.person.caller, "The fee", "Which clause?", text="**Clause 7**.")
    look.go(f"/c/{place}/")
    ready(page)
    look.press(page.get_by_role("link", name="Options of this conversation"))
    for name, begins in (("Export as Markdown", "# The fee"), ("Export as JSON", "{")):
        with page.expect_download() as download:
            look.press(page.locator("#menu").get_by_role("link", name=name))
        content = Path(download.value.path()).read_text()
        assert content.startswith(begins) and "**Clause 7**." in content
    assert json.loads(content)
    page.keyboard.press("Escape")

    look.press(look.side().get_by_role("link", name="Settings"))
    tab = page.get_by_role("navigation", name="Settings").get_by_role("link", name="Import and export")
    look.press(tab)
    chatgpt = FilePayload(name="chatgpt.zip", mimeType="application/zip", buffer=as_zip(as_json(branched())))
    other = FilePayload(name="conversations.json", mimeType="application/json", buffer=as_json(claude()))
    exports = {"From elsewhere": chatgpt, "With Claude": other}
    for title, export in exports.items():
        expect(tab).to_have_attribute("aria-current", "page")
        page.get_by_label("Export", exact=True).set_input_files(export)
        look.press(page.get_by_role("button", name="Import", exact=True))
        expect(page.get_by_text("Imported: 1. Here already: 0. Skipped: 0.")).to_be_visible()
        look.check()
        brought = page.locator("main").get_by_role("link", name=title)
        if title == "From elsewhere":
            look.press(tab)
    look.press(brought)
    expect(answer(page, 0)).to_contain_text("Found it.")
    look.check()
    expect(look.side().locator("#side-list")).to_contain_text("From elsewhere")
