"""A person's unfinished work on a page survives updates, which are shown afterwards."""

import re
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from llm.models import Model
from tests.chat.runs.working import SAID, script, with_items, work
from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, Visit, answer, ask, field
from tests.e2e.constant_updates import Updates, asks, updates
from tests.e2e.conversation_steps import talk, waiting
from tests.e2e.file_steps import choose, text_file
from tests.e2e.file_steps import row as file_row
from tests.e2e.project_steps import make as make_project
from tests.e2e.task_steps import announcement, row, run_of, titles
from tests.product import Product, until

pytestmark = [pytest.mark.browser, pytest.mark.product]
TASKS, SIDE, RUNS = asks("taskschange"), asks("sidechange"), asks("nextchange")
SLOW: dict[str, Any] = {"tokens": 4_000, "interval": 0.05}
ASK = script({"tool_calls": [{"name": "ask_user", "arguments": {"question": "Which colour?"}}]}, SAID)
WITHOUT_MOVING = "delete Element.prototype.moveBefore"  # as in browsers that do not have it yet


def task(person: Person, title: str, **more: object) -> Any:
    return person.caller.post("tasks/", {"title": title, "level": "task", **more}, expect=201)


def checklist(person: Person, of: Any, title: str) -> Any:
    """Its one item."""
    return person.caller.post(f"tasks/{of['id']}/draft/", {"items": [{"title": title}]}, expect=201)["items"][0]


def rename(person: Person, what: Any, number: int) -> None:
    title = f"changed {number}"
    person.caller.http.patch(f"tasks/{what['id']}/", json={"title": title}).raise_for_status()


def open_tasks(page: Page, product: Product, path: str = "/tasks/") -> None:
    page.goto(product.url + path)
    expect(page.locator("#keys-opener:not([hidden])")).to_have_count(1)  # the script is there


def expect_up_to_date(place: Locator, news: Updates) -> None:
    """Check that all held updates have been shown."""
    change = news.changes - 1
    until(
        lambda: int((re.findall(r"changed (\d+)", place.inner_text()) or [-1])[0]) >= change,
        f"change {change} is shown",
    )


@pytest.fixture
def visitor(visit: OpenBrowser) -> Visit:
    opened = visit(permissions=["clipboard-read", "clipboard-write"])
    opened.sign_in()
    return opened


def test_a_task_is_edited_while_its_list_changes(page: Page, person: Person, product: Product) -> None:
    edited, other = task(person, "one"), task(person, "other")
    open_tasks(page, product)
    with updates(page, TASKS, partial(rename, person, other)) as news:
        news.press(page.get_by_role("link", name=f"Edit {edited['code']}"))
        title = page.get_by_label("Title")
        expect(title).to_be_focused()
        title.press("Home")
        title.press_sequentially("Only ", delay=60)
        expect(title).to_have_value("Only one")
        page.get_by_label("Status").select_option(label="In progress")
        news.pass_()
        expect_up_to_date(page.locator(".lines"), news)
        news.press(row(page, "one").get_by_text("Delete…"))
        news.pass_()
        expect(page.get_by_role("button", name="Delete for ever")).to_be_visible()
        expect(page.get_by_label("Status")).to_have_value("doing")
        news.press(page.get_by_role("button", name="Save"))
        expect(announcement(page)).to_have_text(f"{edited['code']} is saved.")
        expect(row(page, "Only one")).to_contain_text("In progress")
    expect_up_to_date(page.locator(".lines"), news)


def test_a_task_is_dragged_and_ticked_while_its_list_changes(page: Page, person: Person, product: Product) -> None:
    for title in ("one", "two"):
        task(person, title)
    other = task(person, "other")
    open_tasks(page, product)
    with updates(page, TASKS, partial(rename, person, other)) as news:
        row(page, "two").locator("[data-grip]").hover()
        page.mouse.down()
        news.pass_()
        place = row(page, "one").bounding_box()
        assert place
        page.mouse.move(place["x"] + 20, place["y"] + place["height"] * 0.1, steps=8)
        news.pass_()
        page.mouse.up()
        expect(announcement(page)).to_contain_text("is now in place 1.")
        assert titles(page)[:2] == ["two", "one"]
        tick = page.get_by_role("button", name="Done: two")
        tick.focus()
        page.keyboard.down("Space")
        news.pass_()
        page.keyboard.up("Space")
        expect(tick).to_have_attribute("aria-pressed", "true")
        expect(tick).to_be_focused()
    expect_up_to_date(page.locator(".lines"), news)


@pytest.mark.parametrize("before", ["", WITHOUT_MOVING], ids=["moving", "without moving"])
def test_an_item_is_written_in_the_middle_of_changes(page: Page, person: Person, product: Product, before: str) -> None:
    parent, other = task(person, "one"), task(person, "other")
    checklist(person, parent, "first")
    page.add_init_script(before)
    open_tasks(page, product)

    def change(number: int) -> None:
        rename(person, other, number)
        body = {"after": parent["id"] if number % 2 else None}
        person.caller.post(f"tasks/{other['id']}/order/", body, expect=200)

    with updates(page, TASKS, change) as news:
        news.press(page.locator("summary", has_text="Checklist"))
        item = page.get_by_label(f"Add to the checklist of {parent['code']}")
        item.press_sequentially("buy it", delay=40)
        item.press("Home")
        item.press_sequentially("then ", delay=60)
        expect(item).to_have_value("then buy it")
        item.press("Enter")
        item.press_sequentially("and pay", delay=40)
        expect(row(page, "then buy it")).to_be_visible()
        news.pass_()
        expect(item).to_have_value("and pay")
        expect(item).to_be_focused()
    expect_up_to_date(page.locator(".lines"), news)


def test_what_is_chosen_and_written_on_a_tasks_page_stays(page: Page, person: Person, product: Product) -> None:
    parent = task(person, "one")
    item = checklist(person, parent, "first")
    open_tasks(page, product, f"/tasks/{parent['id']}/")
    with updates(page, TASKS, partial(rename, person, item)) as news:
        page.get_by_label("Whose").select_option(label="The model's")
        page.get_by_label("Notes").press_sequentially("Half a no", delay=60)
        news.pass_()
        expect(page.get_by_label("Notes")).to_have_value("Half a no")
        expect(page.get_by_label("Whose")).to_have_value("model")
        expect_up_to_date(page.locator(".items"), news)
        page.get_by_label("Notes").press_sequentially("te", delay=60)
        news.press(page.get_by_role("button", name="Save"))
        expect(announcement(page)).to_contain_text("is saved.")
        news.pass_()
    saved = person.caller.get(f"tasks/{parent['id']}/")
    assert (saved["notes"], saved["archetype"]) == ("Half a note", "model")
    # From here on it shows what is changed elsewhere.
    person.caller.http.patch(f"tasks/{parent['id']}/", json={"notes": "Another note"}).raise_for_status()
    expect(page.get_by_label("Notes")).to_have_value("Another note")


def test_an_answer_to_what_a_person_did_is_not_taken_for_an_old_one(
    page: Page, person: Person, product: Product
) -> None:
    """News that arrive between the click and its answer do not make the answer outdated."""
    edited, other = task(person, "one"), task(person, "other")
    open_tasks(page, product)
    routes: list[Route] = []
    page.route("**/tasks/**?edit=*", lambda route: routes.append(route))
    with updates(page, TASKS, partial(rename, person, other)) as news:
        page.get_by_role("link", name=f"Edit {edited['code']}").click()
        news.pass_()
        routes[0].continue_()
        expect(page.get_by_label("Title")).to_be_focused()
    expect_up_to_date(page.locator(".lines"), news)


def test_a_menu_of_the_side_opens_while_the_list_changes(page: Page, person: Person, product: Product) -> None:
    talk(page, "apples")
    other = person.caller.conversation()

    def change(number: int) -> None:
        title = f"changed {number}"
        person.caller.http.patch(f"conversations/{other}/", json={"title": title}).raise_for_status()

    with updates(page, SIDE, change) as news:
        options = page.get_by_role("link", name="Options: apples")
        options.focus()
        news.pass_()
        expect(options).to_be_focused()
        news.press(options)
        title = page.get_by_label("Title")
        expect(title).to_be_focused()
        title.fill("")
        title.press_sequentially("pears", delay=60)
        news.press(page.get_by_role("button", name="Rename"))
        expect(page.locator("#side-list")).to_contain_text("pears")
    expect_up_to_date(page.locator("#side-list"), news)


def test_what_waits_comes_back_while_the_page_looks_at_it(page: Page, person: Person) -> None:
    ask(page, "First", **SLOW)
    expect(answer(page)).to_contain_text("t5")
    place = page.url.rstrip("/").rpartition("/")[2]
    ask(page, "Second")
    expect(waiting(page)).to_contain_text("Second")

    def change(number: int) -> None:
        title = f"changed {number}"
        person.caller.http.patch(f"conversations/{place}/", json={"title": title}).raise_for_status()

    with updates(page, RUNS, change) as news:
        field(page).press_sequentially("Third", delay=60)
        news.press(waiting(page).get_by_role("button", name="Edit"))
        expect(field(page)).to_have_value("Second\n\nThird")
        expect(waiting(page)).to_have_count(0)
    expect_up_to_date(page.locator("#side-list"), news)
    page.get_by_role("button", name="Stop the answer").click()


def test_what_was_asked_for_before_a_message_was_sent_does_not_take_it_away(page: Page, person: Person) -> None:
    talk(page, "apples")
    address = page.url
    routes: list[Route] = []
    page.route(f"{address}?whole", lambda route: route.continue_() if routes else routes.append(route))
    person.caller.ended(person.caller.ask("From elsewhere", {"text": "Pears."}, address.split("/")[-2])["id"])
    while not routes:
        page.wait_for_timeout(20)
    older = routes[0].fetch()
    ask(page, "And mine", text="Plums.")
    expect(answer(page)).to_contain_text("Plums.")
    routes[0].fulfill(response=older)
    expect(page.locator("article.question")).to_have_count(3)
    expect(page.locator("article.answer")).to_contain_text(["", "Pears.", "Plums."])


def test_an_older_copy_of_the_page_takes_back_no_mark(page: Page, person: Person) -> None:
    talk(page, "apples")
    address = page.url
    place, question = address.split("/")[-2], page.locator("article.question").first
    routes: list[Route] = []
    page.route(f"{address}?whole", lambda route: route.continue_() if routes else routes.append(route))
    person.caller.ended(person.caller.ask("From elsewhere", {"text": "Pears."}, place)["id"])
    while not routes:
        page.wait_for_timeout(20)
    older, urls = routes[0].fetch(), list[str]()
    page.on("request", lambda request: urls.append(request.url))
    message = question.get_attribute("data-message") or ""
    person.caller.http.patch(f"messages/{message}/", json={"mark": "pinned"}).raise_for_status()
    person.caller.http.patch(f"conversations/{place}/", json={"title": "pears"}).raise_for_status()
    expect(page.locator("#side-list")).to_contain_text("pears")  # the news of the mark came before
    assert not [url for url in urls if message in url]
    routes[0].fulfill(response=older)
    expect(question).to_contain_text("Always sent")


def test_news_of_a_message_do_not_lose_its_text(page: Page, person: Person) -> None:
    """The server gives it up, and says so to everybody, before the answer with which the composer takes it over."""
    ask(page, "First", **SLOW)
    expect(answer(page)).to_contain_text("t5")
    place = page.url.rstrip("/").rpartition("/")[2]
    ask(page, "Second")
    expect(waiting(page)).to_contain_text("Second")
    routes: list[Route] = []
    page.route("**/next/remove/", lambda route: routes.append(route))
    with updates(page, RUNS, lambda number: person.caller.get(f"conversations/{place}/")) as news:
        waiting(page).get_by_role("button", name="Edit").click()
        news.pass_(1)
        response = routes[0].fetch()
        news.pass_()
        routes[0].fulfill(response=response)
        expect(field(page)).to_have_value("Second")
        expect(waiting(page)).to_have_count(0)
    page.get_by_role("button", name="Stop the answer").click()


def test_a_run_is_answered_while_it_is_looked_at(page: Page, person: Person, product: Product, model: Model) -> None:
    run_task = with_items(work(person, product, model), [ASK, "second"])
    run = run_task.begin()
    run_task.until(run["id"], "waiting")
    rename_first = {"title": script(SLOW)}  # else it would ask the same again at once, and wait again
    person.caller.http.patch(f"tasks/{run_task.items()[0]['id']}/", json=rename_first).raise_for_status()
    open_tasks(page, product, f"/tasks/{run_task.task['id']}/")
    text = run_of(page).get_by_label("Your answer")
    with updates(page, TASKS, partial(rename, person, run_task.items()[1])) as news:
        text.press_sequentially("Bue", delay=60)
        text.press("ArrowLeft")
        text.press("ArrowLeft")
        news.pass_()
        text.press_sequentially("l", delay=60)
        expect(text).to_have_value("Blue")
        news.press(run_of(page).get_by_role("button", name="Answer and go on"))
        expect(run_of(page).locator(".run-status")).not_to_have_text("Waiting for you")
    page.get_by_role("button", name="Stop").click()
    expect(run_of(page).locator(".run-status")).to_have_text("Stopped")


def test_a_block_of_code_is_copied_while_the_answer_grows(visitor: Visit, person: Person) -> None:
    page = visitor.page
    lines = "\n".join(f"line_{number} = {number}" for number in range(400))
    ask(page, "Code", text=f"```python\n{lines}\n```", interval=0.02)
    # Its head is at the top of the view now and stays there; until then it moves with every line.
    expect(answer(page).locator("code")).to_contain_text("line_60 ")
    with updates(page, RUNS, lambda number: person.caller.get("conversations/")) as news:
        news.press(answer(page).locator("[data-copy]"))
        expect(answer(page).locator("code")).to_contain_text("line_90 ")
    # A browser writes to its clipboard after the click has been dealt with.
    until(lambda: "line_9 = 9" in str(page.evaluate("navigator.clipboard.readText()")), "the code is copied")
    page.get_by_role("button", name="Stop the answer").click()


def test_a_file_is_pinned_while_others_are_read(page: Page, person: Person) -> None:
    make_project(page, "Contracts")
    choose(page, text_file("a.txt", "first words"))
    expect(file_row(page, "a.txt")).to_contain_text("Ready")
    place = page.url.rstrip("/").rpartition("/")[2]

    def change(number: int) -> None:
        body = {"instructions": f"Changed {number}."}
        person.caller.http.patch(f"projects/{place}/", json=body).raise_for_status()

    with updates(page, 'htmx.trigger("#entries", "refresh")', change) as news:
        pin = page.get_by_role("button", name="Pin a.txt")
        news.press(pin)
        expect(pin).to_have_attribute("aria-pressed", "true")
        expect(pin).to_be_focused()
