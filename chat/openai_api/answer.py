"""Read the answer of a turn, and relay it to a program in the program's protocol.

1. A `Relay` follows the events of a turn and feeds them to an `AnswerWriter`.
2. The writer's `AnswerReader` turns events into pieces, whatever the protocol: text, reasoning, calls, the end.
3. The writer turns pieces into the protocol's events, and collects the whole answer.
4. `Relay` yields the events as lines of a stream, or `Relay.whole` returns the collected answer.
"""

import json
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeAlias

from django.db import InterfaceError, OperationalError

from accounts.access.authentication import Credential
from accounts.realtime import WhileSignedIn
from chat.models import Turn
from chat.models.parts import CitedSource, MessagePart
from chat.openai_api.errors import turn_error
from chat.realtime import event_stream
from chat.realtime.events import EventType, WireEvent
from chat.rendering.references import CITED
from chat.turns.services import stop_turn
from core.background import run_in_background, with_retries
from core.errors import ProductError
from llm import tokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The facts of a request that its answer needs.

    `turn` is the turn's id, `model` the model name in the request. `external` has the names of the program's own tools.
    `absolute` turns a path into an address. `prefilled` names the request's member with the messages if the last of
    them is the assistant's; some models refuse to continue such a message.
    """

    turn: str
    model: str
    external: Collection[str]
    absolute: Callable[[str], str]
    prefilled: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerText:
    """New text of the answer. `part` numbers the part of the answer that it belongs to."""

    part: int
    text: str


@dataclass(frozen=True, slots=True)
class AnswerReasoning:
    """New reasoning of the model."""

    text: str


@dataclass(frozen=True, slots=True)
class TextMoved:
    """The whole `text` of a part turned out to be reasoning. Text that was already sent cannot be withdrawn."""

    part: int
    text: str


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A call of one of the program's tools begins."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class AnswerArguments:
    """New JSON text of a call's arguments."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The end of the answer. `finish` is a `FinishReason`."""

    finish: str


# Reasons of an answer that its limit of length cut off. Its last call must not be run.
LENGTH_REASONS = ("length", "context_window")

Piece: TypeAlias = AnswerText | AnswerReasoning | TextMoved | AnswerCall | AnswerArguments | AnswerEnd


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """The tokens of an answer. `input` includes `cached` and `cache_written`, `output` includes `reasoning`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0


class TextCitation(NamedTuple):
    """A citation in a text: the characters from `start` to `end`, and the source."""

    start: int
    end: int
    title: str
    url: str


class AnswerReader:
    """Reads the events of one turn, in order until `ended`, as pieces."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self.model = head.model
        self.usage = AnswerUsage()
        self.ended = False
        self._calls: dict[str, int] = {}  # characters of arguments so far, by the call's id
        self._sources: dict[int, CitedSource] = {}
        self._texts: dict[int, list[str]] = {}  # by part
        self._lengths = Counter[int]()  # by part: the number of characters that were read
        self.planned = 0  # prompt tokens by our own count

    @property
    def text(self) -> str:
        """Return the text of the answer so far."""
        return "".join(piece for part in self._texts.values() for piece in part)

    def feed(self, event: WireEvent) -> list[Piece]:
        """Return the pieces of an event. Raises `ProductError` if the turn ends without a whole answer."""
        match event["type"]:
            case "TEXT_MESSAGE_CONTENT":
                return [self._text(event["part"], event["delta"])]
            case "REASONING_CONTENT":
                return [self._reasoning(event["part"], event["delta"])]
            case "TEXT_BECAME_REASONING":
                return [self._text_moved(event["part"], event["text"])]
            case "TOOL_CALL_START" if event["name"] in self._head.external:
                return [self._call(event["call"], event["name"])]
            case "TOOL_CALL_ARGS" if event["call"] in self._calls:
                return [self._arguments(event["call"], event["delta"])]
            case "RUN_FINISHED":
                return [self._end(event["finish"], event["usage"])]
            case "RUN_STOPPED" | "RUN_ERROR":
                self._fail(event)
            case "SNAPSHOT":
                return self._catch_up(event)
        self._store_facts(event)
        return []

    def end(self, turn: Turn) -> list[Piece]:
        """Return the last pieces from the row of a turn whose last event has expired. Raises `ProductError`."""
        self.ended = True
        if turn.status == Turn.Status.STOPPED:
            raise stopped_elsewhere_error()
        if turn.status != Turn.Status.DONE:
            raise self._failure(
                {
                    "type": "RUN_ERROR",
                    "code": turn.answer.error_code,
                    "detail": turn.answer.error_detail.dump(),
                    "retryable": True,
                }
            )
        self.planned = sum(call["used"] for call in turn.report.get("calls", ()))
        return [self._end(turn.finish_reason or "stop", turn.usage)]

    def citations(self, text: str) -> list[TextCitation]:
        """Return the citations in a text of the answer."""
        return [
            TextCitation(
                match.start(),
                match.end(),
                self._sources[source]["title"],
                self._head.absolute(self._sources[source]["href"]),
            )
            for match in CITED.finditer(text)
            for source in map(int, re.findall(r"\d+", match[2]))
            if source in self._sources
        ]

    def _store_facts(self, event: WireEvent) -> None:
        """Store the values that the end needs."""
        match event["type"]:
            case "CITATION":
                source = event["number"]
                self._sources[source] = {"number": source, "title": event["title"], "href": event["href"]}
            case "MODEL_FALLBACK":
                self.model = event["model"]
            case "CONTEXT_REPORT":
                self.planned += event["used"]

    def _fail(self, event: WireEvent) -> NoReturn:
        self.ended = True
        raise stopped_elsewhere_error() if event["type"] == "RUN_STOPPED" else self._failure(event)

    def _failure(self, event: WireEvent) -> ProductError:
        return turn_error(event, prefilled=self._head.prefilled)

    def _catch_up(self, event: WireEvent) -> list[Piece]:
        """Return the pieces of a SNAPSHOT that were not read yet."""
        if event["fallback"]:
            self.model = event["model"]
        return [piece for position, part in enumerate(event["parts"]) for piece in self._unread_pieces(position, part)]

    def _unread_pieces(self, position: int, part: MessagePart) -> Iterator[Piece]:
        """Yield the pieces of a part that were not read yet."""
        if part["type"] == "reasoning" and position in self._texts:
            yield self._text_moved(position, part["text"])
        elif part["type"] in ("text", "reasoning"):
            self._sources |= {source["number"]: source for source in part.get("citations", ())}
            if rest := part["text"][self._lengths[position] :]:
                yield self._text(position, rest) if part["type"] == "text" else self._reasoning(position, rest)
        elif part["type"] == "tool_call" and part["name"] in self._head.external:
            if part["id"] not in self._calls:
                yield self._call(part["id"], part["name"])
            if rest := part["arguments"][self._calls[part["id"]] :]:
                yield self._arguments(part["id"], rest)

    def _text(self, part: int, delta: str) -> AnswerText:
        # The texts before and after a tool call are paragraphs of one answer.
        between = "\n\n" if part not in self._texts and any(self._texts.values()) else ""
        self._texts.setdefault(part, []).append(between + delta)
        self._lengths[part] += len(delta)
        return AnswerText(part, between + delta)

    def _text_moved(self, part: int, text: str) -> TextMoved:
        self._texts.pop(part, None)
        self._lengths[part] = len(text)
        return TextMoved(part, text)

    def _reasoning(self, part: int, delta: str) -> AnswerReasoning:
        self._lengths[part] += len(delta)
        return AnswerReasoning(delta)

    def _call(self, call: str, name: str) -> AnswerCall:
        self._calls[call] = 0
        return AnswerCall(call, name)

    def _arguments(self, call: str, delta: str) -> AnswerArguments:
        self._calls[call] += len(delta)
        return AnswerArguments(call, delta)

    def _end(self, finish: str, usage: Mapping[str, int]) -> AnswerEnd:
        """Note the usage as the provider counts it, or by our own count if it reports none."""
        self.ended = True
        self.usage = AnswerUsage(
            input=usage.get("input") or self.planned,
            output=usage.get("output") or tokens.count(self.text),
            cached=usage.get("cached_input", 0),
            cache_written=usage.get("cache_written", 0),
            reasoning=usage.get("reasoning", 0),
        )
        return AnswerEnd(finish)


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of a stream. `name` is empty in protocols that name no events."""

    data: Mapping[str, object]
    name: str = ""


class AnswerWriter(ABC):
    """Writes an answer in one protocol, from the events of its turn, which are fed in order until `ended`."""

    last_line = ""  # the line after the last event
    waiting = ": waiting\n\n"  # the line after some seconds of silence

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._reader = AnswerReader(head)

    @property
    def ended(self) -> bool:
        """Return whether the turn has ended, with success or not."""
        return self._reader.ended

    def feed(self, event: WireEvent) -> list[StreamEvent]:
        """Return the events of the protocol. Raises `ProductError` if the turn ends without a whole answer."""
        return self._write_all(self._reader.feed(event))

    def end(self, turn: Turn) -> list[StreamEvent]:
        """Return the last events from the row of a turn whose last event has expired. Raises `ProductError`."""
        return self._write_all(self._reader.end(turn))

    def _write_all(self, pieces: Sequence[Piece]) -> list[StreamEvent]:
        return [event for piece in pieces for event in self._write(piece)]

    def opening(self) -> list[StreamEvent]:
        """Return the events before the first piece of the answer."""
        return []

    @abstractmethod
    def failed(self, error: ProductError) -> list[StreamEvent]:
        """Return the last events of an answer that failed."""

    @abstractmethod
    def whole(self) -> Mapping[str, object]:
        """Return the whole answer, after it has `ended`."""

    @abstractmethod
    def _write(self, piece: Piece) -> list[StreamEvent]: ...


def stopped_elsewhere_error() -> ProductError:
    """Return the error for an answer that another client stopped."""
    sentence = "This answer was stopped by another client. The text so far is kept in its conversation."
    return ProductError("stopped", sentence, status=409, should_retry=False)


class Relay:
    """Relays one turn to one program. An async iterable of the lines of a stream.

    `close` stops the turn unless it has ended. Django calls it at the end of a streamed response, however that ends.
    """

    def __init__(self, turn: Turn, writer: AnswerWriter) -> None:
        self._turn = turn
        self._writer = writer
        self._events = self._follow()
        self._ready: list[StreamEvent] = []

    async def begin(self) -> None:
        """Wait for the first event or some seconds of silence. An error in this time gets its own HTTP status."""
        async for event in self._events:
            if event:
                self._ready.append(event)
            return

    async def whole(self, credential: Credential) -> Mapping[str, object]:
        """Wait for the whole answer. Raises the turn's error, and `bad_token` (401) when the credential expires."""
        async for _event in WhileSignedIn(credential, self._events):
            pass
        if not self._writer.ended:
            raise ProductError("bad_token", "This token has expired, so the answer was ended.", status=401)
        return self._writer.whole()

    async def __aiter__(self) -> AsyncIterator[str]:
        for first in (*self._writer.opening(), *self._ready):
            yield _stream_line(first)
        try:
            async for event in self._events:
                yield _stream_line(event) if event else self._writer.waiting
        except ProductError as error:
            for event in self._writer.failed(error):
                yield _stream_line(event)
        except Exception:
            logger.exception("the stream of turn %s failed", self._turn.pk)
            sentence = "An internal error occurred while answering. Try again."
            for event in self._writer.failed(ProductError("internal_error", sentence, status=500)):
                yield _stream_line(event)
        else:
            if self._writer.last_line:
                yield self._writer.last_line

    def close(self) -> None:
        """Stop the turn unless it has ended."""
        if self._writer.ended:
            return
        try:
            self._stop()
        except (OperationalError, InterfaceError):
            # The database has no free connection or is down. The client is gone, so the stop is retried here.
            logger.warning("turn %s is stopped when the database is available", self._turn.pk)
            run_in_background(with_retries(self._stop))

    def _stop(self) -> None:
        stop_turn(user=self._turn.conversation.owner, turn=self._turn)

    async def _follow(self) -> AsyncIterator[StreamEvent | None]:
        """Yield the turn's events until the last one, and None after each 2.5 s of silence. Raises the turn's error."""
        async for event in event_stream.wire_events(self._turn):
            if not event:
                yield None
                continue
            for written in self._writer.feed(event):
                yield written
            if event["type"] == EventType.SNAPSHOT and event["status"] not in Turn.LIVE:
                for written in self._writer.end(await event_stream.load_turn(self._turn.pk)):
                    yield written


def _stream_line(event: StreamEvent) -> str:
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {json.dumps(event.data, ensure_ascii=False, separators=(',', ':'))}\n\n"
