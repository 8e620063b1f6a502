"""AG-UI as its clients see it: events read with the package's types, their order, and the messages that they make."""

import json
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

from ag_ui.core import Event
from pydantic import TypeAdapter

from personas.models import Persona
from tests.chat.tool_servers import Diary
from tests.conftest import Person

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
OPENS = {
    "TEXT_MESSAGE_START": ("text", "message_id"),
    "REASONING_START": ("span", "message_id"),
    "REASONING_MESSAGE_START": ("thought", "message_id"),
    "TOOL_CALL_START": ("call", "tool_call_id"),
}
NEEDS = {
    "TEXT_MESSAGE_CONTENT": ("text", "message_id"),
    "REASONING_MESSAGE_CONTENT": ("thought", "message_id"),
    "TOOL_CALL_ARGS": ("call", "tool_call_id"),
}
CLOSES = {
    "TEXT_MESSAGE_END": ("text", "message_id"),
    "REASONING_END": ("span", "message_id"),
    "REASONING_MESSAGE_END": ("thought", "message_id"),
    "TOOL_CALL_END": ("call", "tool_call_id"),
}


def read_events(lines: Iterable[str]) -> Iterator[Any]:
    """The events of a stream; nothing may be in one that AG-UI does not name."""
    for line in lines:
        if not line.startswith("data: "):
            assert not line or line.startswith(":"), line
            continue
        event = EVENT.validate_json(line.removeprefix("data: "))
        assert not event.model_extra, event
        assert None not in json.loads(line.removeprefix("data: ")).values(), line
        yield event


def problems(events: list[Any]) -> list[str]:
    """Return the mistakes in the order of a run's events for which a client would refuse it."""
    names = [str(event.type.value) for event in events]
    wrong = [] if names[:1] == ["RUN_STARTED"] else ["it does not begin with RUN_STARTED"]
    wrong += [] if names[-1:] in (["RUN_FINISHED"], ["RUN_ERROR"]) else ["it does not end"]
    wrong += ["it begins or ends twice"] if len({"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"} & {*names[1:-1]}) else []
    open_: set[tuple[str, str]] = set()
    for name, event in zip(names, events, strict=True):
        for table, expected in ((OPENS, False), (NEEDS, True), (CLOSES, True)):
            if name in table:
                kind, field = table[name]
                thing = (kind, getattr(event, field))
                wrong += [] if (thing in open_) is expected else [f"{name} of {thing}"]
                open_ = open_ | {thing} if table is OPENS else open_ - {thing} if table is CLOSES else open_
    return wrong + [f"{kind} is left open" for kind, _ in open_]


def messages(events: list[Any]) -> list[dict[str, Any]]:
    """Return the messages that a client shows after a run: each once, in the order in which they began."""
    by_id: dict[str, dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    for event in events:
        match event.type.value:
            case "TEXT_MESSAGE_START":
                by_id.setdefault(event.message_id, {"role": "assistant", "text": "", "calls": []})
            case "REASONING_MESSAGE_START":
                by_id[event.message_id] = {"role": "reasoning", "text": ""}
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                by_id[event.message_id]["text"] += event.delta
            case "TOOL_CALL_START":
                calls[event.tool_call_id] = {"id": event.tool_call_id, "name": event.tool_call_name, "arguments": ""}
                message = by_id.setdefault(event.parent_message_id, {"role": "assistant", "text": "", "calls": []})
                message["calls"].append(calls[event.tool_call_id])
            case "TOOL_CALL_ARGS":
                calls[event.tool_call_id]["arguments"] += event.delta
            case "TOOL_CALL_RESULT":
                by_id[event.message_id] = {"role": "tool", "text": event.content, "call": event.tool_call_id}
            case "MESSAGES_SNAPSHOT":
                by_id = {each.id: _from_snapshot(each) for each in event.messages}
    return list(by_id.values())


def _from_snapshot(message: Any) -> dict[str, Any]:
    """Return a message of a snapshot, which replaces the message of the events."""
    if message.role == "assistant":
        calls = [
            {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
            for call in message.tool_calls or ()
        ]
        return {"role": "assistant", "text": message.content or "", "calls": calls}
    call = {"call": message.tool_call_id} if message.role == "tool" else {}
    return {"role": message.role, "text": message.content, **call}


def user(text: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """A message of a person, with the script that the model plays."""
    script = f"\nscript: {json.dumps({'steps': steps})}" if steps else ""
    return {"id": str(uuid4()), "role": "user", "content": text + script}


def result(call: str, text: str) -> dict[str, Any]:
    return {"id": str(uuid4()), "role": "tool", "toolCallId": call, "content": text}


def run_input(*inputs: dict[str, Any], thread: str = "", **more: Any) -> dict[str, Any]:
    return {"threadId": thread or str(uuid4()), "runId": str(uuid4()), "messages": list(inputs), **more}


def ran(person: Person, body: dict[str, Any], **headers: str) -> list[Any]:
    """The events of a run, all valid and in order."""
    sent = {"Accept": "text/event-stream", **headers}
    with person.caller.http.stream("POST", "ag-ui/", json=body, headers=sent) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["Content-Type"] == "text/event-stream"
        events = list(read_events(response.iter_lines()))
    assert not problems(events)
    assert (events[0].thread_id, events[0].run_id) == (body["threadId"], body["runId"])
    return events


def custom(events: list[Any], name: str) -> list[Any]:
    return [event.value for event in events if event.type.value == "CUSTOM" and event.name == name]


TOWN = {"town": {"type": "string"}}


WEATHER = {"name": "weather", "description": "Of a town.", "parameters": {"type": "object", "properties": TOWN}}


def props(diary: Diary) -> dict[str, Any]:
    """The scripted model that calls tools, and the persona that has the diary's."""
    persona = Persona.objects.get(owner=diary.person.user)
    return {"model": str(diary.model.pk), "persona": str(persona.pk)}
