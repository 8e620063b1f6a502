"""Write an answer in OpenAI's Responses protocol: as the events of a stream, or as one response.

The output is a list of items: reasoning, messages and calls of the program's tools. One item is open at a time. A piece
of another kind closes it, so that the events of two items never mix.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

from chat.openai_api import errors
from chat.openai_api.answer import (
    LENGTH_REASONS,
    AnswerArguments,
    AnswerCall,
    AnswerEnd,
    AnswerHead,
    AnswerReasoning,
    AnswerText,
    AnswerWriter,
    Piece,
    StreamEvent,
    TextMoved,
)
from chat.openai_api.responses_parse import INPUT, ToolForm
from core.errors import ProductError
from core.json_types import JsonObject
from llm.step_filters.valid_calls import to_json_object

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class SummaryText(TypedDict):
    """A text of a reasoning item."""

    type: str
    text: str


class ReasoningItem(TypedDict):
    """Reasoning of the model. The product keeps the provider's own form of it, so there is no encrypted content."""

    id: str
    type: str
    status: ItemStatus
    summary: list[SummaryText]
    encrypted_content: None


class FlatCitation(TypedDict):
    """A citation. `start_index` and `end_index` count characters of the text."""

    type: str
    start_index: int
    end_index: int
    title: str
    url: str


class OutputText(TypedDict):
    """The text of a message."""

    type: str
    text: str
    annotations: list[FlatCitation]
    logprobs: list[object]


class MessageItem(TypedDict):
    """A message of the assistant."""

    id: str
    type: str
    status: ItemStatus
    role: str
    content: list[OutputText]


class CallItem(TypedDict):
    """A call of one of the program's tools. `arguments` is JSON text."""

    id: str
    type: str
    status: ItemStatus
    call_id: str
    name: str
    namespace: NotRequired[str]
    arguments: str


class CustomCallItem(TypedDict):
    """A call of one of the program's custom tools, whose input is free text."""

    id: str
    type: str
    status: ItemStatus
    call_id: str
    name: str
    namespace: NotRequired[str]
    input: str


OutputItem = ReasoningItem | MessageItem | CallItem | CustomCallItem


class InputTokensDetails(TypedDict):
    """Details of the prompt's tokens."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(TypedDict):
    """Details of the answer's tokens."""

    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """The tokens of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(TypedDict):
    """The error of a response that broke off."""

    code: str
    message: str


class IncompleteDetails(TypedDict):
    """The reason of an incomplete response."""

    reason: str


class Response(TypedDict):
    """A response. It also has the members of the request that are repeated."""

    id: str
    object: str
    created_at: int
    completed_at: int | None
    status: str
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None
    background: bool
    previous_response_id: None
    store: bool


class ResponseEvent(TypedDict, total=False):
    """The members of an event, besides its type and number."""

    response: Mapping[str, object]
    output_index: int
    item_id: str
    item: OutputItem
    content_index: int
    summary_index: int
    annotation_index: int
    part: OutputText | SummaryText
    annotation: FlatCitation
    delta: str
    text: str
    name: str
    arguments: str
    input: str
    logprobs: list[object]
    code: str
    message: str
    param: str | None
    error: errors.ErrorMembers


# Reasons of an incomplete response, by finish reason. `other` tells programs that the answer may be incomplete.
REASONS = {
    "length": "max_output_tokens",
    "context_window": "max_output_tokens",
    "pause": "max_output_tokens",
    "other": "max_output_tokens",
    "refusal": "content_filter",
    "content_filter": "content_filter",
}


@dataclass(slots=True)
class OpenCall:
    """A call that is being written. `index`: its place in the output. `form`: how the program names its tool."""

    id: str
    form: ToolForm
    index: int
    arguments: list[str] = field(default_factory=list)


class ResponseWriter(AnswerWriter):
    """Writes the events of a response."""

    def __init__(self, head: AnswerHead, repeated: JsonObject, tools: Mapping[str, ToolForm]) -> None:
        super().__init__(head)
        self._repeated = repeated
        self._tools = tools
        self._created = int(time.time())
        self._completed: int | None = None
        self._number = 0
        self._output: list[OutputItem] = []
        self._message: MessageItem | None = None  # the open item, if it is a message
        self._reasoning: ReasoningItem | None = None  # the open item, if it is reasoning
        self._text: list[str] = []  # of the open item
        self._part_starts: dict[int, int] = {}  # the index in `_text` at which each part of the answer begins
        self._calls: dict[str, OpenCall] = {}  # by id
        self._status = "in_progress"
        self._error: ResponseError | None = None
        self._incomplete: IncompleteDetails | None = None
        # The first piece is read before they are sent, so they are made now.
        self._opening = [
            self._event(name, {"response": self._response()}) for name in ("response.created", "response.in_progress")
        ]

    def opening(self) -> list[StreamEvent]:
        return self._opening

    def whole(self) -> Mapping[str, object]:
        return self._response()

    def failed(self, error: ProductError) -> list[StreamEvent]:
        members = errors.error_body(error)["error"]
        events = self._close("incomplete")
        self._status = "failed"
        self._error = {"code": members["code"], "message": members["message"]}
        # Clients raise the first event as an error; Codex reads the second.
        broken = self._event(
            "error",
            {"code": members["code"], "message": members["message"], "param": members["param"], "error": members},
        )
        return [*events, broken, self._event("response.failed", {"response": self._response()})]

    def _write(self, piece: Piece) -> list[StreamEvent]:
        match piece:
            case AnswerText(part, text):
                return self._add_text(part, text)
            case AnswerReasoning(text):
                return self._add_reasoning(text)
            case TextMoved(part, text):
                return [*self._take_back(part), *self._add_reasoning(text), *self._close()]
            case AnswerCall(call, name):
                return [*self._close(), self._add_call(call, name)]
            case AnswerArguments(call, text):
                return self._add_arguments(self._calls[call], text)
            case AnswerEnd(finish):
                return self._finish(finish)

    def _event(self, name: str, members: ResponseEvent) -> StreamEvent:
        event = StreamEvent({"type": name, "sequence_number": self._number, **members}, name)
        self._number += 1
        return event

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._head.turn}_{len(self._output)}"

    def _place(self) -> ResponseEvent:
        """Return the place of the open item, which is the last one."""
        item = self._output[-1]
        return {"item_id": item["id"], "output_index": len(self._output) - 1}

    def _added(self, item: OutputItem) -> StreamEvent:
        """Add an item to the output and return its event. It is changed only after the event is written."""
        self._output.append(item)
        return self._event("response.output_item.added", {"output_index": len(self._output) - 1, "item": item})

    def _add_text(self, part: int, text: str) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self._message is None:
            events += self._close()
            self._message = {
                "id": self._item_id("msg"),
                "type": "message",
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
            events.append(self._added(self._message.copy()))
            members: ResponseEvent = {**self._place(), "content_index": 0, "part": _output_text("")}
            events.append(self._event("response.content_part.added", members))
        self._part_starts.setdefault(part, len(self._text))
        self._text.append(text)
        delta: ResponseEvent = {**self._place(), "content_index": 0, "delta": text, "logprobs": []}
        return [*events, self._event("response.output_text.delta", delta)]

    def _take_back(self, part: int) -> list[StreamEvent]:
        """Close the open message without the text of a part. Programs that print deltas have already shown it."""
        if part in self._part_starts:
            del self._text[self._part_starts[part] :]
        return self._close()

    def _add_reasoning(self, text: str) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self._reasoning is None:
            events += self._close()
            self._reasoning = {
                "id": self._item_id("rs"),
                "type": "reasoning",
                "status": "in_progress",
                "summary": [],
                "encrypted_content": None,
            }
            events.append(self._added(self._reasoning.copy()))
            part: SummaryText = {"type": "summary_text", "text": ""}
            members: ResponseEvent = {**self._place(), "summary_index": 0, "part": part}
            events.append(self._event("response.reasoning_summary_part.added", members))
        self._text.append(text)
        delta: ResponseEvent = {**self._place(), "summary_index": 0, "delta": text}
        return [*events, self._event("response.reasoning_summary_text.delta", delta)]

    def _add_call(self, call: str, name: str) -> StreamEvent:
        open_call = OpenCall(call, self._tools.get(name, ToolForm(name)), len(self._output))
        self._calls[call] = open_call
        return self._added(self._call_item(open_call, "", "in_progress"))

    def _call_item(self, call: OpenCall, arguments: str, status: ItemStatus) -> CallItem | CustomCallItem:
        if call.form.custom:
            return self._custom_item(call, arguments, status)
        return self._function_item(call, arguments, status)

    def _function_item(self, call: OpenCall, arguments: str, status: ItemStatus) -> CallItem:
        item: CallItem = {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "status": status,
            "call_id": call.id,
            "name": call.form.name,
            "arguments": arguments,
        }
        if call.form.namespace:
            item["namespace"] = call.form.namespace
        return item

    def _custom_item(self, call: OpenCall, arguments: str, status: ItemStatus) -> CustomCallItem:
        free_text = to_json_object(arguments).get(INPUT) if arguments else ""
        item: CustomCallItem = {
            "id": f"ctc_{call.id}",
            "type": "custom_tool_call",
            "status": status,
            "call_id": call.id,
            "name": call.form.name,
            "input": free_text if isinstance(free_text, str) else arguments,
        }
        if call.form.namespace:
            item["namespace"] = call.form.namespace
        return item

    def _add_arguments(self, call: OpenCall, text: str) -> list[StreamEvent]:
        call.arguments.append(text)
        if call.form.custom:
            return []  # its free text is a member of the arguments, which are not complete yet
        members: ResponseEvent = {"item_id": f"fc_{call.id}", "output_index": call.index, "delta": text}
        return [self._event("response.function_call_arguments.delta", members)]

    def _close(self, status: ItemStatus = "completed") -> list[StreamEvent]:
        """Return the last events of the open item, if there is one."""
        message, reasoning = self._message, self._reasoning
        text = "".join(self._text)
        self._message = self._reasoning = None
        self._text, self._part_starts = [], {}
        if message is not None:
            events = self._close_message(message, text)
            return [*events, self._done({**message, "status": status}, len(self._output) - 1)]
        if reasoning is not None:
            events = self._close_reasoning(reasoning, text)
            return [*events, self._done({**reasoning, "status": status}, len(self._output) - 1)]
        return []

    def _done(self, item: OutputItem, index: int) -> StreamEvent:
        """Replace an item of the output by its complete form and return its event."""
        self._output[index] = item
        return self._event("response.output_item.done", {"output_index": index, "item": item})

    def _close_reasoning(self, item: ReasoningItem, text: str) -> list[StreamEvent]:
        part: SummaryText = {"type": "summary_text", "text": text}
        item["summary"] = [part]
        place: ResponseEvent = {**self._place(), "summary_index": 0}
        return [
            self._event("response.reasoning_summary_text.done", {**place, "text": text}),
            self._event("response.reasoning_summary_part.done", {**place, "part": part}),
        ]

    def _close_message(self, item: MessageItem, text: str) -> list[StreamEvent]:
        part = _output_text(text)
        part["annotations"] = [
            {
                "type": "url_citation",
                "start_index": citation.start,
                "end_index": citation.end,
                "title": citation.title,
                "url": citation.url,
            }
            for citation in self._reader.citations(text)
        ]
        item["content"] = [part]
        place: ResponseEvent = {**self._place(), "content_index": 0}
        return [
            *(
                self._event(
                    "response.output_text.annotation.added",
                    {**place, "annotation_index": index, "annotation": annotation},
                )
                for index, annotation in enumerate(part["annotations"])
            ),
            self._event("response.output_text.done", {**place, "text": text, "logprobs": []}),
            self._event("response.content_part.done", {**place, "part": part}),
        ]

    def _finish(self, finish: str) -> list[StreamEvent]:
        reason = REASONS.get(finish)
        status: ItemStatus = "incomplete" if reason else "completed"
        events = self._close(status)
        for open_call in self._calls.values():
            events += self._close_call(open_call, "incomplete" if finish in LENGTH_REASONS else "completed")
        self._status = status
        self._completed = int(time.time()) if status == "completed" else None
        self._incomplete = {"reason": reason} if reason else None
        return [*events, self._event(f"response.{status}", {"response": self._response()})]

    def _close_call(self, call: OpenCall, status: ItemStatus) -> list[StreamEvent]:
        arguments = "".join(call.arguments)
        if call.form.custom:
            custom = self._custom_item(call, arguments, status)
            place: ResponseEvent = {"item_id": custom["id"], "output_index": call.index}
            return [
                self._event("response.custom_tool_call_input.delta", {**place, "delta": custom["input"]}),
                self._event("response.custom_tool_call_input.done", {**place, "input": custom["input"]}),
                self._done(custom, call.index),
            ]
        item = self._function_item(call, arguments, status)
        done: ResponseEvent = {
            "item_id": item["id"],
            "output_index": call.index,
            "name": item["name"],
            "arguments": arguments,
        }
        return [self._event("response.function_call_arguments.done", done), self._done(item, call.index)]

    def _response(self) -> Mapping[str, object]:
        response: Response = {
            "id": f"resp_{self._head.turn}",
            "object": "response",
            "created_at": self._created,
            "completed_at": self._completed,
            "status": self._status,
            "error": self._error,
            "incomplete_details": self._incomplete,
            "model": self._reader.model,
            "output": list(self._output) if self._status != "in_progress" else [],
            "usage": self._usage() if self.ended and not self._error else None,
            "background": False,
            "previous_response_id": None,
            "store": False,
        }
        return {**self._repeated, **response}

    def _usage(self) -> ResponseUsage:
        usage = self._reader.usage
        return {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }


def _output_text(text: str) -> OutputText:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
