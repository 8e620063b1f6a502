"""Anthropic's Messages protocol, through Anthropic's own client: blocks, events, tools, thinking, and errors."""

import base64
import json
from datetime import datetime
from typing import Any
from uuid import uuid4

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import RawMessageStreamEvent
from django.test import Client as DjangoClient
from django.utils import timezone
from pydantic import TypeAdapter
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_token
from chat.models import Conversation, Turn
from chat.openai_api.answer import AnswerHead
from chat.openai_api.messages_serialize import MessageWriter
from chat.realtime.events import WireEvent
from files.models import File
from llm.models import Model
from readers.tests.samples import image
from tests.application import Application
from tests.chat.anthropic_clients import anthropic_client
from tests.chat.openai_clients import turn_of, user_messages
from tests.conftest import Person

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
TOOL: Any = {
    "name": "get_weather",
    "description": "The weather of a town.",
    "input_schema": {"type": "object", "properties": {"town": {"type": "string"}}},
    "cache_control": {"type": "ephemeral"},
}


@pytest.fixture
def client(person: Person) -> Anthropic:
    return anthropic_client(person)


def refused(person: Person, path: str = "messages", **body: Any) -> tuple[int, dict[str, Any]]:
    headers = {"X-Api-Key": person.token, "Anthropic-Version": "2023-06-01"}
    request = {"model": "scripted", "max_tokens": 50, "messages": user_messages("Hi"), **body}
    with person.caller.server.http("/v1/", headers=headers) as http:
        response = http.post(path, json=request)
    return response.status_code, response.json()


def test_a_message_comes_whole_with_its_usage_and_its_report(person: Person, client: Anthropic) -> None:
    step = {"text": "Hello there.", "reasoning": "Greet.", "usage": {"input": 70, "output": 5, "cached": 30}}
    raw = client.messages.with_raw_response.create(
        model="scripted", max_tokens=50, messages=user_messages("Hi", step), system="Be kind."
    )
    message: Any = raw.parse()
    assert (message.type, message.role, message.model) == ("message", "assistant", "scripted")
    assert [block.type for block in message.content] == ["text"], "thinking was not asked for"
    assert (message.content[0].text, message.stop_reason) == ("Hello there.", "end_turn")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (40, 30, 5)
    assert message._request_id == raw.headers["Request-Id"] == raw.headers["X-Request-Id"]
    report = person.caller.http.get(raw.headers["X-Glasshouse-Report"]).json()
    assert report["messages"][-1]["text"].startswith("Hi")
    assert message.id == f"msg_{turn_of(raw.headers['X-Glasshouse-Report'])}"


def test_the_events_of_a_stream_come_in_the_protocols_order(client: Anthropic, able: Model) -> None:
    call = {"name": "get_weather", "arguments": {"town": "Conwy"}}
    step = {"text": "Let me look.", "reasoning": "Look.", "tool_calls": [call, call], "interval": 0.02}
    with client.messages.with_streaming_response.create(
        model=able.name,
        max_tokens=5_000,
        messages=user_messages("Weather?", step),
        tools=[TOOL],
        thinking={"type": "enabled", "budget_tokens": 2_000},
        stream=True,
    ) as raw:
        lines = [line for line in raw.iter_lines() if line and not line.startswith(":")]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    data = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert names == [each["type"] for each in data]
    for each in data:
        if each["type"] != "ping":
            EVENT.validate_python(each)
    once = [name for number, name in enumerate(names) if name not in ("ping", names[number - 1])]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert once == ["message_start", *block * 4, "message_delta", "message_stop"]
    starts = [each["content_block"]["type"] for each in data if each["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use", "tool_use"]
    kinds = [each["delta"]["type"] for each in data if each["type"] == "content_block_delta" and not each["index"]]
    assert kinds[-1] == "signature_delta"
    assert data[0]["message"]["usage"]["input_tokens"] > 10


def test_the_clients_own_stream_reads_the_answer(client: Anthropic, able: Model) -> None:
    calls = [{"name": "get_weather", "arguments": {"town": town}} for town in ("Conwy", "Bangor")]
    with client.messages.stream(
        model=able.name, max_tokens=500, messages=user_messages("Both", {"tool_calls": calls}), tools=[TOOL]
    ) as stream:
        message: Any = stream.get_final_message()
    assert [block.input["town"] for block in message.content] == ["Conwy", "Bangor"]
    assert (message.stop_reason, message.stop_sequence) == ("tool_use", None)


def test_pieces_of_another_call_wait_until_the_first_call_ends() -> None:
    writer = MessageWriter(AnswerHead("t", "m", {"f"}, str), shows_thinking=False)
    events: list[WireEvent] = [
        {"type": "TOOL_CALL_START", "part": 0, "call": "a", "name": "f"},
        {"type": "TOOL_CALL_START", "part": 1, "call": "b", "name": "f"},
        {"type": "TOOL_CALL_ARGS", "part": 1, "call": "b", "delta": '{"n": 2}'},
        {"type": "TOOL_CALL_ARGS", "part": 0, "call": "a", "delta": '{"n": 1}'},
        {"type": "TEXT_MESSAGE_CONTENT", "part": 2, "delta": "Both."},
        {"type": "RUN_FINISHED", "finish": "tool_calls", "usage": {}},
    ]
    written: list[Any] = [event.data for wire in events for event in writer.feed(wire)]
    open_block = None
    for each in written:
        if each["type"] == "content_block_start":
            assert open_block is None
            open_block = each["index"]
        elif each["type"] == "content_block_stop":
            assert each["index"] == open_block
            open_block = None
        elif each["type"] == "content_block_delta":
            assert each["index"] == open_block
    content: Any = writer.whole()["content"]
    assert [block.get("input") or block["text"] for block in content] == [{"n": 1}, {"n": 2}, "Both."]


def test_a_tool_is_used_and_its_result_goes_on(application: Application, client: Anthropic, able: Model) -> None:
    mark = uuid4().hex
    call = {"name": "get_weather", "arguments": {"town": "Conwy"}, "id": "toolu_1"}
    steps = ({"text": "Let me look.", "reasoning": "Look.", "tool_calls": [call]}, {"text": "It rains."})
    thinking: Any = {"type": "adaptive"}
    messages: list[Any] = user_messages(f"Weather? {mark}", *steps)
    first = client.messages.create(model=able.name, max_tokens=500, messages=messages, tools=[TOOL], thinking=thinking)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    url = base64.b64encode(image("PNG", 24, 16)).decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}, picture]}
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second: Any = client.messages.create(
        model=able.name, max_tokens=500, messages=messages, tools=[TOOL], thinking=thinking
    )
    assert second.content[-1].text == "It rains."
    _, after = (record.body for record in application.model.finished(mark, 2))
    assert [message["role"] for message in after["messages"][-4:]] == ["user", "assistant", "tool", "user"]
    assert after["messages"][-2]["content"] == "rain" and url in json.dumps(after["messages"][-1])


def test_a_request_of_claude_code_is_answered(application: Application, client: Anthropic, able: Model) -> None:
    """The parameters that its SDK sends, with the header of its betas."""
    mark = uuid4().hex
    ephemeral: Any = {"type": "ephemeral"}
    system: list[Any] = [
        {"type": "text", "text": "You are Claude Code."},
        {"type": "text", "text": "Work in /src.", "cache_control": ephemeral},
    ]
    question = {"type": "text", "text": user_messages(f"Hi {mark}")[0]["content"], "cache_control": ephemeral}
    messages: list[Any] = [{"role": "user", "content": [question]}]
    tools: list[Any] = [{**TOOL, "eager_input_streaming": True}]
    with client.beta.messages.stream(
        model=able.name,
        max_tokens=32_000,
        system=system,
        messages=messages,
        tools=tools,
        metadata={"user_id": "user_1"},
        thinking={"type": "adaptive"},
        output_config={"effort": "medium"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        betas=["claude-code-20250219", "interleaved-thinking-2025-05-14"],
    ) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "end_turn"
    [sent] = application.model.finished(mark)
    assert sent.body["reasoning_effort"] == "medium"
    assert "You are Claude Code.\n\nWork in /src." in json.dumps(sent.body["messages"], ensure_ascii=False).replace(
        "\\n", "\n"
    )


def test_tokens_are_counted_and_nothing_is_stored(person: Person, client: Anthropic, able: Model) -> None:
    def count(text: str, **options: Any) -> int:
        return client.messages.count_tokens(
            model=able.name, messages=[{"role": "user", "content": text}], **options
        ).input_tokens

    short, long = count("Hi"), count("Hi " * 1_000)
    assert 900 < long - short < 1_100
    assert count("Hi", tools=[TOOL]) > short < count("Hi", system="Be kind and brief.")
    assert count("Hi " * 200_000) > 150_000, "also of a prompt that does not fit"
    assert not Conversation.objects.filter(owner=person.user).exists()
    assert not Turn.objects.filter(owner=person.user).exists()


def test_the_count_is_that_of_the_prompt_that_is_sent(client: Anthropic, able: Model) -> None:
    request: Any = {"model": able.name, "messages": user_messages("Hi", {"text": "Yes."}), "tools": [TOOL]}
    counted = client.messages.count_tokens(**request).input_tokens
    raw = client.messages.with_raw_response.create(max_tokens=50, **request)
    [call] = Turn.objects.get(pk=turn_of(raw.headers["X-Glasshouse-Report"])).report["calls"]
    assert counted == call["used"] + call["tools_tokens"]


def test_documents_are_read_by_the_readers(
    application: Application, person: Person, client: Anthropic, able: Model
) -> None:
    mark = uuid4().hex
    table = base64.b64encode(b"town,rain\nConwy,yes\n").decode()
    blocks: list[Any] = [
        {
            "type": "document",
            "title": "rain.csv",
            "source": {"type": "base64", "media_type": "text/csv", "data": table},
        },
        {
            "type": "document",
            "title": "note",
            "source": {"type": "text", "media_type": "text/plain", "data": "By hand."},
        },
        {"type": "text", "text": f"What is in them? {mark}"},
    ]
    client.messages.create(model=able.name, max_tokens=50, messages=[{"role": "user", "content": blocks}])
    [sent] = application.model.finished(mark)
    prompt = json.dumps(sent.body["messages"])
    assert "rain.csv" in prompt and "Conwy" in prompt and "By hand." in prompt
    assert {file.name for file in File.objects.owned_by(person.user)} == {"rain.csv", "note"}


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"top_k": 5}, "top_k", "unsupported_parameter"),
        ({"container": "c"}, "container", "unsupported_parameter"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers", "unsupported_parameter"),
        ({"speed": "fast"}, "speed", "unsupported_parameter"),
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context_management",
            "unsupported_parameter",
        ),
        ({"max_tokens": None}, "max_tokens", "missing_required_parameter"),
        ({"temperature": 1.5}, "temperature", "invalid_value"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]", "unsupported_tool"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice", "invalid_value"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "invalid_value"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "messages", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
            "messages[0].content[0].tool_use_id",
            "invalid_value",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {}}]},
                    {"role": "user", "content": "Well?"},
                ]
            },
            "messages[2].content",
            "invalid_value",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}]}
                ]
            },
            "messages[0].content[0].source.url",
            "unsupported_image_url",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    person: Person, body: dict[str, Any], param: str, code: str
) -> None:
    status, answer = refused(person, **body)
    error = answer["error"]
    assert (status, answer["type"], error["type"]) == (400, "error", "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)
    assert answer["request_id"] and not Conversation.objects.filter(owner=person.user).exists()


def test_errors_are_those_of_the_client(person: Person, client: Anthropic, scripted_model_row: Model) -> None:
    with pytest.raises(anthropic.AuthenticationError) as wrong:
        anthropic_client(person, api_key="gh_wrong").messages.create(
            model="scripted", max_tokens=5, messages=user_messages("Hi")
        )
    assert wrong.value.type == "authentication_error" and wrong.value.request_id
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(model="claude-0", max_tokens=5, messages=user_messages("Hi"))
    assert unknown.value.type == "not_found_error"
    step = {"error": {"status": 429, "message": "slow down"}, "ttft": 0.1}
    with pytest.raises(anthropic.RateLimitError) as busy:
        client.messages.create(model="scripted", max_tokens=5, messages=user_messages("Hi", step))
    assert busy.value.response.headers["X-Should-Retry"] == "true"
    small = Model.objects.create(
        provider=scripted_model_row.provider, name=f"small-{uuid4().hex}", context_window=2_000
    )
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(model=small.name, max_tokens=5, messages=user_messages("word " * 9_000))
    small.delete()


def test_a_model_that_breaks_off_says_so_in_the_stream(client: Anthropic) -> None:
    step = {"text": "One two three four.", "interval": 0.1, "cut_after": 3}
    stream = client.messages.create(model="scripted", max_tokens=50, messages=user_messages("Hi", step), stream=True)
    with pytest.raises(anthropic.APIStatusError, match="broke off"):
        list(stream)


def test_the_rate_limit_is_told_as_anthropic_tells_it(committed: None, settings: Settings) -> None:
    settings.API_RATES = {"chat": 3}
    _, token = create_token(user=User.objects.create_user(uuid4().hex), name="program")
    program = DjangoClient(headers={"X-Api-Key": token, "Anthropic-Version": "2023-06-01"})
    answers = [program.get("/v1/models") for _ in range(7)]  # more than three of them within one minute of the clock
    assert answers[0]["Anthropic-RateLimit-Requests-Limit"] == "3"
    assert int(answers[0]["Anthropic-RateLimit-Requests-Remaining"]) < 3
    last = next(answer for answer in reversed(answers) if answer.status_code == 429)
    assert last.json()["error"]["type"] == "rate_limit_error" and int(last["Retry-After"]) > 0
    assert datetime.fromisoformat(last["Anthropic-RateLimit-Requests-Reset"]) > timezone.now()


def test_a_bearer_token_and_a_key_are_the_same(person: Person) -> None:
    client = anthropic_client(person, api_key=None, auth_token=person.token)
    assert client.messages.create(model="scripted", max_tokens=50, messages=user_messages("Hi")).content
    assert "scripted" in [model.id for model in client.models.list()]
    assert client.models.retrieve("scripted").display_name == "scripted"
    with person.caller.server.http("/api/v1/", headers={"X-Api-Key": person.token}) as http:
        assert http.get("me/").status_code == 401, "only below /v1/ is such a key read"


@pytest.mark.product
def test_a_long_request_with_a_key_is_taken_over_the_wire(person: Person) -> None:
    """The web server looks up the sender of a long body before it reads on."""
    metadata: Any = {"user_id": "x" * 200_000}
    with anthropic_client(person) as client:
        message = client.messages.create(
            model="scripted", max_tokens=50, messages=user_messages("Hi"), metadata=metadata
        )
    assert message.stop_reason == "end_turn"
