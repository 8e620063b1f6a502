"""A model works through a checklist: the API for programs, and the requests to the scripted model."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from queue import Queue
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from chat.conversations.services import create_conversation
from chat.models import Turn
from chat.models.conversation_state import lock
from chat.runs.state_machine import advance
from llm.models import Model
from personas.models import BudgetProfile, Persona
from projects.planner import services
from projects.planner.models import Run
from projects.planner.models.task import Task
from projects.planner.rules import Actor, NewTask
from projects.planner.services import lock_tasks
from tests.application import Application
from tests.chat.runs.working import DONE, MARK, SAID, Work, drafting, script, swept, tool_model, with_items, work
from tests.conftest import Person
from tests.product import until

OK = script(*DONE)
SLOW = script({"tokens": 4_000, "interval": 0.02})
ASK = script({"tool_calls": [{"name": "ask_user", "arguments": {"question": "Which colour?"}}]}, SAID)
SILENT = script({"text": "Thinking about it."})
FAILING = script({**MARK, "error": {"status": 500}, "error_times": 1}, SAID)


@pytest.fixture
def model(application: Application, committed: None, scripted_model_row: Model) -> Model:
    return tool_model(scripted_model_row)


def three(person: Person, application: Application, model: Model, *titles: str) -> Work:
    return with_items(work(person, application, model), titles)


def with_caps(person: Person, model: Model, **caps: int) -> str:
    profile = BudgetProfile.objects.create(name=f"capped {uuid4().hex[:6]}", **caps)
    return str(Persona.objects.create(owner=person.user, name="P", model=model, budget_profile=profile).pk)


def test_an_item_that_a_model_writes_elsewhere_waits_for_the_person(
    application: Application, person: Person, model: Model
) -> None:
    """It may come from a document, so a run that is going on does not take it up by itself."""
    scenario = work(person, application, model, "hybrid", drafting(OK, at0="your word"))
    run = scenario.begin(start=True)["id"]
    scenario.until(run, "waiting")
    task = Task.objects.get(pk=scenario.task["id"])
    proposal = NewTask(OK, level="item", parent=task)
    for _ in range(2):
        services.create(actor=Actor(person.user, model.name), new=proposal)
    first, second, third = scenario.items()
    assert [each["proposed"] for each in (first, second, third)] == [False, True, True]
    scenario.caller.post(f"runs/{run}/answer/", {})
    waiting = until(
        lambda: (current := scenario.until(run, "waiting"))["item"] == second["code"] and current, "at the second"
    )
    assert waiting["code"] == "proposed"
    scenario.caller.post(f"runs/{run}/answer/", {})  # accepts this one
    until(lambda: scenario.until(run, "waiting")["item"] == third["code"], "it waits at the third")
    scenario.caller.post(f"tasks/{third['id']}/decline/", expect=200)
    swept(run)
    scenario.until(run, "done")
    assert scenario.sent_items() == ["draft", ".C01", ".C02"]


@pytest.mark.parametrize(("read", "begins"), [(400, False), (9_000, True)])
def test_a_checklist_from_a_prompt_that_was_not_read_whole_is_looked_at_before_it_begins(
    application: Application, person: Person, model: Model, read: int, begins: bool
) -> None:
    draft = {"name": "draft_checklist", "arguments": {"items": [{"title": OK}]}}
    usage = {"input": read, "output": 9}
    steps = script({"tool_calls": [draft], "usage": usage}, {"text": "Planned.", "usage": usage})
    scenario = work(person, application, model, notes=f"{steps}\n{'Think of all of it. ' * 180}")
    # The server says which window it has: that it reports few tokens would prove nothing.
    application.model.say({"GET /api/ps": {"models": [{"name": model.name, "context_length": 450}]}})
    try:
        run = scenario.begin(start=True)
        ready = scenario.until(run["id"], "done" if begins else "ready")
    finally:
        application.model.say()
    if begins:
        return
    assert ready["code"] == "draft_unread" and "did not read the whole prompt" in ready["detail"]
    assert [item["title"] for item in scenario.items()] == [OK] and scenario.sent_items() == ["draft"]
    browser = Client()
    browser.force_login(person.user)
    page = browser.get(f"/c/{ready['conversation']}/").content.decode()
    assert "did not read the whole prompt" in page
    assert scenario.caller.post(f"runs/{ready['id']}/start/")["status"] == "running"


def test_a_model_task_is_drafted_shown_started_and_done_item_by_item(
    application: Application, person: Person, model: Model
) -> None:
    scenario = work(person, application, model, notes=drafting(f"one\n{OK}", OK, OK))
    run = scenario.begin()
    assert run["status"] == "drafting" and [step["item"] for step in run["steps"]] == [""]
    ready = scenario.until(run["id"], "ready")
    items = scenario.items()
    assert len(items) == 3 and scenario.sent_items() == ["draft"]
    person.caller.http.patch(f"tasks/{items[0]['id']}/", json={"title": OK})  # it may be edited before it starts
    assert scenario.caller.get(f"tasks/{scenario.task['id']}/")["status"] == "waiting"
    scenario.caller.post(f"runs/{ready['id']}/start/")
    done = scenario.until(ready["id"], "done")
    assert scenario.sent_items() == ["draft", ".C01", ".C02", ".C03"]
    assert [row["status"] for row in scenario.items()] == ["done"] * 3
    assert scenario.caller.get(f"tasks/{scenario.task['id']}/")["status"] == "done"
    assert [step["status"] for step in done["steps"]] == ["done"] * 4
    assert done["used"]["steps"] == 4 and done["used"]["tokens"] > 0
    for step in done["steps"]:  # each is a turn of the conversation, with a report of its own
        assert scenario.caller.get(f"turns/{step['turn']}/")["conversation"] == done["conversation"]
        tasks = [
            each["id"]
            for each in scenario.caller.get(f"turns/{step['turn']}/report/")["sources"]
            if each["kind"] == "task"
        ]
        assert tasks == [scenario.task["code"]]
    history = scenario.caller.get(f"tasks/{scenario.task['id']}/changes/")["results"]
    assert {change["model"] for change in history if change["field"] == "status"} == {model.name}


def test_a_run_that_a_program_begins_with_nothing_else_goes_on_to_its_end(
    application: Application, person: Person, model: Model
) -> None:
    scenario = work(person, application, model, notes=drafting(OK, OK))
    persona = Persona.objects.create(owner=person.user, name="Doer", model=model)
    run = scenario.caller.post(f"tasks/{scenario.task['id']}/runs/", {"persona": str(persona.pk)}, expect=202)
    assert scenario.until(run["id"], "done", "ready", "waiting")["status"] == "done"
    assert scenario.sent_items() == ["draft", ".C01", ".C02"]


def test_a_hybrid_task_stops_at_its_breakpoint_and_goes_on_when_it_is_cleared_or_answered(
    application: Application, person: Person, model: Model
) -> None:
    notes = drafting(OK, OK, OK, at1="the invoice", at2="your word")
    scenario = work(person, application, model, "hybrid", notes)
    run = scenario.begin(start=True)["id"]
    waiting = scenario.until(run, "waiting")
    second, third = scenario.items()[1:]
    assert (waiting["code"], waiting["needs"], waiting["item"]) == ("breakpoint", "the invoice", second["code"])
    assert scenario.caller.get(f"tasks/{scenario.task['id']}/")["status"] == "waiting"
    answered = scenario.caller.post(f"runs/{run}/answer/", {"text": "Invoice 4711."})
    assert answered["status"] == "running"
    waiting = until(
        lambda: (current := scenario.until(run, "waiting"))["item"] == third["code"] and current,
        "it waits at the third",
    )
    [question] = [
        r.body["messages"]
        for r in application.model.requests("Invoice 4711.")
        if r.body["messages"][-1]["role"] == "user"
    ]
    assert question[-1]["content"].startswith(f"Invoice 4711.\n\nItem @{second['code']}:")
    scenario.caller.post(f"tasks/{third['id']}/clear/", expect=200)
    swept(run)  # it was done elsewhere, so nobody else advances the run
    scenario.until(run, "done")
    assert scenario.sent_items() == ["draft", ".C01", ".C02", ".C03"]


def test_a_question_stops_the_run_and_what_is_sent_in_its_conversation_answers_it(
    application: Application, person: Person, model: Model
) -> None:
    scenario = three(person, application, model, ASK, OK)
    run = scenario.begin()
    waiting = scenario.until(run["id"], "waiting")
    assert (waiting["code"], waiting["needs"]) == ("question", "Which colour?")
    assert waiting["steps"][0]["status"] == "asked" and waiting["steps"][0]["question"] == "Which colour?"
    assert scenario.caller.post(f"runs/{run['id']}/answer/", {"text": " "}, expect=400)["code"] == "empty_answer"
    scenario.caller.http.patch(f"tasks/{scenario.items()[0]['id']}/", json={"title": OK})
    sent = scenario.caller.post(f"conversations/{run['conversation']}/turns/", {"text": "Blue."})["turns"]
    done = scenario.until(run["id"], "done")
    assert [step["turn"] for step in done["steps"]][1] == sent[0]["id"]
    assert scenario.sent_items() == [".C01", ".C01", ".C02"]
    text = scenario.caller.get(f"messages/{sent[0]['user_message']}/")["text"]
    assert text.startswith("Blue.\n\nItem @")


def test_a_model_that_fails_in_the_middle_makes_the_run_wait_and_try_again_goes_on(
    application: Application, person: Person, model: Model
) -> None:
    scenario = three(person, application, model, OK, FAILING, OK)
    run = scenario.begin()["id"]
    waiting = scenario.until(run, "waiting")
    assert waiting["item"] == scenario.items()[1]["code"] and waiting["code"] and waiting["detail"]
    assert [row["status"] for row in scenario.items()] == ["done", "waiting", "open"]
    scenario.caller.post(f"runs/{run}/retry/")
    done = scenario.until(run, "done")
    assert [(step["item"][-4:], step["status"]) for step in done["steps"]] == [
        (".C01", "done"), (".C02", "failed"), (".C02", "done"), (".C03", "done"),
    ]  # fmt: skip
    assert scenario.caller.post(f"runs/{run}/retry/", expect=409)["code"] == "not_stopped"


def test_an_item_that_is_not_marked_is_asked_about_once_more_and_then_the_user_is(
    application: Application, person: Person, model: Model
) -> None:
    scenario = three(person, application, model, SILENT, OK)
    run = scenario.begin()["id"]
    waiting = scenario.until(run, "waiting")
    assert waiting["code"] == "item_unfinished" and "asked twice" in waiting["detail"]
    assert [step["reminds"] for step in waiting["steps"]] == [False, True]
    first = scenario.items()[0]
    scenario.caller.http.patch(f"tasks/{first['id']}/", json={"status": "done"})  # ticked by its user: it goes on
    swept(run)
    scenario.until(run, "done")
    assert scenario.sent_items() == [".C01", ".C01", ".C02"]


def test_a_model_that_never_finishes_is_stopped_by_its_cap_and_says_so(
    application: Application, person: Person, model: Model
) -> None:
    scenario = three(person, application, model, SILENT, OK)
    run = scenario.begin(persona=with_caps(person, model, run_max_steps=3))["id"]
    scenario.until(run, "waiting")
    scenario.caller.post(f"runs/{run}/retry/")
    failed = scenario.until(run, "failed")
    assert failed["code"] == "run_cap_reached" and "3 steps" in failed["detail"]
    assert failed["used"]["steps"] == failed["caps"]["steps"] == 3 == len(scenario.sent_items())
    assert scenario.caller.post(f"runs/{run}/retry/")["status"] == "failed"
    assert [row["status"] for row in scenario.items()] == ["open", "open"]
    Persona.objects.get(owner=person.user).budget_profile.delete()  # type: ignore[union-attr]  # it has one
    scenario.caller.http.patch(f"tasks/{scenario.items()[0]['id']}/", json={"title": OK})
    scenario.caller.post(f"runs/{run}/retry/")
    scenario.until(run, "done")


def test_the_caps_on_tokens_and_on_minutes_hold(application: Application, person: Person, model: Model) -> None:
    heavy = script(
        {**MARK, "usage": {"input": 3_000, "output": 10}}, {"text": "ok", "usage": {"input": 1, "output": 1}}
    )
    scenario = three(person, application, model, heavy, OK)
    run = scenario.begin(persona=with_caps(person, model, run_max_tokens=3_000))["id"]
    failed = scenario.until(run, "failed")
    assert failed["code"] == "run_cap_reached" and "3,012 of 3,000 tokens" in failed["detail"]
    assert scenario.sent_items() == [".C01"]
    late = three(person, application, model, SLOW, OK)
    run = late.begin(persona=with_caps(person, model, run_max_minutes=1))["id"]
    turn = late.caller.get(f"runs/{run}/")["steps"][0]["turn"]
    until(lambda: late.caller.turn(turn)["text"], "the model writes")
    Turn.objects.filter(pk=turn).update(started=timezone.now() - timedelta(minutes=2))
    swept(run)
    failed = late.until(run, "failed")
    assert "1 minutes" in failed["detail"] and late.caller.ended(turn)["status"] == "stopped"


def test_a_run_can_be_stopped_at_any_moment_and_goes_on_where_it_was(
    application: Application, person: Person, model: Model
) -> None:
    scenario = three(person, application, model, OK, SLOW, OK)
    run = scenario.begin()["id"]
    turn = until(
        lambda: [s["turn"] for s in scenario.caller.get(f"runs/{run}/")["steps"] if s["item"].endswith("C02")],
        "it is at the second item",
    )[0]
    until(lambda: scenario.caller.turn(turn)["text"], "the model writes")
    place = scenario.caller.get(f"runs/{run}/")["conversation"]
    for path, body in ((f"conversations/{place}/turns/", {"text": "Me!"}), (f"tasks/{scenario.task['id']}/runs/", {})):
        code = scenario.caller.post(path, body | {"model": str(model.pk)} if "runs" in path else body, expect=409)[
            "code"
        ]
        assert code in ("already_answering", "run_open")
    refused = scenario.caller.http.put(f"conversations/{place}/next/", json={"text": "Me!"})
    assert refused.status_code == 409 and refused.json()["code"] == "run_in_progress"
    scenario.caller.post(f"runs/{run}/stop/")
    assert scenario.caller.get(f"runs/{run}/")["status"] == "stopped"
    assert scenario.caller.ended(turn)["status"] == "stopped"
    assert scenario.caller.post(f"runs/{run}/stop/")["status"] == "stopped"
    until(lambda: scenario.caller.get(f"runs/{run}/")["steps"][-1]["status"] == "stopped", "its step is settled")
    assert scenario.sent_items() == [".C01", ".C02"]
    scenario.caller.http.patch(f"tasks/{scenario.items()[1]['id']}/", json={"title": OK})
    scenario.caller.post(f"runs/{run}/retry/")
    scenario.until(run, "done")
    assert scenario.sent_items() == [".C01", ".C02", ".C02", ".C03"]


def test_stopping_the_answer_stops_the_run(application: Application, person: Person, model: Model) -> None:
    scenario = three(person, application, model, SLOW)
    run = scenario.begin()
    scenario.caller.post(f"turns/{run['steps'][0]['turn']}/stop/")
    assert scenario.until(run["id"], "stopped")["code"] == "stopped"


def test_between_two_items_nobody_else_asks_in_the_conversation(
    application: Application, person: Person, model: Model
) -> None:
    scenario = three(person, application, model, OK)
    run = scenario.begin()
    scenario.until(run["id"], "done")
    Run.objects.filter(pk=run["id"]).update(status="running", heartbeat=timezone.now() + timedelta(hours=1))
    place = run["conversation"]
    refused = scenario.caller.post(f"conversations/{place}/turns/", {"text": "Me!"}, expect=409)
    assert refused["code"] == "run_in_progress"
    Run.objects.filter(pk=run["id"]).update(status="done")
    scenario.caller.ended(
        scenario.caller.ask("And now?", {"text": "Now."}, place)["id"]
    )  # an ordinary one of the user's


def test_a_run_that_goes_on_does_not_wait_for_one_that_begins_while_that_one_waits_for_it(
    application: Application, person: Person, model: Model
) -> None:
    scenario, beginning = three(person, application, model, OK), create_conversation(user=person.user)
    now, task = timezone.now(), Task.objects.get(pk=scenario.task["id"])
    place = create_conversation(user=person.user)
    run = Run(owner=person.user, task=task, conversation=place, model=model, status="running", started=now)
    run.heartbeat = now
    run.save(force_insert=True)
    backend: Queue[int] = Queue()

    def go_on() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                backend.put(cursor.fetchone()[0])
            advance(run.pk)
        finally:
            connection.close()

    def waits(process: int) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)", [process])
            return bool(cursor.fetchone()[0])

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            lock_tasks(person.user)
            going_on = other.submit(go_on)
            process = backend.get()
            until(lambda: waits(process), "the run waits for the tasks of its person")
            lock(beginning)
        going_on.result()
    scenario.until(str(run.pk), "done")


def test_what_cannot_be_run_is_refused_with_a_reason(
    application: Application, person: Person, stranger: Person, model: Model, scripted_model_row: Model
) -> None:
    own = work(person, application, model, "user")
    assert own.begin(expect=409)["code"] == "for_the_user"
    month = person.caller.post(
        "tasks/", {"title": "M", "level": "task", "horizon": "month", "archetype": "model"}, expect=201
    )
    assert person.caller.post(f"tasks/{month['id']}/runs/", expect=400)["code"] == "not_a_day_task"
    scenario = three(person, application, model, SLOW)
    assert scenario.begin(expect=409, model=str(scripted_model_row.pk))["code"] == "model_without_tools"
    assert stranger.caller.post(f"tasks/{scenario.task['id']}/runs/", expect=404)["code"] == "not_found"
    run = scenario.begin()["id"]
    assert scenario.begin(expect=409)["code"] == "run_open"
    for path in ("start/", "stop/", "answer/", "retry/"):
        assert stranger.caller.http.post(f"runs/{run}/{path}", json={}).status_code == 404
    assert stranger.caller.http.get(f"runs/{run}/").status_code == 404
    assert stranger.caller.get("runs/")["results"] == []
    assert [each["id"] for each in scenario.caller.get(f"runs/?task={scenario.task['id']}")["results"]] == [run]
    scenario.caller.post(f"runs/{run}/stop/")
    finished = three(person, application, model, OK)
    person.caller.http.patch(f"tasks/{finished.task['id']}/", json={"status": "done"})
    assert finished.begin(expect=409)["code"] == "finished"


def test_a_model_that_drafts_nothing_is_asked_again_and_the_user_may_write_the_list(
    application: Application, person: Person, model: Model
) -> None:
    scenario = work(person, application, model, notes=SILENT)
    run = scenario.begin()["id"]
    waiting = scenario.until(run, "waiting")
    assert waiting["code"] == "no_checklist" and scenario.sent_items() == ["draft", "draft"]
    assert scenario.caller.post(f"runs/{run}/start/", expect=409)["code"] == "not_ready"
    with_items(scenario, [OK])
    scenario.caller.post(f"runs/{run}/start/")
    scenario.until(run, "done")


def test_what_is_stopped_and_tried_again_at_once_begins_when_the_old_answer_has_ended(
    application: Application, person: Person, model: Model
) -> None:
    scenario = three(person, application, model, SLOW, OK)
    run = scenario.begin()
    turn = run["steps"][0]["turn"]
    until(lambda: scenario.caller.turn(turn)["text"], "the model writes")
    person.caller.http.patch(f"tasks/{scenario.items()[0]['id']}/", json={"title": OK})
    scenario.caller.post(f"runs/{run['id']}/stop/")
    scenario.caller.post(f"runs/{run['id']}/retry/")
    done = scenario.until(run["id"], "done")
    assert [step["status"] for step in done["steps"]] == ["stopped", "done", "done"]
    assert scenario.caller.turn(turn)["status"] == "stopped" and scenario.sent_items() == [".C01", ".C01", ".C02"]
