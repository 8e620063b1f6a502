"""The page around the conversation: without scripts, by keyboard, on a phone, in both colour schemes."""

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import (
    MARKDOWN,
    PHONE,
    OpenBrowser,
    answer,
    ask,
    expect_complete,
    field,
    luminance,
    ready,
    scripted,
    top_of,
)

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_a_conversation_is_renamed_and_deleted(page: Page) -> None:
    ask(page, "One", text="First answer.")
    expect_complete(page)
    page.get_by_role("link", name="Options of this conversation").click()
    page.get_by_label("Title").fill("A better name")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.get_by_role("heading", name="A better name")).to_be_visible()
    page.get_by_role("link", name="Options of this conversation").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    expect(page.get_by_role("link", name="A better name")).to_have_count(0)


def test_a_title_is_written_in_the_head(page: Page) -> None:
    ask(page, "One", text="First answer.")
    expect_complete(page)
    heading, field = page.locator("#title"), page.get_by_label("Rename this conversation")
    change = page.get_by_role("button", name="Change the title")
    change.press("Enter")
    expect(field).to_be_focused()
    field.fill("A better name")
    field.press("Enter")
    expect(heading).to_have_text("A better name")
    expect(page.locator("#side-list")).to_contain_text("A better name")
    expect(change).to_be_focused()
    heading.dblclick()
    field.fill("Not this one")
    field.press("Escape")
    expect(heading).to_have_text("A better name")


@pytest.mark.smoke
def test_somebody_reads_and_sends_without_scripts(visit: OpenBrowser) -> None:
    opened = visit(java_script_enabled=False)
    opened.expected = ["400 (Bad Request)"]
    page = opened.sign_in()
    ask(page, "One", text="A **plain** answer.")
    expect(page.locator("article.question")).to_contain_text("One")
    while answer(page).get_attribute("data-status") == "pending":
        page.reload()
    expect(answer(page).locator("strong")).to_have_text("plain")
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
    ask(page, "   ")
    expect(page.get_by_role("alert")).to_contain_text("empty")


def test_an_answer_is_stopped_without_scripts(visit: OpenBrowser) -> None:
    page = visit(java_script_enabled=False).sign_in()
    ask(page, "Go on for long", tokens=2_000, interval=0.05)
    page.get_by_role("button", name="Stop", exact=True).click()
    while answer(page).get_attribute("data-status") == "pending":
        page.reload()
    expect(answer(page)).to_have_attribute("data-status", "stopped")


def test_everything_is_done_with_the_keyboard(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.product.url + "/")
    expect(page.get_by_label("User name")).to_be_focused()
    page.keyboard.type(opened.person.username)
    page.keyboard.press("Tab")
    page.keyboard.type(opened.person.password)
    page.keyboard.press("Enter")
    expect(field(page)).to_be_focused()
    ready(page)
    page.keyboard.type("line one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type(scripted("line two", text="Heard.").replace("\n", " \t"))
    assert "\n" in field(page).input_value()
    page.keyboard.press("Enter")
    expect(answer(page)).to_have_attribute("data-status", "done")
    expect(field(page)).to_be_focused()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("(document.activeElement.innerText || '').trim()"))
    names = {"Skip to the message field", "New conversation", "Sign out", "Options of this conversation", "Copy"}
    assert names <= reached


def test_a_reader_who_scrolled_up_is_left_in_peace(page: Page) -> None:
    ask(page, "Much", text="\n\n".join(f"Paragraph {number}." for number in range(60)))
    expect_complete(page)
    scroller = page.locator("#transcript")
    assert scroller.evaluate("each => each.scrollTop") == 0
    ask(page, "More", text="\n\n".join(f"Paragraph {number}." for number in range(60)), interval=0.02)
    expect(answer(page, 1)).to_contain_text("Paragraph 3.")
    scroller.evaluate("each => { each.scrollTop = -each.scrollHeight / 2 }")
    place = top_of(page.locator("article").first)
    expect(page.get_by_role("button", name="Newest")).to_be_visible()
    expect_complete(page)
    assert top_of(page.locator("article").first) == pytest.approx(place, abs=2)  # pixels
    page.get_by_role("button", name="Newest").click()
    expect(page.get_by_role("button", name="Newest")).to_be_hidden()
    expect(answer(page, 1).get_by_text("Paragraph 59.")).to_be_in_viewport()


def test_a_phone_shows_everything_without_scrolling_sideways(phone: Page) -> None:
    long = "x" * 300
    ask(phone, f"Wide {long}", text=f"{MARKDOWN}\n\n```\n{long}\n```\n\n{long}\n\n| {' | '.join('abcdefghij' * 3)} |")
    expect_complete(phone)
    assert phone.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert phone.locator("#transcript").evaluate("each => each.scrollWidth <= each.clientWidth")
    side = phone.get_by_role("navigation", name="Conversations")
    expect(side).to_be_hidden()
    phone.get_by_role("button", name="Conversations").click()
    expect(side).to_be_visible()
    side.get_by_role("link", name="New conversation").click()
    expect(phone.get_by_role("heading", name="What would you like to know?")).to_be_visible()


# How far a message in view goes up with each of ten steps of the scroller, in pixels.
SCROLLED = """async (step) => {
  const scroller = document.getElementById("transcript"), { top, bottom } = scroller.getBoundingClientRect();
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const moved = [];
  while (moved.length < 10) {
    const seen = [...scroller.querySelectorAll("article")].find((each) => {
      const place = each.getBoundingClientRect();
      return place.bottom > top + 50 && place.top < bottom - 50;
    });
    const at = seen.getBoundingClientRect().top;
    scroller.scrollBy(0, step);
    await frame();
    await frame();
    moved.push(Math.round(at - seen.getBoundingClientRect().top));
  }
  return moved;
}"""


def test_earlier_messages_come_in_above_what_is_read(visit: OpenBrowser) -> None:
    opened = visit()
    caller = opened.person.caller
    conversation = caller.conversation()
    for number in range(16):
        text = "\n\n".join([f"Answer {number}.", *("More of it.",) * 8])
        caller.ended(caller.ask(f"Question {number}.", {"text": text}, conversation)["id"])
    page = opened.sign_in()
    page.goto(f"{opened.product.url}/c/{conversation}/")
    expect(answer(page)).to_contain_text("Answer 15.")
    expect(page.locator("article")).to_have_count(4)  # which fill the screen
    for count in (28, 32):  # a page, and what is left
        page.locator("#transcript").evaluate("each => { each.scrollTop = -each.scrollHeight }")
        expect(page.locator("article")).to_have_count(count)
    expect(page.locator("article").first).to_contain_text("Question 0.")
    expect(page.get_by_role("link", name="Earlier messages")).to_have_count(0)
    # Messages far from the screen are not laid out; what is read moves by as much as one scrolls, and by nothing else.
    assert page.locator("article").first.evaluate("each => getComputedStyle(each).contentVisibility") == "auto"
    assert page.evaluate(SCROLLED, 150) == [150] * 10
    assert page.evaluate(SCROLLED, -150) == [-150] * 10
    read = page.locator("article.answer").nth(8)
    read.scroll_into_view_if_needed()
    at = top_of(read)
    caller.ended(caller.ask("One more.", {"text": MARKDOWN}, conversation)["id"])
    expect(answer(page)).to_have_attribute("data-status", "done")
    expect(page.locator("article")).to_have_count(34)
    assert top_of(read) == pytest.approx(at, abs=1)
    first = page.locator("article").first.get_attribute("id")
    page.goto(f"{opened.product.url}/c/{conversation}/")
    page.evaluate("place => { location.hash = place }", first)  # further up than the page reaches
    expect(page.locator(f"#{first}")).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(visit: OpenBrowser, scheme: str) -> None:
    """WCAG AA: 4.5 to 1, for every text on the page against the nearest background behind it."""
    page = visit(color_scheme=scheme).sign_in()
    ask(page, "Colours", text=MARKDOWN + "\n> quoted\n\n```python\n# comment\nx = 'text' + str(1)\n```")
    expect_complete(page)
    pairs = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((each) => each.checkVisibility() &&
            [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((each) => {
              let behind = each;
              while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
              return [each.className + " " + each.textContent.trim().slice(0, 40), getComputedStyle(each).color,
                      getComputedStyle(behind).backgroundColor];
            })"""
    )
    assert len(pairs) > 20
    page_light = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (page_light > 0.5) == (scheme == "light")
    for what, front, back in pairs:
        lighter, darker = sorted((luminance(front), luminance(back)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (what, front, back)


def test_an_unknown_address_is_answered_in_the_look_of_the_product(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected = ["404"]
    page = opened.sign_in()
    page.goto(opened.product.url + "/c/01890000-0000-7000-8000-000000000000/")
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    page.get_by_role("link", name="To your conversations").click()
    expect(field(page)).to_be_visible()


def test_without_a_network_the_page_says_so(visit: OpenBrowser) -> None:
    opened = visit(service_workers="allow")
    opened.expected += ["net::ERR", "htmx:sendError"]
    page = opened.sign_in()
    page.evaluate("navigator.serviceWorker.ready.then(() => null)")
    opened.context.set_offline(True)
    page.goto(opened.product.url + "/files/")
    expect(page.get_by_role("heading", name="No network")).to_be_visible()
    opened.context.set_offline(False)
    page.get_by_role("link", name="Try again").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Files")


@pytest.mark.parametrize(("width", "height"), [(390, 430), (640, 425)], ids=["keyboard-up", "zoomed"])
def test_half_of_a_low_window_is_conversation(visit: OpenBrowser, width: int, height: int) -> None:
    page = visit(viewport={"width": width, "height": height}, has_touch=width < 400).sign_in()
    ask(page, "Count", text="One two three.")
    expect_complete(page)
    assert 2 * page.locator("#transcript").evaluate("each => each.offsetHeight") >= height
    assert page.evaluate("document.documentElement.scrollWidth") == width
    who = page.locator(".who-opener")
    expect(who).to_be_in_viewport()
