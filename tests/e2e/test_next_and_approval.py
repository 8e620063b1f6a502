"""Things that wait on the page: the next message for the answer, and a tool call for its person."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import APIResponse, Locator, Page, Route, expect

from llm.models import Model
from tests.chat.tool_servers import Diary, diary
from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, answer, ask, expect_complete, field, in_thread, ready, scripted, status
from tests.e2e.conversation_steps import waiting
from tests.e2e.key_steps import FOCUSED, Keys

pytestmark = [pytest.mark.browser, pytest.mark.product]
SLOW = {"text": "word " * 40, "interval": 0.1}


@pytest.fixture
def guarded(person: Person, tmp_path: Path) -> Iterator[Diary]:
    """Yield a conversation whose persona has a tool server that needs approval for each call."""

    def make() -> Diary:
        tools = diary(person, Model.objects.get(name="scripted"), tmp_path, approval_required=True)
        Model.objects.filter(name="scripted").update(tools=True)  # the page asks the model it shows
        return tools

    tools = in_thread(make)
    yield tools

    def remove() -> None:
        tools.row.delete()
        Model.objects.filter(name="scripted").update(tools=False)

    in_thread(remove)


def question(page: Page, number: int = -1) -> Locator:
    return page.locator("article.question").nth(number)


def begin(page: Page) -> None:
    """Begin a conversation with a running answer."""
    ask(page, "First", **SLOW)
    expect(answer(page)).to_contain_text("word")


def test_a_message_written_meanwhile_is_sent_after_the_answer(page: Page) -> None:
    begin(page)
    field(page).fill(scripted("Second", text="Said after."))
    page.keyboard.press("Enter")
    expect(waiting(page)).to_contain_text("Sent when the answer is complete.")
    expect(waiting(page)).to_contain_text("Second")
    expect(field(page)).to_have_value("")
    expect(question(page)).to_contain_text("First")
    page.reload()
    expect(waiting(page)).to_contain_text("Second")
    expect(question(page)).to_contain_text("Second")
    expect(answer(page)).to_contain_text("Said after.")
    expect_complete(page)
    expect(waiting(page)).to_have_count(0)
    expect(page.locator("article")).to_have_count(4)


def test_other_tabs_see_what_waits_and_a_second_one_is_refused(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected.append("409")
    opened.expected.append("htmx:responseError")
    first = opened.sign_in()
    ask(first, "First", tokens=4_000, interval=0.05)
    expect(answer(first)).to_contain_text("t5")
    second = opened.tab(first.url.removeprefix(opened.product.url))
    ready(second)
    ask(first, "Second")
    expect(waiting(second)).to_contain_text("Second")
    ask(second, "Third")
    expect(second.locator("#problem")).to_contain_text("A message already waits for the answer.")
    expect(field(second)).to_have_value("Third")
    waiting(second).get_by_role("button", name="Remove").click()
    for tab in (first, second):
        expect(waiting(tab)).to_have_count(0)
    first.get_by_role("button", name="Stop the answer").click()
    expect(answer(first)).to_have_attribute("data-status", "stopped")


def test_what_waits_comes_back_into_the_composer_with_its_files(visit: OpenBrowser, tmp_path: Path) -> None:
    page = visit().sign_in()
    ask(page, "First", tokens=4_000, interval=0.05)
    expect(answer(page)).to_contain_text("t5")
    note = tmp_path / "note.txt"
    note.write_text("A note.")
    page.locator("#attach-files").set_input_files(note)
    expect(page.locator("#chips input[name=files]")).to_have_count(1)
    ask(page, "Half a\nthought")
    expect(waiting(page)).to_contain_text("note.txt")
    expect(page.locator("#chips .chip")).to_have_count(0)
    field(page).fill("And more")
    waiting(page).get_by_role("button", name="Edit").click()
    expect(waiting(page)).to_have_count(0)
    expect(field(page)).to_have_value("Half a\nthought\n\nAnd more")
    expect(page.locator("#chips")).to_contain_text("note.txt")
    expect(field(page)).to_be_focused()
    page.get_by_role("button", name="Stop the answer").click()
    expect(answer(page)).to_have_attribute("data-status", "stopped")


def test_after_a_stop_it_waits_for_a_word(page: Page) -> None:
    begin(page)
    ask(page, "Second", text="Said after.")
    expect(waiting(page)).to_contain_text("Sent when the answer is complete.")
    page.get_by_role("button", name="Stop the answer").click()
    expect(waiting(page)).to_contain_text("Not sent, because the answer was stopped.")
    expect(page.locator("article")).to_have_count(2)
    waiting(page).get_by_role("button", name="Send now").click()
    expect(answer(page)).to_contain_text("Said after.")
    expect_complete(page)
    expect(waiting(page)).to_have_count(0)
    expect(page.locator("article")).to_have_count(4)


def test_without_scripts_it_waits_and_is_edited_too(visit: OpenBrowser) -> None:
    page = visit(java_script_enabled=False).sign_in()
    ask(page, "First", tokens=4_000, interval=0.05)
    ask(page, "Second")
    expect(waiting(page)).to_contain_text("Second")
    waiting(page).get_by_role("button", name="Edit").click()
    expect(field(page)).to_have_value("Second")
    expect(waiting(page)).to_have_count(0)
    page.get_by_role("button", name="Stop", exact=True).click()


def begin_call(tools: Diary, page: Page) -> Locator:
    """Send a question for which the model makes a call. Return the element that asks for approval."""
    page.goto(f"{tools.person.caller.url}/c/{tools.place}/")
    call = tools.call("note", text="Dear diary,\n<b>today</b>", pages=3)
    script: dict[str, Any] = {"steps": [{"tool_calls": [call]}, {"text": "So be it."}]}
    field(page).fill(f"Write\nscript: {json.dumps(script)}")
    page.get_by_role("button", name="Send").click()
    return page.get_by_role("form", name="Permission for a tool")


def test_a_call_is_shown_readable_and_runs_once_it_is_allowed(page: Page, guarded: Diary) -> None:
    approval = begin_call(guarded, page)
    expect(approval).to_contain_text(f"The model asks to use note ({guarded.row.name}) with:")
    expect(approval.locator("dd").first).to_have_text("Dear diary,\n<b>today</b>")
    expect(approval.locator("dd").nth(1)).to_have_text("3")
    expect(status(page)).to_have_text("A tool waits for your permission.")
    waits = page.locator("#side-list .side-dot.waits")
    expect(waits).to_have_count(1)  # at once, and once more for who comes later
    page.reload()
    ready(page)
    expect(waits).to_have_count(1)
    assert guarded.lines() == []
    Keys(page).open("Allow once", back=True)  # from the message field
    expect(answer(page)).to_contain_text("You allowed this.")
    expect_complete(page)
    assert page.evaluate(FOCUSED), "the focus is somewhere"
    expect(answer(page)).to_contain_text("So be it.")
    expect(waits).to_have_count(0)
    assert guarded.lines() == ["Dear diary,", "<b>today</b>"]


def test_the_focus_stays_near_when_news_of_a_decision_come_before_the_answer_to_it(page: Page, guarded: Diary) -> None:
    expect(begin_call(guarded, page)).to_be_visible()
    responses: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        if route.request.method == "POST":
            responses.append((route, route.fetch()))
        else:
            route.continue_()

    page.route("**/approvals/**", hold)
    page.get_by_role("button", name="Allow once").focus()
    page.keyboard.press("Enter")
    expect(answer(page)).to_contain_text("You allowed this.")
    route, response = responses.pop()
    route.fulfill(response=response)
    expect_complete(page)
    assert page.evaluate(FOCUSED), "the focus is somewhere"


def test_a_refusal_in_one_tab_is_seen_in_the_other(visit: OpenBrowser, guarded: Diary) -> None:
    opened = visit()
    page = opened.sign_in()
    approval = begin_call(guarded, page)
    expect(approval).to_be_visible()
    other = opened.tab(f"/c/{guarded.place}/")
    expect(other.get_by_role("form", name="Permission for a tool")).to_be_visible()
    ready(other)
    approval.get_by_role("button", name="Refuse").click()
    for tab in (page, other):
        expect(answer(tab)).to_contain_text("You refused this. It was not done.")
        expect(answer(tab)).to_contain_text("So be it.")
        expect_complete(tab)
    assert guarded.lines() == []


def test_a_call_is_allowed_without_scripts(visit: OpenBrowser, guarded: Diary) -> None:
    page = visit(java_script_enabled=False).sign_in()
    approval = begin_call(guarded, page)
    while not approval.is_visible():
        page.reload()
    approval.get_by_role("button", name="Allow once").click()
    while answer(page).get_attribute("data-status") == "pending":
        page.reload()
    expect(answer(page)).to_contain_text("You allowed this.")
    expect(answer(page)).to_contain_text("So be it.")


def test_a_stop_while_a_call_waits_says_that_it_did_not_run(page: Page, guarded: Diary) -> None:
    expect(begin_call(guarded, page)).to_be_visible()
    field(page).press("Escape")
    expect(answer(page)).to_have_attribute("data-status", "stopped")
    expect(answer(page)).to_contain_text("The answer ended before this was allowed. It was not done.")
    expect(page.get_by_role("form", name="Permission for a tool")).to_have_count(0)
    assert guarded.lines() == []
