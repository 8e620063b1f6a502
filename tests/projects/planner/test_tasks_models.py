"""Rights of a model that works for a user: its changes to tasks, breakpoints, and the history of changes."""

from typing import Any

import pytest
from django.db.models import F

from accounts.models import User
from projects.models import Project
from projects.planner import services
from projects.planner.models.task import Task, TaskChange
from projects.planner.rules import Actor, DraftItem
from tests.projects.planner.planning import DAY, NEXT, item, new, refused, status, titles

pytestmark = pytest.mark.django_db


def history(task: Task) -> list[tuple[Any, ...]]:
    """Oldest first."""
    rows = TaskChange.objects.of(task).order_by("id")
    return list(rows.values_list("code", "field", "before", "after", "model"))


@pytest.mark.parametrize("archetype", ["model", "hybrid"])
def test_a_model_works_through_its_checklist(actor: Actor, model: Actor, archetype: str) -> None:
    task = new(actor, archetype=archetype)
    items = services.draft_checklist(actor=model, task=task, items=[DraftItem("Look"), DraftItem("Write")])
    status(model, task, "doing")
    for each in items:
        assert status(model, status(model, each, "doing"), "done").status == "done"
    assert status(model, task, "done").status == "done"


def test_in_the_users_own_tasks_and_objectives_a_model_only_talks(actor: Actor, model: Actor) -> None:
    task = new(actor)
    inside = item(actor, task)
    goal = new(actor, level="objective", horizon="year")
    for row in (task, inside, goal):
        refused("for_the_user", status, actor=model, task=row, value="done")
        refused("for_the_user", services.update, actor=model, task=row, fields={"archetype": "model"})
        refused("only_the_user", services.delete, actor=model, task=row)
    refused("for_the_user", services.move, actor=model, task=task, day=NEXT)
    refused("for_the_user", item, actor=model, parent=task)
    refused("for_the_user", services.draft_checklist, actor=model, task=task, items=[DraftItem("x")])
    assert new(model, "Suggested").code == "D2024-11-21-T02"


def test_a_model_stops_at_a_breakpoint_until_the_user_clears_it(actor: Actor, model: Actor) -> None:
    task = new(actor, archetype="hybrid")
    drafts = [DraftItem("Look"), DraftItem("Book", True, "Which dates?"), DraftItem("Tell Ana")]
    look, book, tell = services.draft_checklist(actor=model, task=task, items=drafts)
    status(model, look, "done")
    for row in (book, tell):
        for value in ("doing", "done", "dropped"):
            refused("breakpoint", status, actor=model, task=row, value=value)
    for value in ("done", "dropped"):
        refused("breakpoint", status, actor=model, task=task, value=value)
    status(model, task, "waiting")
    status(model, book, "waiting")
    refused("only_the_user", services.clear_breakpoint, actor=model, task=book)
    refused("only_the_user", services.update, actor=model, task=book, fields={"breakpoint": False})
    refused("only_the_user", services.reorder, actor=model, task=tell, after=look)
    refused("only_the_user", services.draft_checklist, actor=model, task=task, items=[DraftItem("Book")])
    cleared = services.clear_breakpoint(actor=actor, task=book)
    assert (cleared.status, cleared.blocking, cleared.breakpoint) == ("open", False, True)
    assert services.clear_breakpoint(actor=actor, task=book).cleared == cleared.cleared
    for row in (book, tell, task):
        assert status(model, row, "done").status == "done"


def test_the_user_may_finish_an_item_at_a_breakpoint_which_lets_the_model_go_on(actor: Actor, model: Actor) -> None:
    task = new(actor, archetype="hybrid")
    stop, after = item(actor, task, breakpoint=True), item(actor, task)
    refused("breakpoint", status, actor=model, task=after, value="done")
    status(actor, stop, "done")
    assert status(model, after, "done").status == "done"
    status(actor, stop, "open")
    refused("breakpoint", status, actor=model, task=stop, value="done")


def test_a_breakpoint_that_is_taken_away_and_set_again_stands_anew(actor: Actor) -> None:
    stop = item(actor, new(actor, archetype="hybrid"), breakpoint=True, needs="A name")
    services.clear_breakpoint(actor=actor, task=stop)
    removed = services.update(actor=actor, task=stop, fields={"breakpoint": False})
    assert (removed.needs, removed.cleared, removed.blocking) == ("", None, False)
    refused("no_breakpoint", services.clear_breakpoint, actor=actor, task=stop)
    again = services.update(actor=actor, task=stop, fields={"breakpoint": True, "needs": "A place"})
    assert (again.needs, again.blocking) == ("A place", True)


def test_a_draft_takes_the_place_of_what_is_unfinished(actor: Actor) -> None:
    task = new(actor, archetype="model")
    done, _ = services.draft_checklist(actor=actor, task=task, items=[DraftItem("Look"), DraftItem("Old")])
    status(actor, done, "done")
    drafted = services.draft_checklist(actor=actor, task=task, items=[DraftItem("Write"), DraftItem("Read")])
    assert [row.code[-3:] for row in drafted] == ["C03", "C04"]
    assert titles(task.children.all()) == ["Look", "Write", "Read"]
    refused("empty_checklist", services.draft_checklist, actor=actor, task=task, items=[])
    refused("empty_title", services.draft_checklist, actor=actor, task=task, items=[DraftItem("a"), DraftItem(" ")])
    month = new(actor, horizon="month")
    refused("wrong_parent", services.draft_checklist, actor=actor, task=month, items=[DraftItem("a")])


def test_the_history_says_who_changed_what_from_what_to_what(actor: Actor, model: Actor) -> None:
    project = Project.objects.create(owner=actor.user, name="Trip")
    goal = new(actor, "Travel", level="objective", horizon="year")
    task = new(actor, "Plan", archetype="hybrid")
    services.update(actor=actor, task=task, fields={"title": "Plan it", "project": project, "parent": goal})
    services.update(actor=actor, task=task, fields={"title": "Plan it"})
    [stop] = services.draft_checklist(actor=model, task=task, items=[DraftItem("Book", True)])
    status(model, stop, "waiting")
    cleared = services.clear_breakpoint(actor=actor, task=stop)
    moved = services.move(actor=actor, task=task, day=NEXT)
    code, step = "D2024-11-21-T01", "D2024-11-21-T01.C01"
    assert cleared.cleared is not None
    assert history(task) == [
        (code, "created", "", "Plan", ""),
        (code, "title", "Plan", "Plan it", ""),
        (code, "project", "", str(project.pk), ""),
        (code, "parent", "", goal.code, ""),
        (step, "created", "", "Book", "small-model"),
        (step, "status", "open", "waiting", "small-model"),
        (step, "proposed", "yes", "no", ""),
        (step, "cleared", "", cleared.cleared.isoformat(), ""),
        (step, "status", "waiting", "open", ""),
        (code, "status", "open", "moved", ""),
        (code, "moved_to", "", moved.code, ""),
        (step, "status", "open", "moved", ""),
        (step, "moved_to", "", f"{moved.code}.C01", ""),
    ]
    assert not TaskChange.objects.exclude(user=actor.user, owner=F("user")).exists()


def test_the_history_outlives_what_was_deleted(actor: Actor) -> None:
    task = new(actor, "Plan")
    item(actor, task, "Book")
    services.delete(actor=actor, task=task)
    assert history(task)[2:] == [
        ("D2024-11-21-T01.C01", "deleted", "Book", "", ""),
        ("D2024-11-21-T01", "deleted", "Plan", "", ""),
    ]


def test_the_history_of_one_task_is_not_that_of_another(actor: Actor) -> None:
    task = new(actor)
    new(actor)
    new(Actor(User.objects.create_user("other")))
    assert len(history(task)) == 1
    services.reorder(actor=actor, task=task, after=Task.objects.in_list_of(task).last())
    assert history(task)[1:] == [(task.code, "position", "0", "1", "")]
    assert task.date == DAY
