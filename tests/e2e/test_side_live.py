"""Changes on one device show on the other: in the list of conversations and on the pages of tasks."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from chat.models import Conversation
from llm.models import Model
from tests.chat.runs.working import DONE, SAID, script, with_items, work
from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, ask, expect_complete, in_thread, ready, top_of
from tests.e2e.conversation_steps import options, talk
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]
PLACES = ["/", "/projects/", "/tasks/", "/settings/"]
ASK = script({"tool_calls": [{"name": "ask_user", "arguments": {"question": "Which colour?"}}]}, SAID)


def side(page: Page) -> Locator:
    return page.locator("#side-list")


def many(person: Person, count: int) -> list[Conversation]:
    def make() -> list[Conversation]:
        now = timezone.now()
        rows = [Conversation(owner=person.user, title=f"Talk {number:05}") for number in range(count)]
        conversations = Conversation.objects.bulk_create(rows, 1000)
        for number, each in enumerate(conversations):
            each.updated = now - timedelta(minutes=number + 1)
        Conversation.objects.bulk_update(conversations, ["updated"], 1000)
        return conversations

    return in_thread(make)


def rename(person: Person, place: object, title: str) -> None:
    person.caller.http.patch(f"conversations/{place}/", json={"title": title}).raise_for_status()


def unfold(page: Page, pages: int) -> None:
    """Scrolls down as far as so many pages of the list reach."""
    for number in range(1, pages + 1):
        expect(side(page).locator("li")).to_have_count(60 * number)
        if number < pages:
            side(page).evaluate("each => each.scrollTo(0, each.scrollHeight)")


class Requests:
    """The requests of a page for its list, and the sockets it opens."""

    def __init__(self, page: Page) -> None:
        self.lists: list[str] = []
        self.sockets: list[str] = []
        page.on("request", lambda request: self._note(request.url))
        page.on("websocket", lambda socket: self.sockets.append(socket.url))

    def _note(self, url: str) -> None:
        if "/conversations/?" in url:
            self.lists.append(url)


@pytest.mark.parametrize("where", PLACES)
def test_what_one_device_does_shows_in_the_list_of_the_other(visit: OpenBrowser, where: str) -> None:
    laptop, tablet = visit(), visit()
    page, other = laptop.sign_in(), tablet.sign_in()
    requests = Requests(other)
    other.goto(tablet.product.url + where)
    talk(page, "apples")
    expect(side(other)).to_contain_text("apples")
    options(page, "apples")
    page.get_by_label("Title").fill("Fruit")
    page.keyboard.press("Enter")
    expect(side(other)).to_contain_text("Fruit")
    options(page, "Fruit")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(side(other)).not_to_contain_text("Fruit")
    page.get_by_role("button", name="Undo").click()
    expect(side(other)).to_contain_text("Fruit")
    options(page, "Fruit")
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(side(other)).not_to_contain_text("Fruit")
    assert len(requests.sockets) == 1


def test_a_conversation_opens_one_socket(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    talk(page, "apples")
    requests = Requests(page)
    page.reload()
    ready(page)
    ask(page, "more", text="More.")
    expect_complete(page)
    assert len(requests.sockets) == 1


def test_a_list_that_changes_elsewhere_keeps_place_focus_and_what_was_unfolded(
    visit: OpenBrowser, person: Person
) -> None:
    conversations = many(person, 10_000)
    opened = visit()
    page = opened.sign_in()
    unfold(page, 4)
    row = page.locator(f"[id='c-{conversations[150].pk}']")
    row.scroll_into_view_if_needed()
    row.focus()
    before = top_of(row)
    rename(person, conversations[152].pk, "Another name")
    expect(side(page)).to_contain_text("Another name")
    assert abs(top_of(row) - before) < 1
    expect(row).to_be_focused()
    person.caller.ask("Hello.", {"text": "Hello."}, str(conversations[151].pk))
    expect(side(page).locator("li a").first).to_have_text("Talk 00151")
    assert abs(top_of(row) - before) < 1
    expect(row).to_be_focused()
    expect(side(page).get_by_role("link", name="Talk 00179", exact=True)).to_be_attached()


def test_who_has_gone_far_down_stays_there_until_they_come_back(visit: OpenBrowser, person: Person) -> None:
    conversations = many(person, 800)
    opened = visit()
    page = opened.sign_in()
    unfold(page, 13)
    row = page.locator(f"[id='c-{conversations[700].pk}']")
    row.scroll_into_view_if_needed()
    before = top_of(row)
    requests = Requests(page)
    rename(person, conversations[3].pk, "Another name")
    rename(person, conversations[4].pk, "One more name")
    page.wait_for_timeout(1_500)
    assert abs(top_of(row) - before) < 1
    assert requests.lists == []
    side(page).evaluate("each => each.scrollTo(0, 0)")
    expect(side(page)).to_contain_text("One more name")


def test_a_menu_that_is_open_stays_while_the_list_changes(visit: OpenBrowser, person: Person) -> None:
    opened = visit()
    page = opened.sign_in()
    talk(page, "apples")
    options(page, "apples")
    page.get_by_label("Title").fill("Half a ti")
    person.caller.post("conversations/", {"title": "Elsewhere"}, expect=201)
    expect(side(page)).to_contain_text("Elsewhere")
    expect(page.get_by_label("Title")).to_have_value("Half a ti")
    expect(page.get_by_label("Title")).to_be_focused()


def test_many_changes_are_a_few_requests(visit: OpenBrowser, person: Person) -> None:
    opened = visit()
    page = opened.sign_in()
    requests = Requests(page)
    began = timezone.now()
    for number in range(60):
        person.caller.post("conversations/", {"title": f"Talk {number}"}, expect=201)
    expect(side(page)).to_contain_text("Talk 59")
    seconds = (timezone.now() - began).total_seconds()
    assert 1 <= len(requests.lists) <= seconds + 2


def test_the_page_of_the_day_shows_at_once_what_happens_to_its_tasks_and_runs_elsewhere(
    visit: OpenBrowser, person: Person, product: Product, model: Model
) -> None:
    checklist = with_items(work(person, product, model), [ASK])
    opened = visit()
    page = opened.sign_in()
    page.goto(f"{product.url}/tasks/")
    expect(page.locator("section.run")).to_be_attached()
    expect(page).to_have_title(re.compile(r"^Tasks"))
    run = checklist.begin()
    expect(page).to_have_title(re.compile(r"^\(waiting\) Tasks"))
    expect(page.locator(".run-status")).to_have_text("Waiting for you")
    item = checklist.items()[0]["id"]
    person.caller.http.patch(f"tasks/{item}/", json={"title": script(*DONE)}).raise_for_status()
    person.caller.post(f"runs/{run['id']}/answer/", {"text": "Blue."})
    checklist.until(run["id"], "done")
    expect(page.locator(".run-status")).to_have_text("Done")
    expect(page).to_have_title(re.compile(r"^Tasks"))


def test_a_breakpoint_cleared_elsewhere_is_gone_here_and_what_was_being_written_stays(
    visit: OpenBrowser, person: Person, product: Product, model: Model
) -> None:
    checklist = with_items(work(person, product, model, "hybrid"), ["Book it", "Pay it"])
    item = checklist.items()[0]["id"]
    person.caller.http.patch(
        f"tasks/{item}/", json={"breakpoint": True, "needs": "the invoice", "status": "waiting"}
    ).raise_for_status()
    opened = visit()
    page = opened.sign_in()
    page.goto(f"{product.url}/tasks/")
    expect(page.get_by_role("heading", name="Waiting for you")).to_be_visible()
    page.get_by_label("Add a task").fill("Half a ta")
    page.locator("summary", has_text="Checklist").click()
    draft = page.get_by_label("Add to the checklist of").first
    draft.fill("half an it")
    person.caller.post(f"tasks/{item}/clear/", expect=200)
    expect(page.get_by_role("heading", name="Waiting for you")).to_have_count(0)
    expect(page.get_by_label("Add a task")).to_have_value("Half a ta")
    expect(draft).to_have_value("half an it")
    expect(draft).to_be_focused()


def test_a_task_that_is_being_edited_stays_as_it_is_among_new_ones(
    visit: OpenBrowser, person: Person, product: Product
) -> None:
    task = person.caller.post("tasks/", {"title": "Read", "level": "task"}, expect=201)
    opened = visit()
    page = opened.sign_in()
    page.goto(f"{product.url}/tasks/")
    page.get_by_role("link", name=f"Edit {task['code']}").click()
    page.get_by_label("Title").fill("Read it tw")
    person.caller.post("tasks/", {"title": "Write", "level": "task"}, expect=201)
    expect(page.locator(".row-title", has_text="Write")).to_be_visible()
    expect(page.get_by_label("Title")).to_have_value("Read it tw")
    expect(page.get_by_label("Title")).to_be_focused()
    page.get_by_label("Title").press("Enter")
    expect(page.locator(".row-title", has_text="Read it tw")).to_be_visible()


def test_after_the_server_was_away_the_list_is_what_it_is_now(visit: OpenBrowser, person: Person) -> None:
    opened = visit()
    opened.expected += ["WebSocket connection", "net::ERR_", "htmx:sendError"]  # requests fail in one of several ways
    page = opened.sign_in()
    talk(page, "apples")
    place = page.url.rstrip("/").rpartition("/")[2]
    product = opened.product
    product.end("web")
    try:
        expect(page.locator("#status")).to_contain_text("Connection lost")
        in_thread(lambda: Conversation.objects.filter(pk=place).update(title="Named meanwhile"))
    finally:
        product.start_web()
        product.wait_until_ready()
    expect(side(page)).to_contain_text("Named meanwhile")
    expect(page.get_by_role("heading", name="Named meanwhile")).to_be_visible()
