"""Objectives, tasks and checklists: numbering, places, moving, progress, and acts that a model may not do."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from accounts.models import User
from core.errors import NotFound
from projects.models import Project
from projects.planner import services
from projects.planner.models.task import Task, TaskProgress
from projects.planner.queries import visible_task, with_progress
from projects.planner.rules import Actor, DraftItem
from tests.projects.planner.planning import DAY, NEXT, item, new, refused, status, titles


def test_each_series_counts_for_itself(actor: Actor) -> None:
    rows = [
        new(actor, level="objective", horizon="year"),
        new(actor, level="objective", horizon="month"),
        new(actor, horizon="month"),
        first := new(actor),
        new(actor),
        item(actor, first),
        item(actor, first),
        new(actor, date=NEXT),
        new(Actor(User.objects.create_user("other"))),
    ]
    assert [row.code for row in rows] == [
        *("Y2024-O01", "M2024-11-O01", "M2024-11-T01", "D2024-11-21-T01", "D2024-11-21-T02"),
        *("D2024-11-21-T01.C01", "D2024-11-21-T01.C02", "D2024-11-22-T01", "D2024-11-21-T01"),
    ]
    assert [row.date for row in rows[:3]] == [date(2024, 1, 1), date(2024, 11, 1), date(2024, 11, 1)]


def test_a_deleted_number_does_not_come_again(actor: Actor) -> None:
    task, second = new(actor), new(actor)
    last = item(actor, task)
    services.delete(actor=actor, task=second)
    services.delete(actor=actor, task=last)
    assert new(actor).code == "D2024-11-21-T03"
    assert item(actor, task).code == "D2024-11-21-T01.C02"


def test_a_series_ends_at_99(actor: Actor) -> None:
    task = new(actor)
    drafted = services.draft_checklist(actor=actor, task=task, items=[DraftItem(f"{n}") for n in range(98)])
    assert drafted[-1].code.endswith(".C98")
    refused("numbers_used_up", services.draft_checklist, actor=actor, task=task, items=[DraftItem("a"), DraftItem("b")])
    assert item(actor, task).code.endswith(".C99")
    refused("numbers_used_up", item, actor=actor, parent=task)
    services.delete(actor=actor, task=drafted[0])
    refused("numbers_used_up", item, actor=actor, parent=task)


def test_tasks_that_are_created_at_once_get_numbers_and_places_of_their_own(committed: None) -> None:
    user = User.objects.create_user(f"many-{uuid4().hex}")
    together = Barrier(8)

    def create(_: int) -> tuple[str, int]:
        try:
            together.wait(30)
            task = new(Actor(user))
            return task.code, task.position
        finally:
            connection.close()

    try:
        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(create, range(8)))
        assert sorted(rows) == [(f"D2024-11-21-T{number:02d}", number - 1) for number in range(1, 9)]
    finally:
        user.delete()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"level": "objective"}, "unknown_kind"),
        ({"level": "task", "horizon": "year"}, "unknown_kind"),
        ({"level": "item", "horizon": "month"}, "unknown_kind"),
        ({"level": "dream"}, "unknown_kind"),
        ({"level": "item"}, "no_parent"),
        ({"title": " \n\t "}, "empty_title"),
        ({"title": "x" * 201}, "text_too_long"),
        ({"notes": "x" * 4_001}, "text_too_long"),
        ({"archetype": "robot"}, "unknown_archetype"),
        ({"level": "objective", "horizon": "year", "archetype": "user"}, "not_a_task"),
        ({"breakpoint": True}, "not_an_item"),
        ({"needs": "Something"}, "no_breakpoint"),
    ],
)
def test_what_makes_no_sense_is_refused(actor: Actor, fields: dict[str, Any], code: str) -> None:
    refused(code, new, actor=actor, **{"title": "Task", **fields})


def test_a_title_is_one_line_that_can_be_stored(actor: Actor) -> None:
    assert new(actor, " Buy\n the \0 cacao\u2028 \ud800now ").title == "Buy the cacao now"


def test_a_parent_is_one_level_or_one_horizon_above_and_ones_own(actor: Actor) -> None:
    year, month = (new(actor, level="objective", horizon=horizon) for horizon in ("year", "month"))
    work = new(actor, horizon="month", parent=year)
    task = new(actor, parent=work)
    for child, parent in ((month, year), (work, month), (task, month), (task, year), (task, None)):
        assert services.update(actor=actor, task=child, fields={"parent": parent}).parent == parent
    for child, parent in ((year, month), (year, year), (month, work), (work, task), (work, work), (task, task)):
        refused("wrong_parent", services.update, actor=actor, task=child, fields={"parent": parent})
    refused("wrong_parent", item, actor=actor, parent=work)
    refused("wrong_parent", item, actor=actor, parent=year)
    refused("wrong_day", item, actor=actor, parent=task, date=NEXT)
    theirs = new(Actor(User.objects.create_user("other")), level="objective", horizon="year")
    refused("not_found", services.update, actor=actor, task=task, fields={"parent": theirs})
    refused("not_found", new, actor=actor, parent=theirs)
    other = new(actor)
    inside = item(actor, task)
    refused("item_stays", services.update, actor=actor, task=inside, fields={"parent": other})
    refused("no_parent", services.update, actor=actor, task=inside, fields={"parent": None})


def test_a_project_must_be_one_that_the_user_sees(actor: Actor) -> None:
    mine = Project.objects.create(owner=actor.user, name="Mine")
    theirs = Project.objects.create(owner=User.objects.create_user("other"), name="Theirs")
    task = new(actor, project=mine)
    refused("not_found", services.update, actor=actor, task=task, fields={"project": theirs})
    refused("item_has_no_project", item, actor=actor, parent=task, project=mine)
    mine.delete()
    assert visible_task(actor.user, task.code).project is None


def test_the_database_keeps_what_the_services_promise(actor: Actor) -> None:
    task = new(actor)
    for column in ({"archetype": ""}, {"breakpoint": True}, {"horizon": "year"}, {"status": "done"}, {"level": "item"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Task.objects.filter(pk=task.pk).update(**column)


def test_a_finished_task_says_when_and_a_reopened_one_does_not(actor: Actor) -> None:
    task = new(actor)
    done = status(actor, task, "done")
    assert done.finished is not None
    assert status(actor, task, "done").finished == done.finished
    assert status(actor, task, "waiting").finished is None
    refused("unknown_status", status, actor=actor, task=task, value="moved")
    refused("unknown_status", status, actor=actor, task=task, value="sleeping")


def test_the_order_is_the_users(actor: Actor) -> None:
    a, b, c = (new(actor, name) for name in "abc")
    other_day = new(actor, "elsewhere", date=NEXT)
    day = Task.objects.in_list_of(a)
    services.reorder(actor=actor, task=c, after=None)
    assert titles(day.all()) == ["c", "a", "b"]
    services.reorder(actor=actor, task=c, after=a)
    assert titles(day.all()) == ["a", "c", "b"]
    services.delete(actor=actor, task=a)
    assert titles([*day.all(), new(actor, "d")]) == ["c", "b", "d"]
    assert titles(day.all()) == ["c", "b", "d"]
    for wrong in (other_day, b):
        refused("not_beside", services.reorder, actor=actor, task=b, after=wrong)


def test_a_moved_task_goes_on_under_a_new_code_and_the_old_one_stays(actor: Actor) -> None:
    goal = new(actor, level="objective", horizon="year")
    task = new(actor, "Trip", archetype="hybrid", parent=goal, notes="With Ana.")
    done, left = item(actor, task, "Look"), item(actor, task, "Book", breakpoint=True, needs="Which dates?")
    status(actor, done, "done")
    status(actor, left, "waiting")
    moved = services.move(actor=actor, task=task, day=NEXT)
    assert (moved.code, moved.status, moved.parent, moved.notes) == ("D2024-11-22-T01", "open", goal, "With Ana.")
    old, copy = visible_task(actor.user, task.code), moved.children.get()
    assert (old.status, old.moved_to, old.date, old.finished is not None) == ("moved", moved, DAY, True)
    assert visible_task(actor.user, moved.code).moved_from == old
    assert (copy.code, copy.title, copy.status, copy.needs) == (f"{moved.code}.C01", "Book", "open", "Which dates?")
    assert copy.blocking
    done.refresh_from_db()
    left.refresh_from_db()
    assert (done.status, left.status, left.moved_to) == ("done", "moved", copy)
    refused("was_moved", services.move, actor=actor, task=task, day=NEXT)
    refused("was_moved", status, actor=actor, task=task, value="open")
    refused("was_moved", item, actor=actor, parent=task)
    refused("was_moved", services.draft_checklist, actor=actor, task=task, items=[DraftItem("x")])
    back = services.move(actor=actor, task=moved, day=DAY)
    assert back.code == "D2024-11-21-T02"
    services.delete(actor=actor, task=moved)
    assert status(actor, task, "open").status == "open"


def test_only_unfinished_day_tasks_are_moved_and_to_another_day(actor: Actor) -> None:
    task, month = new(actor), new(actor, horizon="month")
    refused("same_day", services.move, actor=actor, task=task, day=DAY)
    refused("not_a_day_task", services.move, actor=actor, task=month, day=NEXT)
    refused("not_a_day_task", services.move, actor=actor, task=item(actor, task), day=NEXT)
    status(actor, task, "done")
    refused("finished", services.move, actor=actor, task=task, day=NEXT)


def test_what_is_deleted_takes_its_checklist_and_leaves_the_tasks_below(actor: Actor) -> None:
    goal = new(actor, level="objective", horizon="year")
    task = new(actor, parent=goal)
    inside = item(actor, task)
    services.delete(actor=actor, task=goal)
    assert visible_task(actor.user, task.code).parent is None
    services.delete(actor=actor, task=task)
    assert not Task.objects.exists()
    refused("not_found", services.delete, actor=actor, task=inside)
    with pytest.raises(NotFound):
        visible_task(actor.user, task.code)


def test_progress_counts_the_tasks_below_at_any_depth(
    actor: Actor, django_assert_max_num_queries: Callable[[int], Any]
) -> None:
    year = new(actor, level="objective", horizon="year")
    month = new(actor, level="objective", horizon="month", parent=year)
    work = new(actor, horizon="month", parent=month)
    day, other = new(actor, parent=work), new(actor, parent=year)
    for each in ("dropped", "done", "open"):
        status(actor, item(actor, day), each)
    status(actor, other, "done")
    status(actor, new(actor, parent=work), "dropped")
    services.move(actor=actor, task=new(actor, parent=work), day=NEXT)
    rows = [year, month, work, day, other, day.children.all()[0]]
    with django_assert_max_num_queries(4):
        progress = [row.progress for row in with_progress(rows)]
    assert progress == [
        TaskProgress(1, 4),
        TaskProgress(0, 3),
        TaskProgress(0, 2),
        TaskProgress(1, 2),
        TaskProgress(0, 0),
        None,
    ]


def test_other_peoples_tasks_cannot_be_changed(actor: Actor) -> None:
    stranger = Actor(User.objects.create_user("stranger"))
    task = new(actor, archetype="hybrid")
    inside = item(actor, task, breakpoint=True)
    refused("not_found", services.update, actor=stranger, task=task, fields={"title": "Mine"})
    refused("not_found", services.move, actor=stranger, task=task, day=NEXT)
    refused("not_found", services.delete, actor=stranger, task=task)
    refused("not_found", services.reorder, actor=stranger, task=task, after=None)
    refused("not_found", services.clear_breakpoint, actor=stranger, task=inside)
    refused("not_found", services.draft_checklist, actor=stranger, task=task, items=[DraftItem("x")])
    refused("not_found", item, actor=stranger, parent=task)
