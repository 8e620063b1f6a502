"""The calendars of tasks, the progress of objectives, and the history of a task."""

from datetime import date

import pytest
from django.test import Client

from projects.models import Project
from projects.planner import services
from projects.planner.rules import Actor
from tests.projects.planner.planning import NEXT, item, new
from tests.projects.planner.task_pages import EVIL, PAGE, shown


def test_a_month_counts_its_days_and_a_year_its_months(actor: Actor, browser: Client) -> None:
    services.set_status(actor=actor, task=new(actor), status="done")
    new(actor)
    services.move(actor=actor, task=new(actor), day=NEXT)
    services.set_status(actor=actor, task=new(actor), status="dropped")
    new(actor, "Of the month", horizon="month")
    month, year = shown(browser, "/tasks/month/2024-11/"), shown(browser, "/tasks/year/2024/")
    assert f'<a href="{PAGE}"' in month and "1 of 2 done" in month and "0 of 1 done" in month
    assert "Of the month" in month and "1 open, 0 done" in month
    assert year.count("0 of 1 done") == 1


def test_the_progress_of_objectives_is_in_words(actor: Actor, browser: Client) -> None:
    objective = new(actor, "Open a shop", level="objective", horizon="year")
    task = new(actor, parent=objective)
    new(actor, parent=new(actor, horizon="month", parent=objective))
    services.set_status(actor=actor, task=task, status="done")
    assert "1 of 3 tasks done" in shown(browser, "/tasks/year/2024/")
    page = shown(browser, f"/tasks/{objective.pk}/")
    assert "1 of 3 tasks done" in page and task.code in page


def test_the_history_says_who_changed_what(actor: Actor, browser: Client) -> None:
    project = Project.objects.create(owner=actor.user, name="Contracts")
    task = new(actor, "Old", archetype="model")
    model = Actor(actor.user, model="small-model")
    services.update(actor=model, task=task, fields={"status": "doing", "title": EVIL})
    services.update(actor=actor, task=task, fields={"project": project})
    services.reorder(actor=actor, task=new(actor), after=None)
    services.set_status(actor=actor, task=item(actor, task), status="done")
    page = shown(browser, f"/tasks/{task.pk}/")
    history = page[page.index('class="history"') :]
    for words in (
        "small-model for wendy",
        "Status: Open → In progress",
        "Project: nothing → Contracts",
        "Created: Old",
        "<code>C01</code> Status: Open → Done",
    ):
        assert words in history, words
    assert EVIL not in page


def test_a_long_history_has_pages(actor: Actor, browser: Client) -> None:
    task = new(actor, "Title 0")
    for n in range(1, 60):
        services.update(actor=actor, task=task, fields={"title": f"Title {n}"})
    first = shown(browser, f"/tasks/{task.pk}/")
    assert "Title 58 → Title 59" in first and "Created" not in first
    older = first.partition('<a class="more-link" href="')[2].partition("#")[0]
    second = shown(browser, older)
    assert "Created: Title 0" in second and "more-link" not in second
    assert browser.get(f"/tasks/{task.pk}/?before=x").status_code == 400


@pytest.mark.parametrize("path", ["day/2024-02-30", "day/0000-01-01", "month/2024-13", "year/0000", "year/20240"])
def test_days_that_do_not_exist_have_no_page(browser: Client, path: str) -> None:
    assert browser.get(f"/tasks/{path}/").status_code == 404


@pytest.mark.parametrize("day", [date.min, date.max])
def test_the_calendar_ends_without_a_fault(actor: Actor, browser: Client, day: date) -> None:
    task = new(actor, "At the end", date=day)
    iso = day.isoformat()
    for path in (f"day/{iso}", f"month/{iso[:7]}", f"year/{iso[:4]}", str(task.pk)):
        page = shown(browser, f"/tasks/{path}/")
        assert not ('rel="prev"' in page and 'rel="next"' in page)
