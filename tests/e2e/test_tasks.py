"""A person works with their tasks in a browser: by keyboard alone, by dragging, by buttons, and without scripts."""

import re
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import PHONE, OpenBrowser
from tests.e2e.file_steps import go_to, overflow
from tests.e2e.task_steps import DAY, add, announcement, go, row, titles

pytestmark = [pytest.mark.browser, pytest.mark.product]


def drag(page: Page, what: Locator, onto: Locator, *, below: bool = False) -> None:
    grip, place = what.locator("[data-grip]").first.bounding_box(), onto.bounding_box()
    assert grip and place
    page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
    page.mouse.down()
    page.mouse.move(place["x"] + 20, place["y"] + place["height"] * (0.9 if below else 0.1), steps=12)


def test_tasks_are_dragged_into_order_and_a_drag_is_given_up(page: Page) -> None:
    go(page)
    add(page, "one", "two", "three")
    drag(page, row(page, "one"), row(page, "three"), below=True)
    assert titles(page) == ["two", "three", "one"]
    page.keyboard.press("Escape")
    page.mouse.up()
    assert titles(page) == ["one", "two", "three"]
    drag(page, row(page, "three"), row(page, "one"))
    page.mouse.up()
    expect(announcement(page)).to_have_text("D2024-11-21-T03 is now in place 1.")
    go(page)
    assert titles(page) == ["three", "one", "two"]


def test_a_task_is_dragged_onto_another_day(page: Page) -> None:
    go(page)
    add(page, "one", "two")
    friday = page.locator(".week").get_by_role("link", name=re.compile("Fri 22"))
    drag(page, row(page, "two"), friday)
    expect(friday).to_have_class(re.compile("aimed"))
    page.mouse.up()
    expect(announcement(page)).to_have_text("D2024-11-21-T02  continues as D2024-11-22-T01, Fri 22 November 2024.")
    expect(friday).to_contain_text("0/1")
    assert titles(page) == ["one", "two"]
    friday.click()
    expect(row(page, "two")).to_contain_text("D2024-11-22-T01")


def test_buttons_do_the_same(page: Page) -> None:
    go(page)
    add(page, "one", "two")
    page.get_by_role("button", name="Move “two” up").click()
    expect(page.get_by_role("button", name="Move “two” up")).to_be_disabled()
    assert titles(page) == ["two", "one"]
    tick = page.get_by_role("button", name="Done: one")
    tick.click()
    expect(tick).to_have_attribute("aria-pressed", "true")
    expect(tick).to_be_focused()
    page.get_by_role("link", name="Edit D2024-11-21-T02").click()
    page.get_by_label("Whose").select_option(label="The model's")
    page.get_by_label("Status").select_option(label="Dropped")
    page.get_by_role("button", name="Save").click()
    expect(announcement(page)).to_have_text("D2024-11-21-T02 is saved.")  # before, its form says the same words
    expect(row(page, "two")).to_contain_text("Dropped")
    expect(row(page, "two")).to_contain_text("model")
    page.get_by_role("link", name="Edit D2024-11-21-T01").click()
    row(page, "one").get_by_text("Delete…").click()
    row(page, "one").get_by_role("button", name="Delete for ever").click()
    expect(announcement(page)).to_have_text("D2024-11-21-T01 is deleted.")
    assert titles(page) == ["two"]


def test_what_is_refused_is_said_at_its_place_and_the_text_stays(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    opened.expected += ["400 (Bad Request)", "Code 400"]
    go(page)
    add(page, "Buy cacao")
    field = page.get_by_label("Add a task")
    field.fill("Sell it #Nowhere")
    field.press("Enter")
    expect(page.locator(".quick-add").get_by_role("alert")).to_contain_text("There is no project “Nowhere”")
    expect(field).to_have_value("Sell it #Nowhere")
    field.fill("Sell it")
    field.press("Enter")
    expect(row(page, "Sell it")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("link", name="Edit D2024-11-21-T01").click()
    page.get_by_label("Another day").fill("2024-11-21")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(row(page, "Buy cacao").get_by_role("alert")).to_contain_text("is already on this day")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Another day")).to_have_count(0)


def test_todays_count_in_the_side_follows(page: Page) -> None:
    go_to(page, "Tasks")
    go(page, "/tasks/")
    add(page, "Buy cacao", "Call Lan")
    link = page.get_by_role("navigation").get_by_role("link", name="Tasks")
    expect(link).to_contain_text("0/2")
    page.get_by_role("button", name="Done: Call Lan").click()
    expect(link).to_contain_text("1/2")


def test_who_was_signed_out_meanwhile_is_asked_to_sign_in(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    opened.expected += ["401 (Unauthorized)", "Code 401"]
    go(page)
    add(page, "Buy cacao")
    opened.context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Done: Buy cacao").click()
    expect(page.get_by_role("alert")).to_contain_text("You were signed out.")
    page.get_by_role("alert").get_by_role("link", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_objectives_show_their_progress(page: Page) -> None:
    go(page, "/tasks/year/2024/")
    add(page, "Open a shop")
    go(page)
    add(page, "Visit a place ^Y2024-O01", "Talk to the bank ^Y2024-O01")
    page.get_by_role("button", name="Done: Visit a place").click()
    expect(announcement(page)).to_contain_text("Done")
    page.get_by_role("link", name="Year", exact=True).click()
    expect(row(page, "Open a shop")).to_contain_text("1 of 2 tasks done")
    page.get_by_role("link", name="Open a shop").click()
    expect(page.get_by_role("link", name="Talk to the bank")).to_be_visible()
    page.goto(urljoin(page.url, "/tasks/month/2024-11/"))
    expect(page.get_by_role("link", name=re.compile("^21 1 of 2 done"))).to_be_visible()


def test_tasks_work_without_scripts(visit: OpenBrowser) -> None:
    opened = visit(java_script_enabled=False)
    page = opened.sign_in()
    opened.expected += ["400 (Bad Request)"]
    page.goto(urljoin(page.url, DAY))
    add(page, "one", "two; first; second")
    page.get_by_role("button", name="Move “two” up").click()
    assert titles(page) == ["two", "one"]
    page.locator("summary", has_text="Checklist").click()
    page.get_by_role("button", name="Done: first").click()
    expect(row(page, "first")).to_be_visible()  # the checklist is open still
    expect(page.locator("summary", has_text="Checklist")).to_contain_text("1 of 2 done")
    page.get_by_role("link", name="Edit D2024-11-21-T01").click()
    page.get_by_label("Another day").fill("2024-11-22")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(row(page, "one")).to_contain_text(" continues as D2024-11-22-T01")
    page.get_by_label("Add a task").fill("Sell it !sometime")
    page.get_by_role("button", name="Add", exact=True).last.click()
    expect(page.get_by_role("alert")).to_contain_text("“!sometime” is not")
    expect(page.get_by_label("Add a task")).to_have_value("Sell it !sometime")


def test_tasks_fit_on_a_dark_phone_and_are_moved_by_touch(visit: OpenBrowser) -> None:
    opened = visit(viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2, color_scheme="dark")
    page = opened.sign_in()
    go(page)
    add(page, "A-title-without-any-place-to-break-it" * 4, "two; " + "an-item-without-a-place-to-break-it" * 4)
    expect(page.get_by_role("button", name="Move “two” up")).to_be_hidden()
    page.get_by_role("link", name="Edit D2024-11-21-T02").tap()
    expect(page.get_by_label("Title")).to_have_value("two")
    assert overflow(page) == 0
    page.get_by_role("button", name="Move “two” up").tap()
    expect(announcement(page)).to_have_text("D2024-11-21-T02 is now in place 1.")
    page.locator("summary", has_text="Checklist").tap()
    assert overflow(page) == 0
    page.get_by_role("link", name="two").tap()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    assert overflow(page) == 0
    go(page, "/tasks/month/2024-11/")
    assert overflow(page) == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 22, 21)"


def test_what_is_written_in_a_row_stays_when_another_is_ticked(page: Page) -> None:
    go(page)
    add(page, "one", "two")
    page.get_by_role("link", name="Edit D2024-11-21-T01").click()
    page.get_by_label("Title").fill("one, but longer")
    page.get_by_role("button", name="Done: two").click()
    expect(page.get_by_role("button", name="Done: two")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Title")).to_have_value("one, but longer")
    page.get_by_role("button", name="Save").click()
    expect(row(page, "one, but longer")).to_be_visible()
    expect(page.get_by_label("Title")).to_have_count(0)
