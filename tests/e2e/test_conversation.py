"""A person talks with a model in a browser."""

import re
from uuid import UUID, uuid4

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from chat.realtime import turn_stream
from llm.models import Model
from tests.e2e.conftest import (
    MARKDOWN,
    WORDS,
    OpenBrowser,
    answer,
    ask,
    choose_models,
    expect_complete,
    field,
    in_thread,
    ready,
    status,
)
from tests.product import Product, until

pytestmark = [pytest.mark.browser, pytest.mark.product]


@pytest.mark.smoke
def test_somebody_signs_in_and_out(visit: OpenBrowser) -> None:
    opened = visit()
    opened.page.goto(opened.product.url + "/")
    expect(opened.page.get_by_role("heading", name="Sign in")).to_be_visible()
    opened.page.get_by_label("User name").fill(opened.person.username)
    opened.page.get_by_label("Password").fill("wrong")
    opened.page.get_by_role("button", name="Sign in").click()
    expect(opened.page.get_by_role("alert")).to_contain_text("The user name or the password is wrong")
    page = opened.sign_in()
    field(page).fill("a draft")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("localStorage.length") == 0


@pytest.mark.smoke
def test_a_first_message_starts_a_conversation_and_its_answer_streams(page: Page) -> None:
    ask(page, "Tell me words", text=WORDS, interval=0.05)
    expect(page).to_have_url(re.compile(r"/c/[0-9a-f-]{36}/$"))
    expect(page.locator("article.question")).to_contain_text("Tell me words")
    expect(answer(page)).to_contain_text("word3")
    expect(answer(page)).to_have_attribute("data-status", "pending")  # the beginning is there before the end
    expect_complete(page)
    expect(answer(page).locator(".prose")).to_have_text(WORDS)
    expect(status(page)).to_have_text("Answer complete, 60 words.")
    expect(page.get_by_role("navigation").get_by_role("link", name="Tell me words").first).to_have_attribute(
        "aria-current", "page"
    )


def test_a_second_message_is_added_without_leaving_the_page(page: Page) -> None:
    ask(page, "One", text="First answer.")
    expect_complete(page)
    page.evaluate("window.stayed = true")
    ask(page, "Two", text="Second answer.")
    expect(answer(page, 1)).to_contain_text("Second answer.")
    expect_complete(page)
    expect(field(page)).to_have_value("")
    assert page.evaluate("window.stayed") is True


def test_markdown_looks_the_same_while_it_streams_and_after_a_reload(page: Page) -> None:
    ask(page, "Markdown, please", text=MARKDOWN, interval=0.005)
    expect_complete(page)
    expect(answer(page).locator(".code .k").first).to_have_text("def")
    keyword, text = (
        answer(page).locator(place).first.evaluate("each => getComputedStyle(each).color")
        for place in (".code .k", ".code code")
    )
    assert keyword != text
    streamed = answer(page).locator(".block").evaluate_all("blocks => blocks.map(block => block.innerHTML)")
    page.reload()
    assert answer(page).locator(".block").evaluate_all("blocks => blocks.map(block => block.innerHTML)") == streamed
    assert len(streamed) == 4


def test_code_is_copied_as_it_was_written(visit: OpenBrowser) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"]).sign_in()
    ask(page, "Code", text=MARKDOWN)
    expect_complete(page)
    answer(page).get_by_role("button", name="Copy").first.click()
    expect(answer(page).get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "def answer(question):\n    return 42\n"


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["button", "escape"])
def test_an_answer_is_stopped_and_keeps_its_text(page: Page, how: str) -> None:
    ask(page, "Go on for long", tokens=2_000, interval=0.05)
    expect(answer(page)).to_contain_text("t5")
    if how == "button":
        page.get_by_role("button", name="Stop the answer").click()
    else:
        field(page).press("Escape")
    expect(answer(page)).to_contain_text("Stopped. The text so far is kept.")
    expect(answer(page)).to_have_attribute("data-status", "stopped")
    expect(answer(page).locator(".prose")).to_contain_text("t5")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(answer(page).get_by_role("button", name="Try again")).to_be_visible()


@pytest.mark.smoke
def test_a_reload_in_the_middle_loses_and_doubles_nothing(page: Page) -> None:
    ask(page, "Words", text=WORDS, interval=0.05)
    expect(answer(page)).to_contain_text("word5")
    page.reload()
    expect(answer(page)).to_contain_text("word5")
    expect_complete(page)
    expect(answer(page).locator(".prose")).to_have_text(WORDS)


def test_a_lost_connection_is_taken_up_where_it_broke(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    sockets = []
    page.route_web_socket(re.compile("/ws/"), lambda socket: sockets.append((socket, socket.connect_to_server())))
    page.reload()
    ready(page)
    ask(page, "Words", text=WORDS, interval=0.05)
    expect(answer(page)).to_contain_text("word5")
    sockets[-1][0].close(code=1012)
    expect_complete(page)
    assert len(sockets) == 2
    expect(answer(page).locator(".prose")).to_have_text(WORDS)


def test_what_redis_lost_of_a_growing_answer_comes_from_its_row(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    sockets: list[WebSocketRoute] = []
    lost = False

    def connected(socket: WebSocketRoute) -> None:
        if not sockets or lost:
            sockets.append(socket)
            socket.connect_to_server()
        else:
            socket.close(code=1012)

    page.route_web_socket(re.compile("/ws/"), connected)
    page.reload()
    ready(page)
    text = " ".join(f"word{number}" for number in range(300))
    ask(page, "Words", text=text, interval=0.05)
    expect(answer(page)).to_contain_text("word5")
    sockets[-1].close(code=1012)
    turn, seen = answer(page).get_attribute("data-turn") or "", int(answer(page).get_attribute("data-seq") or 0)
    next(opened.person.caller.events(turn, after=seen))  # there is more than the page has
    turn_stream.delete_streams([UUID(turn)])
    lost = True
    # What it takes over at once, it has before the end, and its text then goes on where that ends.
    with page.expect_response(lambda response: "/messages/" in response.url and response.request.method == "GET"):
        pass
    expect(answer(page)).to_have_attribute("data-status", "pending")
    shown = answer(page).locator(".prose").inner_text()
    assert text.startswith(shown.strip())
    expect_complete(page)
    expect(answer(page).locator(".prose")).to_have_text(text)


def test_two_tabs_see_the_same(visit: OpenBrowser) -> None:
    opened = visit()
    first = opened.sign_in()
    ask(first, "One", text="First answer.")
    expect_complete(first)
    second = opened.tab(first.url.removeprefix(opened.product.url))
    expect(answer(second)).to_contain_text("First answer.")
    ask(first, "Two", text=WORDS, interval=0.02)
    expect(answer(second, 1)).to_contain_text("word5")
    for tab in (first, second):
        expect_complete(tab)
        expect(tab.locator("article")).to_have_count(4)
        expect(answer(tab, 1).locator(".prose")).to_have_text(WORDS)


@pytest.mark.smoke
def test_a_failed_answer_says_why_and_is_tried_again(page: Page) -> None:
    ask(page, "Fail once", text="Now it works.", error={"status": 401, "message": "bad key"}, error_times=1)
    failed = answer(page)
    expect(failed).to_have_attribute("data-status", "failed")
    expect(failed.locator(".problem")).not_to_be_empty()
    failed.get_by_role("button", name="Try again").click()
    expect(answer(page)).to_contain_text("Now it works.")
    expect_complete(page)
    expect(page.locator("article")).to_have_count(2)


def test_reasoning_is_folded_away(page: Page) -> None:
    ask(page, "Think", reasoning="First this, then that.", text="Done.")
    expect_complete(page)
    thinking = answer(page).locator("details")
    expect(thinking.get_by_text("First this, then that.")).to_be_hidden()
    thinking.get_by_text("Thinking").click()
    expect(thinking.get_by_text("First this, then that.")).to_be_visible()


def test_text_that_was_reasoning_is_folded_away_while_the_answer_is_written(page: Page, product: Product) -> None:
    """The test has a model of its own, since its row learns that its reasoning has no opening tag."""
    script = {"text": f"First **this**.\n</think>\n\n{WORDS}", "interval": 0.05}
    name = product.model.set_script(uuid4().hex, script)
    in_thread(lambda: Model.objects.get(name="scripted").provider.models.create(name=name, context_window=8192))
    page.reload()
    ready(page)
    choose_models(page, name)
    page.keyboard.press("Escape")
    ask(page, "Think")
    expect(answer(page).locator(".thinking [data-text]")).to_have_text("First **this**.")
    expect(answer(page).locator(".prose")).to_contain_text("word3")
    expect(answer(page)).to_have_attribute("data-status", "pending")
    expect_complete(page)
    expect(answer(page).locator(".prose")).to_have_text(WORDS)
    expect(answer(page).locator(".thinking")).to_have_count(1)


def test_a_message_that_could_not_be_sent_stays_in_the_field(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected = ["net::ERR_FAILED", "htmx:"]
    page = opened.sign_in()
    ask(page, "One", text="First answer.")
    expect_complete(page)
    page.route("**/turns/", lambda route: route.abort())
    ask(page, "Two")
    expect(page.locator("#problem")).to_contain_text("cannot be reached")
    expect(field(page)).to_have_value("Two")
    page.unroute("**/turns/")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("article")).to_have_count(4)
    expect(page.locator("#problem")).to_be_empty()


def test_a_draft_survives_a_reload(page: Page) -> None:
    field(page).fill("half a thought")
    page.reload()
    expect(field(page)).to_have_value("half a thought")


# The browser without windows has nobody who looks elsewhere, and shows no notification.
ELSEWHERE = """
Object.defineProperty(document, "hidden", { get: () => window.elsewhere === true });
window.told = [];
window.Notification = class {
  static permission = "granted";
  static requestPermission = async () => Notification.permission;
  constructor(title, { body }) { window.told.push([title, body]); }
};
"""


def test_the_browser_tells_of_an_answer_to_whoever_looks_elsewhere_and_wants_it(visit: OpenBrowser) -> None:
    person = visit()
    person.context.add_init_script(ELSEWHERE)
    page = person.sign_in()
    for looks_away in (True, False):
        page.evaluate("(elsewhere) => (window.elsewhere = elsewhere)", looks_away)
        ask(page, "A question", text="An answer.")
        expect_complete(page)
        assert page.evaluate("window.told") == []  # nobody has asked for it
    switch_notifications(page)
    expect(page.locator("[data-toast]")).to_contain_text("The browser tells you when an answer is ready")
    ask(page, "A question", text="An answer.")
    expect_complete(page)
    assert page.evaluate("window.told") == []  # somebody looks
    page.evaluate("window.elsewhere = true")
    ask(page, "A question", text="An answer.")
    ((title, body),) = until(lambda: page.evaluate("window.told"), "the browser tells")
    assert title.startswith("A question") and body == "Answer complete, 2 words."
    switch_notifications(page)
    expect(page.locator("[data-toast]")).to_contain_text("The browser tells you nothing")


def switch_notifications(page: Page) -> None:
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Search and commands")
    palette.get_by_label("Search everything").fill("Notifications")
    palette.get_by_role("option", name="Notifications while this page is in the background").click()
