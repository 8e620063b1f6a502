"""OpenAI's protocol, through OpenAI's own openai_client."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from openai import APITimeoutError, OpenAI

from accounts.models import ApiToken
from chat.models import Conversation, Turn
from llm.models import Model
from personas.models import Persona
from readers.tests.samples import image
from tests.application import Application
from tests.chat.openai_clients import WEATHER, client_of, posted, turn_of, user_messages
from tests.conftest import Person


def test_an_answer_comes_whole_with_its_usage(openai_client: OpenAI) -> None:
    step = {"text": "Hello there.", "usage": {"input": 70, "output": 5, "cached": 30}}
    answer = openai_client.chat.completions.create(model="scripted", messages=user_messages("Hi", step))
    [choice] = answer.choices
    assert (answer.object, answer.model) == ("chat.completion", "scripted")
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello there.", "stop")
    assert answer.usage and answer.usage.prompt_tokens_details
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (70, 5, 75)
    assert answer.usage.prompt_tokens_details.cached_tokens == 30


def test_a_stream_says_the_role_first_and_the_usage_last(openai_client: OpenAI) -> None:
    step = {"text": "One two three.", "reasoning": "Count.", "interval": 0.02, "usage": {"input": 9, "output": 4}}
    with openai_client.chat.completions.create(
        model="scripted", messages=user_messages("Count", step), stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "One two three."
    reasoned = [getattr(chunk.choices[0].delta, "reasoning_content", "") for chunk in chunks[:-1]]
    assert "".join(reasoned) == "Count."
    assert chunks[-2].choices[0].finish_reason == "stop" and not chunks[-1].choices
    assert chunks[-1].usage and chunks[-1].usage.total_tokens == 13
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_a_model_that_reports_no_usage_is_counted_for(openai_client: OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model="scripted", messages=user_messages("Hi", {"text": "Yes.", "usage": False})
    )
    assert answer.usage and answer.usage.prompt_tokens > 10 and answer.usage.completion_tokens == 2


def test_what_the_model_gets_is_the_history_under_the_products_rules(
    application: Application, person: Person, openai_client: OpenAI
) -> None:
    mark = uuid4().hex
    Persona.objects.create(owner=person.user, name="Sea Dog", instructions="Talk like a pirate.")
    raw = openai_client.chat.completions.with_raw_response.create(
        model="sea-dog",
        messages=[
            {"role": "system", "content": "Answer in Welsh."},
            {"role": "user", "content": "Who are you?"},
            {"role": "assistant", "content": "A sailor."},
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": f"And where? {mark}"}]},
        ],
        temperature=0.3,
        max_completion_tokens=77,
        stop=["END"],
        seed=7,
        user="somebody",
    )
    assert raw.parse().model == "sea-dog"
    [sent] = application.model.finished(mark)
    assert [(message["role"], message["content"]) for message in sent.body["messages"][1:]] == [
        ("user", "Who are you?"),
        ("assistant", "A sailor."),
        ("user", "# Persona “Sea Dog”\nTalk like a pirate.\n\nAnswer in Welsh.\n\nBe short."),
        ("user", f"And where? {mark}"),
    ]
    assert sent.body["messages"][0]["content"].startswith("You are being tested.")
    assert (sent.body["temperature"], sent.body["max_tokens"], sent.body["stop"]) == (0.3, 77, ["END"])
    report = person.caller.http.get(raw.headers["X-Glasshouse-Report"]).json()
    assert [message["text"] for message in report["messages"]] == [
        message["content"] for message in sent.body["messages"]
    ]
    assert raw.headers["X-Request-Id"]


def test_a_stream_names_its_report_before_it_begins(person: Person, openai_client: OpenAI) -> None:
    create = openai_client.chat.completions.with_raw_response.create
    raw = create(model="scripted", messages=user_messages("Report", {"text": "Said."}), stream=True)
    report = raw.headers["X-Glasshouse-Report"]
    assert [chunk.choices[0].delta.content for chunk in raw.parse()] and raw.headers["X-Request-Id"]
    assert person.caller.http.get(report).json()["messages"][-1]["text"].startswith("Report")


def test_a_call_of_the_callers_tool_comes_back_and_its_result_goes_on(
    application: Application, person: Person, openai_client: OpenAI, able: Model
) -> None:
    mark = uuid4().hex
    call = {"name": "get_weather", "arguments": {"town": "Conwy", "at": "noon"}, "id": "call_1"}
    steps = ({"text": "Let me look.", "tool_calls": [call]}, {"text": "It rains."})
    messages = user_messages(f"Weather? {mark}", *steps)
    first = openai_client.chat.completions.create(model=able.name, messages=messages, tools=[WEATHER])
    [choice] = first.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me look."
    assert choice.message.tool_calls
    [tool_call] = choice.message.tool_calls
    assert tool_call.type == "function" and tool_call.function.name == "get_weather"
    assert json.loads(tool_call.function.arguments) == call["arguments"]
    result: Any = {"role": "tool", "tool_call_id": tool_call.id, "content": "rain"}
    spoken: Any = choice.message
    followed = openai_client.chat.completions.with_raw_response.create(
        model=able.name, messages=[*messages, spoken, result], tools=[WEATHER]
    )
    assert followed.parse().choices[0].message.content == "It rains."
    before, after = (record.body for record in application.model.finished(mark, 2))
    assert before["tools"] == [WEATHER]
    assert list(before["tools"][0]["function"]["parameters"]["properties"]) == ["town", "at"]
    assert [message["role"] for message in after["messages"][-3:]] == ["user", "assistant", "tool"]
    assert after["messages"][-2]["tool_calls"][0]["function"]["arguments"] == tool_call.function.arguments
    assert after["messages"][-1]["content"] == "rain"
    report = person.caller.http.get(followed.headers["X-Glasshouse-Report"]).json()
    assert [message["section"] for message in report["messages"]][-3:] == ["current"] * 3
    assert report["messages"][-1]["text"] == "rain"


def test_calls_are_streamed_as_they_are_written(openai_client: OpenAI, able: Model) -> None:
    calls = [{"name": "get_weather", "arguments": {"town": town}} for town in ("Conwy", "Bangor")]
    stream: Any = openai_client.chat.completions.create(
        model=able.name, messages=user_messages("Both", {"tool_calls": calls}), tools=[WEATHER], stream=True
    )
    arguments, names, finish = ["", ""], ["", ""], None
    for chunk in stream:
        finish = chunk.choices[0].finish_reason or finish
        for piece in chunk.choices[0].delta.tool_calls or ():
            assert piece.function
            names[piece.index] += piece.function.name or ""
            arguments[piece.index] += piece.function.arguments or ""
    assert names == ["get_weather", "get_weather"] and finish == "tool_calls"
    assert [json.loads(each)["town"] for each in arguments] == ["Conwy", "Bangor"]


def test_arguments_of_any_length_reach_the_program_whole(openai_client: OpenAI, able: Model) -> None:
    town = "x" * 100_000
    call = {"tool_calls": [{"name": "get_weather", "arguments": {"town": town}}]}
    stream: Any = openai_client.chat.completions.create(
        model=able.name, messages=user_messages("Long", call), tools=[WEATHER], stream=True
    )
    pieces = [piece for chunk in stream for piece in chunk.choices[0].delta.tool_calls or ()]
    assert json.loads("".join(piece.function.arguments or "" for piece in pieces if piece.function)) == {"town": town}


def test_a_demanded_tool_is_demanded_of_the_model(application: Application, openai_client: OpenAI, able: Model) -> None:
    mark = uuid4().hex
    named: Any = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named, "none"):
        openai_client.chat.completions.create(
            model=able.name, messages=user_messages(f"Now {mark}"), tools=[WEATHER], tool_choice=choice
        )
    sent = [record.body for record in application.model.finished(mark, 3)]
    assert [body.get("tool_choice") for body in sent] == ["required", named, None]
    assert [len(body.get("tools", ())) for body in sent] == [1, 1, 0]


def test_images_are_shown_to_the_model_and_kept_once(
    application: Application, person: Person, openai_client: OpenAI, able: Model
) -> None:
    mark, url = uuid4().hex, f"data:image/png;base64,{base64.b64encode(image('PNG', 24, 16)).decode()}"
    content: Any = [{"type": "text", "text": f"What is it? {mark}"}, {"type": "image_url", "image_url": {"url": url}}]
    for _ in range(2):
        openai_client.chat.completions.create(model=able.name, messages=[{"role": "user", "content": content}])
    for record in application.model.finished(mark, 2):
        assert record.body["messages"][-1]["content"] == content
    assert person.user.files.count() == 1


def test_a_program_that_goes_away_stops_its_answer(
    application: Application, person: Person, openai_client: OpenAI
) -> None:
    mark = uuid4().hex
    create = openai_client.chat.completions.with_raw_response.create
    raw = create(
        model="scripted", messages=user_messages(f"Long {mark}", {"tokens": 5000, "interval": 0.05}), stream=True
    )
    stream = raw.parse()
    next(iter(stream))
    stream.close()
    [record] = application.model.finished(mark)
    assert record.ended == "client_closed" and record.pieces < 5000
    assert person.caller.ended(turn_of(raw.headers["X-Glasshouse-Report"]))["status"] == "stopped"


def test_one_that_gives_up_waiting_for_a_whole_answer_stops_it_too(application: Application, person: Person) -> None:
    mark = uuid4().hex
    with pytest.raises(APITimeoutError):
        client_of(person, timeout=2).chat.completions.create(
            model="scripted", messages=user_messages(f"Never {mark}", {"text": "Late.", "ttft": 600})
        )
    assert application.model.finished(mark)[0].ended == "client_closed"
    turn = Turn.objects.get(conversation__owner=person.user)
    assert person.caller.ended(str(turn.pk))["status"] == "stopped"


def test_fifty_programs_are_answered_at_once(person: Person, openai_client: OpenAI) -> None:
    def ask(number: int) -> str:
        step = {"text": f"Number {number} it is.", "interval": 0.05, "ttft": 1.0}
        messages = user_messages(f"Number {number}", step)
        if number % 2:
            return (
                openai_client.chat.completions.create(model="scripted", messages=messages).choices[0].message.content
                or ""
            )
        stream: Any = openai_client.chat.completions.create(model="scripted", messages=messages, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(ask, range(50))) == [f"Number {number} it is." for number in range(50)]


def test_requests_are_no_conversations_to_a_person_but_programs_can_list_them(
    person: Person, openai_client: OpenAI
) -> None:
    openai_client.chat.completions.create(model="scripted", messages=user_messages("Only a request"))
    row = Conversation.objects.get(owner=person.user)
    assert (row.title, row.titled, row.automatic_summaries) == ("Only a request", True, False)
    assert person.caller.get("conversations/")["results"] == []
    [listed] = person.caller.get("conversations/?origin=api")["results"]
    assert (listed["id"], listed["origin"]) == (str(row.pk), "api")


def test_a_projects_files_and_instructions_hold_when_it_is_named(
    application: Application, person: Person, openai_client: OpenAI, stranger: Person
) -> None:
    mark = uuid4().hex
    project = person.caller.post("projects/", {"name": "Boat", "instructions": "Be precise."}, expect=201)["id"]
    headers = {"X-Glasshouse-Project": project}
    openai_client.chat.completions.create(
        model="scripted", messages=user_messages(f"Hull? {mark}"), extra_headers=headers
    )
    [sent] = application.model.finished(mark)
    assert sent.body["messages"][-2]["content"] == "# Instructions of the project “Boat”\nBe precise."
    theirs = {"model": "scripted", "messages": user_messages("Mine?")}
    response = posted(stranger, "chat/completions", theirs, **headers)
    assert response.status_code == 404 and response.json()["error"]["code"] == "not_found"


def looked(text: str) -> list[dict[str, Any]]:
    """Return a program's messages in which its own tool has returned `text`."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
        {"role": "assistant", "content": "It is there."},
    ]


def test_a_programs_own_tool_results_are_sent_as_it_sent_them_while_they_fit(
    application: Application, person: Person
) -> None:
    mark = uuid4().hex
    body = {"model": "scripted", "messages": [*looked("LONG RESULT " * 50), *user_messages(f"And now? {mark}")]}
    assert posted(person, "chat/completions", body).status_code == 200
    [sent] = application.model.finished(mark)
    assert [m["content"] for m in sent.body["messages"] if m["role"] == "tool"] == ["LONG RESULT " * 50]


def test_results_that_do_not_fit_are_stubbed_and_no_turn_is_left_out_for_them(
    application: Application, person: Person
) -> None:
    mark = uuid4().hex
    body = {"model": "scripted", "messages": [*looked("LONG RESULT " * 80_000), *user_messages(f"And now? {mark}")]}
    assert posted(person, "chat/completions", body).status_code == 200
    [sent] = application.model.finished(mark)
    assert [m["content"] for m in sent.body["messages"] if m["role"] == "tool"] == [
        "This tool result is no longer available."
    ]


def test_a_token_may_send_its_system_message_as_the_system_message(application: Application, person: Person) -> None:
    mark = uuid4().hex
    messages = [{"role": "system", "content": "You are a robot."}, *user_messages(f"Who? {mark}")]
    body = {"model": "scripted", "messages": messages}
    refused = posted(person, "chat/completions", body, **{"X-Glasshouse-System": "replace"})
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "missing_scope"
    row = ApiToken.objects.filter(user=person.user).latest("created")
    row.scopes = [*row.scopes, "system"]
    row.save(update_fields=["scopes"])
    assert posted(person, "chat/completions", body).status_code == 200
    response = posted(person, "chat/completions", body, **{"X-Glasshouse-System": "beside"})
    assert response.status_code == 200
    replaced, unchanged = application.model.finished(mark)
    assert replaced.body["messages"][0]["content"].startswith("You are a robot.")
    assert "You are being tested." not in str(replaced.body["messages"])
    assert unchanged.body["messages"][0]["content"].startswith("You are being tested.")
    odd = posted(person, "chat/completions", body, **{"X-Glasshouse-System": "maybe"})
    assert odd.status_code == 400 and odd.json()["error"]["code"] == "bad_header"
