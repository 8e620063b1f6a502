"""Check the input of a run (AG-UI's `RunAgentInput`) and turn it into a `RunRequest`.

Glasshouse never ignores input that would change the answer. If it does not support such input, it refuses the run with
an error that says what to change.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import ag_ui.core as agui
from pydantic import ValidationError
from rest_framework import serializers

from chat.prompts.turn_context import MAX_TOOLS, NO_PARAMETERS, TOOL_NAME, ProgramOptions
from chat.turns.submit import MAX_EFFORT_LENGTH
from core.errors import ProductError
from core.sentences import Sentence
from llm.types.model_call import ToolDefinition

MAX_MESSAGES = 5_000  # per request; a new thread stores them all
MAX_CHARACTERS = 4_000_000  # of the messages as JSON, and of everything else except `APPLICATION_MEMBERS`
# Maximum number of items in a list, by the member's name.
MAX_ITEMS = {
    "messages": MAX_MESSAGES,
    "tools": MAX_TOOLS,
    "context": 10_000,
    "resume": 100,
    "content": 2_048,
    "toolCalls": 1_000,
}
APPLICATION_MEMBERS = {"state", "forwardedProps", "forwarded_props"}  # any shape; only the size of the body is limited
MAX_ERRORS = 10  # errors that are reported for an invalid input
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON text


class EarlierMessage(NamedTuple):
    """An earlier message; `role` is user or assistant."""

    role: str
    text: str


class ProgramToolResult(NamedTuple):
    """The result of a tool that the client program has run. `error`: whether it failed."""

    text: str
    error: bool


class InterruptPoint(NamedTuple):
    """The point at which a run was interrupted to wait for the user's decision on the tool call `call`.

    The client has received the events of `turn` up to `seq`, and with them the first `parts` parts of its answer.
    `str()` returns it as the id of AG-UI's interrupt.
    """

    turn: str
    seq: int
    parts: int
    call: str

    def __str__(self) -> str:
        return f"{self.turn}:{self.seq}:{self.parts}:{self.call}"


class RunDecision(NamedTuple):
    """The answer to an interrupt. `content`: the values of a tool's form."""

    point: InterruptPoint
    allow: bool
    remember: bool = False
    content: Mapping[str, Any] = MappingProxyType({})


class ForwardedProps(serializers.Serializer[dict[str, Any]]):
    """Members of `forwardedProps` that Glasshouse reads. The others belong to the application."""

    model = serializers.UUIDField(required=False, allow_null=True, default=None)
    persona = serializers.UUIDField(required=False, allow_null=True, default=None)
    files = serializers.ListField(child=serializers.UUIDField(), max_length=50, default=list)
    effort = serializers.CharField(
        max_length=MAX_EFFORT_LENGTH, required=False, allow_blank=True, allow_null=True, default=None
    )


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A checked request for a run.

    `thread` is the id of the conversation. `text` is the user's new message, or None if the run continues with the
    `results` of tools (by the ids of their calls) or with a `decision`. `earlier` holds the messages before `text`.
    """

    agent_input: agui.RunAgentInput
    thread: UUID
    text: str | None
    results: dict[str, ProgramToolResult]
    earlier: Sequence[EarlierMessage]
    options: ProgramOptions
    decision: RunDecision | None
    model: UUID | None
    persona: UUID | None
    files: Sequence[UUID]
    effort: str | None


def read_run_input(body: Any) -> RunRequest:
    """Check the JSON `body` of a request. Raises `ProductError` and Django REST framework's `ValidationError` (400)."""
    _check_size(body)
    _check_storable(body)
    try:
        run_input = agui.RunAgentInput.model_validate(body)
    except ValidationError as error:
        raise _to_product_error(error) from error
    _check_list_lengths(run_input)
    props = ForwardedProps(data=run_input.forwarded_props if isinstance(run_input.forwarded_props, dict) else {})
    props.is_valid(raise_exception=True)
    decision = _parse_decision(run_input.resume or [])
    messages = [
        message
        for message in run_input.messages
        if isinstance(message, agui.UserMessage | agui.AssistantMessage | agui.ToolMessage)
    ]
    if decision is None and (not messages or isinstance(messages[-1], agui.AssistantMessage)):
        sentence = "There is nothing to answer. End “messages” with a message of the user or the result of a tool."
        raise ProductError("nothing_to_answer", sentence)
    newest = messages.pop() if decision is None and isinstance(messages[-1], agui.UserMessage) else None
    if props.validated_data["files"] and newest is None:
        raise ProductError("files_without_message", "Files go with a message of the user. Leave “files” out here.")
    tools = [message for message in messages if isinstance(message, agui.ToolMessage)]
    return RunRequest(
        agent_input=run_input,
        thread=_parse_thread_id(run_input.thread_id),
        text=_join_text_parts(newest.content) if newest is not None else None,
        results={message.tool_call_id: _parse_result(message) for message in tools},
        earlier=[
            EarlierMessage(message.role, _join_text_parts(message.content))
            for message in messages
            if not isinstance(message, agui.ToolMessage)
        ],
        options=ProgramOptions(instructions=_join_instructions(run_input), tools=_parse_tools(run_input.tools or [])),
        decision=decision,
        **props.validated_data,
    )


def _check_size(body: Any) -> None:
    """Raise `too_many_messages`, `messages_too_long` or `input_too_long` (413) before the body is parsed further."""
    if isinstance(body, dict):
        rest = {name: value for name, value in body.items() if name != "messages" and name not in APPLICATION_MEMBERS}
        if len(json.dumps(rest, ensure_ascii=False)) > MAX_CHARACTERS:
            sentence = Sentence(
                "“context”, “tools” and the other members have more than {most} characters. Shorten them.",
                most=MAX_CHARACTERS,
            )
            raise ProductError("input_too_long", sentence, status=413)
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list):
        return  # `RunAgentInput` refuses it later
    if len(messages) > MAX_MESSAGES:
        sentence = Sentence(
            "“messages” has {messages} messages, but at most {max_messages} are allowed. Leave out the oldest.",
            messages=len(messages),
            max_messages=MAX_MESSAGES,
        )
        raise ProductError("too_many_messages", sentence, status=413)
    characters = len(json.dumps(messages, ensure_ascii=False))
    if characters > MAX_CHARACTERS:
        sentence = Sentence(
            "“messages” has {characters} characters, but at most {max_characters} are allowed. Leave out the oldest.",
            characters=characters,
            max_characters=MAX_CHARACTERS,
        )
        raise ProductError("messages_too_long", sentence, status=413)


def _check_list_lengths(run_input: agui.RunAgentInput) -> None:
    """Raise `too_many_items` (413) for a list that is too long. `_parse_tools` checks `tools`."""
    lists: list[tuple[str, Sequence[Any] | None]] = [("context", run_input.context), ("resume", run_input.resume)]
    for message in run_input.messages:
        content = getattr(message, "content", None)
        lists.append(("content", content if isinstance(content, list) else None))
        lists.append(("toolCalls", getattr(message, "tool_calls", None)))
    for name, items in lists:
        if items is not None and len(items) > MAX_ITEMS[name]:
            sentence = f"“{name}” has {len(items):,} items, but at most {MAX_ITEMS[name]:,} are allowed."
            raise ProductError("too_many_items", sentence, status=413)


def _check_storable(body: Any) -> None:
    text = json.dumps(body, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ProductError("invalid", "The run's input has unpaired surrogates. Send valid Unicode.") from error
    if _ESCAPED_NUL.search(text):
        raise ProductError("invalid", "The run's input has a NUL character, which cannot be stored. Leave it out.")


def _to_product_error(error: ValidationError) -> ProductError:
    reports = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_ERRORS]
    errors = [
        {"code": each["type"], "detail": each["msg"], "attr": ".".join(map(str, each["loc"]))} for each in reports
    ]
    sentence = "; ".join(f"{each['attr']}: {each['detail']}" if each["attr"] else each["detail"] for each in errors)
    return ProductError("invalid", sentence, errors=errors)


def _parse_thread_id(thread_id: str) -> UUID:
    try:
        return UUID(thread_id)
    except ValueError as error:
        sentence = "“threadId” must be a UUID: of one of your conversations, or a new one to begin a conversation."
        raise ProductError("bad_thread", sentence) from error


def _join_text_parts(content: str | list[agui.ContentPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.text for part in content if isinstance(part, agui.TextPart)]
    if len(texts) < len(content):
        sentence = "Messages can have text parts only. Upload files, then name their ids in “forwardedProps.files”."
        raise ProductError("unsupported_content", sentence)
    return "\n\n".join(texts)


def _parse_result(message: agui.ToolMessage) -> ProgramToolResult:
    texts = [_join_text_parts(message.content), message.error or ""]
    return ProgramToolResult("\n\n".join(text for text in texts if text), bool(message.error))


def _join_instructions(run_input: agui.RunAgentInput) -> str:
    """Join the application's system messages, context and state. They are sent after the persona's instructions."""
    texts = [
        item.content for item in run_input.messages if isinstance(item, agui.SystemMessage | agui.DeveloperMessage)
    ]
    texts += [f"{item.description}: {item.value}" for item in run_input.context or ()]
    if run_input.state:
        texts.append(f"The application's state: {json.dumps(run_input.state, ensure_ascii=False)}")
    return "\n\n".join(text for text in texts if text.strip())


def _parse_tools(tools: list[agui.Tool]) -> tuple[ToolDefinition, ...]:
    if len(tools) > MAX_TOOLS or len({tool.name for tool in tools}) < len(tools):
        raise ProductError(
            "bad_tools",
            Sentence("“tools” can have at most {max_tools} tools with different names.", max_tools=MAX_TOOLS),
        )
    return tuple(_parse_tool(tool) for tool in tools)


def _parse_tool(tool: agui.Tool) -> ToolDefinition:
    if not TOOL_NAME.fullmatch(tool.name):
        raise ProductError("bad_tools", "A tool's name has 1 to 64 letters, digits, hyphens and underscores.")
    if not isinstance(tool.parameters or {}, dict):
        raise ProductError(
            "bad_tools", Sentence("“parameters” of the tool {name} must be a JSON schema.", name=tool.name)
        )
    return ToolDefinition(tool.name, tool.description, tool.parameters or NO_PARAMETERS)


def _parse_decision(entries: list[agui.ResumeEntry]) -> RunDecision | None:
    if not entries:
        return None
    [entry, *others] = entries
    turn, seq, parts, call = (*entry.interrupt_id.split(":", 3), "", "", "")[:4]
    if others or not (call and _is_number(seq) and _is_number(parts)):
        raise ProductError("bad_resume", "“resume” must answer the interrupt that ended the previous run, by its id.")
    point = InterruptPoint(turn, int(seq), int(parts), call)
    if entry.status != "resolved":
        return RunDecision(point, allow=False)
    payload = entry.payload if isinstance(entry.payload, dict) else {}
    allow, remember, content = payload.get("allow"), payload.get("remember", False), payload.get("content", {})
    if not (isinstance(allow, bool) and isinstance(remember, bool) and isinstance(content, dict)):
        sentence = (
            "Answer this interrupt with the payload {“allow”: true} or {“allow”: false}, and optionally “remember”."
        )
        raise ProductError("bad_resume", sentence)
    return RunDecision(point, allow, remember, content)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
