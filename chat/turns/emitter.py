"""An answer in the making: what the loop says becomes parts (for the row) and events (for the readers).

A tool call that a person has to allow asks in the answer itself, and waits.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from chat.models import Turn
from chat.realtime import bell, turn_stream
from chat.realtime.events import Approval, Event, EventType, fold
from chat.rendering.markdown import Allowance, BlockStream
from chat.rendering.references import Sources, cited
from chat.tools.permission import Gate
from chat.tools.toolbox import Toolbox
from core.sentences import Sentence
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
from llm.types.tools import MAX_ARGUMENTS, BadArguments, Tool, ToolOutput, parse_arguments, run_tool

NOT_ALLOWED = "The user did not allow this call."
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.030, 0.100  # seconds between two flushes of one answer
LONGEST_DELAY = 0.500  # seconds more, for a process that has more to do than it can
START_OF = {
    EventType.TEXT_MESSAGE_CONTENT: EventType.TEXT_MESSAGE_START,
    EventType.REASONING_CONTENT: EventType.REASONING_START,
}
END_OF = {
    EventType.TEXT_MESSAGE_CONTENT: EventType.TEXT_MESSAGE_END,
    EventType.REASONING_CONTENT: EventType.REASONING_END,
}

BEGINS_PART = frozenset(
    {
        EventType.TEXT_MESSAGE_START,
        EventType.REASONING_START,
        EventType.TOOL_CALL_START,
        EventType.TOOL_CALL_RESULT,
    }
)


def _came(event: LoopEvent) -> datetime | None:
    """When a token came; None for what is none."""
    return timezone.now() if isinstance(event, TextDelta | ReasoningDelta | ToolCallStarted) else None


class Answer:
    """What is added waits until `drain` makes events of it, with text deltas joined.

    `parts` and `seq` move together, in `drain`: at any moment `parts` is what a reader of the events up to `seq` has.
    Everything here is synchronous, so a coroutine never sees it in between.
    """

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self.external: frozenset[str] = frozenset()  # names of tools that the calling program runs
        self.handed_over: set[str] = set()  # the calls of those
        self.sources = Sources()
        self.parts: list[dict[str, Any]] = []
        self.seq = 0
        self.usage = Usage(0, 0)
        self.calls = 0
        self.last_usage: Usage | None = None  # of the newest model call
        self.finish_reason = "stop"
        self.finish_detail = ""
        self.wrote = False
        self._wrote_before = False  # in earlier steps
        self.first: datetime | None = None  # when its first token came
        self._pending: list[tuple[EventType, dict[str, Any]]] = []
        self._open: EventType | None = None
        self._text: list[str] = []  # of the part that is being written
        self._allowance = Allowance()  # of all its texts
        self._blocks = BlockStream(self.sources, self._allowance)
        self._calls_of_step: dict[str, tuple[int, str]] = {}
        self._names_of_step: list[tuple[int, str]] = []
        self._begun: list[tuple[ToolCall, tuple[int, str]]] = []
        self._ids: set[str] = set()
        self._shown: dict[str, int] = {}  # characters of each call's arguments
        self._count = 0  # parts begun, those not drained yet included

    @property
    def asks(self) -> bool:
        """Whether a call waits for its person."""
        return any(part.get("approval") == Approval.WAITING for part in self.parts)

    def interval(self, streams: int, late: float = 0.0) -> float:
        """Seconds to wait before the next flush: longer when rendering the tail is dear or many answers stream.

        `late`: how many seconds after its time the last flush came, since others were at work. What has gathered then
        goes in fewer events, which is less to do: so a process catches up.
        """
        wanted = SHORTEST_INTERVAL + self._blocks.tail_size / 40_000 + streams / 1_000
        return min(LONGEST_INTERVAL, wanted) + min(LONGEST_DELAY, late)

    def emit(self, type_: EventType, **payload: Any) -> None:
        self._pending.append((type_, payload))
        if type_ in BEGINS_PART:
            self._count += 1

    def waited(self, since: datetime) -> int | None:
        """Milliseconds until its first token; None while there is none. Clocks of two machines may differ a little."""
        return max(0, round((self.first - since).total_seconds() * 1_000)) if self.first is not None else None

    def add(self, event: LoopEvent) -> None:
        self.first = self.first or _came(event)
        match event:
            case TextDelta(text):
                self._extend(EventType.TEXT_MESSAGE_CONTENT, text)
            case ReasoningDelta(text):
                self._extend(EventType.REASONING_CONTENT, text)
            case TextBecameReasoning():
                self._take_back_text()
            case StepStarted():
                self.close()
                self._wrote_before = self.wrote
                self._calls_of_step, self._names_of_step, self._begun = {}, [], []
            case ToolCallStarted(_, id_, name):
                self.close()
                self._begin_call(id_, name)
            case ToolCallDelta():
                self._add_arguments(event)
            case ToolRunStarted(call, label):
                part, id_ = self._calls_of_step[call.id]
                self._begun.append((call, (part, id_)))
                self.emit(EventType.TOOL_CALL_END, part=part, call=id_, label=label.dump())
            case ToolRunFinished():
                self._end_call(event)
            case StepFinished(reason, usage, _, detail):
                self.finish_reason, self.finish_detail = reason, detail
                self.calls += 1
                self.last_usage = usage
                self.usage += usage or Usage(0, 0)

    def _add_arguments(self, delta: ToolCallDelta) -> None:
        part, call = self._names_of_step[delta.index]
        self._shown[call] = self._shown.get(call, 0) + len(delta.arguments)
        # What is longer will be refused, so nobody needs to see it; what another program is to run is not ours.
        if self._shown[call] <= MAX_ARGUMENTS or call in self.handed_over:
            self.emit(EventType.TOOL_CALL_ARGS, part=part, call=call, delta=delta.arguments)

    def _end_call(self, run: ToolRunFinished) -> None:
        _, id_ = self._calls_of_step[run.call.id]
        documents = list(run.data.get("documents", ()))
        self.sources.learn(documents)
        payload = {"text": run.text, "error": run.error, "arguments": run.call.arguments, "documents": documents}
        payload["outgoing"] = list(run.data.get("outgoing", ()))
        payload["stored"] = run.result.as_json() if run.result is not None else {}
        self.emit(EventType.TOOL_CALL_RESULT, part=self._count, call=id_, **payload)

    def begun(self, name: str, arguments: Mapping[str, Any]) -> tuple[int, str]:
        """The part and id of a call that now runs; each once. Tools know what they are asked, not in which call.

        Calls that ask for the same are told apart by their order, in which they also run.
        """
        for index, (call, place) in enumerate(self._begun):
            with suppress(BadArguments):  # of such a call the loop has told the model; it does not run
                if call.name == name and parse_arguments(call) == arguments:
                    del self._begun[index]
                    return place
        raise LookupError(name)

    def _begin_call(self, id_: str, name: str) -> None:
        # Some servers number the calls of every step from 0; within an answer an id must stand for one call only.
        unique, number = id_, 2
        while unique in self._ids:
            unique, number = f"{id_}-{number}", number + 1
        self._ids.add(unique)
        if name in self.external:
            self.handed_over.add(unique)
        place = (self._count, unique)
        self._names_of_step.append(place)
        self._calls_of_step[id_] = place
        self.emit(EventType.TOOL_CALL_START, part=place[0], call=unique, name=name)

    def _extend(self, type_: EventType, delta: str) -> None:
        if not delta:
            return
        if self._open != type_:
            self.close()
            self._open = type_
            self._text = []
            self.emit(START_OF[type_], part=self._count)
        self._text.append(delta)
        self.wrote = self.wrote or (type_ == EventType.TEXT_MESSAGE_CONTENT and not delta.isspace())
        part = self._count - 1
        if self._pending and self._pending[-1][0] == type_:
            self._pending[-1][1]["deltas"].append(delta)
        else:
            self._pending.append((type_, {"part": part, "deltas": [delta]}))

    def _take_back_text(self) -> None:
        """The text that is being written becomes reasoning: nobody has to look for what it cites."""
        if self._open != EventType.TEXT_MESSAGE_CONTENT:
            return
        self.emit(EventType.TEXT_BECAME_REASONING, part=self._count - 1, text="".join(self._text))
        self._open, self.wrote = None, self._wrote_before

    def close(self) -> None:
        """Ends the text or reasoning that is being written, if any."""
        if self._open is None:
            return
        part = self._count - 1
        self.emit(END_OF[self._open], part=part)
        if self._open == EventType.TEXT_MESSAGE_CONTENT:
            for source in cited("".join(self._text), self.sources):
                self.emit(EventType.CITATION, part=part, **source.as_dict())
        self._open = None

    def drain(self) -> list[Event]:
        """The events since the last call, numbered; rendering happens here, once for all deltas between two calls."""
        pending, self._pending = self._pending, []
        return [self._numbered(type_, payload) for type_, payload in pending]

    def _numbered(self, type_: EventType, payload: dict[str, Any]) -> Event:
        self.seq += 1
        if "deltas" in payload:
            delta = "".join(payload.pop("deltas"))
            payload = {**payload, "delta": delta}
        if type_ == EventType.TEXT_MESSAGE_START:
            self._blocks = BlockStream(self.sources, self._allowance)
        elif type_ == EventType.TEXT_MESSAGE_CONTENT:
            payload["blocks"] = self._blocks.push(payload["delta"])
        elif type_ == EventType.TEXT_BECAME_REASONING:
            self._blocks = BlockStream(self.sources, self._allowance)
        elif type_ == EventType.TEXT_MESSAGE_END:
            payload |= {"blocks": self._blocks.finish(), "count": self._blocks.count}
        fold(self.parts, type_, payload)
        return Event(type_, self.turn, self.seq, payload)

    def usage_row(self) -> dict[str, int]:
        return {**asdict(self.usage), "calls": self.calls}


async def answer_of(turn: Turn) -> Answer:
    """As its readers have it now: the stream is up to a second ahead of the row.

    `turn` comes with its `answer`, from one query: `seq` says what these very parts hold.
    """
    answer = Answer(str(turn.pk))
    answer.parts, answer.seq = list(turn.answer.parts), turn.seq
    for event in await turn_stream.read(turn.pk, turn.seq):
        if event.seq != answer.seq + 1:
            break  # Redis has lost what was between; what comes after it does not fit
        fold(answer.parts, EventType(event.type), event.wire())
        answer.seq = event.seq
    return answer


def guarded(box: Toolbox, answer: Answer, tell: Callable[[], None]) -> dict[str, Tool]:
    """The box's tools by name; those that may need it wait for a decision. `tell`: there is news in the answer."""
    gate = box.gate
    if gate is None:
        return dict(box.tools)
    asking = box.approval
    return {name: Guarded(tool, gate, answer, tell) if name in asking else tool for name, tool in box.tools.items()}


class Guarded:
    """A tool that runs only when its gate lets the call through or a person has allowed it; the first decision counts,
    be it that time is up.

    Its own caps hold from then on: waiting is no running.
    """

    def __init__(self, tool: Tool, gate: Gate, answer: Answer, tell: Callable[[], None]) -> None:
        self._tool, self._gate, self._answer, self._tell = tool, gate, answer, tell
        self.definition = tool.definition
        # Never the first to end: the wait and the tool have time limits of their own.
        self.timeout = settings.APPROVAL_SECONDS + tool.timeout + 60.0

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return self._tool.label(arguments)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        part, call = self._answer.begun(self.definition.name, arguments)
        verdict = await self._gate.verdict(self.definition.name, arguments)
        if verdict.refusal:
            return ToolOutput(verdict.refusal, error=True)
        if verdict.asks:
            self._say(part, call, Approval.WAITING)
            decision = await bell.wait_for_decision(self._answer.turn, call, settings.APPROVAL_SECONDS)
            self._say(part, call, decision)
            if decision != Approval.ALLOWED:
                return ToolOutput(NOT_ALLOWED, error=True)
        return await run_tool(self._tool, arguments)

    def _say(self, part: int, call: str, state: Approval) -> None:
        until = timezone.now() + timedelta(seconds=settings.APPROVAL_SECONDS) if state == Approval.WAITING else None
        told = until.isoformat(timespec="seconds") if until else ""
        self._answer.emit(EventType.TOOL_CALL_APPROVAL, part=part, call=call, state=state, until=told)
        self._tell()
