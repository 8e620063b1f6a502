"""Objectives, tasks and checklists as programs use them, through the running application."""

from typing import Any

import pytest

from accounts.services import create_token
from tests.conftest import Person
from tests.product import Caller

DAY = "2026-11-21"


def create(caller: Caller, title: str = "Task", expect: int = 201, **fields: Any) -> Any:
    body = {"title": title, "level": "task", "horizon": "day", "date": DAY, **fields}
    return caller.post("tasks/", body, expect=expect)


def item(caller: Caller, parent: str, title: str = "Item", **fields: Any) -> Any:
    return caller.post("tasks/", {"title": title, "level": "item", "horizon": "day", "parent": parent, **fields}, 201)


def patch(caller: Caller, task: str, body: Any, expect: int = 200) -> Any:
    return caller._checked(caller.http.patch(f"tasks/{task}/", json=body), expect)


def listed(caller: Caller, query: str = "", field: str = "code") -> list[str]:
    return [row[field] for row in caller.get(f"tasks/?{query}")["results"]]


def test_a_task_is_made_changed_and_deleted(caller: Caller) -> None:
    created = create(caller, " Plan  the trip ", notes="With Ana.")
    assert (created["code"], created["title"], created["status"]) == ("D2026-11-21-T01", "Plan the trip", "open")
    assert (created["archetype"], created["parent"], created["progress"]) == ("user", None, {"done": 0, "total": 0})
    assert caller.get(f"tasks/{created['id']}/") == created
    changed = patch(caller, created["id"], {"status": "done", "archetype": "hybrid", "notes": ""})
    assert (changed["status"], changed["archetype"], changed["notes"]) == ("done", "hybrid", "")
    assert changed["finished"]
    fields = [row["field"] for row in caller.get(f"tasks/{created['id']}/changes/")["results"]]
    assert sorted(fields) == ["archetype", "created", "notes", "status"]
    assert fields[-1] == "created"
    caller._checked(caller.http.delete(f"tasks/{created['id']}/"), 204)
    caller.get(f"tasks/{created['id']}/", expect=404)
    assert create(caller)["code"] == "D2026-11-21-T02"


def test_the_three_levels_have_one_shape(caller: Caller) -> None:
    goal = create(caller, "Travel", level="objective", horizon="year")
    task = create(caller, parent=goal["id"])
    step = item(caller, task["id"], breakpoint=True, needs="Which dates?")
    assert (goal["code"], goal["date"], goal["archetype"]) == ("Y2026-O01", "2026-01-01", "")
    assert (step["code"], step["date"], step["breakpoint"], step["needs"]) == (
        "D2026-11-21-T01.C01",
        DAY,
        True,
        "Which dates?",
    )
    assert goal.keys() == task.keys() == step.keys()
    assert step["progress"] is None
    patch(caller, task["id"], {"status": "done"})
    assert caller.get(f"tasks/{goal['id']}/")["progress"] == {"done": 1, "total": 1}
    assert caller.get("tasks/?level=objective")["results"][0]["progress"] == {"done": 1, "total": 1}


def test_a_list_is_narrowed(caller: Caller) -> None:
    project = caller.post("projects/", {"name": "Trip"}, expect=201)["id"]
    goal = create(caller, level="objective", horizon="year")
    first, second = create(caller, parent=goal["id"]), create(caller, project=project)
    create(caller, date="2026-11-22")
    create(caller, horizon="month")
    item(caller, first["id"])
    patch(caller, second["id"], {"status": "doing"})
    assert listed(caller, f"date={DAY}&level=task") == ["D2026-11-21-T01", "D2026-11-21-T02"]
    assert listed(caller, "from=2026-11-22") == ["D2026-11-22-T01"]
    assert listed(caller, "to=2026-11-01") == ["Y2026-O01", "M2026-11-T01"]
    assert listed(caller, "horizon=month") == ["M2026-11-T01"]
    assert listed(caller, "status=doing&status=done") == ["D2026-11-21-T02"]
    assert listed(caller, f"project={project}") == ["D2026-11-21-T02"]
    assert listed(caller, f"parent={goal['id']}") == ["D2026-11-21-T01"]
    assert listed(caller, f"parent={first['id']}") == ["D2026-11-21-T01.C01"]
    assert listed(caller, "code=D2026-11-21-T01.C01") == ["D2026-11-21-T01.C01"]
    assert listed(caller, "code=D2026-11-21-T77") == []
    assert len(listed(caller)) == 6
    for wrong in ("code=x", "level=dream", "date=tomorrow", "from=1", "to=x", "status=tired", "project=1", "parent=x"):
        assert caller.get(f"tasks/?{wrong}", expect=400)["code"] == "invalid", wrong


def test_a_list_comes_in_pages(caller: Caller) -> None:
    for number in range(5):
        create(caller, str(number))
    page = caller.get("tasks/?page_size=2&level=task")
    seen = [row["title"] for row in page["results"]]
    while page["next"]:
        page = caller.get(page["next"])
        seen += [row["title"] for row in page["results"]]
    assert seen == ["0", "1", "2", "3", "4"]
    assert page["previous"]


def test_the_order_is_changed_by_naming_the_one_before(caller: Caller) -> None:
    a, b, c = (create(caller, title)["id"] for title in "abc")
    assert caller.post(f"tasks/{c}/order/", {"after": None}, 200)["position"] == 0
    assert listed(caller, field="title") == ["c", "a", "b"]
    caller.post(f"tasks/{c}/order/", {"after": a}, 200)
    assert listed(caller, field="title") == ["a", "c", "b"]
    other = create(caller, date="2026-11-22")["id"]
    assert caller.post(f"tasks/{c}/order/", {"after": other}, 400)["code"] == "not_beside"
    caller.post(f"tasks/{b}/order/", {}, 400)


def test_a_task_is_moved_to_another_day(caller: Caller) -> None:
    old = create(caller, "Gym")
    new = caller.post(f"tasks/{old['id']}/move/", {"date": "2026-11-22"}, 201)
    assert (new["code"], new["moved_from"], new["moved_to"]) == ("D2026-11-22-T01", old["id"], None)
    old = caller.get(f"tasks/{old['id']}/")
    assert (old["code"], old["status"], old["moved_to"]) == ("D2026-11-21-T01", "moved", new["id"])
    assert caller.post(f"tasks/{old['id']}/move/", {"date": "2026-11-23"}, 409)["code"] == "was_moved"
    assert "D2026-11-22-T01" in patch(caller, old["id"], {"status": "open"}, 409)["detail"]
    caller.post(f"tasks/{new['id']}/move/", {"date": "soon"}, 400)


def test_a_checklist_is_drafted_and_its_breakpoint_cleared(caller: Caller) -> None:
    task = create(caller, archetype="hybrid")["id"]
    items = [{"title": "Look"}, {"title": "Book", "breakpoint": True, "needs": "Which dates?"}]
    drafted = caller.post(f"tasks/{task}/draft/", {"items": items}, 201)["items"]
    assert [(row["title"], row["breakpoint"], row["needs"]) for row in drafted] == [
        ("Look", False, ""),
        ("Book", True, "Which dates?"),
    ]
    patch(caller, drafted[0]["id"], {"status": "done"})
    assert caller.get(f"tasks/{task}/")["progress"] == {"done": 1, "total": 2}
    assert caller.post(f"tasks/{drafted[1]['id']}/clear/", expect=200)["cleared"]
    assert caller.post(f"tasks/{drafted[0]['id']}/clear/", expect=409)["code"] == "no_breakpoint"
    fields = [(row["code"][-3:], row["field"]) for row in caller.get(f"tasks/{task}/changes/")["results"]]
    assert fields[:2] == [("C02", "cleared"), ("C01", "status")]
    for wrong in ([], ["Look"], [{"title": ""}], [{"title": "x" * 201}], [{"title": "x"}] * 100):
        caller.post(f"tasks/{task}/draft/", {"items": wrong}, 400)
    caller.post(f"tasks/{task}/draft/", {}, 400)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"title": ""}, "invalid"),
        ({"title": "x" * 201}, "invalid"),
        ({"level": "dream"}, "invalid"),
        ({"horizon": "week"}, "invalid"),
        ({"date": "2026-02-30"}, "invalid"),
        ({"archetype": "robot"}, "invalid"),
        ({"parent": "not-an-id"}, "invalid"),
        ({"parent": "0190a000-0000-7000-8000-000000000000"}, "invalid"),
        ({"level": "objective"}, "unknown_kind"),
        ({"level": "item"}, "no_parent"),
        ({"breakpoint": True}, "not_an_item"),
    ],
)
def test_bad_input_is_answered_with_a_code_and_a_sentence(caller: Caller, fields: Any, code: str) -> None:
    problem = create(caller, **{"title": "Task", **fields}, expect=400)
    assert problem["code"] == code
    assert problem["detail"]
    assert listed(caller) == []


def test_moved_is_no_status_that_can_be_set(caller: Caller) -> None:
    patch(caller, create(caller)["id"], {"status": "moved"}, 400)


def test_other_peoples_tasks_do_not_exist(caller: Caller, stranger: Person) -> None:
    task = create(caller, archetype="hybrid")["id"]
    step = item(caller, task, breakpoint=True)["id"]
    theirs = stranger.caller
    assert listed(theirs) == listed(theirs, "code=D2026-11-21-T01") == listed(theirs, f"parent={task}") == []
    for path in (f"tasks/{task}/", f"tasks/{step}/", f"tasks/{task}/changes/", "tasks/not-an-id/"):
        theirs.get(path, expect=404)
    patch(theirs, task, {"title": "Mine"}, 404)
    theirs._checked(theirs.http.delete(f"tasks/{task}/"), 404)
    theirs.post(f"tasks/{task}/move/", {"date": "2026-11-22"}, 404)
    theirs.post(f"tasks/{task}/order/", {"after": None}, 404)
    theirs.post(f"tasks/{task}/draft/", {"items": [{"title": "x"}]}, 404)
    theirs.post(f"tasks/{step}/clear/", expect=404)
    assert create(theirs, level="item", parent=task, expect=400)["errors"][0]["attr"] == "parent"
    own = create(theirs)["id"]
    theirs.post(f"tasks/{own}/order/", {"after": task}, 400)
    assert patch(caller, step, {"needs": "Still mine"})["needs"] == "Still mine"


def test_a_token_needs_the_scope_for_tasks(person: Person) -> None:
    _, token = create_token(user=person.user, name="files only", scopes=["files"])
    response = Caller(person.caller.server, token).http.get("tasks/")
    assert (response.status_code, response.json()["code"]) == (403, "missing_scope")
