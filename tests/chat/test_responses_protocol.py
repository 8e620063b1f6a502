"""OpenAI's Responses protocol, through OpenAI's own client: items, events, tools, files, and refusals by name."""

import base64
import json
from typing import Any
from uuid import uuid4

import openai
import pytest
from openai import OpenAI
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from chat.models import Conversation
from chat.openai_api.answer import AnswerHead
from chat.openai_api.responses_serialize import ResponseWriter
from chat.realtime.events import WireEvent
from llm.models import Model
from readers.tests.samples import image
from tests.application import Application
from tests.chat.openai_clients import posted, turn_of, user_messages
from tests.conftest import Person

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FLAT_WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    "strict": False,
}


def asked_for(text: str, *steps: dict[str, Any]) -> str:
    content: str = user_messages(text, *steps)[0]["content"]
    return content


def test_a_response_comes_whole_with_its_usage_and_its_report(person: Person, openai_client: OpenAI) -> None:
    step = {"text": "Hello there.", "reasoning": "Greet.", "usage": {"input": 70, "output": 5, "cached": 30}}
    raw = openai_client.responses.with_raw_response.create(
        model="scripted", input=asked_for("Hi", step), instructions="Be kind.", metadata={"run": "7"}
    )
    response = raw.parse()
    assert (response.object, response.status, response.model) == ("response", "completed", "scripted")
    assert response.output_text == "Hello there."
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.usage
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (70, 5, 75)
    assert response.usage.input_tokens_details.cached_tokens == 30
    assert (response.instructions, response.metadata) == ("Be kind.", {"run": "7"})
    report = person.caller.http.get(raw.headers["X-Glasshouse-Report"]).json()
    assert report["messages"][-1]["text"].startswith("Hi")
    assert response.id == f"resp_{turn_of(raw.headers['X-Glasshouse-Report'])}"


@pytest.mark.parametrize("store", [None, True, False])
def test_nothing_is_stored_and_the_answer_says_so(person: Person, store: bool | None) -> None:
    body = {"model": "scripted", "input": "Hi", "store": store}
    answer = posted(person, "responses", body).json()
    assert (answer["status"], answer["store"]) == ("completed", False)


def test_the_events_of_a_stream_are_those_of_the_clients_types(openai_client: OpenAI, able: Model) -> None:
    call = {"name": "get_weather", "arguments": {"town": "Conwy"}}
    step = {"text": "Let me look.", "reasoning": "Look.", "tool_calls": [call], "interval": 0.02}
    with openai_client.responses.with_streaming_response.create(
        model=able.name, input=asked_for("Weather?", step), tools=[FLAT_WEATHER], stream=True
    ) as raw:
        lines = [line for line in raw.iter_lines() if line and not line.startswith(":")]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    data = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    for each in data:
        EVENT.validate_python(each, strict=False)
    assert names == [each["type"] for each in data]
    assert [each["sequence_number"] for each in data] == list(range(len(data)))
    assert names[:2] == ["response.created", "response.in_progress"] and names[-1] == "response.completed"
    once = [name for number, name in enumerate(names) if name != names[number - 1]]
    assert once == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    done = [each["item"] for each in data if each["type"] == "response.output_item.done"]
    assert data[-1]["response"]["output"] == done


def test_the_clients_own_stream_reads_the_answer(openai_client: OpenAI, able: Model) -> None:
    call = {"tool_calls": [{"name": "get_weather", "arguments": {"town": town}} for town in ("Conwy", "Bangor")]}
    with openai_client.responses.stream(
        model=able.name, input=asked_for("Both", call), tools=[FLAT_WEATHER], store=False
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        response: Any = stream.get_final_response()
    assert "Conwy" in "".join(deltas)
    assert [json.loads(item.arguments)["town"] for item in response.output] == ["Conwy", "Bangor"]


def test_a_call_comes_back_and_its_output_goes_on(application: Application, openai_client: OpenAI, able: Model) -> None:
    mark = uuid4().hex
    call = {"name": "get_weather", "arguments": {"town": "Conwy"}, "id": "call_1"}
    steps = ({"text": "Let me look.", "tool_calls": [call]}, {"text": "It rains."})
    history: list[Any] = [{"role": "user", "content": asked_for(f"Weather? {mark}", *steps)}]
    first = openai_client.responses.create(model=able.name, input=history, tools=[FLAT_WEATHER])
    history += [item.model_dump() for item in first.output]  # as the agents of OpenAI's SDK send it back
    [request] = [item for item in first.output if item.type == "function_call"]
    history.append({"type": "function_call_output", "call_id": request.call_id, "output": "rain"})
    second = openai_client.responses.create(model=able.name, input=history, tools=[FLAT_WEATHER])
    assert second.output_text == "It rains."
    _, after = (record.body for record in application.model.finished(mark, 2))
    assert [message["role"] for message in after["messages"][-3:]] == ["user", "assistant", "tool"]
    assert after["messages"][-2]["content"] == "Let me look."
    assert after["messages"][-1]["content"] == "rain"


def test_outputs_follow_their_calls_in_whatever_order_they_come(
    application: Application, person: Person, able: Model
) -> None:
    mark = uuid4().hex
    calls = [{"type": "function_call", "call_id": each, "name": "look", "arguments": "{}"} for each in ("a", "b")]
    outputs = [{"type": "function_call_output", "call_id": each, "output": f"of {each}"} for each in ("b", "a")]
    items = [{"role": "user", "content": f"Look {mark}"}, *calls, outputs[0], {"role": "user", "content": "And?"}]
    body = {"model": able.name, "input": [*items, outputs[1]]}
    assert posted(person, "responses", body).status_code == 200
    [sent] = application.model.finished(mark)
    roles = [(message["role"], message["content"]) for message in sent.body["messages"][-4:]]
    assert [role for role, _ in roles] == ["assistant", "tool", "tool", "user"]
    assert [content for _, content in roles[1:]] == ["of b", "of a", "And?"]


def test_an_image_in_an_output_is_shown_to_the_model(application: Application, person: Person, able: Model) -> None:
    mark = uuid4().hex
    url = f"data:image/png;base64,{base64.b64encode(image('PNG', 24, 16)).decode()}"
    output = [{"type": "input_text", "text": "Here."}, {"type": "input_image", "image_url": url, "detail": "auto"}]
    items = [
        {"role": "user", "content": f"Show me {mark}"},
        {"type": "function_call", "call_id": "a", "name": "view_image", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": output},
    ]
    assert posted(person, "responses", {"model": able.name, "input": items}).status_code == 200
    [sent] = application.model.finished(mark)
    assert sent.body["messages"][-2] == {"role": "tool", "tool_call_id": "a", "content": "Here."}
    assert url in json.dumps(sent.body["messages"][-1])


def test_tools_of_an_agent_are_offered_as_functions_and_called_in_its_own_form(
    application: Application, person: Person, openai_client: OpenAI, able: Model
) -> None:
    mark = uuid4().hex
    patch = {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": {"type": "text"}}
    space = {"type": "namespace", "name": "mcp__notes", "description": "Notes.", "tools": [{**FLAT_WEATHER}]}
    tools: list[Any] = [patch, space, {"type": "web_search", "external_web_access": False}]
    calls = [
        {"name": "apply_patch", "arguments": {"input": "*** Begin Patch"}, "id": "call_p"},
        {"name": "mcp__notes__get_weather", "arguments": {"town": "Conwy"}, "id": "call_n"},
    ]
    history: list[Any] = [
        {"role": "user", "content": asked_for(f"Go {mark}", {"tool_calls": calls}, {"text": "Done."})}
    ]
    raw = openai_client.responses.with_raw_response.create(model=able.name, input=history, tools=tools)
    first: Any = raw.parse()
    edit, note = first.output
    assert (edit.type, edit.name, edit.input) == ("custom_tool_call", "apply_patch", "*** Begin Patch")
    assert (note.type, note.namespace, note.name) == ("function_call", "mcp__notes", "get_weather")
    assert [tool.type for tool in first.tools] == ["custom", "namespace"], "the model did not get the other"
    notes = person.caller.http.get(raw.headers["X-Glasshouse-Report"]).json()["notes"]
    assert notes == ["The calling program offers web_search, which its provider would run. The model did not get it."]
    history += [item.model_dump(exclude_none=True) for item in first.output]
    history += [
        {"type": "custom_tool_call_output", "call_id": "call_p", "output": "edited"},
        {"type": "function_call_output", "call_id": "call_n", "output": "rain"},
    ]
    stream = openai_client.responses.create(model=able.name, input=history, tools=tools, stream=True)
    assert list(stream)[-1].type == "response.completed"
    before, after = (record.body for record in application.model.finished(mark, 2))
    assert [tool["function"]["name"] for tool in before["tools"]] == ["apply_patch", "mcp__notes__get_weather"]
    assert [call["function"]["name"] for call in after["messages"][-3]["tool_calls"]] == [
        call["name"] for call in calls
    ]
    assert [message["content"] for message in after["messages"][-2:]] == ["edited", "rain"]


class Weather(BaseModel):
    """The answer that a program asks for."""

    town: str


def test_what_steers_the_answer_reaches_the_model(application: Application, openai_client: OpenAI) -> None:
    mark = uuid4().hex
    response = openai_client.responses.parse(
        model="scripted",
        input=asked_for(f"Hi {mark}", {"text": '{"town": "Conwy"}'}),
        text_format=Weather,
        text={"verbosity": "low"},
        reasoning={"effort": "high", "summary": "auto"},
        max_output_tokens=77,
        temperature=0.3,
        top_p=0.5,
        include=["reasoning.encrypted_content"],
        truncation="auto",
        prompt_cache_key="k",
    )
    assert response.output_parsed == Weather(town="Conwy")
    [sent] = application.model.finished(mark)
    steering = {"max_tokens": 77, "temperature": 0.3, "top_p": 0.5, "reasoning_effort": "high", "verbosity": "low"}
    assert steering.items() <= sent.body.items()
    assert sent.body["response_format"]["json_schema"]["schema"]["properties"].keys() == {"town"}


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_parameter"),
        ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter"),
        ({"background": True}, "background", "unsupported_parameter"),
        ({"max_tool_calls": 3}, "max_tool_calls", "unsupported_parameter"),
        ({"include": ["message.output_text.logprobs"]}, "include", "unsupported_parameter"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]", "unsupported_item"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type", "unsupported_item"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role", "invalid_value"),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            "input[0].call_id",
            "invalid_value",
        ),
        (
            {"input": [{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "c", "name": "f"}]},
            "input",
            "invalid_value",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://a/b.pdf"}]}]},
            "input[0].content[0].file_url",
            "unsupported_file_url",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a/b.png"}]}]},
            "input[0].content[0].image_url",
            "unsupported_image_url",
        ),
        ({"tools": [{"type": "file_search"}]}, "tools[0]", "unsupported_tool"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "invalid_value"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
        ({"temperature": 3}, "temperature", "invalid_value"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    person: Person, body: dict[str, Any], param: str, code: str
) -> None:
    response = posted(person, "responses", {"model": "scripted", "input": "Hi", **body})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)
    assert error["message"] and not Conversation.objects.filter(owner=person.user).exists()


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_before_its_first_word_fails_the_request(openai_client: OpenAI, stream: bool) -> None:
    step = {"error": {"status": 429, "message": "slow down"}, "ttft": 0.1}
    with pytest.raises(openai.RateLimitError) as busy:
        openai_client.responses.create(model="scripted", input=asked_for("Hi", step), stream=stream)
    assert busy.value.code == "rate_limit_exceeded" and "X-Glasshouse-Report" in busy.value.response.headers


def test_a_model_that_breaks_off_says_so_in_the_stream(person: Person, openai_client: OpenAI) -> None:
    question = asked_for("Hi", {"text": "One two three four.", "interval": 0.1, "cut_after": 3})
    stream = openai_client.responses.create(model="scripted", input=question, stream=True)
    with pytest.raises(openai.APIError, match="broke off") as broken:
        list(stream)
    assert broken.value.code == "stream_cut"
    lines = posted(person, "responses", {"model": "scripted", "input": question, "stream": True}).text.split("\n\n")
    last = json.loads(lines[-2].partition("data: ")[2])
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "stream_cut"


def test_an_answer_cut_short_is_incomplete(openai_client: OpenAI) -> None:
    question = asked_for("Hi", {"text": "One two", "finish": "length"})
    response = openai_client.responses.create(model="scripted", input=question)
    assert response.status == "incomplete" and response.incomplete_details
    assert (response.incomplete_details.reason, response.output_text) == ("max_output_tokens", "One two")


def test_text_that_was_reasoning_all_along_is_no_part_of_the_whole_answer() -> None:
    writer = ResponseWriter(AnswerHead("t", "m", (), str), {}, {})
    events: list[WireEvent] = [
        {"type": "TEXT_MESSAGE_CONTENT", "part": 0, "delta": "Let me think"},
        {"type": "TEXT_BECAME_REASONING", "part": 0, "text": "Let me think"},
        {"type": "TEXT_MESSAGE_CONTENT", "part": 1, "delta": "Yes."},
        {"type": "RUN_FINISHED", "finish": "stop", "usage": {}},
    ]
    for event in events:
        writer.feed(event)
    output: Any = writer.whole()["output"]
    texts = [item["content"][0]["text"] for item in output if item["type"] == "message"]
    assert "".join(texts) == "Yes."
    assert [item["summary"][0]["text"] for item in output if item["type"] == "reasoning"] == ["Let me think"]
