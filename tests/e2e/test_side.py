"""The list of conversations: menus, undo, search, and rows that arrive by themselves."""

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, ask, expect_complete, field, ready
from tests.e2e.conversation_steps import options, talk

pytestmark = [pytest.mark.browser, pytest.mark.product]


def titles(page: Page) -> list[str]:
    return [text.split()[0] for text in page.locator("#side-list li a:first-child").all_inner_texts()]


def test_a_conversation_deleted_in_the_list_comes_back_with_undo(page: Page) -> None:
    talk(page, "apples")
    talk(page, "pears")
    options(page, "apples")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#side-list")).not_to_contain_text("apples")
    expect(page.get_by_role("status").filter(has_text="was deleted")).to_be_visible()
    expect(page.get_by_role("heading", name="pears")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#side-list")).to_contain_text("apples")
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)


def test_the_conversation_on_show_is_deleted_and_comes_back(page: Page) -> None:
    talk(page, "apples")
    place = page.url
    page.get_by_role("link", name="Options of this conversation").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Undo").click()
    expect(page).to_have_url(place)
    expect(page.locator("article.answer")).to_contain_text("About apples.")


def test_renaming_and_archiving_change_the_list_in_place(page: Page) -> None:
    talk(page, "apples")
    page.evaluate("window.stays = true")
    options(page, "apples")
    expect(page.get_by_label("Title")).to_be_focused()
    page.get_by_label("Title").fill("Fruit & more")
    page.keyboard.press("Enter")
    expect(page.locator("#side-list")).to_contain_text("Fruit & more")
    expect(page.get_by_role("heading", name="Fruit & more")).to_be_visible()
    options(page, "Fruit & more")
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.locator("#side-list")).not_to_contain_text("Fruit & more")
    page.get_by_role("link", name="Archived").click()
    expect(page.locator("#side-list")).to_contain_text("Fruit & more")
    assert page.evaluate("window.stays")


def test_a_menu_is_reached_used_and_left_with_the_keyboard(page: Page) -> None:
    talk(page, "apples")
    link = page.get_by_role("link", name="Options: apples")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#organise")).to_be_hidden()
    expect(link).to_be_focused()


def test_a_message_sent_in_an_old_conversation_moves_it_up_in_every_tab(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    talk(page, "apples")
    place = page.url.removeprefix(opened.product.url)
    talk(page, "pears")
    other = opened.tab(place)
    ready(other)
    assert titles(other)[:2] == ["pears", "apples"]
    ask(other, "more", text="More.")
    expect(other.locator("#side-list li a").first).to_contain_text("apples")
    expect(page.locator("#side-list li a").first).to_contain_text("apples")


def test_search_by_keyboard_leads_to_the_message(page: Page) -> None:
    talk(page, "Hợp đồng thuê nhà")
    for number in range(3):
        ask(page, f"filler {number}", text="\n\n".join(f"Line {line}." for line in range(40)))
        expect(page.locator("article.answer")).to_have_count(number + 2)
        expect_complete(page)
    talk(page, "something else")
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Search everything")).to_be_focused()
    page.keyboard.type("hop dong")
    option = page.get_by_role("group", name="Messages").get_by_role("option").first
    expect(option.locator("mark").first).to_have_text("Hợp")
    page.keyboard.press("ArrowUp")  # from the first to the last, which leads to all that was found
    page.keyboard.press("Enter")
    hit = page.locator(".found-messages a").last
    expect(hit.locator("mark").first).to_have_text("Hợp")
    hit.click()
    expect(page.locator("article.question:target")).to_contain_text("Hợp đồng")
    expect(page.locator("article.question:target")).to_be_in_viewport()


def test_on_a_phone_the_list_its_menu_and_undo_are_in_reach(phone: Page) -> None:
    talk(phone, "apples")
    phone.get_by_role("button", name="Conversations").click()
    phone.get_by_role("link", name="Options: apples").click()
    expect(phone.locator("#organise")).to_be_in_viewport(ratio=1)
    expect(phone.locator("#side")).to_be_visible()
    phone.get_by_role("button", name="Archive", exact=True).click()
    expect(phone.locator("#side-list")).not_to_contain_text("apples")
    phone.get_by_role("link", name="Archived").click()
    phone.get_by_role("link", name="Options: apples").click()
    phone.get_by_role("button", name="Delete", exact=True).click()
    expect(phone.get_by_role("button", name="Undo")).to_be_in_viewport()
    phone.get_by_role("button", name="Undo").click()
    expect(phone.locator("article.answer")).to_contain_text("About apples.")


def test_without_scripts_a_conversation_is_organised_and_found(visit: OpenBrowser) -> None:
    page = visit(java_script_enabled=False).sign_in()
    ask(page, "apples", text="About apples.")
    page.get_by_role("link", name="Options of this conversation").click()
    page.get_by_label("Title").fill("Fruit")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.get_by_role("heading", name="Fruit")).to_be_visible()
    page.get_by_role("link", name="Search…").click()
    page.get_by_label("Search all conversations").fill("apples")
    page.keyboard.press("Enter")
    page.locator(".found-messages a").first.click()
    expect(page.get_by_role("heading", name="Fruit")).to_be_visible()
    page.get_by_role("link", name="Options of this conversation").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name="Fruit")).to_be_visible()


@pytest.mark.smoke
def test_a_shared_link_is_read_by_somebody_without_an_account(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    talk(page, "apples")
    page.get_by_role("link", name="Options of this conversation").click()
    page.get_by_role("link", name="Share by link…").click()
    page.get_by_role("button", name="Make a link").click()
    link = page.get_by_label("Link", exact=True).input_value()
    stranger = visit(java_script_enabled=False)
    stranger.page.goto(link)
    expect(stranger.page.locator("article.answer")).to_contain_text("About apples.")
    expect(field(stranger.page)).to_have_count(0)
    page.get_by_role("button", name="End this link").click()
    expect(page.get_by_role("button", name="End this link")).to_have_count(0)
    stranger.expected.append("404 (Not Found)")
    stranger.page.reload()
    expect(stranger.page.get_by_role("heading", name="There is nothing here")).to_be_visible()


def test_keys_hold_on_every_page(page: Page) -> None:
    talk(page, "apples")
    page.locator("#transcript").focus()
    page.keyboard.press("k")
    expect(page.locator("article.answer")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("article.question")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.press("Control+.")
    expect(page.locator("#panel")).to_be_visible()
    page.keyboard.press("Control+.")
    expect(page.locator("#panel")).to_be_hidden()
    page.keyboard.press("Control+b")
    expect(page.locator("#side-list")).to_be_hidden()
    page.get_by_role("link", name="Files").click()
    page.wait_for_url("**/files/")
    page.wait_for_load_state("load")  # scripts come after the stylesheet, and hear keys from then on
    expect(page.locator("#side-list")).to_be_hidden()  # as it was
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Copy the last answer")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+b")
    expect(page.locator("#side-list")).to_be_visible()
    page.keyboard.press("Control+Shift+O")
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()


def test_several_conversations_are_chosen_tagged_and_deleted(page: Page, person: Person) -> None:
    for title in ("First", "Second", "Third", "Fourth"):
        person.caller.post("conversations/", {"title": title}, expect=201)
    rows, menu = page.locator("#side-list li > a:first-of-type"), page.locator("#organise")
    expect(rows).to_have_count(4)
    page.get_by_role("link", name="Choose several").press("Enter")
    page.get_by_label("Choose: Third").press("Space")
    page.get_by_label("Choose: First").click(modifiers=["Shift"])
    expect(page.get_by_role("button", name="Options (3)")).to_be_enabled()
    person.caller.post("conversations/", {"title": "Fifth"}, expect=201)
    expect(rows).to_have_count(5)  # what comes meanwhile takes no choice away
    page.get_by_role("button", name="Options (3)").press("Enter")
    menu.get_by_label("Tags").fill("boat")
    menu.get_by_label("Tags").press("Enter")
    expect(menu).to_be_hidden()
    expect(page.get_by_label("Choose: Third")).to_have_count(0)
    page.get_by_role("link", name="boat").click()
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="boat").click()
    expect(rows).to_have_count(5)
    page.get_by_role("link", name="Choose several").click()
    page.get_by_role("button", name="All").click()
    page.get_by_role("button", name="Options (5)").click()
    menu.get_by_role("button", name="Delete…").click()
    menu.get_by_role("button", name="Delete", exact=True).click()
    expect(rows).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(rows).to_have_count(5)
