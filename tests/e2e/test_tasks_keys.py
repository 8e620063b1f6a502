"""Tasks by keys alone."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.task_steps import add, announcement, go, row, selected, titles

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_a_day_is_worked_through_by_keys_alone(page: Page) -> None:
    go(page)
    page.keyboard.press("n")
    for line in ("Buy cacao", "Call Lan; find the number; ask her", "Write"):
        page.keyboard.type(line)
        page.keyboard.press("Enter")
        expect(row(page, line.split(";")[0])).to_be_visible()
    expect(page.get_by_label("Add a task")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    selected(page, "Buy cacao")
    page.keyboard.press("x")
    expect(announcement(page)).to_have_text("D2024-11-21-T01: Done.")
    expect(row(page, "Buy cacao")).to_contain_text("Done")
    selected(page, "Buy cacao")
    page.keyboard.press("J")
    expect(announcement(page)).to_have_text("D2024-11-21-T01 is now in place 2.")
    page.keyboard.press("J")
    expect(announcement(page)).to_have_text("D2024-11-21-T01 is now in place 3.")
    page.keyboard.press("k")
    page.keyboard.press("K")
    expect(announcement(page)).to_have_text("D2024-11-21-T03 is now in place 1.")
    page.keyboard.press("e")
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type(" a letter")
    page.keyboard.press("Enter")
    expect(announcement(page)).to_have_text("D2024-11-21-T03 is saved.")
    selected(page, "Write a letter")
    page.reload()
    expect(row(page, "Write a letter")).to_be_visible()
    assert titles(page) == ["Write a letter", "Call Lan", "Buy cacao"]


def test_who_has_left_the_field_when_the_answer_comes_is_not_brought_back(page: Page) -> None:
    go(page)
    routes: list[Route] = []
    page.route("**/tasks/**", lambda each: routes.append(each) if each.request.method == "POST" else each.continue_())
    page.keyboard.press("n")
    page.keyboard.type("Buy cacao")
    with page.expect_request(lambda request: request.method == "POST"):
        page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Add a task")).not_to_be_focused()
    routes[0].continue_()
    expect(row(page, "Buy cacao")).to_be_visible()
    expect(page.locator(".htmx-request, .htmx-settling")).to_have_count(0)
    page.keyboard.press("j")
    selected(page, "Buy cacao")


def test_keys_move_a_task_to_another_day_and_open_it(page: Page) -> None:
    go(page)
    add(page, "Repair the shelf")
    page.get_by_label("Add a task").blur()
    page.keyboard.press("j")
    page.keyboard.press("m")
    expect(page.get_by_label("Another day")).to_be_focused()
    page.get_by_label("Another day").fill("2024-11-25")
    page.keyboard.press("Enter")
    expect(announcement(page)).to_have_text("D2024-11-21-T01  continues as D2024-11-25-T01, Mon 25 November 2024.")
    expect(row(page, "Repair")).to_contain_text(" continues as D2024-11-25-T01")
    selected(page, "Repair")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/tasks/[0-9a-f-]{36}/"))
    page.get_by_role("link", name="D2024-11-25-T01").first.click()
    expect(page.get_by_role("heading", name="Repair the shelf")).to_be_visible()
    expect(page.locator("main")).to_contain_text("goes on from D2024-11-21-T01")
    go(page)
    page.keyboard.press("]")
    expect(page.get_by_role("heading", name="Fri 22 November 2024")).to_be_visible()


def test_a_checklist_is_reached_by_keys_and_stays_open(page: Page) -> None:
    go(page)
    add(page, "Pack; tent; book a place !stop which town; go")
    page.get_by_label("Add a task").blur()
    for key in "jojx":
        page.keyboard.press(key)
    expect(announcement(page)).to_have_text("D2024-11-21-T01.C01: Done.")
    selected(page, "tent")
    expect(page.locator("summary", has_text="Checklist")).to_contain_text("1 of 3 done")
    stop = row(page, "book a place")
    expect(stop).to_contain_text("breakpoint")
    expect(stop).to_contain_text("needs: which town")
    stop.get_by_role("button", name="Clear").click()
    expect(stop).to_contain_text("breakpoint, cleared")
    page.keyboard.press("j")
    page.get_by_label("Add to the checklist of").fill("a thing not sent")
    row(page, "go").get_by_role("button", name="Done: go").click()
    expect(announcement(page)).to_have_text("D2024-11-21-T01.C03: Done.")
    expect(page.get_by_label("Add to the checklist of")).to_have_value("a thing not sent")
    page.get_by_label("Add to the checklist of").press("Enter")
    expect(row(page, "a thing not sent")).to_be_visible()
    expect(page.get_by_label("Add to the checklist of")).to_have_value("")


def test_the_keys_are_shown_and_can_be_turned_off(page: Page) -> None:
    go(page)
    add(page, "Buy cacao")
    page.get_by_label("Add a task").blur()
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.get_by_label("Single letters are keys").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Keys")).to_be_hidden()
    page.keyboard.press("j")
    expect(page.locator(".row-title")).not_to_be_focused()
    page.reload()
    expect(page.get_by_label("Single letters are keys", exact=True)).not_to_be_checked()
