"""Whole ways through the other places: personas, projects, files, tasks and settings, each in four looks."""

import re
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, Screen, answer, expect_complete, field, luminance, ready, scripted
from tests.e2e.file_steps import choose, row, text_file
from tests.e2e.task_steps import DAY, said, selected, titles
from tests.e2e.task_steps import row as task_row
from tests.product import Caller

pytestmark = [pytest.mark.browser, pytest.mark.product]


def test_a_persona_and_a_project_are_made_and_answer_from_a_file(screen: Screen) -> None:
    page = screen.page
    screen.press(screen.side().get_by_role("link", name="Personas"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Personas")
    screen.check()
    screen.press(page.get_by_role("link", name="New persona"))
    expect(page.get_by_role("heading", level=1)).to_have_text("New persona")
    page.get_by_label("Name", exact=True).fill("Lawyer")
    page.get_by_label("Instructions", exact=True).fill("Name the clause.")
    expect(page.locator("#count")).not_to_contain_text("≈ 0 tokens")
    screen.check()
    screen.press(page.get_by_role("button", name="Create"))
    expect(page.get_by_role("heading", name="Lawyer")).to_be_visible()
    page.get_by_label("A sample message").fill("Which clause?")
    screen.press(page.get_by_role("button", name="See what it would get"))
    expect(page.locator("#tried .context")).to_contain_text("Which clause?")
    screen.check(page.locator("#tried"))

    screen.press(screen.side().get_by_role("link", name="Projects"))
    page.get_by_label("Name of a new project").fill("Contracts")
    screen.press(page.get_by_role("button", name="Create"))
    expect(page.get_by_role("heading", name="Contracts")).to_be_visible()
    choose(page, text_file("contract.txt", "Clause 7 limits the fee."))
    expect(row(page, "contract.txt")).to_contain_text("Ready")
    screen.press(page.get_by_role("button", name="Pin contract.txt"))
    expect(row(page, "contract.txt")).to_contain_text("pinned")
    page.get_by_label("Instructions for every conversation").fill("All of these are in force.")
    page.get_by_label("Persona").select_option(label="Lawyer")
    screen.press(page.get_by_role("button", name="Save"))
    expect(page.get_by_text("version 2")).to_be_visible()
    screen.check(page.locator("#entries"))
    screen.press(page.locator("main").get_by_role("link", name="New conversation"))
    ready(page)
    field(page).fill(scripted("Which clause?", text="The fee is limited [1]."))
    screen.press(page.get_by_role("button", name="Send"))
    expect_complete(page)
    expect(answer(page).locator(".citation")).to_have_text("1")

    screen.press(screen.side().get_by_role("link", name="Files"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Files")
    screen.check(row(page, "contract.txt"))
    screen.press(row(page, "contract.txt").get_by_role("link", name="contract.txt"))
    expect(page.locator("main")).to_contain_text("Clause 7 limits the fee.")
    screen.check()


def test_tasks_are_written_ordered_done_and_moved_on(screen: Screen) -> None:
    page = screen.page
    screen.press(screen.side().get_by_role("link", name="Tasks"))
    expect(page.get_by_role("heading", name="Today")).to_be_visible()
    screen.check()
    screen.go(DAY)
    expect(page.locator("#keys-opener:not([hidden])")).to_have_count(1)  # the script is there
    for line in ("Buy cacao", "Pack; tent; stove"):
        page.get_by_label("Add a task").fill(line)
        screen.press(page.locator(".quick-add").get_by_role("button", name="Add", exact=True))
        expect(task_row(page, line.split(";")[0])).to_be_visible()
        expect(page.get_by_label("Add a task")).to_have_value("")
    screen.press(page.locator("summary", has_text="Checklist"))
    screen.press(page.get_by_role("button", name="Done: tent"))
    expect(page.locator("summary", has_text="Checklist")).to_contain_text("1 of 2 done")
    screen.check(task_row(page, "Pack"))

    screen.press(page.get_by_role("link", name="Edit D2024-11-21-T02"))
    expect(page.get_by_label("Title")).to_have_value("Pack")
    screen.check(page.get_by_label("Title"))
    screen.press(page.get_by_role("button", name="Move “Pack” up"))
    expect(said(page)).to_have_text("D2024-11-21-T02 is now in place 1.")
    assert titles(page) == ["Pack", "Buy cacao"]
    screen.press(page.get_by_role("link", name="Edit D2024-11-21-T02"))
    page.get_by_label("Another day").fill("2024-11-22")
    screen.press(page.get_by_role("button", name="Move", exact=True))
    expect(task_row(page, "Pack")).to_contain_text("goes on as D2024-11-22-T01")
    selected(page, "Pack")
    screen.press(page.get_by_role("button", name="Done: Buy cacao"))
    expect(task_row(page, "Buy cacao")).to_contain_text("Done")

    screen.press(page.locator(".week").get_by_role("link", name=re.compile("^Fri 22")))
    screen.press(page.get_by_role("link", name="Pack"))
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    screen.check()
    screen.go("/tasks/month/2024-11/")
    expect(page.get_by_role("link", name=re.compile("^22 0 of 1 done"))).to_be_visible()
    screen.check()
    screen.press(page.get_by_role("link", name="Year", exact=True))
    expect(page.get_by_role("heading", name="2024")).to_be_visible()
    screen.check()


def test_language_time_and_colours_are_chosen(screen: Screen) -> None:
    page = screen.page
    screen.press(screen.side().get_by_role("link", name="Settings"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Settings")
    screen.check()
    page.get_by_label("Language").select_option("vi")
    page.get_by_label("Time zone").fill("Asia/Ho_Chi_Minh")
    screen.press(page.locator("form.settings button[type=submit]"))
    expect(page.locator("html")).to_have_attribute("lang", "vi")
    expect(page.get_by_role("heading", level=1)).to_have_text("Cài đặt")
    screen.check()
    page.locator("#language").select_option("en")
    screen.press(page.locator("form.settings button[type=submit]"))
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Ho_Chi_Minh")

    for chosen in ("Light", "Dark"):
        page.get_by_label(chosen, exact=True).check()
        screen.press(page.get_by_role("button", name="Save"))
        expect(page.get_by_role("status")).to_contain_text("Saved")
        bright = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert (bright > 0.5) == (chosen == "Light")
    page.get_by_label("As the system").check()
    screen.press(page.get_by_role("button", name="Save"))
    expect(page.locator("html")).not_to_have_attribute("data-theme", re.compile("."))
    screen.check()


def test_tokens_are_made_and_ended_and_browsers_signed_out(screen: Screen, visit: OpenBrowser, person: Person) -> None:
    page, name = screen.page, f"backup {uuid4().hex[:6]}"
    screen.go("/settings/")
    tabs = page.get_by_role("navigation", name="Settings")
    screen.press(tabs.get_by_role("link", name="API tokens"))
    page.get_by_label("Name").fill(name)
    page.get_by_role("checkbox", name=re.compile("^files")).check()
    page.get_by_label("Your password").fill(person.password)
    screen.press(page.get_by_role("button", name="Make token"))
    screen.press(page.locator(".new-token").get_by_role("button", name="Copy"))
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    screen.check(page.locator(".new-token .code"))
    program = Caller(screen.visit.product, str(page.evaluate("navigator.clipboard.readText()")))
    program.get("files/")
    program.get("projects/", expect=403)
    token = page.get_by_role("listitem").filter(has_text=name)
    screen.press(token.get_by_text("Revoke…"))
    screen.press(token.get_by_role("button", name=f"Revoke “{name}”"))
    expect(page.get_by_text("Tokens that have ended")).to_be_visible()
    program.get("files/", expect=401)

    other = visit(user_agent="Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0").sign_in()
    screen.press(tabs.get_by_role("link", name="Sessions"))
    expect(page.get_by_role("listitem").filter(has_text="this browser")).to_be_visible()
    session = page.get_by_role("listitem").filter(has_text="Firefox on Linux")
    screen.check(session)
    screen.press(session.get_by_role("button", name="Sign out"))
    expect(session).to_have_count(0)
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()  # it leaves by itself
    screen.check()
