"""The server has a model draft the checklist of a task that was made, with no page open that asks for it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connections, transaction
from django.test import Client
from django.utils import timezone

from accounts.services import change_preferences
from chat.background.tasks import sweep_turns
from chat.models import Conversation
from chat.runs import drafts
from llm.models import Model
from personas.models import Persona
from projects.planner.models import Run
from projects.planner.models.task import Task
from projects.planner.services import lock_tasks
from tests.application import Application
from tests.chat.runs.working import DONE, SAID, Work, drafting, script, tool_model, with_items, work
from tests.conftest import Person
from tests.product import until

OK = script(*DONE)
SLOW = script({"tokens": 4_000, "interval": 0.02})


@pytest.fixture
def model(application: Application, scripted_model_row: Model) -> Iterator[Model]:
    """Make the default model call tools."""
    rows = Model.objects.filter(pk=scripted_model_row.pk)
    rows.update(tools=True)
    yield scripted_model_row
    rows.update(tools=False)


@pytest.fixture
def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def run_of(person: Person, task: str, *statuses: str) -> Any:
    """Return the only run of the task, once it has one of these statuses."""

    def look() -> Any:
        runs = person.caller.get(f"runs/?task={task}")["results"]
        return runs[0] if runs and runs[0]["status"] in statuses else None

    run = until(look, f"the run is {' or '.join(statuses)}")
    assert Run.objects.filter(task=UUID(task)).count() == 1
    return run


def draft_of(scenario: Work) -> Any:
    return scenario.caller.get(f"tasks/{scenario.task['id']}/")["draft"]


def fragment(browser: Client, scenario: Work) -> str:
    return browser.get(f"/tasks/{scenario.task['id']}/run/", headers={"HX-Request": "true"}).content.decode()


def long_ago(**rows: Any) -> None:
    """Make the drafts of these rows old, and run the sweeper."""
    Task.objects.filter(**rows).update(heartbeat=timezone.now() - timedelta(minutes=1))
    sweep_turns()


def test_a_program_is_told_how_it_stands_and_finds_the_checklist(
    application: Application, person: Person, model: Model, browser: Client
) -> None:
    scenario = work(person, application, model, notes=drafting("Look", "Write"), draft=True)
    assert scenario.task["draft"] == {"status": "due", "code": "", "detail": ""}
    run = run_of(person, scenario.task["id"], "ready")
    assert run["unasked"] and run["started"] is None and run["conversation"]
    assert [row["title"] for row in scenario.items()] == ["Look", "Write"] and draft_of(scenario) is None
    assert scenario.sent_items() == ["draft"]
    assert "Ready to start" in fragment(browser, scenario)


def test_a_line_on_the_page_is_all_it_takes(
    application: Application, person: Person, model: Model, browser: Client
) -> None:
    response = browser.post("/tasks/", {"text": f"{drafting('Look')} !hybrid"}, headers={"HX-Request": "true"})
    assert response["Location"].partition("?")[0] == "/tasks/"
    [task] = person.caller.get("tasks/?level=task")["results"]
    run_of(person, task["id"], "ready")
    assert [row["title"] for row in person.caller.get(f"tasks/?parent={task['id']}")["results"]] == ["Look"]


def test_what_a_model_makes_in_an_answer_is_drafted_after_it_unless_it_does_so_itself(
    application: Application, person: Person, model: Model
) -> None:
    change_preferences(user=person.user, fields={"accepts_model_tasks": True})
    persona = person.caller.post("personas/", {"name": "Secretary", "instructions": "", "tools": ["tasks"]}, expect=201)
    place = person.caller.post("conversations/", {"persona": persona["id"]}, expect=201)["id"]
    first = {"title": drafting("Look"), "archetype": "model"}
    second = {"title": "Mine", "archetype": "model"}
    code = f"D{timezone.localdate(timezone=person.user.zone)}-T02"
    script_ = {"steps": [
        *({"tool_calls": [{"name": "create_task", "arguments": each}]} for each in (first, second)),
        {"tool_calls": [{"name": "draft_checklist", "arguments": {"task": code, "items": [{"title": "Mine, too"}]}}]},
        {"tokens": 4_000, "interval": 0.02},
    ]}  # fmt: skip
    turn = person.caller.ask("Plan it.", script_, place)["id"]
    until(lambda: person.caller.turn(turn)["text"], "the answer is being written")
    one, two = Task.objects.filter(owner=person.user, level="task").order_by("code")
    assert (one.draft, two.draft, two.children.get().title) == ("due", "", "Mine, too")
    results = [part["text"] for part in person.caller.turn(turn)["parts"] if part["type"] == "tool_result"]
    assert "is drafted after your answer" in results[0]
    drafts.begin_draft(one.pk)
    assert not Run.objects.filter(owner=person.user).exists()
    person.caller.post(f"turns/{turn}/stop/")
    run_of(person, str(one.pk), "ready")
    assert Run.objects.filter(owner=person.user).count() == 1


def test_what_a_model_makes_costs_nothing_before_its_person_accepts_it(
    application: Application, person: Person, model: Model
) -> None:
    persona = person.caller.post("personas/", {"name": "Secretary", "instructions": "", "tools": ["tasks"]}, expect=201)
    place = person.caller.post("conversations/", {"persona": persona["id"]}, expect=201)["id"]
    call = {"name": "create_task", "arguments": {"title": drafting("Look"), "archetype": "model"}}
    turn = person.caller.ended(person.caller.ask("Plan it.", {"steps": [{"tool_calls": [call]}, SAID]}, place)["id"])
    result = next(part["text"] for part in turn["parts"] if part["type"] == "tool_result")
    assert "the user accepts or declines it" in result
    [task] = person.caller.get("tasks/?level=task")["results"]
    assert (task["made_by"], task["proposed"], task["draft"]) == (model.name, True, None)
    mark = uuid4().hex
    person.caller.ended(person.caller.ask(mark)["id"])  # in another conversation, on the same day
    assert task["code"] not in str(application.model.finished(mark)[0].body)
    assert not Run.objects.filter(owner=person.user).exists()
    person.caller.post(f"tasks/{task['id']}/accept/", expect=200)
    run = run_of(person, task["id"], "ready")
    drafted = person.caller.get(f"tasks/?parent={task['id']}")["results"]
    assert [(row["title"], row["proposed"]) for row in drafted] == [("Look", True)]
    person.caller.post(f"runs/{run['id']}/start/", expect=202)
    assert not Task.objects.filter(owner=person.user, proposed=True).exists()


def test_of_many_tasks_two_are_drafted_at_a_time_and_the_next_when_one_is_done(
    application: Application, person: Person, model: Model
) -> None:
    works = [work(person, application, model, notes=SLOW, draft=True) for _ in range(4)]
    runs = Run.objects.filter(owner=person.user)
    until(lambda: runs.filter(status="drafting").count() == 2, "two are being drafted")
    long_ago(owner=person.user)
    for scenario in works:
        drafts.begin_draft(Task.objects.get(pk=scenario.task["id"]).pk)
    assert runs.count() == 2 and Task.objects.filter(owner=person.user, draft="due").count() == 2
    stopped = runs.first()
    assert stopped is not None
    person.caller.post(f"runs/{stopped.pk}/stop/")
    assert draft_of(next(scenario for scenario in works if scenario.task["id"] == str(stopped.task_id))) is None
    until(lambda: runs.count() == 3, "the next is being drafted")
    Task.objects.filter(owner=person.user).update(draft="")
    for run in runs.exclude(pk=stopped.pk):
        person.caller.post(f"runs/{run.pk}/stop/")


def test_of_two_processes_one_drafts_and_what_a_killed_one_had_begun_is_begun_again(
    application: Application, person: Person, model: Model
) -> None:
    scenario = work(person, application, model, notes=drafting("Look"))
    rows = Task.objects.filter(pk=scenario.task["id"])
    rows.update(draft="due")
    [task] = rows
    with transaction.atomic():  # a worker that is killed before it commits
        drafts.begin_draft(task.pk)
        assert Run.objects.filter(task=task).exists()
        transaction.set_rollback(True)
    assert rows.get().draft == "due" and not Conversation.objects.filter(owner=person.user).exists()

    def another() -> None:
        drafts.begin_draft(task.pk)
        connections.close_all()

    with ThreadPoolExecutor(2) as others:
        with transaction.atomic():  # both are on their way before either can begin
            lock_tasks(person.user)
            drafting_ = [others.submit(another) for _ in range(2)]
            long_ago(pk=task.pk)
        for each in drafting_:
            each.result()
    run_of(person, scenario.task["id"], "ready")
    assert scenario.sent_items() == ["draft"]


def test_what_cannot_be_drafted_is_said_at_the_task_and_asked_for_again_with_a_button(
    application: Application, person: Person, model: Model, browser: Client
) -> None:
    Model.objects.filter(pk=model.pk).update(tools=False)
    scenario = work(person, application, model, notes=drafting("Look"), draft=True)
    draft = until(lambda: (draft_of(scenario) or {}).get("status") == "refused" and draft_of(scenario), "it is refused")
    assert draft["code"] == "model_without_tools" and "scripted cannot" in draft["detail"]
    page = fragment(browser, scenario)
    assert "needs a model that can call tools" in page and "Draft a checklist" in page
    seen = page.partition("?seen=")[2].partition('"')[0]
    again = browser.get(f"/tasks/{scenario.task['id']}/run/", {"seen": seen}, headers={"HX-Request": "true"})
    assert again.status_code == 204
    long_ago(pk=scenario.task["id"])  # it is not tried for ever
    assert not Run.objects.filter(owner=person.user).exists()
    Model.objects.filter(pk=model.pk).update(tools=True)
    assert browser.post(f"/tasks/{scenario.task['id']}/run/", headers={"HX-Request": "true"}).status_code == 200
    assert not run_of(person, scenario.task["id"], "ready")["unasked"] and draft_of(scenario) is None


def test_a_provider_that_fails_makes_the_run_wait_and_say_why(
    application: Application, person: Person, model: Model, browser: Client
) -> None:
    failing = script({"error": {"status": 400, "message": "No."}, "error_times": 9})
    scenario = work(person, application, model, notes=failing, draft=True)
    run = run_of(person, scenario.task["id"], "waiting")
    assert run["code"] and run["detail"] and draft_of(scenario)["status"] == "begun"
    page = fragment(browser, scenario)
    assert "Try again" in page and "Waiting for you" in page
    scenario.caller.post(f"runs/{run['id']}/stop/")
    assert draft_of(scenario) is None


def test_what_is_there_by_then_keeps_a_draft_from_being_begun_and_is_not_replaced_by_one(
    application: Application, person: Person, model: Model
) -> None:
    before = work(person, application, model)
    rows = Task.objects.filter(pk=before.task["id"])
    rows.update(draft="due")
    with_items(before, ["Mine"])
    drafts.begin_draft(rows.get().pk)
    assert not Run.objects.filter(task=rows.get()).exists()
    late = {"name": "draft_checklist", "arguments": {"items": [{"title": "Too late"}]}}
    steps = script(
        {"tool_calls": [{**late, "arguments": {"items": [{"title": "First"}]}}]}, {"tool_calls": [late]}, SAID
    )
    during = work(person, application, model, notes=steps, draft=True)
    turn = run_of(person, during.task["id"], "ready")["steps"][0]["turn"]
    assert [row["title"] for row in during.items()] == ["First"]
    results = [part for part in during.caller.turn(turn)["parts"] if part["type"] == "tool_result"]
    assert not results[0]["error"] and results[1]["error"] and "already has a checklist" in results[1]["text"]


def test_who_asks_for_a_run_takes_over_the_draft_with_what_they_name(
    application: Application, person: Person, model: Model
) -> None:
    other = tool_model(model)
    persona = Persona.objects.create(owner=person.user, name="Doer", model=other)
    scenario = work(person, application, model, notes=drafting(OK, OK), draft=True)
    run = scenario.caller.post(f"tasks/{scenario.task['id']}/runs/", {"persona": str(persona.pk)}, expect=202)
    assert (run["model"], run["unasked"]) == (str(other.pk), False)
    scenario.until(run["id"], "done")
    assert Run.objects.filter(task=scenario.task["id"]).count() == 1
    assert Conversation.objects.get(pk=run["conversation"]).persona == persona
    looked = work(person, application, model, notes=drafting(OK), draft=True)
    drafted = run_of(person, looked.task["id"], "ready")
    assert looked.begin()["status"] == "ready"  # it waits for `start/` still
    assert looked.begin(expect=409)["code"] == "run_open"
    looked.caller.post(f"runs/{drafted['id']}/start/")
    looked.until(drafted["id"], "done")
    ready = work(person, application, model, notes=drafting(OK), draft=True)
    run_of(person, ready.task["id"], "ready")
    ready.until(ready.begin(start=True)["id"], "done")


def test_a_program_that_writes_the_items_and_begins_needs_no_draft(
    application: Application, person: Person, model: Model
) -> None:
    scenario = work(person, application, model, notes=SLOW, draft=True)
    turn = run_of(person, scenario.task["id"], "drafting")["steps"][0]["turn"]
    with_items(scenario, [OK])
    run = scenario.begin()
    assert run["status"] == "running"
    scenario.caller.post(f"turns/{turn}/stop/")
    scenario.until(run["id"], "done")
    assert scenario.sent_items() == ["draft", ".C01"]
