"""Tasks for which a draft of the checklist is due, and acts after which it is not."""

from typing import Any

import pytest

from projects.planner import drafts, services
from projects.planner.models.task import Task
from projects.planner.quick_add import Period, add_line
from projects.planner.rules import Actor
from tests.projects.planner.planning import DAY, NEXT, item, new, status

pytestmark = pytest.mark.django_db


def draft_of(task: Task) -> str:
    return Task.objects.get(pk=task.pk).draft


@pytest.mark.parametrize(
    ("fields", "draft"),
    [
        ({"archetype": "model"}, "due"),
        ({"archetype": "hybrid"}, "due"),
        ({"archetype": "user"}, ""),
        ({}, ""),
        ({"archetype": "model", "horizon": "month"}, ""),
        ({"level": "objective", "horizon": "month"}, ""),
        ({"archetype": "model", "draft": False}, ""),
    ],
)
def test_a_draft_is_due_for_a_day_task_that_is_not_the_users_own(
    actor: Actor, model: Actor, fields: dict[str, Any], draft: str
) -> None:
    assert new(actor, **fields).draft == draft
    proposed = new(model, **fields)
    assert draft_of(proposed) == ""
    if "draft" not in fields:
        assert services.accept(actor=actor, task=proposed).draft == draft


def test_a_line_with_a_checklist_has_none_to_be_drafted(actor: Actor) -> None:
    on = Period("day", DAY)
    assert draft_of(add_line(actor=actor, text="Plan it !model; look; write", on=on)) == ""
    assert draft_of(add_line(actor=actor, text="Plan it !model", on=on)) == "due"


def test_an_item_the_user_and_the_end_of_the_task_take_it_away(actor: Actor) -> None:
    listed, own, dropped = (new(actor, archetype="model") for _ in range(3))
    item(actor, listed)
    services.update(actor=actor, task=own, fields={"archetype": "user"})
    status(actor, dropped, "dropped")
    assert {draft_of(task) for task in (listed, own, dropped)} == {""}
    assert not drafts.due_drafts().filter(owner=actor.user).exists()


def test_the_users_own_task_that_becomes_a_models_is_drafted_as_if_it_had_been_made_so(actor: Actor) -> None:
    task, listed, hybrid = new(actor), new(actor), new(actor, archetype="hybrid", draft=False)
    item(actor, listed)
    for each in (task, listed, hybrid):
        services.update(actor=actor, task=each, fields={"archetype": "model"})
    assert [draft_of(each) for each in (task, listed, hybrid)] == ["due", "", ""]


def test_a_task_that_is_moved_before_it_has_a_checklist_is_drafted_on_its_new_day(actor: Actor) -> None:
    task, listed = new(actor, archetype="model"), new(actor, archetype="model")
    item(actor, listed)
    moved = [services.move(actor=actor, task=each, day=NEXT) for each in (task, listed)]
    assert (draft_of(task), [draft_of(each) for each in moved]) == ("", ["due", ""])


def test_not_more_wait_than_a_person_may_have_and_the_others_say_so(actor: Actor) -> None:
    rows = [new(actor, archetype="model") for _ in range(drafts.MAX_DUE_DRAFTS + 2)]
    assert [row.draft for row in rows] == ["due"] * drafts.MAX_DUE_DRAFTS + ["refused"] * 2
    assert (rows[-1].draft_code, rows[-1].draft_detail) == ("too_many_drafts", drafts.TOO_MANY_DRAFTS)
