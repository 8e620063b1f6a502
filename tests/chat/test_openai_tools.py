"""OpenAI's protocol with tools on both sides: the persona's, which the server runs, and the calling program's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from chat.models import Message, Turn
from chat.models.parts import MessagePart
from chat.openai_api.answer import AnswerHead
from chat.openai_api.serialize import Completion
from chat.realtime.events import WireEvent
from core.errors import ProductError
from llm.models import Model
from personas.models import Persona
from tests.chat.openai_clients import WEATHER, client_of, turn_of, user_messages
from tests.chat.tool_servers import Diary, diary
from tests.conftest import Person
from tests.product import WAIT


@pytest.fixture
def diary_tools(person: Person, scripted_model_row: Model, tmp_path: Path) -> Iterator[Diary]:
    tools = diary(person, scripted_model_row, tmp_path)
    Persona.objects.filter(owner=person.user).update(model=tools.model)
    yield tools
    tools.row.delete()


def test_the_personas_tools_run_inside_until_the_program_is_asked(person: Person, diary_tools: Diary) -> None:
    first, other = diary_tools.call("note", text="looked"), diary_tools.call("note", text="never")
    weather = {"name": "get_weather", "arguments": {"town": "Conwy"}}
    steps = ({"tool_calls": [first]}, {"tool_calls": [weather, other]})
    tools: Any = [WEATHER]
    raw = client_of(person, timeout=WAIT).chat.completions.with_raw_response.create(
        model="writer", messages=user_messages("Weather?", *steps), tools=tools
    )
    [choice] = raw.parse().choices
    calls: Any = choice.message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather"]
    assert choice.finish_reason == "tool_calls" and diary_tools.lines() == ["looked"]
    turn = Turn.objects.select_related("answer").get(pk=turn_of(raw.headers["X-Glasshouse-Report"]))
    kinds = [part["type"] for part in turn.answer.parts]
    assert (turn.status, kinds) == ("done", ["tool_call", "tool_result", "tool_call", "tool_call"])
    browser = Client()
    browser.force_login(person.user)
    page = browser.get(f"/c/{turn.conversation_id}/").content.decode()
    assert "get_weather" in page and "Conwy" in page


def test_a_program_may_have_a_tool_of_a_name_that_the_product_has(person: Person, diary_tools: Diary) -> None:
    own = diary_tools.call("note", text="mine")
    tools: Any = [{"type": "function", "function": {"name": own["name"]}}]
    raw = client_of(person, timeout=WAIT).chat.completions.with_raw_response.create(
        model="writer", messages=user_messages("Note it", {"tool_calls": [own]}), tools=tools
    )
    assert raw.parse().choices[0].finish_reason == "tool_calls" and diary_tools.lines() == []
    notes = person.caller.http.get(raw.headers["X-Glasshouse-Report"]).json()["notes"]
    assert notes == [f"The calling program has a tool {own['name']} of its own."]


def test_an_answer_whose_stream_is_gone_is_completed_from_its_row() -> None:
    completion = Completion(AnswerHead("t", "m", {"get_weather"}, str))
    completion.feed({"type": "TEXT_MESSAGE_CONTENT", "part": 0, "delta": "Half of "})
    parts: list[MessagePart] = [
        {"type": "text", "text": "Half of it."},
        {"type": "tool_call", "id": "c", "name": "get_weather", "arguments": '{"town": "Conwy"}'},
    ]
    turn = Turn(status=Turn.Status.DONE, answer=Message(parts=parts), usage={"input": 2, "output": 3})
    snapshot: WireEvent = {"type": "SNAPSHOT", "seq": 9, "status": "done", "model": "m", "fallback": "", "parts": parts}
    chunks = [*completion.feed(snapshot), *completion.end(turn)]
    first: Any = chunks[0].data
    assert first["choices"][0]["delta"] == {"content": "it."}
    [choice] = completion.whole()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Half of it.", "tool_calls")
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == parts[1]["arguments"]
    failed = Message(parts=[], error_code="rate_limited", error_detail="Try again.")
    with pytest.raises(ProductError) as raised:
        Completion(AnswerHead("t", "m", (), str)).end(Turn(status=Turn.Status.FAILED, answer=failed))
    assert (raised.value.status, raised.value.detail) == (429, "Try again.")
