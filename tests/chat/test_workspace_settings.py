"""Effects of the workspace's settings on prompts: in the plan, the request, the report, and a replay."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from chat.lab.past import NO_VARIATION, Variation
from chat.lab.services import choose_turns, plan_turns
from chat.models import Turn
from llm.models import Model
from personas.models import Persona
from tests.application import Application
from tests.chat.openai_clients import client_of
from tests.conftest import Person
from workspace import services as workspace
from workspace.models import Workspace


@pytest.fixture(autouse=True)
def _as_by_default(committed: None) -> Iterator[None]:
    yield
    Workspace.objects.all().delete()


def set_to(**fields: Any) -> None:
    workspace.change_settings(user=None, fields=fields)


def prompt_sent(
    application: Application, person: Person, model: Model, text: str = "Hello", place: str | None = None
) -> tuple[str, list[str], list[str]]:
    """Send a message. Return the system prompt, the list of tasks and the tools' names, which agree with the plan."""
    place = place or str(person.caller.post("conversations/", {}, expect=201)["id"])
    form = {"text": f"{text} {uuid4().hex}", "model": str(model.pk)}
    plan = person.caller.post(f"conversations/{place}/plan/", form, expect=200)
    turn = person.caller.post(f"conversations/{place}/turns/", {"text": form["text"], "models": [form["model"]]})
    ended = person.caller.ended(turn["turns"][0]["id"])
    assert ended["status"] == "done", ended["error"]
    report = person.caller.get(f"turns/{ended['id']}/report/")
    assert (plan["used"], plan["tools_tokens"]) == (report["used"], report["tools_tokens"])
    body = application.model.finished(form["text"])[0].body
    system = [each["content"] for each in body["messages"] if each["role"] == "system"]
    tasks = [each for each in system if each.startswith("# Tasks")]
    return system[0], tasks, [each["function"]["name"] for each in body.get("tools", ())]


def test_the_date_is_told_as_the_workspace_says_and_a_persona_says_it_for_itself(
    application: Application, person: Person, caller_of_tools: Model
) -> None:
    today = timezone.localdate(timezone=person.user.zone)
    assert f"Today is {today:%A, %Y-%m-%d}." in prompt_sent(application, person, caller_of_tools)[0]
    set_to(date_awareness="off")
    assert str(today) not in prompt_sent(application, person, caller_of_tools)[0]
    set_to(date_awareness="minute")
    assert f"It is {today:%A, %Y-%m-%d} " in prompt_sent(application, person, caller_of_tools)[0]
    persona = Persona.objects.create(owner=person.user, name="P", date_awareness="off")
    place = person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"]
    assert str(today) not in prompt_sent(application, person, caller_of_tools, place=place)[0]


def test_task_tools_and_todays_tasks_are_there_where_the_workspace_says_so(
    application: Application, person: Person, caller_of_tools: Model
) -> None:
    task = person.caller.post("tasks/", {"title": "Water the plants", "level": "task"}, expect=201)
    _, tasks, tools = prompt_sent(application, person, caller_of_tools)
    assert tasks and "create_task" not in tools
    set_to(task_tools=True, today_tasks=False)
    system, tasks, tools = prompt_sent(application, person, caller_of_tools)
    assert not tasks and {"list_tasks", "create_task", "mark_item"} <= set(tools) and "create_task:" in system
    [tasks_named] = prompt_sent(application, person, caller_of_tools, f"How is @{task['code']}?")[1]
    assert "Mentioned today:" in tasks_named and "Water the plants" in tasks_named
    persona = Persona.objects.create(owner=person.user, name="P")
    place = person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"]
    assert "create_task" not in prompt_sent(application, person, caller_of_tools, place=place)[2]


def test_a_program_gets_no_tools_for_its_owners_tasks(
    application: Application, person: Person, caller_of_tools: Model
) -> None:
    set_to(task_tools=True)
    mark = uuid4().hex
    client_of(person).chat.completions.create(model=caller_of_tools.name, messages=[{"role": "user", "content": mark}])
    assert not application.model.finished(mark)[0].body.get("tools")


def test_turns_are_planned_again_under_what_held_then(
    application: Application, person: Person, caller_of_tools: Model
) -> None:
    person.caller.post("tasks/", {"title": "Water the plants", "level": "task"}, expect=201)
    set_to(task_tools=True, date_awareness="minute", today_tasks=True)
    place = person.caller.post("conversations/", {}, expect=201)["id"]
    prompt_sent(application, person, caller_of_tools, place=place)
    settings_ = Turn.objects.get(conversation=place).report["calls"][0]["made_with"]["workspace"]
    assert settings_ == {"task_tools": True, "date_awareness": "minute", "today_tasks": True}
    set_to(task_tools=False, date_awareness="off", today_tasks=False)
    for variation in (NO_VARIATION, Variation(layout="files_first")):
        [result] = plan_turns(choose_turns(most=10, owner=person.user), variation)
        assert not result.problems and result.sent and result.planned
        assert result.replanned
        assert "create_task" in result.replanned.planned[0].context.toolbox.tools
        system = result.replanned.planned[0].prompt.messages[0].text or ""
        assert "create_task:" in system and (f"{timezone.now():%Y-}" in system)
