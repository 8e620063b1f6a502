"""Menus, search, links and exports of conversations on a desktop and on a phone, also by keys alone.

The tests of one thing at a time (`test_side.py`, `test_side_live.py`) hold what the controls do.
"""

import json
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Locator, expect

from tests.chat.exports import as_json, as_zip, branched
from tests.e2e.axe_steps import violations
from tests.e2e.conftest import OpenBrowser, Screen, Visit, answer, ready
from tests.e2e.key_steps import FOCUSED, Keys
from tests.product import Caller

pytestmark = [pytest.mark.browser, pytest.mark.product]

LONG = "\n\n".join(f"Line {line}." for line in range(40))


def talk(caller: Caller, title: str, *questions: str, text: str = "Well.") -> str:
    """Return the id of a new conversation with this title and with these questions, each answered with `text`."""
    place = caller.conversation()
    for question in questions:
        caller.ended(caller.ask(question, {"text": text}, place)["id"])
    caller.http.patch(f"conversations/{place}/", json={"title": title}).raise_for_status()
    return place


def options(screen: Screen, title: str) -> Locator:
    """Open the menu of a conversation in the list and return it."""
    row = screen.side().locator("#side-list li").filter(has_text=title)
    if not screen.phone:
        row.hover()
    screen.press(row.get_by_role("link", name=f"Options: {title}"))
    menu = screen.page.locator("#organise")
    expect(menu.get_by_label("Title")).to_be_focused()
    expect(menu).to_be_in_viewport(ratio=1)
    return menu


def test_the_menus_of_a_conversation_and_the_search_fit(screen: Screen) -> None:
    page, caller = screen.page, screen.visit.person.caller
    caller.post("conversations/", {"title": "Plums"}, expect=201)
    apples = talk(caller, "Apples", "Hợp đồng thuê nhà", "more", text=LONG)
    screen.go(f"/c/{apples}/")
    ready(page)
    titles = page.locator("#side-list")
    expect(titles).to_be_visible(visible=not screen.phone)
    menu = options(screen, "Apples")
    screen.check(menu)
    menu.get_by_label("Title").fill("Fruit & more")
    screen.press(menu.get_by_role("button", name="Rename"))
    expect(page.get_by_role("heading", name="Fruit & more")).to_be_attached()
    screen.press(screen.side().get_by_role("link", name="Archived"))
    expect(titles).not_to_contain_text("Plums")
    screen.press(screen.side().get_by_role("link", name="By time"))
    screen.press(options(screen, "Plums").get_by_role("button", name="Delete", exact=True))
    toast = page.get_by_role("status").filter(has_text="was deleted")
    screen.check(toast, page.locator("#side"))
    screen.press(toast.get_by_role("button", name="Undo"))
    expect(titles).to_contain_text("Plums")

    screen.press(screen.side().get_by_role("link", name="Search…"))
    palette = page.get_by_role("dialog", name="Search and commands")
    palette.get_by_label("Search everything").fill("hop dong")
    screen.check(palette)
    screen.press(palette.get_by_role("option", name="All that was found"))
    hit = page.locator(".found-messages a").last
    expect(hit.locator("mark").first).to_have_text("Hợp")
    screen.check(hit)
    screen.press(hit)
    target = page.locator("article.question:target")
    expect(target).to_contain_text("Hợp đồng")
    expect(target).to_be_in_viewport()
    screen.check(target)


def test_a_conversation_is_shared_taken_out_and_another_one_brought_in(screen: Screen, visit: OpenBrowser) -> None:
    page = screen.page
    place = talk(screen.visit.person.caller, "The fee", "Which clause?", text="**Clause 7** and `more`.")
    screen.go(f"/c/{place}/")
    ready(page)
    screen.press(page.get_by_role("link", name="Options of this conversation"))
    screen.check(page.locator("#menu"))
    for name, begins in (("Export as Markdown", "# The fee"), ("Export as JSON", "{")):
        with page.expect_download() as download:
            screen.press(page.locator("#menu").get_by_role("link", name=name))
        content = Path(download.value.path()).read_text()
        assert content.startswith(begins) and "**Clause 7**" in content
    assert json.loads(content)
    screen.press(page.locator("#menu").get_by_role("link", name="Share by link…"))
    dialog = page.get_by_role("dialog", name="Share by link")
    screen.check(dialog.get_by_label("Password"))
    screen.press(dialog.get_by_label("Show what the model saw"))
    screen.press(dialog.get_by_role("button", name="Make a link"))
    link = dialog.get_by_label("Link", exact=True)
    screen.check(link)
    screen.press(dialog.get_by_role("button", name="Copy"))
    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    address = link.input_value()
    assert page.evaluate("navigator.clipboard.readText()") == address
    seen_by_a_stranger(screen, visit(**screen.options), address)
    page.keyboard.press("Escape")
    import_a_conversation(screen)


def seen_by_a_stranger(screen: Screen, opened: Visit, address: str) -> None:
    """The page of a link, and of one that leads nowhere any more."""
    stranger = Screen(opened, opened.page, screen.options)
    stranger.page.goto(address)
    expect(answer(stranger.page).locator("strong")).to_have_text("Clause 7")
    stranger.press(stranger.page.get_by_text("What the model saw"))
    expect(stranger.page.get_by_role("row", name="Instructions")).to_be_visible()
    stranger.check(answer(stranger.page), stranger.page.locator(".bubble"))
    screen.press(screen.page.get_by_role("button", name="End this link"))
    expect(screen.page.get_by_text("No link leads here.")).to_be_visible()
    opened.expected.append("404 (Not Found)")
    stranger.page.reload()
    expect(stranger.page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    stranger.check()


def import_a_conversation(screen: Screen) -> None:
    page = screen.page
    screen.press(screen.side().get_by_role("link", name="Settings"))
    screen.press(page.get_by_role("navigation", name="Settings").get_by_role("link", name="Import and export"))
    export = FilePayload(name="chatgpt.zip", mimeType="application/zip", buffer=as_zip(as_json(branched())))
    page.get_by_label("Export", exact=True).set_input_files(export)
    screen.press(page.get_by_role("button", name="Import", exact=True))
    expect(page.get_by_text("Imported: 1. Here already: 0. Skipped: 0.")).to_be_visible()
    screen.check()
    screen.press(page.locator("main").get_by_role("link", name="From elsewhere"))
    expect(answer(page, 0)).to_be_visible()
    screen.check()
    expect(screen.side().locator("#side-list")).to_contain_text("From elsewhere")


def test_conversations_are_organised_by_keys_alone(screen: Screen) -> None:
    page, keys, caller = screen.page, Keys(screen.page), screen.visit.person.caller
    caller.post("conversations/", {"title": "Pears"}, expect=201)
    apples = talk(caller, "Apples", "apples")
    screen.go(f"/c/{apples}/")
    ready(page)
    titles, title = page.locator("#side-list"), page.locator("#organise").get_by_label("Title")
    row = titles.locator("li").filter(has_text="Pears").get_by_role("link", name="Options:")
    if screen.phone:
        keys.open("Conversations")
    keys.open("Options: Pears")
    expect(title).to_be_focused()
    keys.press("Escape")
    expect(row).to_be_focused()
    keys.press("Enter")
    expect(title).to_be_focused()
    keys.press("Control+a")
    keys.write("Ripe Pears")
    keys.press("Enter")
    expect(titles).to_contain_text("Ripe Pears")
    expect(row).to_be_focused()
    for action, then in (("Pin to the top", row), ("Delete", page.get_by_role("button", name="Undo"))):
        keys.press("Enter")
        expect(title).to_be_focused()
        keys.open(action)
        expect(then).to_be_focused()
    expect(titles).not_to_contain_text("Pears")
    assert violations(page) == []
    keys.press("Enter")
    expect(titles).to_contain_text("Ripe Pears")
    expect(titles.locator("a:focus")).to_have_count(1)
    keys.open("Choose several", back=True)
    expect(page.locator("[data-choose-all]")).to_be_focused()
    keys.press("Escape")
    expect(page.locator("#side-choose")).to_be_focused()
    shared_and_found_by_keys(screen, keys)


def shared_and_found_by_keys(screen: Screen, keys: Keys) -> None:
    page = screen.page
    if screen.phone:
        keys.press("Escape")
        expect(page.locator("#side")).to_be_hidden()
    keys.open("Options of this conversation")
    expect(page.locator("#menu").get_by_label("Title")).to_be_focused()
    keys.open("Share by link…")
    dialog = page.get_by_role("dialog", name="Share by link")
    expect(dialog.get_by_label("The link ends")).to_be_focused()
    keys.press("ArrowDown")
    keys.to("Password")
    keys.write("open sesame")
    keys.open("Make a link")
    expect(dialog.get_by_label("Link", exact=True)).to_be_visible()
    expect(dialog).to_contain_text("with a password")
    assert page.evaluate(FOCUSED), "the focus is in the dialog"
    keys.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("link", name="Options of this conversation")).to_be_focused()

    keys.press("Control+k")
    palette = page.get_by_role("dialog", name="Search and commands")
    expect(palette.get_by_label("Search everything")).to_be_focused()
    keys.press("Escape")
    expect(page.get_by_role("link", name="Options of this conversation")).to_be_focused()
    keys.press("Control+k")
    keys.write("ripe pears")
    expect(palette.get_by_role("option", name="All that was found")).to_be_visible()
    expect(palette.get_by_role("option", name="Ripe Pears").first).to_have_attribute("aria-selected", "true")
    keys.press("Enter")
    expect(page.locator("#title")).to_have_text("Ripe Pears")
    screen.go("/settings/")
    keys.to("Language")
    keys.open("Save")
    expect(page.get_by_role("status")).to_contain_text("Saved")
    screen.check()
