"""Translate a turn's events (`chat.realtime.events`) into AG-UI's events (the package `ag_ui.core`).

Each step of an answer (its text and its calls) becomes one assistant message, each result a tool message, and each
thought a reasoning message. Events without a counterpart in AG-UI become CUSTOM: `turn`, `model_fallback`,
`context_report`, `citation`, `citation_check` and `tool_call_approval`. A call that the user must allow ends the run
with an interrupt. If a text turns out to be reasoning, a snapshot of the messages replaces it.

To translate a new event, add a method of `Translation` and name it in `_TRANSLATE`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ag_ui.core as agui
from django.urls import reverse

from chat.models import Turn
from chat.models.parts import MessagePart
from chat.realtime.events import Approval, Event, EventType, WireEvent
from chat.turns.store import Ending, last_event
from contrib.ag_ui.run_input import InterruptPoint
from contrib.ag_ui.start_run import NOT_RUN_TEXT, program_call_id
from contrib.ag_ui.transcript import Transcript
from core.json_types import JsonObject
from llm.types.forms import ToolQuestion

APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {"allow": {"type": "boolean"}, "remember": {"type": "boolean"}},
    "required": ["allow"],
}


def _form_schema(form: ToolQuestion) -> JsonObject:
    """Return the schema of an answer to a form. The server checks the values of `content` by the form's own rules."""
    fields: JsonObject = {field["name"]: {"title": field["title"]} for field in form["fields"]}
    required = [field["name"] for field in form["fields"] if field["required"]]
    content = {"type": "object", "properties": fields, "required": required}
    return {
        "type": "object",
        "properties": {"allow": {"type": "boolean"}, "content": content},
        "required": ["allow"],
    }


Wire = WireEvent
Events = Iterator[agui.BaseEvent]


@dataclass(frozen=True, slots=True)
class RunContext:
    """The fixed facts of a run.

    `thread` and `run` are the client's ids, `turn` and `answer` the ids of rows, and `model` is the model's name.
    `external` has the names of the program's own tools. `absolute_url` turns a path into a full address. `messages` are
    the messages that the client has sent.
    """

    thread: str
    run: str
    turn: str
    answer: str
    model: str
    external: Collection[str]
    absolute_url: Callable[[str], str]
    messages: Sequence[agui.Message] = ()


@dataclass(slots=True)
class _CallState:
    name: str
    label: str = ""
    ended: bool = False
    answered: bool = False


@dataclass(slots=True)
class _StepState:
    """State of the assistant message that is being written. `message` is its id, empty before it begins."""

    message: str = ""
    has_text: bool = False


@dataclass(slots=True)
class Translation:
    """Translates a turn's events in order, until `ended`. An earlier run has sent the first `sent_parts` parts."""

    context: RunContext
    sent_parts: int = 0
    ended: bool = False
    _fallback_model: str = ""  # the name of the fallback model
    _step: _StepState = field(default_factory=_StepState)
    _calls: dict[str, _CallState] = field(default_factory=dict)
    _lengths: dict[int, int] = field(default_factory=dict)  # characters sent of each part
    _text_parts: set[int] = field(default_factory=set)  # parts sent as text
    _transcript: Transcript = field(default_factory=Transcript)
    _citation_counts: Counter[int] = field(default_factory=Counter)  # citations sent of each part
    _closing_events: list[agui.BaseEvent] = field(default_factory=list)  # the events that end the message being written

    def begin(self) -> agui.BaseEvent:
        """Return the first event of the run."""
        return agui.RunStartedEvent(
            thread_id=self.context.thread, run_id=self.context.run, protocol_version=agui.PROTOCOL_VERSION
        )

    def feed(self, event: Wire) -> list[agui.BaseEvent]:
        """Return the AG-UI events for the next event of the turn."""
        type_ = EventType(event["type"])
        if "part" in event:
            self._lengths.setdefault(event["part"], 0)
            self._lengths[event["part"]] += len(event.get("delta", ""))
            self._citation_counts[event["part"]] += type_ == EventType.CITATION
        # A SNAPSHOT does not show whether a text has ended.
        closing = [] if type_ in _OPEN_TEXT_EVENTS else list(self._close_message(event))
        events = [*closing, *_TRANSLATE[type_](self, event)]
        # The other events of a SNAPSHOT are in the transcript already, since `_catch_up` calls `feed`.
        for each in events if type_ != EventType.SNAPSHOT else closing:
            self._transcript.add_event(each)
        return events

    def end(self, turn: Turn) -> list[agui.BaseEvent]:
        """Return the events that end the run, from the turn's row. Used if the last event is not in the stream."""
        if self.ended:
            return []
        ending = Ending(turn.status, turn.answer.error_code, turn.answer.error_detail)
        type_, payload = last_event(ending, turn.usage, turn.finish_reason or "stop", turn.finish_detail)
        return self.feed(Event(type_, self.context.turn, turn.seq, payload).to_wire())

    def _catch_up(self, event: Wire) -> Events:
        """Yield events for everything in a SNAPSHOT that was not sent yet."""
        if event["fallback"]:
            self._fallback_model = event["model"]
        newest = len(event["parts"]) - 1
        for number, part in enumerate(event["parts"]):
            for unsent in self._unsent_events(number, part, newest) if number >= self.sent_parts else ():
                yield from self.feed({**unsent, "part": number, "seq": event["seq"]})
        waiting_calls = [part for part in event["parts"][self.sent_parts :] if part.get("approval") == Approval.WAITING]
        if waiting_calls and event["status"] in Turn.LIVE:
            call = waiting_calls[0]
            request_event: Wire = {
                "type": EventType.TOOL_CALL_APPROVAL,
                "call": call["id"],
                "state": Approval.WAITING,
            }
            if "form" in call:
                request_event["form"] = call["form"]
            yield from self.feed({**request_event, "seq": event["seq"]})

    def _unsent_events(self, number: int, part: MessagePart, newest: int) -> Iterator[Wire]:
        """Yield a part's events that were not sent yet. Only the newest text can still be open."""
        length = self._lengths.get(number)
        if part["type"] == "reasoning" and number in self._text_parts:
            yield {"type": EventType.TEXT_BECAME_REASONING, "text": part["text"]}
        elif part["type"] in ("text", "reasoning"):
            if length is None or (self._closing_events and number == max(self._lengths)):
                yield from self._unsent_text_events(part, length, ended=number < newest or "citations" in part)
            for source in part.get("citations", [])[self._citation_counts[number] :]:
                yield {
                    "type": EventType.CITATION,
                    "number": source["number"],
                    "title": source["title"],
                    "href": source["href"],
                }
        elif part["type"] == "tool_call":
            if length is None:
                yield {"type": EventType.TOOL_CALL_START, "call": part["id"], "name": part["name"]}
            if not self._calls[part["id"]].ended:
                yield from self._unsent_call_events(part, length or 0)
        elif part["type"] == "tool_result" and length is None:
            yield {
                "type": EventType.TOOL_CALL_RESULT,
                "call": part["id"],
                "text": part["text"],
                "error": part["error"],
                "documents": part["documents"],
                "outgoing": part.get("outgoing", []),
                "stored": part.get("stored", {}),
            }

    @staticmethod
    def _unsent_text_events(part: MessagePart, length: int | None, *, ended: bool) -> Iterator[Wire]:
        kind = "TEXT_MESSAGE" if part["type"] == "text" else "REASONING"
        if length is None:
            yield {"type": f"{kind}_START"}
        if rest := part["text"][length or 0 :]:
            yield {"type": f"{kind}_CONTENT", "delta": rest}
        if ended:
            yield {"type": f"{kind}_END"}

    def _unsent_call_events(self, part: MessagePart, length: int) -> Iterator[Wire]:
        if rest := part["arguments"][length:]:
            yield {"type": EventType.TOOL_CALL_ARGS, "call": part["id"], "delta": rest}
        if "label" in part:
            yield {"type": EventType.TOOL_CALL_END, "call": part["id"], "label": part["label"]}

    def _announce_turn(self, event: Wire) -> Events:
        context = self.context
        ids = {"turn": context.turn, "message": context.answer, "model": context.model}
        yield agui.CustomEvent(
            name="turn", value={**ids, "url": context.absolute_url(reverse("turn-detail", args=[context.turn]))}
        )

    def _fall_back(self, event: Wire) -> Events:
        self._fallback_model = event["model"]
        fields = {name: event[name] for name in ("model", "instead_of", "code", "detail")}
        yield agui.CustomEvent(name="model_fallback", value=fields)

    def _start_text(self, event: Wire) -> Events:
        message = self._message_id(event["part"])
        self._text_parts.add(event["part"])
        yield agui.TextMessageStartEvent(message_id=message, role="assistant")
        if self._step.has_text:  # text after a thought in the same message is a paragraph of its own
            yield agui.TextMessageContentEvent(message_id=message, delta="\n\n")
        self._step.has_text = True
        self._closing_events = [agui.TextMessageEndEvent(message_id=message)]

    def _add_text(self, event: Wire) -> Events:
        yield agui.TextMessageContentEvent(message_id=self._step.message, delta=event["delta"])

    def _start_reasoning(self, event: Wire) -> Events:
        message = self._part_id(event["part"])
        yield agui.ReasoningStartEvent(message_id=message)
        yield agui.ReasoningMessageStartEvent(message_id=message, role="reasoning")
        self._closing_events = [
            agui.ReasoningMessageEndEvent(message_id=message),
            agui.ReasoningEndEvent(message_id=message),
        ]

    def _add_reasoning(self, event: Wire) -> Events:
        yield agui.ReasoningMessageContentEvent(message_id=self._part_id(event["part"]), delta=event["delta"])

    def _take_back_text(self, event: Wire) -> Events:
        """Replace text that turned out to be reasoning. The answer after it is a new message."""
        self._text_parts.discard(event["part"])
        self._transcript.mark_as_reasoning(self._step.message)
        self._step = _StepState()
        yield agui.MessagesSnapshotEvent(messages=[*self.context.messages, *self._transcript.messages()])

    def _close_message(self, event: Wire) -> Events:
        yield from self._closing_events
        self._closing_events = []

    def _start_call(self, event: Wire) -> Events:
        self._calls[event["call"]] = _CallState(event["name"])
        parent = self._message_id(event["part"])
        yield agui.ToolCallStartEvent(
            tool_call_id=self._program_call_id(event["call"]), tool_call_name=event["name"], parent_message_id=parent
        )

    def _add_arguments(self, event: Wire) -> Events:
        yield agui.ToolCallArgsEvent(tool_call_id=self._program_call_id(event["call"]), delta=event["delta"])

    def _end_call(self, event: Wire) -> Events:
        call = self._calls[event["call"]]
        call.label, call.ended = event["label"], True
        yield agui.ToolCallEndEvent(
            tool_call_id=self._program_call_id(event["call"]), metadata={"label": event["label"]}
        )

    def _add_result(self, event: Wire) -> Events:
        self._calls.setdefault(event["call"], _CallState("", ended=True)).answered = True
        self._step = _StepState()
        metadata = {name: event[name] for name in ("error", "documents", "outgoing", "stored") if event.get(name)}
        yield from self._end_open_calls(event["call"])
        yield agui.ToolCallResultEvent(
            message_id=self._part_id(event["part"]),
            tool_call_id=self._program_call_id(event["call"]),
            content=event["text"],
            role="tool",
            metadata=metadata or None,
        )

    def _ask_for_approval(self, event: Wire) -> Events:
        call, state = self._program_call_id(event["call"]), event["state"]
        if state != Approval.WAITING:
            yield agui.CustomEvent(name="tool_call_approval", value={"toolCallId": call, "state": str(state)})
            return
        parts = max(self.sent_parts, *(part + 1 for part in self._lengths))
        point = InterruptPoint(self.context.turn, event["seq"], parts, event["call"])
        label = self._calls[event["call"]].label if event["call"] in self._calls else ""
        form = event.get("form")
        interrupt = agui.Interrupt(
            id=str(point),
            reason="tool_question" if form else "tool_approval",
            message=(form["message"] if form else label) or None,
            tool_call_id=call,
            response_schema=_form_schema(form) if form else APPROVAL_SCHEMA,
        )
        yield self._finish_run(agui.RunFinishedInterruptOutcome(interrupts=[interrupt]))

    def _add_citation(self, event: Wire) -> Events:
        source = {"number": event["number"], "title": event["title"], "url": self.context.absolute_url(event["href"])}
        yield agui.CustomEvent(name="citation", value={"messageId": self._step.message, **source})

    def _add_citation_check(self, event: Wire) -> Events:
        check = {name: event[name] for name in ("checked", "doubts")}
        yield agui.CustomEvent(name="citation_check", value={"messageId": self._step.message, **check})

    def _add_context_report(self, event: Wire) -> Events:
        self._step = _StepState()  # a report comes before each model call
        report = {name: event[name] for name in ("limit", "used", "left_out", "refused")}
        url = self.context.absolute_url(reverse("turn-report", args=[self.context.turn]))
        yield agui.CustomEvent(name="context_report", value={**report, "url": url})

    def _finish(self, event: Wire) -> Events:
        yield from self._end_open_parts(event)
        pending = [
            name for name, call in self._calls.items() if not call.answered and call.name in self.context.external
        ]
        for name, call in self._calls.items():
            if not call.answered and name not in pending:
                call_id_ = self._program_call_id(name)
                yield agui.ToolCallResultEvent(
                    message_id=f"{call_id_}:result", tool_call_id=call_id_, content=NOT_RUN_TEXT, role="tool"
                )
        outcome = agui.RunFinishedSuccessOutcome(
            pending_tool_call_ids=[self._program_call_id(name) for name in pending] or None
        )
        yield self._finish_run(
            outcome, usage=self._convert_usage(event["usage"]), metadata=self._finish_metadata(event)
        )

    @staticmethod
    def _finish_metadata(event: Wire) -> dict[str, str]:
        detail = event.get("finish_detail", "")
        return {"finish": event["finish"]} | ({"finish_detail": detail} if detail else {})

    def _stop(self, event: Wire) -> Events:
        yield from self._end_open_parts(event)
        yield self._finish_run(agui.RunFinishedCancelledOutcome())

    def _fail(self, event: Wire) -> Events:
        yield from self._end_open_parts(event)
        self.ended = True
        yield agui.RunErrorEvent(message=event["detail"], code=event["code"])

    def _finish_run(self, outcome: agui.RunFinishedOutcome, **fields: Any) -> agui.BaseEvent:
        self.ended = True
        return agui.RunFinishedEvent(thread_id=self.context.thread, run_id=self.context.run, outcome=outcome, **fields)

    def _end_open_parts(self, event: Wire) -> Events:
        """End the open text and calls. A worker that died ended neither."""
        yield from self._close_message(event)
        yield from self._end_open_calls(*self._calls)

    def _end_open_calls(self, *names: str) -> Events:
        for name in names:
            if not self._calls[name].ended:
                self._calls[name].ended = True
                yield agui.ToolCallEndEvent(tool_call_id=self._program_call_id(name))

    def _convert_usage(self, usage: dict[str, int]) -> list[agui.TokenUsage] | None:
        """Return the usage in AG-UI's form, or None if the provider reports no tokens."""
        input_tokens, output_tokens = usage.get("input", 0), usage.get("output", 0)
        if not input_tokens and not output_tokens:
            return None
        return [
            agui.TokenUsage(
                model=self._fallback_model or self.context.model,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                total_tokens=input_tokens + output_tokens,
                reasoning_tokens=usage.get("reasoning", 0),
                cached_input_tokens=usage.get("cached_input", 0),
            )
        ]

    def _message_id(self, part: int) -> str:
        self._step.message = self._step.message or self._part_id(part)
        return self._step.message

    def _part_id(self, part: int) -> str:
        return f"{self.context.answer}:{part}"

    def _program_call_id(self, call: str) -> str:
        return program_call_id(self.context.answer, call)


_TRANSLATE: dict[EventType, Callable[[Translation, Wire], Events]] = {
    EventType.RUN_STARTED: Translation._announce_turn,
    EventType.MODEL_FALLBACK: Translation._fall_back,
    EventType.TEXT_MESSAGE_START: Translation._start_text,
    EventType.TEXT_MESSAGE_CONTENT: Translation._add_text,
    EventType.TEXT_MESSAGE_END: Translation._close_message,
    EventType.REASONING_START: Translation._start_reasoning,
    EventType.REASONING_CONTENT: Translation._add_reasoning,
    EventType.REASONING_END: Translation._close_message,
    EventType.TEXT_BECAME_REASONING: Translation._take_back_text,
    EventType.TOOL_CALL_START: Translation._start_call,
    EventType.TOOL_CALL_ARGS: Translation._add_arguments,
    EventType.TOOL_CALL_END: Translation._end_call,
    EventType.TOOL_CALL_APPROVAL: Translation._ask_for_approval,
    EventType.TOOL_CALL_RESULT: Translation._add_result,
    EventType.CITATION: Translation._add_citation,
    EventType.CITATION_CHECK: Translation._add_citation_check,
    EventType.CONTEXT_REPORT: Translation._add_context_report,
    EventType.RUN_FINISHED: Translation._finish,
    EventType.RUN_STOPPED: Translation._stop,
    EventType.RUN_ERROR: Translation._fail,
    EventType.SNAPSHOT: Translation._catch_up,
}
_OPEN_TEXT_EVENTS = {
    EventType.TEXT_MESSAGE_CONTENT,
    EventType.TEXT_MESSAGE_END,
    EventType.REASONING_CONTENT,
    EventType.REASONING_END,
    EventType.SNAPSHOT,
}
