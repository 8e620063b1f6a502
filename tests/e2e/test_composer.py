"""The composer: the list behind a /, the arrow up, pasted files, the choice of the model, the meter under the field."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.conftest import Person
from tests.e2e.conftest import (
    PHONE,
    OpenBrowser,
    Screen,
    answer,
    ask,
    expect_complete,
    field,
    ready,
    scripted,
    status,
    who_answers,
)
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_a_slash_at_the_beginning_offers_prompts(page: Page, person: Person) -> None:
    person.caller.post("prompts/", {"name": "Five points", "text": "Say it in five points."}, expect=201)
    person.caller.post("prompts/", {"name": "Rhyme", "text": "Say it in rhyme."}, expect=201)
    offered = page.get_by_role("listbox", name="Prompts")
    field(page).press_sequentially("/")
    expect(offered.get_by_role("option")).to_have_count(2)
    field(page).press_sequentially("rhy")
    expect(offered.get_by_role("option")).to_have_count(1)
    field(page).press("Enter")
    expect(offered).to_be_hidden()
    expect(field(page)).to_have_value("Say it in rhyme.")
    field(page).fill("")
    field(page).press_sequentially("and /rhy")
    page.wait_for_timeout(300)  # longer than the list waits for
    expect(offered).to_be_hidden()


def test_a_prompt_asks_for_what_it_leaves_open(page: Page, person: Person) -> None:
    text = "Write to {{who}} in a {{tone:formal|friendly}} tone."
    person.caller.post("prompts/", {"name": "Letter", "text": text}, expect=201)
    dialog = page.get_by_role("dialog", name="Letter")
    field(page).press_sequentially("/let")
    expect(page.get_by_role("option")).to_have_count(1)
    field(page).press("Enter")
    expect(dialog.get_by_label("who")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(field(page)).to_have_value("/let")
    field(page).press_sequentially("t")
    expect(page.get_by_role("option")).to_have_count(1)
    field(page).press("Tab")
    dialog.get_by_label("who").fill("Ann")
    page.keyboard.press("Tab")
    expect(dialog.get_by_label("tone")).to_be_focused()
    dialog.get_by_label("tone").select_option("friendly")
    dialog.get_by_label("who").press("Enter")
    expect(field(page)).to_have_value("Write to Ann in a friendly tone.")
    expect(field(page)).to_be_focused()
    field(page).fill("")
    field(page).press_sequentially("/let")
    expect(page.get_by_role("option")).to_have_count(1)
    field(page).press("Enter")
    expect(dialog.get_by_label("who")).to_have_value("Ann")  # as it was said the last time
    expect(dialog.get_by_label("tone")).to_have_value("friendly")


def test_enter_before_the_scripts_are_there_sends(visit: OpenBrowser) -> None:
    page = visit().sign_in()
    scripts: list[Route] = []
    page.route("**/static/js/*.js", lambda route: scripts.append(route))
    page.goto(page.url, wait_until="commit")
    field(page).press_sequentially("First")
    field(page).press("Shift+Enter")
    field(page).press_sequentially("and last.")
    page.unroute("**/static/js/*.js")  # the page that comes next has its scripts
    field(page).press("Enter")
    page.wait_for_url("**/c/*/")
    expect(page.locator("article.question")).to_contain_text("First and last.")
    expect_complete(page)


def test_a_prompt_list_that_is_closed_stays_closed_and_the_text_is_sent(page: Page, person: Person) -> None:
    person.caller.post("prompts/", {"name": "etc", "text": "Never sent."}, expect=201)
    field(page).press_sequentially("/etc")
    expect(page.get_by_role("listbox", name="Prompts")).to_be_visible()
    field(page).press("Escape")
    expect(page.get_by_role("listbox", name="Prompts")).to_be_hidden()
    field(page).press("Enter")
    expect(page.locator("article.question")).to_contain_text("/etc")
    expect_complete(page)


def test_prompts_are_saved_on_their_page(page: Page, product: Product) -> None:
    page.goto(product.url + "/personas/")
    page.get_by_role("link", name="Prompts").click()
    page.get_by_label("Name", exact=True).fill("Rhyme")
    page.get_by_label("Text", exact=True).fill("Say it in rhyme.")
    page.get_by_role("button", name="Save").click()
    saved = page.locator(".saved-prompt:not(.new-prompt)")
    expect(saved).to_contain_text("/Rhyme")
    saved.locator("summary").click()
    saved.get_by_role("button", name="Delete").click()
    expect(saved).to_have_count(0)


def test_the_arrow_up_in_an_empty_field_edits_the_last_question(page: Page) -> None:
    ask(page, "First words", text="First answer.")
    expect_complete(page)
    field(page).press("ArrowUp")
    box = page.get_by_label("Your message, in other words")
    expect(box).to_be_focused()
    box.press("Escape")
    expect(box).to_have_count(0)
    expect(field(page)).to_be_focused()
    field(page).fill("not empty")
    field(page).press("ArrowUp")
    expect(box).to_have_count(0)
    expect(page.locator("article.question")).to_contain_text("First words")


def test_a_picture_is_pasted_and_shown_large(page: Page) -> None:
    ready(page)
    page.evaluate(
        """async () => {
          const canvas = Object.assign(document.createElement("canvas"), { width: 4, height: 4 });
          canvas.getContext("2d").fillRect(0, 0, 4, 4);
          const blob = await new Promise((done) => canvas.toBlob(done));
          const data = new DataTransfer();
          data.items.add(new File([blob], "shot.png", { type: "image/png" }));
          const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
          document.getElementById("text").dispatchEvent(event);
        }"""
    )
    expect(page.locator("#chips .chip[data-status=ready]")).to_contain_text("shot.png")
    page.get_by_role("link", name="Show shot.png large").click()
    picture = page.get_by_role("dialog", name="Picture")
    shown = picture.get_by_role("img", name="shot.png")
    expect(shown).to_be_visible()
    assert shown.evaluate("async (each) => { await each.decode(); return each.naturalWidth; }") == 4
    page.keyboard.press("Escape")
    expect(picture).to_be_hidden()
    expect(page.get_by_role("link", name="Show shot.png large")).to_be_focused()


def test_another_persona_takes_over_in_the_middle_of_a_conversation(
    page: Page, person: Person, product: Product
) -> None:
    body = {"name": "Pirate", "instructions": "Talk like a pirate, always and everywhere."}
    pirate = person.caller.post("personas/", body, expect=201)["id"]
    ask(page, "One", text="First answer.")
    expect_complete(page)
    page.reload()
    ready(page)
    who_answers(page).get_by_label("Persona").select_option(pirate)
    page.keyboard.press("Escape")
    expect(page.locator("#plan-bar .group-persona")).to_have_count(1)
    ask(page, "Two, pirate", text="Ahoy.")
    expect(answer(page, 1)).to_contain_text("Ahoy.")
    expect_complete(page)
    sent = product.model.finished("Two, pirate")[-1].body["messages"]
    assert any("Talk like a pirate" in str(message["content"]) for message in sent)
    page.reload()
    expect(page.locator(".who-opener")).to_contain_text("Pirate")


def test_the_meter_shows_sections_and_opens_into_them(page: Page) -> None:
    field(page).fill("A draft")
    edge = page.locator("#plan-bar")
    expect(edge.locator(".group-instructions")).to_have_count(1)
    expect(edge.locator(".group-current")).to_have_count(1)
    page.locator(".plan-line").click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("region", name="Instructions")).to_be_visible()
    expect(panel.get_by_role("region", name="This question")).to_contain_text("A draft")


def test_the_field_grows_and_the_page_does_not_overflow_on_a_phone(visit: OpenBrowser) -> None:
    page = visit(viewport=PHONE, has_touch=True, is_mobile=True, color_scheme="dark").sign_in()
    height = field(page).evaluate("each => each.offsetHeight")
    field(page).fill(scripted("line\n" * 12, text="Done."))
    assert field(page).evaluate("each => each.offsetHeight") > 2 * height
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Send").click()
    expect_complete(page)
    expect(page.get_by_role("link", name="What it saw")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def held_back(page: Page) -> list[Route]:
    """Sent messages wait until the test lets them go."""
    waiting: list[Route] = []
    page.route("**/c/*/turns/", lambda route: waiting.append(route))
    return waiting


def until_sent(page: Page, waiting: list[Route]) -> Route:
    while not waiting:
        page.wait_for_timeout(20)
    return waiting.pop()


def test_what_is_written_while_a_message_is_on_its_way_is_the_next_one(page: Page) -> None:
    ask(page, "One", text="First.")
    expect_complete(page)
    waiting = held_back(page)
    ask(page, "Two", text="Second.")
    route = until_sent(page, waiting)
    expect(field(page)).to_have_value("")
    field(page).press_sequentially("and three")
    route.continue_()
    expect(answer(page, 1)).to_contain_text("Second.")
    expect_complete(page)
    expect(field(page)).to_have_value("and three")
    page.reload()
    expect(field(page)).to_have_value("and three")


def test_a_message_that_did_not_arrive_comes_back_above_what_was_written_since(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected += ["net::ERR_FAILED", "htmx:sendError"]
    page = opened.sign_in()
    ask(page, "One", text="First.")
    expect_complete(page)
    waiting = held_back(page)
    field(page).fill("Two")
    page.get_by_role("button", name="Send").click()
    route = until_sent(page, waiting)
    field(page).press_sequentially("and three")
    route.abort()
    expect(field(page)).to_have_value("Two\n\nand three")
    expect(page.get_by_role("alert")).to_be_visible()


def test_what_is_sent_after_the_session_ended_is_there_again_after_signing_in(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected += ["401 (Unauthorized)", "Response Status Error Code 401"]
    page = opened.sign_in()
    ask(page, "One", text="First.")
    expect_complete(page)
    page.context.clear_cookies(name="sessionid")
    field(page).fill("Two, and long thought of")
    field(page).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("You were signed out")
    expect(field(page)).to_have_value("Two, and long thought of")
    at = page.url
    page.get_by_role("alert").get_by_role("link", name="Sign in").click()
    page.get_by_label("User name").fill(opened.person.username)
    page.get_by_label("Password").fill(opened.person.password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(at)
    expect(field(page)).to_have_value("Two, and long thought of")


def test_what_a_page_before_the_server_answers_is_not_taken_for_the_server(page: Page) -> None:
    ask(page, "One", text="First.")
    expect_complete(page)
    page.route("**/c/*/turns/", lambda route: route.fulfill(status=200, body="<h1>Welcome to the hotel</h1>"))
    field(page).fill("Two")
    field(page).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Your text is kept")
    expect(page.get_by_text("Welcome to the hotel")).to_have_count(0)
    expect(field(page)).to_have_value("Two")


def test_the_first_message_stands_in_its_place_and_its_conversation_around_it(screen: Screen) -> None:
    page, waiting = screen.page, list[Route]()
    home = re.compile("//[^/]+/$")
    page.route(home, lambda route: waiting.append(route) if route.request.method == "POST" else route.continue_())
    page.evaluate("window.stays = true")
    title = page.get_by_role("heading", level=1)
    field(page).fill(scripted("Good morning", text="Good evening."))
    screen.press(page.get_by_role("button", name="Send"))
    route = until_sent(page, waiting)
    expect(page.locator("article.question")).to_contain_text("Good morning")
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_hidden()
    field(page).press_sequentially("Meanwhile")
    route.continue_()
    page.wait_for_url("**/c/*/")
    expect_complete(page)
    expect(answer(page)).to_contain_text("Good evening.")
    expect(status(page)).to_have_text("Answer complete, 2 words.")
    expect(field(page)).to_have_value("Meanwhile")
    expect(title).to_contain_text("Good morning")
    expect(page).to_have_title(re.compile("^Good morning"))
    ask(page, "And at noon?", text="Good day.")
    expect(page.locator("article.answer[data-status=done]")).to_have_count(2)
    screen.press(page.get_by_role("link", name="Options of this conversation"))
    screen.press(page.get_by_role("link", name="Share by link"))
    expect(page.get_by_role("dialog", name="Share by link")).to_be_visible()
    page.keyboard.press("Escape")
    expect(screen.side().locator("[aria-current=page]")).to_contain_text("Good morning")
    assert page.evaluate("window.stays")  # no other page was loaded
    page.go_back()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    page.go_forward()
    expect(page.locator("article.answer")).to_have_count(2)


PASTE = """(text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  const field = document.getElementById("text");
  field.focus();
  field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  document.execCommand("insertText", false, text);
}"""
LONG = "Minutes of the cooperative\n" + "A line of the minutes.\n" * 250


def test_a_long_paste_becomes_a_file_that_goes_without_a_word(screen: Screen) -> None:
    page = screen.page
    offer = page.get_by_role("button", name="Make it a file")
    page.evaluate(PASTE, "Short.")
    expect(offer).to_be_hidden()
    field(page).fill("")
    page.evaluate(PASTE, LONG)
    expect(offer).to_be_visible()
    screen.check()
    screen.press(page.get_by_role("button", name="Leave it in the text"))
    expect(offer).to_be_hidden()
    assert len(field(page).input_value()) == len(LONG)
    field(page).fill("")
    page.evaluate(PASTE, LONG)
    screen.press(offer)
    expect(page.locator("#chips .chip[data-status=ready]")).to_contain_text("Minutes of the cooperative")
    expect(field(page)).to_have_value("")
    screen.press(page.get_by_role("button", name="Send", exact=True))
    expect_complete(page)
    question = page.locator("article.question")
    expect(question).to_contain_text("Sent without a message.")
    expect(question.locator(".chip")).to_contain_text("Minutes of the cooperative")


def test_a_long_message_shows_its_beginning_until_more_is_wanted(page: Page) -> None:
    ask(page, f"{LONG}\n{scripted('What is in it?', text='Minutes.')}")
    expect_complete(page)
    text = page.locator("article.question .said")
    fold = page.locator("article.question summary")
    folded = text.evaluate("each => each.offsetHeight")
    fold.press("Enter")
    expect(fold).to_have_text("Show less", use_inner_text=True)
    assert text.evaluate("each => each.offsetHeight") > 5 * folded
    page.reload()
    expect(fold).to_contain_text("Show the whole message", use_inner_text=True)
    assert text.evaluate("each => each.offsetHeight") == folded
