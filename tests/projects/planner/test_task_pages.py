"""The pages of tasks of a day, month and year, and their forms."""

from datetime import timedelta

import pytest
from django.core import signing
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from projects.models import Project
from projects.planner import services
from projects.planner.models.task import Task
from projects.planner.queries import today
from projects.planner.rules import Actor
from tests.projects.planner.planning import DAY, NEXT, item, new
from tests.projects.planner.task_pages import EVIL, PAGE, shown


def post(browser: Client, url: str, **fields: str) -> str:
    """As a form without scripts; returns the page that comes then."""
    response = browser.post(url, {"back": PAGE, **fields}, follow=True)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def titles() -> list[str]:
    return list(Task.objects.filter(date=DAY, level="task").order_by("position").values_list("title", flat=True))


def test_today_is_the_users(actor: Actor, browser: Client) -> None:
    zones = ("Pacific/Kiritimati", "Pacific/Pago_Pago")  # never the same day
    for zone in zones:
        User.objects.filter(pk=actor.user.pk).update(timezone=zone)
        actor.user.refresh_from_db()
        new(actor, f"In {zone}", date=today(actor.user))
        page = shown(browser, "/tasks/")
        assert [other for other in zones if f"In {other}" in page] == [zone]


def test_a_day_says_of_every_task_what_and_how_far_it_is(actor: Actor, browser: Client) -> None:
    project = Project.objects.create(owner=actor.user, name="Contracts")
    month = new(actor, "Month", horizon="month")
    task = new(actor, EVIL, archetype="hybrid", project=project, parent=month)
    item(actor, task, "Choose", breakpoint=True, needs="which one")
    done = item(actor, task, "First")
    services.set_status(actor=actor, task=done, status="done")
    other = new(actor, "Call Lan")
    services.set_status(actor=actor, task=other, status="done")
    page = shown(browser, PAGE)
    assert "1 open, 1 done" in page
    assert "1 of 2 done" in page
    for words in (task.code, "Open", "hybrid", "Contracts", month.code, "needs: which one", other.code, "Done"):
        assert words in page
    assert EVIL not in page


def test_what_waits_comes_first_and_today_from_every_day(actor: Actor, browser: Client) -> None:
    now = today(actor.user)
    task = new(actor, "Compare", archetype="hybrid", date=now - timedelta(3))
    stop = item(actor, task, "Choose", date=None, breakpoint=True, needs="the district")
    services.set_status(actor=actor, task=stop, status="waiting")
    page = shown(browser, "/tasks/")
    assert page.index("Waiting for you") < page.index("needs: the district") < page.index("Nothing to do on this day")
    assert "Waiting for you" not in shown(browser, f"/tasks/day/{now + timedelta(1)}/")
    cleared = post(browser, f"/tasks/{stop.pk}/clear/", back="/tasks/")
    assert f"The breakpoint {stop.code} is cleared." in cleared
    assert "needs: the district" not in cleared


def test_a_line_becomes_a_task_with_everything_in_it(actor: Actor, browser: Client) -> None:
    Project.objects.create(owner=actor.user, name="Chocolate shop")
    month = new(actor, "Month", horizon="month")
    line = f"Buy cacao !hybrid #chocolate-shop >{NEXT} ^{month.code}; which kind !stop ask Lan; pay"
    page = post(browser, PAGE, text=line)
    row = Task.objects.get(title="Buy cacao")
    assert (row.code, row.archetype, row.parent) == ("D2024-11-22-T01", "hybrid", month)
    assert row.project is not None and row.project.name == "Chocolate shop"
    checklist = row.children.order_by("position").values_list("title", "breakpoint", "needs")
    assert list(checklist) == [("which kind", True, "ask Lan"), ("pay", False, "")]
    assert "Added D2024-11-22-T01. Its page is Fri 22 November 2024." in page


def test_a_project_of_two_words_is_shown_as_it_has_to_be_written(browser: Client, actor: Actor) -> None:
    Project.objects.create(owner=actor.user, name="Contracts 2026")
    page = browser.post(PAGE, {"text": "Read the fees #Contracts 2026"}).content.decode()
    assert "There is no project “Contracts”. For “Contracts 2026”, write #&quot;Contracts 2026&quot;." in page


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("Buy #Nowhere", "There is no project “Nowhere”"),
        ("Buy ^M2024-11-T09", "There is no such task"),
        ("Buy >2024-13", "is not a day"),
        ("Plan >2024-12; one; two", "Only day tasks have a checklist"),
        ("x" * 201, "The title has 201 characters"),
        ("Buy; " + "; ".join(f"item {n}" for n in range(100)), "Codes end at"),
    ],
)
def test_a_refused_line_keeps_its_text_and_leaves_nothing(browser: Client, line: str, sentence: str) -> None:
    response = browser.post(PAGE, {"text": line})
    page = response.content.decode()
    assert 400 <= response.status_code < 500
    assert sentence in page
    assert f">{line.replace('>', '&gt;')}</textarea>" in page
    fragment = browser.post(PAGE, {"text": line}, headers={"HX-Request": "true"})
    assert fragment.status_code == response.status_code
    assert fragment["HX-Retarget"] == "find [data-problem]"  # of the form, whose text the script leaves alone
    assert sentence in fragment.content.decode() and "<textarea" not in fragment.content.decode()
    assert not Task.objects.exists()


def test_of_two_requests_at_the_same_time_each_is_told_what_it_did(browser: Client) -> None:
    script = {"HX-Request": "true"}
    ways = [browser.post(PAGE, {"text": text}, headers=script)["Location"] for text in ("Milk", "Bread")]
    shown(browser, PAGE)  # as a page does that hears of news
    for way, code in zip(reversed(ways), ("T02", "T01"), strict=True):
        confirmation = browser.get(way, headers=script).content.decode().partition('id="said" role="status">')[2]
        assert confirmation.startswith(f"Added D2024-11-21-{code}.</p>")
    assert "Send money" not in shown(browser, f"{PAGE}?said=Send+money")
    assert "Send money" not in shown(browser, f"{PAGE}?said={signing.dumps('Send money', salt='another')}")


def test_what_is_typed_on_a_month_or_year_belongs_to_it(browser: Client, actor: Actor) -> None:
    browser.post("/tasks/month/2024-11/", {"text": "Visit places"})
    browser.post("/tasks/month/2024-11/", {"text": "Find a place !objective"})
    browser.post("/tasks/year/2024/", {"text": "Open a shop"})
    assert set(Task.objects.values_list("code", flat=True)) == {"M2024-11-T01", "M2024-11-O01", "Y2024-O01"}


def test_tasks_are_ticked_opened_again_and_put_in_order(actor: Actor, browser: Client) -> None:
    a, b, c = (new(actor, title) for title in "abc")
    assert f"{a.code}: Done." in post(browser, f"/tasks/{a.pk}/status/", status="done")
    assert f"{a.code}: Open." in post(browser, f"/tasks/{a.pk}/status/", status="open")
    assert f"{a.code} is now in place 3." in post(browser, f"/tasks/{a.pk}/order/", after=str(c.pk))
    post(browser, f"/tasks/{c.pk}/order/", after="")
    assert titles() == ["c", "b", "a"]
    page = shown(browser, PAGE)
    steps = {each: f'id="{each}-{b.pk}" name="after" value="{after}"' for each, after in (("up", ""), ("down", a.pk))}
    assert steps["up"] in page and steps["down"] in page


def test_a_moved_task_links_both_ways(actor: Actor, browser: Client) -> None:
    task = new(actor, "Repair")
    page = post(browser, f"/tasks/{task.pk}/move/", day=str(NEXT))
    moved = Task.objects.get(date=NEXT)
    assert f"{task.code} continues as {moved.code}, Fri 22 November 2024." in page
    link = '<a href="/tasks/{0.pk}/">{0.code}</a>'.format
    assert "continues as " + link(moved) in shown(browser, f"/tasks/{task.pk}/")
    assert "goes on from " + link(task) in shown(browser, f"/tasks/{moved.pk}/")


def test_a_refused_form_comes_again_with_what_was_typed(actor: Actor, browser: Client) -> None:
    task = new(actor)
    long = "y" * 201
    for path, fields in (
        ("save", {"title": long, "notes": "My notes"}),
        ("save", {"title": long}),
        ("items", {"items": long}),
        ("move", {"day": "someday"}),
        ("order", {"after": str(task.pk)}),
        ("status", {"status": "moved"}),
    ):
        response = browser.post(f"/tasks/{task.pk}/{path}/", {"back": PAGE, **fields})
        page = response.content.decode()
        assert response.status_code == 400, path
        assert 'role="alert"' in page
        texts = [text for text in fields.values() if text in (long, "My notes")]
        assert all(text in page for text in texts), path
    task.refresh_from_db()
    assert (task.title, task.notes, task.children.count()) == ("Task", "", 0)


def test_everything_of_a_task_is_edited_on_its_page(actor: Actor, browser: Client) -> None:
    project = Project.objects.create(owner=actor.user, name="Contracts")
    month = new(actor, "Month", horizon="month")
    task = new(actor)
    fields = {"title": "Better", "notes": "one\r\ntwo", "archetype": "model", "status": "doing"}
    page = post(browser, f"/tasks/{task.pk}/save/", project=str(project.pk), parent=str(month.pk), **fields)
    assert f"{task.code} is saved." in page
    task.refresh_from_db()
    assert (task.title, task.notes, task.archetype, task.status) == ("Better", "one\ntwo", "model", "doing")
    assert (task.project, task.parent) == (project, month)
    assert ">one two</textarea>" in shown(browser, f"/tasks/{task.pk}/")
    post(browser, f"/tasks/{task.pk}/save/", project="", parent="")
    task.refresh_from_db()
    assert (task.project, task.parent, task.title) == (None, None, "Better")


def test_a_checklist_grows_and_its_items_become_breakpoints(actor: Actor, browser: Client) -> None:
    task = new(actor)
    post(browser, f"/tasks/{task.pk}/items/", items="tent\nstove; gas !stop which size")
    tent, _stove, gas = task.children.order_by("position")
    assert (gas.breakpoint, gas.needs) == (True, "which size")
    post(browser, f"/tasks/{tent.pk}/save/", title="big tent", breakpoint="yes", needs="a colour")
    post(browser, f"/tasks/{gas.pk}/save/", title="gas", breakpoint="no", needs="which size")
    tent.refresh_from_db()
    gas.refresh_from_db()
    assert (tent.title, tent.breakpoint, tent.needs) == ("big tent", True, "a colour")
    assert (gas.breakpoint, gas.needs) == (False, "")
    opened = shown(browser, f"{PAGE}?edit={tent.pk}")
    assert "open>" in opened and 'value="a colour"' in opened
    assert browser.get(f"/tasks/{tent.pk}/")["Location"] == f"/tasks/{task.pk}/#task-{tent.pk}"


def test_a_deleted_task_leaves_its_page_for_its_day(actor: Actor, browser: Client) -> None:
    task = new(actor)
    response = browser.post(f"/tasks/{task.pk}/delete/", follow=True)
    assert response.redirect_chain == [(PAGE, 302)]
    assert f"{task.code} is deleted." in response.content.decode()
    assert browser.post(f"/tasks/{task.pk}/status/", {"status": "done"}).status_code == 404


@pytest.mark.parametrize(
    "back", ["https://evil.example/tasks/", "//evil.example/tasks/", "/admin/", "javascript:x", ""]
)
def test_a_form_does_not_lead_elsewhere(actor: Actor, browser: Client, back: str) -> None:
    response = browser.post(f"/tasks/{new(actor).pk}/status/", {"status": "done", "back": back})
    assert response["Location"] == PAGE


def test_the_side_counts_todays_tasks(actor: Actor, browser: Client) -> None:
    now = today(actor.user)
    services.set_status(actor=actor, task=new(actor, date=now), status="done")
    new(actor, date=now)
    services.move(actor=actor, task=new(actor, date=now), day=now + timedelta(1))
    assert "1 of 2 done" in shown(browser, "/projects/")


def test_more_tasks_need_no_more_queries(
    actor: Actor, browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(8):
        task = new(actor, archetype="hybrid", parent=new(actor, horizon="month"))
        stop = item(actor, task, breakpoint=True)
        services.set_status(actor=actor, task=stop, status="waiting")
        services.move(actor=actor, task=new(actor), day=timezone.localdate() + timedelta(400))
    with django_assert_max_num_queries(13):
        browser.get(PAGE)
    with django_assert_max_num_queries(15):
        browser.get(f"/tasks/{task.pk}/")
