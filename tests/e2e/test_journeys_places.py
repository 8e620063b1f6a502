"""Pages of personas, projects, files, tasks and settings on a desktop and on a phone.

The tests of one thing at a time (`test_personas.py`, `test_projects.py`, `test_files.py`, `test_tasks.py`,
`test_settings.py`) hold what their forms do. The rows are made through the API, so that a browser only visits them.
"""

import re

import pytest
from django.conf import settings
from playwright.sync_api import expect

from accounts.models import User
from tests.conftest import Person
from tests.e2e.conftest import Screen, in_thread
from tests.e2e.file_steps import row
from tests.e2e.settings_steps import settings_link
from tests.e2e.task_steps import DAY
from tests.e2e.task_steps import row as task_row
from tests.projects.uploads import uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def test_personas_projects_and_files_fit(screen: Screen, person: Person) -> None:
    page, caller = screen.page, person.caller
    persona = caller.post("personas/", {"name": "Lawyer", "instructions": "Name the clause."}, expect=201)["id"]
    file = uploaded(caller, "contract.txt", "Clause 7 limits the fee.")["id"]
    project = caller.post("projects/", {"name": "Contracts", "persona": persona}, expect=201)["id"]
    caller.post(f"projects/{project}/files/", {"file": file, "pinned": True}, expect=201)

    screen.press(screen.side().get_by_role("link", name="Personas"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Personas")
    screen.check()
    screen.press(page.get_by_role("link", name="New persona"))
    expect(page.get_by_role("heading", level=1)).to_have_text("New persona")
    page.get_by_label("Instructions", exact=True).fill("Name the clause.")
    expect(page.locator("#count")).not_to_contain_text("≈ 0 tokens")
    screen.check()
    screen.go(f"/personas/{persona}/")
    page.get_by_label("A sample message").fill("Which clause?")
    screen.press(page.get_by_role("button", name="Preview its prompt"))
    expect(page.locator("#tried .context")).to_contain_text("Which clause?")
    screen.check(page.locator("#tried"))

    screen.press(screen.side().get_by_role("link", name="Projects"))
    screen.press(page.locator("main").get_by_role("link", name="Contracts"))
    expect(row(page, "contract.txt")).to_contain_text("pinned")
    screen.check(page.locator("#entries"))
    screen.press(screen.side().get_by_role("link", name="Files"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Files")
    screen.check(row(page, "contract.txt"))
    screen.press(row(page, "contract.txt").get_by_role("link", name="contract.txt"))
    expect(page.locator("main")).to_contain_text("Clause 7 limits the fee.")
    screen.check()


def test_tasks_of_a_day_a_month_and_a_year_fit(screen: Screen, person: Person) -> None:
    page, caller = screen.page, person.caller
    task = caller.post("tasks/", {"title": "Pack", "level": "task", "date": "2024-11-21"}, expect=201)
    items = [{"title": "tent"}, {"title": "stove"}]
    caller.post(f"tasks/{task['id']}/draft/", {"items": items}, expect=201)

    screen.press(screen.side().get_by_role("link", name="Tasks"))
    expect(page.get_by_role("heading", name="Today")).to_be_visible()
    screen.check()
    screen.go(DAY)
    expect(page.locator("#keys-opener:not([hidden])")).to_have_count(1)  # the script has loaded
    screen.press(page.locator("summary", has_text="Checklist"))
    screen.press(page.get_by_role("button", name="Done: tent"))
    expect(page.locator("summary", has_text="Checklist")).to_contain_text("1 of 2 done")
    screen.check(task_row(page, "Pack"))
    screen.press(page.get_by_role("link", name=f"Edit {task['code']}"))
    screen.check(page.get_by_label("Title"))
    screen.press(page.get_by_role("button", name="Done: Pack"))
    expect(task_row(page, "Pack").first).to_contain_text("Done")

    screen.go(f"/tasks/{task['id']}/")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    screen.check()
    screen.go("/tasks/month/2024-11/")
    expect(page.get_by_role("link", name=re.compile("^21 1 of 1 done"))).to_be_visible()
    screen.check()
    screen.press(page.get_by_role("link", name="Year", exact=True))
    expect(page.get_by_role("heading", name="2024")).to_be_visible()
    screen.check()


def other_browser(screen: Screen) -> None:
    """Sign the person in with a browser of another name."""
    key = in_thread(screen.visit.session)
    cookie = f"{settings.SESSION_COOKIE_NAME}={key}"
    with screen.visit.product.http(headers={"User-Agent": FIREFOX, "Cookie": cookie}) as browser:
        browser.get("/settings/").raise_for_status()


def test_the_pages_of_settings_fit_in_two_languages(screen: Screen, person: Person) -> None:
    page = screen.page
    other_browser(screen)
    screen.press(screen.side().get_by_role("link", name="Settings"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Settings")
    screen.check()
    screen.press(settings_link(page, "API tokens"))
    page.get_by_label("Name").fill("backup")
    page.get_by_role("checkbox", name=re.compile("^files")).check()
    page.get_by_label("Your password").fill(person.password)
    screen.press(page.get_by_role("button", name="Make token"))
    screen.press(page.locator(".new-token").get_by_role("button", name="Copy"))
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    screen.check(page.locator(".new-token .code"))
    token = page.get_by_role("listitem").filter(has_text="backup")
    screen.press(token.get_by_text("Revoke…"))
    screen.press(token.get_by_role("button", name="Revoke “backup”"))
    expect(page.get_by_text("Tokens that have ended")).to_be_visible()

    screen.press(settings_link(page, "Sessions"))
    expect(page.get_by_role("listitem").filter(has_text="this browser")).to_be_visible()
    session = page.get_by_role("listitem").filter(has_text="Firefox on Linux")
    screen.check(session)
    screen.press(session.get_by_role("button", name="Sign out"))
    expect(session).to_have_count(0)
    screen.check()

    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(language="vi"))
    screen.go("/settings/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Cài đặt")
    screen.check()
