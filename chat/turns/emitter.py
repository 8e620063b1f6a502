"""Turn the events of the agent loop into parts of an answer's row and into events for its readers.

1. `Answer.add` takes an event of `llm.agent_loop` and queues the events that readers will get.
2. `Answer.drain` numbers these, renders their text and applies them to `Answer.parts`.
3. `GuardedTool` wraps a tool whose calls a user may have to allow, or whose progress is shown. The answer shows the
   question, and the call waits.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Unpack

from django.conf import settings
from django.utils import timezone

from chat.models import Turn
from chat.models.parts import MessagePart
from chat.realtime import signals, turn_stream
from chat.realtime.events import Approval, Event, EventPayload, EventType, fold
from chat.rendering.markdown import BlockStream, RenderAllowance
from chat.rendering.references import Sources, cited_sources
from chat.tools.on_demand import UnloadedTool
from chat.tools.permission import Gate
from chat.tools.toolbox import Toolbox
from core.sentences import Sentence
from llm.tools.mcp import MAX_FORMS, ServerTool
from llm.types.forms import FormAnswer, ToolQuestion
from llm.types.model_call import (
    LoopEvent,
    ReasoningDelta,
    StepFinished,
    StepStarted,
    TextBecameReasoning,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolRunFinished,
    ToolRunStarted,
    Usage,
)
from llm.types.tools import (
    MAX_ARGUMENTS,
    BadArguments,
    Tool,
    ToolOutput,
    asking_person,
    parse_arguments,
    reporting_progress,
    run_tool,
)

NOT_ALLOWED = "The user did not allow this call."
# Seconds between two flushes of one answer.
SHORTEST_INTERVAL = 0.030
MAX_INTERVAL = 0.100
NO_FORM: Any = {}  # the form of an event about a call that asks without one
PROGRESS_INTERVAL = 1.0  # seconds between two events about the progress of one call
MAX_DELAY = 0.500  # additional seconds in an overloaded process
START_EVENTS = {
    EventType.TEXT_MESSAGE_CONTENT: EventType.TEXT_MESSAGE_START,
    EventType.REASONING_CONTENT: EventType.REASONING_START,
}
END_OF_PART_EVENTS = {
    EventType.TEXT_MESSAGE_CONTENT: EventType.TEXT_MESSAGE_END,
    EventType.REASONING_CONTENT: EventType.REASONING_END,
}

PART_STARTS = frozenset(
    {
        EventType.TEXT_MESSAGE_START,
        EventType.REASONING_START,
        EventType.TOOL_CALL_START,
        EventType.TOOL_CALL_RESULT,
    }
)


def _time_of_token(event: LoopEvent) -> datetime | None:
    """Return the current time for an event that is a token, else None."""
    return timezone.now() if isinstance(event, TextDelta | ReasoningDelta | ToolCallStarted) else None


class CallPlace(NamedTuple):
    """The index of a tool call among the answer's parts, and its id within the answer."""

    part: int
    id: str


class Answer:
    """An answer that is being written. Added events wait until `drain`, which joins text deltas.

    `parts` and `seq` change together in `drain`, so a reader of the events up to `seq` always has these `parts`. All
    methods are synchronous, so no coroutine sees an intermediate state.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self.external: frozenset[str] = frozenset()  # names of tools that the calling program runs
        self.handed_over: set[str] = set()  # ids of the calls of these tools
        self.sources = Sources()
        self.parts: list[MessagePart] = []
        self.seq = 0
        self.usage = Usage(0, 0)
        self.calls = 0
        self.last_usage: Usage | None = None  # of the newest model call
        self.finish_reason = "stop"
        self.finish_detail = ""
        self.wrote = False
        self._wrote_before = False  # whether earlier steps wrote text
        self.first: datetime | None = None  # time of the first token
        self._pending: list[tuple[EventType, EventPayload]] = []
        self._deltas: list[str] = []  # text of the newest pending event, not joined yet
        self._open: EventType | None = None
        self._text: list[str] = []  # text of the part that is being written
        self._allowance = RenderAllowance()  # shared by all texts of the answer
        self._blocks = BlockStream(self.sources, self._allowance)
        self._calls_of_step: dict[str, CallPlace] = {}  # by the id that the model gave
        self._places_of_step: list[CallPlace] = []
        self._running: list[tuple[ToolCall, CallPlace]] = []
        self._ids: set[str] = set()
        self._shown: dict[str, int] = {}  # characters of each call's arguments
        self._count = 0  # parts begun, including those not drained yet

    @property
    def asks(self) -> bool:
        """Return whether a tool call waits for the user's decision."""
        return any(part.get("approval") == Approval.WAITING for part in self.parts)

    def interval(self, streams: int, late: float = 0.0) -> float:
        """Return the seconds to wait before the next flush: longer for a long last block, and with many streams.

        `late` is the delay of the last flush in seconds, because the process was busy. A longer wait joins more text
        into fewer events, so the process can catch up.
        """
        interval = SHORTEST_INTERVAL + self._blocks.tail_size / 40_000 + streams / 1_000
        return min(MAX_INTERVAL, interval) + min(MAX_DELAY, late)

    def emit(self, type_: EventType, **payload: Unpack[EventPayload]) -> None:
        self.emit_payload(type_, payload)

    def emit_payload(self, type_: EventType, payload: EventPayload) -> None:
        self._join_deltas()
        self._pending.append((type_, payload))
        if type_ in PART_STARTS:
            self._count += 1

    def waited(self, since: datetime) -> int | None:
        """Return the milliseconds until the first token, or None before it. At least 0, since clocks may differ."""
        return max(0, round((self.first - since).total_seconds() * 1_000)) if self.first is not None else None

    def add(self, event: LoopEvent) -> None:
        self.first = self.first or _time_of_token(event)
        match event:
            case TextDelta(text):
                self._extend(EventType.TEXT_MESSAGE_CONTENT, text)
            case ReasoningDelta(text):
                self._extend(EventType.REASONING_CONTENT, text)
            case TextBecameReasoning():
                self._turn_text_into_reasoning()
            case StepStarted():
                self.close()
                self._wrote_before = self.wrote
                self._calls_of_step = {}
                self._places_of_step = []
                self._running = []
            case ToolCallStarted(_, id_, name):
                self.close()
                self._begin_call(id_, name)
            case ToolCallDelta():
                self._add_arguments(event)
            case ToolRunStarted(call, label):
                place = self._calls_of_step[call.id]
                self._running.append((call, place))
                self.emit(EventType.TOOL_CALL_END, part=place.part, call=place.id, label=label.dump())
            case ToolRunFinished():
                self._end_call(event)
            case StepFinished(reason, usage, _, detail):
                self.finish_reason = reason
                self.finish_detail = detail
                self.calls += 1
                self.last_usage = usage
                self.usage += usage or Usage(0, 0)

    def _add_arguments(self, delta: ToolCallDelta) -> None:
        part, call = self._places_of_step[delta.index]
        self._shown[call] = self._shown.get(call, 0) + len(delta.arguments)
        # Longer arguments will be refused, so nobody needs to see them. A program decides about its own calls.
        if self._shown[call] <= MAX_ARGUMENTS or call in self.handed_over:
            self.emit(EventType.TOOL_CALL_ARGS, part=part, call=call, delta=delta.arguments)

    def _end_call(self, run: ToolRunFinished) -> None:
        _, id_ = self._calls_of_step[run.call.id]
        documents = list(run.data.get("documents", ()))
        self.sources.add_documents(documents)
        self.emit(
            EventType.TOOL_CALL_RESULT,
            part=self._count,
            call=id_,
            text=run.text,
            error=run.error,
            arguments=run.call.arguments,
            documents=documents,
            outgoing=list(run.data.get("outgoing", ())),
            stored=run.result.as_json() if run.result is not None else {},
            files=list(run.files),
        )

    def take_running(self, name: str, arguments: Mapping[str, Any]) -> CallPlace:
        """Return the place of a running call, once for each call. Raises `LookupError` if there is none.

        A tool knows the arguments of its call, but not the id. Calls with the same arguments run in their order, so
        they are matched in that order.
        """
        for index, (call, place) in enumerate(self._running):
            with suppress(BadArguments):  # a call with bad arguments does not run; the model was told by the loop
                if call.name == name and parse_arguments(call) == arguments:
                    del self._running[index]
                    return place
        raise LookupError(name)

    def _begin_call(self, id_: str, name: str) -> None:
        # Some servers number the calls of every step from 0; within an answer an id must identify one call.
        unique_id = id_
        number = 2
        while unique_id in self._ids:
            unique_id = f"{id_}-{number}"
            number += 1
        self._ids.add(unique_id)
        if name in self.external:
            self.handed_over.add(unique_id)
        place = CallPlace(self._count, unique_id)
        self._places_of_step.append(place)
        self._calls_of_step[id_] = place
        self.emit(EventType.TOOL_CALL_START, part=place.part, call=unique_id, name=name)

    def _extend(self, type_: EventType, delta: str) -> None:
        if not delta:
            return
        if self._open != type_:
            self.close()
            self._open = type_
            self._text = []
            self.emit(START_EVENTS[type_], part=self._count)
        self._text.append(delta)
        self.wrote = self.wrote or (type_ == EventType.TEXT_MESSAGE_CONTENT and not delta.isspace())
        if not self._pending or self._pending[-1][0] != type_:
            self.emit(type_, part=self._count - 1)
        self._deltas.append(delta)

    def _join_deltas(self) -> None:
        """Set the complete text of the newest pending event."""
        if self._deltas:
            self._pending[-1][1]["delta"] = "".join(self._deltas)
            self._deltas = []

    def _turn_text_into_reasoning(self) -> None:
        """Turn the text that is being written into reasoning. Citations in it are ignored."""
        if self._open != EventType.TEXT_MESSAGE_CONTENT:
            return
        self.emit(EventType.TEXT_BECAME_REASONING, part=self._count - 1, text="".join(self._text))
        self._open = None
        self.wrote = self._wrote_before

    def close(self) -> None:
        """End the text or reasoning that is being written, if any."""
        if self._open is None:
            return
        part = self._count - 1
        self.emit(END_OF_PART_EVENTS[self._open], part=part)
        if self._open == EventType.TEXT_MESSAGE_CONTENT:
            for source in cited_sources("".join(self._text), self.sources):
                self.emit(EventType.CITATION, part=part, number=source.number, title=source.title, href=source.href)
        self._open = None

    def drain(self) -> list[Event]:
        """Return the events since the last call, numbered. Text is rendered here, once for all deltas in between."""
        self._join_deltas()
        pending, self._pending = self._pending, []
        return [self._numbered(type_, payload) for type_, payload in pending]

    def _numbered(self, type_: EventType, payload: EventPayload) -> Event:
        self.seq += 1
        if type_ == EventType.TEXT_MESSAGE_START:
            self._blocks = BlockStream(self.sources, self._allowance)
        elif type_ == EventType.TEXT_MESSAGE_CONTENT:
            payload["blocks"] = self._blocks.push(payload["delta"])
        elif type_ == EventType.TEXT_BECAME_REASONING:
            self._blocks = BlockStream(self.sources, self._allowance)
        elif type_ == EventType.TEXT_MESSAGE_END:
            payload["blocks"] = self._blocks.finish()
            payload["count"] = self._blocks.count
        fold(self.parts, type_, payload)
        return Event(type_, self.turn, self.seq, payload)

    def usage_row(self) -> dict[str, int]:
        return {**asdict(self.usage), "calls": self.calls}


async def load_answer(turn: Turn) -> Answer:
    """Return the answer as its readers have it now: the stream is up to a second ahead of the row.

    `turn` must come with its `answer` from one query, so that `seq` belongs to these parts.
    """
    answer = Answer(str(turn.pk))
    answer.parts = list(turn.answer.parts)
    answer.seq = turn.seq
    for event in await turn_stream.read_events(turn.pk, turn.seq):
        if event.seq != answer.seq + 1:
            break  # Redis has lost events in between, so later ones cannot be applied
        fold(answer.parts, EventType(event.type), event.wire())
        answer.seq = event.seq
    return answer


def guard_tools(box: Toolbox, answer: Answer, publish: Callable[[], None]) -> dict[str, Tool]:
    """Return the box's tools by name. Those that may need approval wait for a decision. Server tools show progress.

    A call of a tool that is not loaded only loads it.
    `publish` is called when the answer has new events.
    """
    tools: dict[str, Tool] = {}
    unloaded = box.unloaded
    for name, tool in box.tools.items():
        if name in unloaded and box.on_demand is not None:
            tools[name] = UnloadedTool(tool, box.on_demand.finder)
            continue
        gate = box.gate if name in box.approval else None
        of_server = isinstance(tool, ServerTool)
        asks = of_server and box.gate is not None and box.gate.can_ask
        tools[name] = GuardedTool(tool, gate, answer, publish, asks=asks) if gate or of_server else tool
    return tools


def form_id(call: str, form: ToolQuestion) -> str:
    """Return the id of a form, by which its answer is waited for. A call may ask with several, one after the other."""
    return f"{call}#{form['number']}"


class GuardedTool:
    """A tool whose call shows its progress. With a gate, it runs only when the gate or a person allows the call.

    The first decision counts. Without a decision in time the call is refused. The time limit of the tool itself begins
    after the wait, and stands still while the tool asks the person with a form. `asks`: it may do so.
    """

    def __init__(
        self, tool: Tool, gate: Gate | None, answer: Answer, publish: Callable[[], None], *, asks: bool = False
    ) -> None:
        self._tool = tool
        self._gate = gate
        self._answer = answer
        self._publish = publish
        self.definition = tool.definition
        self._asks = asks
        # Longer than the waits and the tool, which have time limits of their own.
        waits = (gate is not None) + (MAX_FORMS if asks else 0)
        self.timeout = waits * settings.APPROVAL_SECONDS + tool.timeout + 60.0

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return self._tool.label(arguments)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        place = self._answer.take_running(self.definition.name, arguments)
        refusal = await self._refusal(self._gate, place, arguments) if self._gate is not None else ""
        if refusal:
            return ToolOutput(refusal, error=True)
        progress = _ShownProgress(place, self._answer, self._publish)
        ask = partial(self._ask_person, place) if self._asks else None
        with reporting_progress(progress), asking_person(ask):
            return await run_tool(self._tool, arguments)

    async def _ask_person(self, place: CallPlace, form: ToolQuestion) -> FormAnswer:
        """Show the form below the call, and wait for its answer."""
        wait_id = form_id(place.id, form)
        self._emit(place, Approval.WAITING, form)
        decision = await signals.wait_for_decision(self._answer.turn, wait_id, settings.APPROVAL_SECONDS)
        allowed = decision == Approval.ALLOWED
        content = await signals.form_content(self._answer.turn, wait_id) if allowed else None
        self._emit(place, decision, form)
        return FormAnswer(content)

    async def _refusal(self, gate: Gate, place: CallPlace, arguments: Mapping[str, Any]) -> str:
        """Return why the call may not run; empty if it may."""
        verdict = await gate.verdict(self.definition.name, arguments)
        if verdict.refusal or not verdict.asks:
            return verdict.refusal
        self._emit(place, Approval.WAITING)
        decision = await signals.wait_for_decision(self._answer.turn, place.id, settings.APPROVAL_SECONDS)
        self._emit(place, decision)
        return "" if decision == Approval.ALLOWED else NOT_ALLOWED

    def _emit(self, place: CallPlace, state: Approval, form: ToolQuestion | None = None) -> None:
        until = ""
        if state == Approval.WAITING:
            end = timezone.now() + timedelta(seconds=settings.APPROVAL_SECONDS)
            until = end.isoformat(timespec="seconds")
        self._answer.emit_payload(
            EventType.TOOL_CALL_APPROVAL,
            {"part": place.part, "call": place.id, "state": state, "until": until, "form": form or NO_FORM},
        )
        self._publish()


class _ShownProgress:
    """Shows the progress of one call to the answer's readers, at most once a second."""

    def __init__(self, place: CallPlace, answer: Answer, publish: Callable[[], None]) -> None:
        self._place = place
        self._answer = answer
        self._publish = publish
        self._next = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PROGRESS_INTERVAL
        self._answer.emit(EventType.TOOL_CALL_PROGRESS, part=self._place.part, call=self._place.id, text=text)
        self._publish()
